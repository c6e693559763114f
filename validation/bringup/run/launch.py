"""One phase through its own script: started, waited for, and judged. It says meanwhile what is going on."""

import fcntl
import itertools
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from bringup.kernel import results
from bringup.kernel.errors import SlurmError
from bringup.kernel.facts import hostlist
from bringup.kernel.judge import Judged
from bringup.kernel.plan.phases import Phase
from bringup.kernel.plan.profile import Profile, dump
from bringup.kernel.records import files, write_text
from bringup.kernel.results import REPOSITORY
from bringup.kernel.run_folder import RunFolder
from bringup.readers.known import pending
from bringup.report import text as report
from bringup.report import write
from bringup.run import open as opening
from bringup.run import programs, slurm, waiting
from bringup.run import site as at_site
from bringup.run.at_work import Expected, busy_with, span

SMOKE_LOCK = REPOSITORY / "validation/results/smoke.lock"
AGAIN_S = 300.0  # in a file, what goes on is a line again
LOOK_S = 3.0  # at what a script is busy with
FILE_LOOK_S = 0.5  # at the run's folder, between two looks at the queue
CLOCKS_S = 60  # that the clocks of a node and of this host may be apart
LEAVING_S = 30  # that Slurm may take to end a job whose script is done; then the wait ends
STUCK_S = 1800  # the same of a job whose script did not close its run: an epilog may take minutes, and so may a requeue
PATIENCE_S = 300  # with a script that is ended: it cancels what it submitted, and slurmctld may be away
MARK_WIDTH = 3  # of the sign that turns in front of the line, and a column that stays free
LOST_S = 15  # a node that comes back is not responding for some seconds: no reason to give a waiting job up
JUDGED_LATER = {"BRINGUP_JUDGE_LATER": "1"}  # not by the script: no node waits for that


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
    with tell.status or nullcontext():
        yield tell


@contextmanager
def stoppable(console: Console, again: str) -> Iterator[None]:
    """Say after Ctrl-C what was left, and with what it goes on. again: the command."""
    try:
        yield
    except KeyboardInterrupt as stop:
        for note in getattr(stop, "__notes__", ()):
            console.print(f"{'LEFT':<10} {report.plain(note)}")
        console.print(f"{'STOPPED':<10} interrupted; next: {again}")
        raise


@dataclass(frozen=True)
class Started:
    """What was started of a phase. name: of the run. folder: of a playbook, sweep or preflight, with notes of it."""

    phase: Phase
    name: str
    folder: Path
    tell: Callable[[str], None]

    def _tell_part(self, state: str) -> None:
        part = busy_with(self.phase, self.name)  # empty: not known
        self.tell(f"{state}: {part}" if part else state)

    def _noted(self, ending: str) -> Path:
        """Name a file of the playbook about this phase: log, lock, or job, with the numbers of its jobs."""
        return self.folder / f"{self.phase.stem}.{ending}"

    def job_ids(self) -> list[str]:
        """Return the jobs that this playbook submitted for the phase, in order."""
        note = self._noted("job")
        return [line for line in files.read_text(note).split() if line.isdecimal()] if files.is_file(note) else []

    def screen(self) -> Path | None:
        """Find what the script printed; None: it printed nothing that was kept.

        Of a batch job: the job that was submitted last, the newest of its attempts.
        """
        if (log := self._noted("log")).is_file():
            return log
        if not (submitted := self.job_ids()):
            return None
        stem, logs = f"{self.phase.stem}-{submitted[-1]}", REPOSITORY / "slurm-logs"
        moved = sorted(logs.glob(f"{stem}-r*.out"), key=lambda path: path.stat().st_mtime, reverse=True)
        # another cluster may have had a job of this number: its log is older than the note
        noted = self._noted("job").stat().st_mtime - CLOCKS_S
        known = [*moved, logs / f"{stem}.out", logs / f"{stem}.log"]  # the script moves it, once it has come so far
        return next((path for path in known if path.is_file() and path.stat().st_mtime >= noted), None)

    def last_words(self) -> str:
        """Return the last line that the script printed, and where it stands."""
        if (screen := self.screen()) is None:
            return "it left no log; slurmd.log of its first node may say why"
        lines = files.read(screen).text.split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
        return f"{last}; see {report.shown_path(screen)}"

    @contextmanager
    def _cancelled_when_interrupted(self, job_id: str) -> Iterator[None]:
        """Cancel the job on any exception, also on Ctrl-C, or name the job that could not be cancelled."""
        try:
            yield
        except BaseException as reason:
            try:
                slurm.patiently(partial(slurm.cancel, job_id), self.tell)
            except (SlurmError, KeyboardInterrupt) as error:
                why = str(error) or "interrupted again"  # the run ends by the interruption, not by scancel's failure
                note = f"job {job_id} was not cancelled ({why}); next: scancel {job_id}"
                vars(reason).setdefault("__notes__", []).append(note)  # BaseException.add_note of Python 3.11
            raise

    def wait_for_earlier(self) -> None:
        """Wait for the job or script that a killed `bringup run` left running in this phase."""
        submitted, lock = self.job_ids(), self._noted("lock")
        if submitted and slurm.is_own(submitted[-1], self.phase.stem):
            with self._cancelled_when_interrupted(submitted[-1]):
                self._wait(submitted[-1], [])
        if lock.is_file():
            with lock.open() as stream:
                while True:
                    try:
                        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        return
                    except BlockingIOError:
                        self.tell("an earlier start of it is still running")
                        time.sleep(FILE_LOOK_S)

    def closed(self) -> set[Path]:
        """Find the attempts that the script has closed. It looks at the filesystem, not at Slurm."""
        return {path for path in results.attempts(self.phase, self.name) if results.is_there(path, results.CLOSED)}

    def _wait(self, job_id: str, required: list[str]) -> bool:
        """Wait for a job. True: it ended, or its script is done and Slurm cannot end it. False: it could not start
        because one of its nodes became unusable; it is cancelled.

        A node that answers slurmctld but refuses its commands keeps a job completing for ever, for example with a
        different munge key in Slurm 26.05.
        """
        closed = self.closed()
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
                self.tell(f"job {job_id}: no answer ({error}); still waiting")
            else:
                if job is None or job.state in slurm.ENDED:
                    return True
                leaving_since = (leaving_since or time.monotonic()) if job.state == "COMPLETING" else None
                if leaving_since is not None and time.monotonic() - leaving_since > (LEAVING_S if is_done else STUCK_S):
                    work = "has done its work" if is_done else "did not close its run"
                    self.tell(f"job {job_id} {work} and stays completing; scontrol show job {job_id} names its nodes")
                    return True
                if is_pending:
                    is_done = False
                    lost = about_nodes and not all(name in nodes and nodes[name].is_usable for name in required)
                    lost_since = (lost_since or time.monotonic()) if lost else None
                    if lost_since is not None and time.monotonic() - lost_since > LOST_S:
                        slurm.cancel(job_id)
                        return False
                    why = pending.explain(job.reason, nodes)
                    self.tell(f"job {job_id} pending" + (f": {why}" if why else ""))
                else:
                    lost_since = None
                    self._tell_part(f"job {job_id} {job.state.lower()}")
            until = time.monotonic() + pace.seconds()
            while (left := until - time.monotonic()) > 0:
                time.sleep(min(left, FILE_LOOK_S))
                if new := self.closed() - closed:  # the job ends soon, so the intervals are short again
                    closed |= new
                    is_done = True
                    pace.again()
                    break


@dataclass(frozen=True)
class Launch(Started):
    """A phase on these nodes, by its own script: as a job, or here. gpus: of a node. environment: without the site."""

    nodes: list[str]
    gpus: int
    environment: Mapping[str, str]
    profile: Profile
    site: at_site.AtSite | None

    def run(self) -> Judged:
        """Run the phase; return its newest attempt, judged. Slurm's refusal is in the run's folder."""
        why_not = None
        given = {**self.environment, **self._seen_from_nodes()}
        environment = at_site.for_submission(self.site, self.phase.stem, given)
        try:
            if self.phase.whole_nodes:
                waiting.wait_for_smoke(self.tell)
            if self.phase.submit:
                self.submit(environment)
            else:
                with nullcontext() if self.phase.whole_nodes else waiting.only_one(SMOKE_LOCK, self.tell):
                    # its steps do not wait in the queue
                    waiting.wait_until_free(self.nodes, self.phase.whole_nodes, self.tell)
                    self.here(environment, "--nodelist", hostlist.shortened(self.nodes))
        except SlurmError as error:
            why_not = str(error)
        folder = self.opened("run", why_not)
        if not results.is_there(folder, results.CLOSED):
            _keep(folder, self.screen())
        return write.judge_and_save(folder)

    def opened(self, verb: str, why_not: str | None = None) -> Path:
        """Return the newest attempt. A script that never came to open its run: it is planned here, so that it is judged
        as incomplete. verb: of bringup, that started it. why_not: known already."""
        if (folder := newest_attempt(self.phase, self.name)) is None:
            folder = opening.open_run(
                self.phase,
                nodes=self.nodes,
                gpus_per_node=self.gpus,
                profile=self.profile,
                argv=["bringup", verb, self.phase.stem],
                name=self.name,
                site=self.site,
            )
            why_not = why_not or f"{self.phase.script} ended before it opened a run: {self.last_words()}"
        if why_not is not None and not results.is_there(folder, results.CLOSED):
            write_text(folder / results.NOT_OPENED, f"{why_not}\n")
        return folder

    def _seen_from_nodes(self) -> dict[str, str]:
        """Copy a profile and a site file that are given by path to the folder of the playbook: nodes may not see it."""
        copies: dict[str, str] = {}
        site = "" if self.site is None else files.read_text(self.site.file)
        for variable, text in (("BRINGUP_PROFILE", dump(self.profile)), ("BRINGUP_SITE", site)):
            given = Path(self.environment.get(variable, ""))
            if given.is_absolute() and not given.is_relative_to(REPOSITORY):
                copy = self.folder / f"{variable.lower()}.yaml"
                write_text(copy, text, replace=True)
                copies[variable] = str(copy)
        return copies

    def here(self, environment: Mapping[str, str], *options: str, limit_s: float = math.inf) -> bool:
        """Start the script on this host; what it prints goes to a log. False: it did not end in time, and was ended.

        It inherits a lock and holds it while it lives, so that a `--resume` knows whether it is still at work.
        """
        self.tell("running")
        deadline = time.monotonic() + limit_s
        with self._noted("log").open("wb") as stream, self._noted("lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            script = programs.start(
                ["bash", self.phase.script, *options],
                {**environment, **JUDGED_LATER, "BRINGUP_RUN_NAME": self.name},
                cwd=REPOSITORY,
                stdout=stream,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                pass_fds=(lock.fileno(),),
            )
            ended = False
            try:
                while not ended and (left_s := deadline - time.monotonic()) > 0:
                    with suppress(subprocess.TimeoutExpired):
                        script.child.wait(min(LOOK_S, left_s))
                        ended = True
                    self._tell_part("running")
            except BaseException:  # Ctrl-C: its own srun and salloc end with it, and their jobs with them
                programs.end(script, PATIENCE_S)
                raise
            programs.end(script)
            return ended

    def submit(self, environment: Mapping[str, str]) -> None:
        """Submit on the nodes that are usable now, and wait; the plan still holds all of them. Raises SlurmError when
        none is. The number of every job is noted."""
        phase, nodes, waiting_for = self.phase, self.nodes, list(self.nodes)
        options = () if self.site is None else self.site.site.sbatch
        for number in itertools.count(1):
            # a job that Slurm ended before it was done may have opened its run: the next one writes its own folder
            name = results.attempt_name(self.name, number)
            own = {"BRINGUP_RUN_NAME": name, "BRINGUP_NODES": hostlist.shortened(nodes)}
            variables = {**environment, **JUDGED_LATER, **own}
            known = slurm.patiently(partial(slurm.nodes, nodes), self.tell)
            usable = [node for node in waiting_for if node in known and known[node].is_usable]
            if len(usable) < len(nodes) and (phase.max_nodes is not None or phase.is_training or not usable):
                states = {node: known[node].state if node in known else "unknown" for node in nodes}
                broken = ", ".join(f"{node} {states[node]}" for node in nodes if node not in usable)
                raise SlurmError(f"not submitted: {broken}; scontrol show node {nodes[0]}")
            job_id = slurm.patiently(partial(slurm.submit, phase.script, usable, variables, options), self.tell)
            with self._cancelled_when_interrupted(job_id):
                write_text(self._noted("job"), "\n".join([*self.job_ids(), job_id]) + "\n", replace=True)
                if self._wait(job_id, usable):
                    return
            # a node was lost while the job was pending: the job was cancelled; submit again without the node
            waiting_for = usable


def newest_attempt(phase: Phase, name: str) -> Path | None:
    """Find the newest attempt. None when the run never came to open a folder."""
    return next(reversed(results.attempts(phase, name)), None)


def _keep(folder: Path, screen: Path | None) -> None:
    """Keep, as `run_end` does of a closed run, what it printed, and what Slurm says of its nodes and its job's end."""
    raw = folder / "raw"
    if screen is not None and not (folder / results.BATCH_LOG).exists():
        content = files.read(screen)
        rest = f"\n{content.left_out} more bytes were not kept\n" if content.left_out else ""
        files.write(folder / results.BATCH_LOG, content.data + rest.encode())
    if not (raw / "scontrol-node.txt").exists():
        try:
            write_text(raw / "scontrol-node.txt", slurm.show_nodes())
        except SlurmError as error:
            write_text(raw / "scontrol-node.unavailable.txt", f"{error}\n")
    job_id = RunFolder(folder).run.slurm_job_id
    if job_id is not None and not (folder / results.JOB_AFTER).exists():
        with suppress(SlurmError):  # forgotten by now: not known
            write_text(folder / results.JOB_AFTER, slurm.show_job(job_id, on_one_line=True))
