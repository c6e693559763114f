"""Start one phase and wait for its end, saying meanwhile what is going on."""

from __future__ import annotations

import fcntl
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from bringup.errors import SlurmError
from bringup.evidence.slurm import USABLE_STATES
from bringup.plan.phases import Phase
from bringup.records import write_text
from bringup.report import text as report
from bringup.results import REPOSITORY
from bringup.run import slurm

POLL_S = 0.5
LOST_S = 15  # a node that comes back is not responding for some seconds: no reason to give a waiting job up


class Tell:
    """What is going on now: a line that is rewritten on a terminal, a new line only when it changed elsewhere."""

    def __init__(self, console: Console, title: str) -> None:
        self._title, self._text, self._last, self._begun = title, "", "", time.monotonic()
        self._console = console
        self.status = console.status(self) if console.is_terminal else None

    def __rich__(self) -> Text:
        """Drawn again at every refresh, so that the seconds run. Text: a pending reason is Slurm's free text, no markup."""
        return Text(f"{self._title}: {report.plain(self._text)} ({time.monotonic() - self._begun:.0f} s)")

    def __call__(self, text: str) -> None:
        self._text = text
        if self.status is not None:
            return
        if text.split(":")[0] != self._last:
            self._last = text.split(":")[0]
            self._console.print(f"{'…':<10} {self._title}: {report.plain(text)}")
        sys.stdout.flush()


@contextmanager
def progress(console: Console, title: str) -> Iterator[Tell]:
    tell = Tell(console, title)
    if tell.status is None:
        yield tell
    else:
        with tell.status:
            yield tell


def bash_and_wait(phase: Phase, nodes: list[str], environment: dict[str, str], folder: Path, tell: Tell) -> None:
    """A phase that is started on the login host; what it prints goes to a log in `folder`, the playbook's.

    The script inherits a lock and holds it while it lives, so that a `--resume` knows whether it is still at work.
    """
    tell("running")
    command = ["bash", phase.script, "--nodelist", ",".join(nodes)]
    with log_of(phase, folder).open("wb") as stream, (folder / f"{phase.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        script = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=environment,
            stdout=stream,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(lock.fileno(),),
        )
        try:
            script.wait()
        except BaseException:  # Ctrl-C: the script's own srun and salloc end with it, and their jobs with them
            os.killpg(script.pid, signal.SIGTERM)
            script.wait()
            raise


def log_of(phase: Phase, folder: Path) -> Path:
    return folder / f"{phase.stem}.log"


def last_words(phase: Phase, folder: Path) -> str:
    """The last line that a phase's script printed, and where it stands. `folder`: the playbook's."""
    logs = [log_of(phase, folder)]
    if phase.submit:
        noted = folder / f"{phase.stem}.job"
        log = f"{phase.stem}-{noted.read_text().strip()}.out" if noted.is_file() else ""
        logs = [REPOSITORY / "slurm-logs" / log, REPOSITORY / log]  # the script moves it, once it has come so far
    for path in filter(Path.is_file, logs):
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
        return f"{said}; see {report.shown_path(path)}"
    return "it left no log; slurmd.log of its first node may say why"


def submit_and_wait(phase: Phase, nodes: list[str], environment: dict[str, str], folder: Path, tell: Tell) -> None:
    """Submit on the nodes that are usable now; the plan still holds all of them. Raises SlurmError when none is.

    The job's number is noted in `folder`, the playbook's, for a `--resume`.
    """
    waiting, name = list(nodes), environment["BRINGUP_RUN_NAME"]
    for attempt in itertools.count():
        # an attempt that Slurm ended before it was done may have opened its run: the next one writes a folder of its own
        own = environment | {
            "BRINGUP_NODES": ",".join(nodes),
            "BRINGUP_RUN_NAME": f"{name}-r{attempt}" if attempt else name,
        }
        states, _ = slurm.patiently(slurm.node_facts, tell)
        usable = [name for name in waiting if states.get(name) in USABLE_STATES]
        if len(usable) < len(nodes) and (phase.max_nodes is not None or phase.is_training or not usable):
            broken = ", ".join(f"{name} {states.get(name, 'unknown')}" for name in nodes if name not in usable)
            raise SlurmError(f"not submitted: {broken}; scontrol show node {nodes[0]}")
        job_id = slurm.patiently(partial(slurm.submit, phase.script, usable, own), tell)
        write_text(folder / f"{phase.stem}.job", f"{job_id}\n", replace=True)
        if _wait(job_id, usable, tell):
            return
        waiting = usable  # a node was lost while the job was pending: cancelled there, once more without it


def wait_for_earlier(phase: Phase, folder: Path, tell: Tell) -> None:
    """Until what a killed `bringup run` has left at work in this phase has ended. `folder`: that playbook's."""
    noted, lock = folder / f"{phase.stem}.job", folder / f"{phase.stem}.lock"
    if noted.is_file() and (job_id := noted.read_text().strip()).isdecimal() and slurm.is_own(job_id, phase.stem):
        _wait(job_id, [], tell)
    if lock.is_file():
        with lock.open() as stream:
            while True:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    tell("an earlier start of it is still running")
                    time.sleep(POLL_S)


def _wait(job_id: str, nodes: list[str], tell: Tell) -> bool:
    """True when the job has ended. False when it cannot start because one of its nodes became unusable; then it is cancelled."""
    lost_since: float | None = None  # since when one of its nodes was seen unusable at every look
    try:
        while True:
            try:
                state = slurm.job(job_id)
                pending = state is not None and state.state == "PENDING"
                states = slurm.node_facts()[0] if pending else {}
            except SlurmError as error:
                lost_since = None  # after an outage nodes need a moment, too
                tell(f"job {job_id}: no answer ({error}); still waiting")
                time.sleep(POLL_S)
                continue
            if state is None or state.state in slurm.ENDED:
                return True
            if pending:
                lost = [name for name in nodes if states.get(name) not in USABLE_STATES]
                lost_since = (lost_since or time.monotonic()) if lost else None
                if lost_since is not None and time.monotonic() - lost_since > LOST_S:
                    slurm.cancel(job_id)
                    return False
                why = slurm.in_words(state)
                tell(f"job {job_id} pending" + (f": {why}" if why else ""))
            else:
                lost_since = None
                tell(f"job {job_id} {state.state.lower()}")
            time.sleep(POLL_S)
    except BaseException:  # Ctrl-C too: no job of ours is left behind
        slurm.cancel(job_id)
        raise
