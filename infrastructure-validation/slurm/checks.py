"""Starts the checks, all at once, and ends those that take too long.

A check is an executable file checks.d/NN-name. In its first lines it says how long it may take:

    # budget: 2 s
    # action: configure       (of a site's own check; with watch its finding is said, and is no fault)

It writes facts (probes/facts.py), which are compared with the baseline. One that a site adds need not: what it finds is
a line `fault: WORDS`. Either ends with exit code 0. All else, and a check that is ended, is "could not tell": exit code
1 is also what a crash gives.
"""

import contextlib
import json
import os
import re
import selectors
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

from baseline import ACTIONS
from own_files import objection

ISOLATED = ("#!/usr/bin/env python3", "#!/usr/bin/python3")  # started as this program was: the same Python, and -I
WHOLE_S = 3.5  # of all checks together; the caller waits for it
MOST_BYTES = 2**18  # of one check's output
NAME = re.compile(r"\d\d-([a-z][a-z0-9-]*)")
HEADER = re.compile(r"#\s*(budget|action):\s*(.*)")
FAULT = "fault:"  # how a site's check begins the line that says what it found


class Check:
    def __init__(self, path):
        self.path, self.name = path, NAME.fullmatch(path.name).group(1)
        self.process, self.output, self.why = None, b"", None
        self.command, header = [str(path)], {}
        try:
            why = objection(path)  # as root it would run what somebody else wrote
            if why is not None:
                raise OSError(why)
            lines = _beginning(path).decode(errors="replace").splitlines()[:10]
        except OSError as error:
            self.why = f"{path.name} was not run: {error.strerror or error}"
            lines = []
        if lines[:1] and lines[0].strip() in ISOLATED:
            self.command = [sys.executable, "-I", "-B", str(path)]
        for line in lines:
            match = HEADER.match(line)
            if match:
                header[match.group(1)] = match.group(2).strip()
        number = re.match(r"\d+(\.\d+)?", header.get("budget", ""))
        self.budget_s = min(float(number.group()) if number else WHOLE_S, WHOLE_S)
        self.action = header.get("action", "configure")  # of a finding that the check itself makes
        if self.action not in ACTIONS:
            self.why = self.why or f"{path.name} was not run: its action is {self.action!r}"

    def start(self, environment):
        try:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            self.why = f"{self.path.name} could not be started: {error.strerror}"

    def read(self):
        """False at its end."""
        part = os.read(self.process.stdout.fileno(), 65536)
        self.output = (self.output + part)[-MOST_BYTES:]
        return bool(part)

    def end(self, why):
        """It gets SIGKILL and is not waited for: what hangs in the kernel ends when the kernel lets it."""
        self.why = why
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def facts(self):
        facts = []
        for line in self.output.decode(errors="replace").splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                fact = json.loads(line)
                if isinstance(fact, dict) and "probe" in fact:
                    facts.append(fact)
        return facts


def _beginning(path):
    """Raises OSError, also for what is no file: a folder, a FIFO that nobody writes to."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError("not a file")
    with path.open("rb") as stream:
        return stream.read(4096)


def of(folder, only):
    """In the order of their numbers. only: names; None: all. Raises ValueError."""
    paths = [path for path in sorted(Path(folder).iterdir()) if NAME.fullmatch(path.name)]
    names = [NAME.fullmatch(path.name).group(1) for path in paths]
    for name in only or ():
        if name not in names:
            raise ValueError("no check is called {!r}; there are {}".format(name, ", ".join(names)))
    return [Check(path) for path, name in zip(paths, names) if only is None or name in only]


def ask(checks, environment, hanging):
    """Runs them. hanging: {name: process} of an earlier call that did not end; such a check is not started again.
    Returns ({name: facts}, {name: why there is no whole answer}, [(check of a site, finding or None)],
    {name: process} that hang now)."""
    begun = time.monotonic()
    try:
        return _asked(checks, environment, hanging, begun)
    except BaseException:  # health-check is ended: its checks, too
        for check in checks:
            if check.process is not None and check.process.poll() is None:
                check.end("health-check was ended")
        raise


def _asked(checks, environment, hanging, begun):
    selector = selectors.DefaultSelector()
    for check in checks:
        if check.why is not None:
            continue
        if is_alive(hanging.get(check.name)):
            check.why = "its process {} of an earlier call still hangs".format(hanging[check.name]["pid"])
            continue
        check.start(environment)
        if check.process is not None:
            selector.register(check.process.stdout, selectors.EVENT_READ, check)
    while selector.get_map():
        now = time.monotonic() - begun
        for key in list(selector.get_map().values()):
            if now >= key.data.budget_s:
                key.data.end(f"no answer within {key.data.budget_s:g} s")
                selector.unregister(key.fileobj)
        for key, _ in selector.select(0.05):
            if not key.data.read():
                selector.unregister(key.fileobj)
    facts, unfinished, findings, alive = {}, {}, [], {}
    for check in checks:
        _conclude(check, begun, facts, unfinished, findings)
        if check.process is not None and check.process.poll() is None:
            alive[check.name] = identity(check.process.pid)
        elif is_alive(hanging.get(check.name)):
            alive[check.name] = hanging[check.name]
    return facts, unfinished, findings, alive


def _conclude(check, begun, facts, unfinished, findings):
    if check.why is None:
        left = max(0.05, check.budget_s - (time.monotonic() - begun))
        try:
            code = check.process.wait(left)
        except subprocess.TimeoutExpired:
            check.end(f"it closed its output and did not end within {check.budget_s:g} s")
    if check.why is not None:
        unfinished[check.name] = check.why
        return
    facts_of_check = check.facts()
    lines = check.output.decode(errors="replace").strip().splitlines()
    if code != 0 or (facts_of_check and not any("end" in fact for fact in facts_of_check)):
        unfinished[check.name] = "{} ended with {}: {}".format(check.path.name, code, (lines or [""])[-1][:300])
    elif facts_of_check:
        facts[check.name] = facts_of_check
    else:
        faults = [line[len(FAULT) :].strip() for line in lines if line.startswith(FAULT)]
        findings.append((check, "; ".join(faults)[:300] or "it found a fault and said no more" if faults else None))


def identity(pid):
    """A process by number and start time, so that a later one with the same number is not taken for it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return {"pid": pid, "started": ""}
    return {"pid": pid, "started": text.rpartition(")")[2].split()[19]}


def is_alive(process):
    if not process:
        return False
    try:
        fields = Path("/proc/{}/stat".format(process["pid"])).read_text().rpartition(")")[2].split()
    except (OSError, TypeError, KeyError, IndexError):  # or what another version wrote
        return False
    return fields[0] not in "ZX" and fields[19] == process.get("started")
