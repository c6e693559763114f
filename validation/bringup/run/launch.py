"""Start one phase and wait for its end, saying meanwhile what is going on."""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from bringup.errors import SlurmError
from bringup.evidence import hostlist
from bringup.known_faults import pending
from bringup.plan.phases import Phase
from bringup.records import files, write_text
from bringup.report import text as report
from bringup.results import CLOSED, REPOSITORY, attempt_name, attempts, is_there
from bringup.run import slurm
from bringup.run.at_work import Expected, busy_with, span

AGAIN_S = 300.0  # in a file, what goes on is a line again
LOOK_S = 3.0  # at what a script is busy with
FILE_LOOK_S = 0.5  # at the run's folder, between two looks at the queue
CLOCKS_S = 60  # that the clocks of a node and of this host may be apart
LEAVING_S = 30  # that Slurm may take to end a job whose script is done; then the wait ends
STUCK_S = 1800  # the same of a job whose script did not close its run: an epilog may take minutes, and so may a requeue
MARK_WIDTH = 3  # of the sign that turns in front of the line, and a column that stays free
LOST_S = 15  # a node that comes back is not responding for some seconds: no reason to give a waiting job up


class Tell:
    """What is going on now: a line that is rewritten on a terminal, a new line only when it changed elsewhere."""

    def __init__(self, console: Console, title: str, expected: Expected | None = None, rest_s: float = 0.0) -> None:
        self._title, self._text, self._last, self._begun = title, "", "", time.monotonic()
        self._console, self._expected, self._rest_s, self._printed = console, expected, rest_s, 0.0
        self.status = console.status(self) if console.is_terminal else None

    def __rich__(self) -> Text:
        """Drawn again at every refresh, so that the seconds run. Text: Slurm's words are not markup. A line that is
        wider than the terminal cannot be drawn again in its place, so what it says is cut."""
        seconds = f" ({self._how_far()})"
        state, _, part = self._text.partition(": ")
        now = f"{part}; {state}" if part and "running" in state else self._text  # what is cut is known already
        says = Text(f"{self._title}: {report.plain(now)}")
        says.truncate(max(1, self._console.width - MARK_WIDTH - len(seconds)), overflow="ellipsis")
        return says.append(seconds)

    def _how_far(self) -> str:
        elapsed = time.monotonic() - self._begun
        if self._expected is None:
            return f"{elapsed:.0f} s"
        job = re.search(r"job (\d+)", self._text)
        left = max(0.0, self._expected.most - elapsed) + self._rest_s
        whole = f"; about {span(left)} left" if self._rest_s else ""
        return self._expected.after(elapsed, job[1] if job else "") + whole

    def __call__(self, text: str) -> None:
        self._text = text
        if self.status is not None:
            return
        elapsed = time.monotonic() - self._begun
        if text.split(":")[0] != self._last or elapsed - self._printed > AGAIN_S:
            self._last, self._printed = text.split(":")[0], elapsed
            self._console.print(f"{'…':<10} {self._title}: {report.plain(text)} ({self._how_far()})")
        sys.stdout.flush()


@contextmanager
def progress(console: Console, title: str, expected: Expected | None = None, rest_s: float = 0.0) -> Iterator[Tell]:
    """Show progress. expected: of this step. rest_s: what is expected of all those after it, s."""
    tell = Tell(console, title, expected, rest_s)
    if tell.status is None:
        yield tell
    else:
        with tell.status:
            yield tell


def bash_and_wait(phase: Phase, nodes: list[str], environment: dict[str, str], folder: Path, tell: Tell) -> None:
    """Start a phase on the login host; what it prints goes to a log in `folder`, the playbook's.

    The script inherits a lock and holds it while it lives, so that a `--resume` knows whether it is still at work.
    """
    tell("running")
    command = ["bash", phase.script, "--nodelist", hostlist.shortened(nodes)]
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
            while True:
                with suppress(subprocess.TimeoutExpired):
                    script.wait(LOOK_S)
                    break
                tell(_running("running", busy_with(phase, environment["BRINGUP_RUN_NAME"])))
        except BaseException:  # Ctrl-C: the script's own srun and salloc end with it, and their jobs with them
            os.killpg(script.pid, signal.SIGTERM)
            script.wait()
            raise


def _running(state: str, part: str) -> str:
    """part: what it is busy with; empty: not known."""
    return f"{state}: {part}" if part else state


def log_of(phase: Phase, folder: Path) -> Path:
    return folder / f"{phase.stem}.log"


def screen_of(phase: Phase, folder: Path) -> Path | None:
    """Find what the phase's script printed; None: it printed nothing that was kept. `folder`: the playbook's.

    Of a batch job: the job that was submitted last, the newest of its attempts.
    """
    logs = [log_of(phase, folder)]
    if phase.submit:
        submitted = job_ids(phase, folder)
        stem = f"{phase.stem}-{submitted[-1]}" if submitted else ""
        moved = sorted((REPOSITORY / "slurm-logs").glob(f"{stem}-r*.out"), key=lambda path: path.stat().st_mtime)
        # the script moves it, once it has come so far
        logs = [*reversed(moved), *(REPOSITORY / f"slurm-logs/{stem}.{end}" for end in ("out", "log"))] if stem else []
        noted = note_of(phase, folder).stat().st_mtime if stem else 0
        # another cluster may have had a job of this number: its log is older than the note
        logs = [path for path in logs if path.is_file() and path.stat().st_mtime >= noted - CLOCKS_S]
    return next(filter(Path.is_file, logs), None)


def last_words(phase: Phase, folder: Path) -> str:
    """Return the last line that a phase's script printed, and where it stands. `folder`: the playbook's."""
    screen = screen_of(phase, folder)
    if screen is None:
        return "it left no log; slurmd.log of its first node may say why"
    lines = files.read(screen).text.split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
    return f"{last}; see {report.shown_path(screen)}"


def note_of(phase: Phase, folder: Path) -> Path:
    return folder / f"{phase.stem}.job"


def job_ids(phase: Phase, folder: Path) -> list[str]:
    """Return the jobs that this playbook submitted for the phase, in order."""
    note = note_of(phase, folder)
    return [line for line in files.read_text(note).split() if line.isdecimal()] if files.is_file(note) else []


def submit_and_wait(
    phase: Phase, nodes: list[str], environment: dict[str, str], folder: Path, tell: Tell, options: Sequence[str] = ()
) -> None:
    """Submit on the nodes that are usable now; the plan still holds all of them. Raises SlurmError when none is.

    options: of the site, for sbatch. The number of every job is noted in `folder`, the playbook's, for a `--resume`.
    """
    waiting, name = list(nodes), environment["BRINGUP_RUN_NAME"]
    for number in itertools.count(1):
        # a job that Slurm ended before it was done may have opened its run: the next one writes a folder of its own
        variables = environment | {
            "BRINGUP_NODES": hostlist.shortened(nodes),
            "BRINGUP_RUN_NAME": attempt_name(name, number),
        }
        known = slurm.patiently(partial(slurm.nodes, nodes), tell)
        usable = [node for node in waiting if node in known and known[node].is_usable]
        if len(usable) < len(nodes) and (phase.max_nodes is not None or phase.is_training or not usable):
            broken = ", ".join(
                f"{node} {known[node].state if node in known else 'unknown'}" for node in nodes if node not in usable
            )
            raise SlurmError(f"not submitted: {broken}; scontrol show node {nodes[0]}")
        job_id = slurm.patiently(partial(slurm.submit, phase.script, usable, variables, options), tell)
        with _cancelled_when_interrupted(job_id, tell):
            submitted = [*job_ids(phase, folder), job_id]
            write_text(note_of(phase, folder), "\n".join(submitted) + "\n", replace=True)
            if _wait(job_id, usable, tell, Closed(phase, name), partial(busy_with, phase, name)):
                return
        # a node was lost while the job was pending: the job was cancelled; submit again without the node
        waiting = usable


@contextmanager
def _cancelled_when_interrupted(job_id: str, tell: Tell | Callable[[str], None]) -> Iterator[None]:
    """Cancel the job on any exception, also on Ctrl-C, or name the job that could not be cancelled."""
    try:
        yield
    except BaseException as reason:
        try:
            slurm.patiently(partial(slurm.cancel, job_id), tell)
        except (SlurmError, KeyboardInterrupt) as error:  # what ends the run is the interruption, not scancel's failure
            why = str(error) or "interrupted again"
            note = f"job {job_id} was not cancelled ({why}); next: scancel {job_id}"
            vars(reason).setdefault("__notes__", []).append(note)  # BaseException.add_note of Python 3.11
        raise


class Closed:
    """True once for every attempt of a run that its script has closed. It looks at the filesystem, not at Slurm."""

    def __init__(self, phase: Phase, name: str) -> None:
        self._phase, self._name = phase, name
        self._known = self._now()

    def _now(self) -> set[Path]:
        return {path for path in attempts(self._phase, self._name) if is_there(path, CLOSED)}

    def __call__(self) -> bool:
        new = self._now() - self._known
        self._known |= new
        return bool(new)


def _pause(pace: slurm.Pace, closed: Callable[[], bool]) -> bool:
    """Wait until the next look. True: the script has closed its run; the job ends soon, so the intervals are short
    again."""
    until = time.monotonic() + pace.seconds()
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, FILE_LOOK_S))
        if closed():
            pace.again()
            return True
    return False


def wait_for_earlier(phase: Phase, name: str, folder: Path, tell: Tell) -> None:
    """Wait for the job or script that a killed `bringup run` left running in this phase. folder: of that playbook."""
    submitted, lock = job_ids(phase, folder), folder / f"{phase.stem}.lock"
    if submitted and slurm.is_own(submitted[-1], phase.stem):
        with _cancelled_when_interrupted(submitted[-1], tell):
            _wait(submitted[-1], [], tell, Closed(phase, name), partial(busy_with, phase, name))
    if lock.is_file():
        with lock.open() as stream:
            while True:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    tell("an earlier start of it is still running")
                    time.sleep(FILE_LOOK_S)


def _wait(
    job_id: str, required: list[str], tell: Tell, closed: Callable[[], bool], part: Callable[[], str] = str
) -> bool:
    """Wait for a job. True: it ended, or its script is done and Slurm cannot end it. False: it could not start because
    one of its nodes became unusable; it is cancelled.

    A node that answers slurmctld but refuses its commands keeps a job completing for ever, for example with a different
    munge key in Slurm 26.05.
    """
    lost_since: float | None = None  # since when one of its nodes was seen unusable at every look
    is_done = False  # its script has closed the run
    leaving_since: float | None = None  # since when it was seen completing
    pace = slurm.Pace()
    while True:
        try:
            job = slurm.job(job_id)
            is_pending = job is not None and job.state == "PENDING"
            about_nodes = job is not None and is_pending and bool(required) and pending.is_about_nodes(job.reason)
            nodes = slurm.nodes(required) if about_nodes else {}
        except SlurmError as error:
            lost_since = None  # after an outage, nodes need a moment to answer
            tell(f"job {job_id}: no answer ({error}); still waiting")
            is_done = _pause(pace, closed) or is_done
            continue
        if job is None or job.state in slurm.ENDED:
            return True
        leaving_since = (leaving_since or time.monotonic()) if job.state == "COMPLETING" else None
        if leaving_since is not None and time.monotonic() - leaving_since > (LEAVING_S if is_done else STUCK_S):
            work = "has done its work" if is_done else "did not close its run"
            tell(f"job {job_id} {work} and stays completing; scontrol show job {job_id} names its nodes")
            return True
        if is_pending:
            is_done = False
            lost = about_nodes and not all(name in nodes and nodes[name].is_usable for name in required)
            lost_since = (lost_since or time.monotonic()) if lost else None
            if lost_since is not None and time.monotonic() - lost_since > LOST_S:
                slurm.cancel(job_id)
                return False
            why = pending.explain(job.reason, nodes)
            tell(f"job {job_id} pending" + (f": {why}" if why else ""))
        else:
            lost_since = None
            tell(_running(f"job {job_id} {job.state.lower()}", part()))
        is_done = _pause(pace, closed) or is_done
