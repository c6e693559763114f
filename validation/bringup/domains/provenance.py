"""How a run ended, and whether the evidence is its own: unchanged since the run was closed, and no probe names another
run or time.

That finds accidents, and changes by who did not make the checksums again. It proves nothing against the folder's owner.
"""

import re
from datetime import datetime, timedelta, timezone
from pathlib import PurePosixPath

from bringup import registry
from bringup.kernel.errors import RecordError
from bringup.kernel.facts.names import first_few
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.facts.reading import read_text
from bringup.kernel.records import Closed, Continued, Run
from bringup.kernel.results import CLOSED, CONTINUED, JOB_AFTER, RUN, UNREADABLE
from bringup.kernel.run_folder import RunFolder, Seal

GATE = "run.evidence"
# between hosts. discovery.clock.offset judges small offsets; this gate finds evidence from another day
CLOCKS_DIFFER = timedelta(minutes=10)
SAID_AT_MOST = 3
_JOB_STATE = re.compile(r"\bJobState=(?P<state>[^\s=]+) Reason=(?P<reason>\S+)")


def of_folder(observed: Seen, folder: RunFolder) -> Parsed:
    """Derive run.closed, run.exit_code, run.evidence; note the attempts before and after this one."""
    derived, run = Parsed(), folder.run
    if folder.seal is not None:
        _closed(derived, observed, folder, folder.seal)
    elif JOB_AFTER in folder.raw.files:
        _ended_by_slurm(derived, folder)
    derived.saw("run.restarts", "job", run.slurm_restart_count, "count", f"{RUN}:slurm_restart_count")
    if run.continues is not None:
        derived.problems.append(f"{RUN}:continues: Slurm requeued the job; its previous attempt is {run.continues}")
    if folder.is_there(CONTINUED):
        try:
            later = folder.record(CONTINUED, Continued)
            derived.problems.append(f"{CONTINUED}: Slurm requeued the job; it went on in {later.run}")
        except RecordError as error:
            derived.problems.append(folder.within(error))
    return derived


def _closed(derived: Parsed, observed: Seen, folder: RunFolder, seal: Seal) -> None:
    closed = seal.closed
    if closed is None:
        derived.problems.append(str(seal.why))
        derived.saw("run.closed", "job", None, "flag", CLOSED, seal.why)
        return
    derived.saw("run.closed", "job", True, "flag", CLOSED)
    derived.saw("run.closed_at", "job", closed.closed_at, "text", f"{CLOSED}:closed_at")
    derived.saw("run.exit_code", "job", closed.exit_code, "count", f"{CLOSED}:exit_code")
    changes, unreadable = _compared(folder, closed)
    objections = [*changes, *_stamps(observed, folder.run, closed)]
    derived.problems += [*objections, *unreadable]
    # `none`, or the objections to the evidence; unknown if a file cannot be read
    objection = first_few(objections, SAID_AT_MOST) or (None if unreadable else "none")
    why = None if objection else first_few(unreadable, SAID_AT_MOST)
    derived.saw(GATE, "job", objection, "text", CLOSED, why)
    if closed.exit_code != 0:
        code, known = closed.exit_code, registry.called(registry.EXIT_CODES).get(closed.exit_code)
        code_in_words = f"{code} ({known})" if known is not None else code
        ended = f"a step of the phase script ended with exit code {code_in_words}"
        derived.problems.append(f"{CLOSED}: {ended}; see raw/*.err")


def _ended_by_slurm(derived: Parsed, folder: RunFolder) -> None:
    """Read what Slurm says about a job whose script did not finish, kept by `bringup run`."""
    if match := _JOB_STATE.search(read_text(derived, folder, JOB_AFTER) or ""):
        derived.saw("run.job_state", "job", match["state"], "text", JOB_AFTER)
        why = f"Slurm says that the job ended {match['state']}, reason {match['reason']}"
        derived.saw("run.closed", "job", None, "flag", JOB_AFTER, why)


def _compared(folder: RunFolder, closed: Closed) -> tuple[list[str], list[str]]:
    """Files that changed since the run was closed, and files that cannot be read."""
    changes, unreadable = list[str](), list[str]()
    present = folder.checksums()
    for name, then in closed.files.items():
        now = present.get(name)
        if now is None and (why := _hidden(folder, name)) is not None:
            unreadable.append(f"{name} {why}")
        elif now is None:
            changes.append(f"{name} is gone")
        elif now.startswith(UNREADABLE):
            unreadable.append(f"{name} {now}")
        elif then.startswith(UNREADABLE):
            unreadable.append(f"{name} could not be read when the run was closed")
        elif now != then:
            changes.append(f"{name} was changed after the run was closed")
    changes += [f"{name} came after the run was closed" for name in present if name not in closed.files]
    return changes, unreadable


def _hidden(folder: RunFolder, name: str) -> str | None:
    """Why a missing file may exist nevertheless (its folder cannot be read); None: it does not exist."""
    reasons = (folder.raw.others.get(above.as_posix(), "") for above in PurePosixPath(name).parents)
    return next((why for why in reasons if why.startswith(UNREADABLE)), None)


def _stamps(observed: Seen, run: Run, closed: Closed) -> list[str]:
    """Objections from the probes' closing lines, which hold the run's name and the time."""
    begun, ended = moment(run.opened_at), moment(closed.closed_at)
    messages = []
    if begun is not None and ended is not None and ended < begun - CLOCKS_DIFFER:
        messages.append(f"{CLOSED}: closed at {closed.closed_at}, before the run was opened at {run.opened_at}")
    for stamp in observed.of("probe.stamp"):
        of_run, utc = stamp.value if isinstance(stamp.value, list) else ("", "")
        if of_run and of_run != run.name:
            messages.append(f"{stamp.evidence}: {stamp.subject} wrote it for run {of_run}")
        at = moment(utc)
        if at is None or begun is None or ended is None or not begun - CLOCKS_DIFFER <= at <= ended + CLOCKS_DIFFER:
            lasted = f"the run lasted from {run.opened_at} to {closed.closed_at}"
            messages.append(f"{stamp.evidence}: {stamp.subject} wrote it at {utc}, and {lasted}")
    return messages


def moment(text: str) -> datetime | None:
    """Read `2026-01-31T12:00:00Z`; None if it is not a time."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
