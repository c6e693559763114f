"""How a run ended, and whether the evidence is its own: unchanged since the run was closed, and no probe names another
run or time.

That finds accidents, and changes by who did not make the checksums again. It proves nothing against the folder's owner.
"""

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

from bringup.kernel.errors import RecordError
from bringup.kernel.facts.names import first_few
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.facts.reading import RAW, read_text
from bringup.kernel.records import Closed, Continued, Run, files, read_record
from bringup.kernel.results import CLOSED, CONTINUED, JOB_AFTER, RUN, UNREADABLE, Seal, checksums
from bringup.readers.known.exit_codes import EXIT_CODES

CLOSED_AT, CLOSED_AT_IN = "run.closed_at", f"{CLOSED}:closed_at"
GATE = "run.evidence"
# between hosts. discovery.clock.offset judges small offsets; this gate finds evidence from another day
CLOCKS_DIFFER = timedelta(minutes=10)
SAID_AT_MOST = 3
_JOB_STATE = re.compile(r"\bJobState=(?P<state>[^\s=]+) Reason=(?P<reason>\S+)")


def of_folder(observed: Seen, folder: Path, run: Run, seal: Seal | None) -> Parsed:
    """Derive run.closed, run.exit_code, run.evidence; note the attempts before and after this one."""
    derived = Parsed()
    if seal is not None:
        _closed(derived, observed, folder, run, seal)
    elif files.is_file(folder / JOB_AFTER):
        _ended_by_slurm(derived, folder / JOB_AFTER)
    derived.saw("run.restarts", "job", run.slurm_restart_count, "count", f"{RUN}:slurm_restart_count")
    if run.continues is not None:
        derived.problems.append(f"{RUN}:continues: Slurm requeued the job; its previous attempt is {run.continues}")
    if (folder / CONTINUED).is_file():
        try:
            later = read_record(folder / CONTINUED, Continued)
            derived.problems.append(f"{CONTINUED}: Slurm requeued the job; it went on in {later.run}")
        except RecordError as error:
            derived.problems.append(str(error).replace(f"{folder}/", ""))
    return derived


def _closed(derived: Parsed, observed: Seen, folder: Path, run: Run, seal: Seal) -> None:
    closed = seal.closed
    if closed is None:
        derived.problems.append(str(seal.why))
        derived.saw("run.closed", "job", None, "flag", CLOSED, seal.why)
        return
    derived.saw("run.closed", "job", True, "flag", CLOSED)
    derived.saw(CLOSED_AT, "job", closed.closed_at, "text", CLOSED_AT_IN)
    derived.saw("run.exit_code", "job", closed.exit_code, "count", f"{CLOSED}:exit_code")
    changes, unreadable = _compared(folder, closed)
    objections = [*changes, *_stamps(observed, run, closed)]
    derived.problems += [*objections, *unreadable]
    # `none`, or the objections to the evidence; unknown if a file cannot be read
    objection = first_few(objections, SAID_AT_MOST) or (None if unreadable else "none")
    why = None if objection else first_few(unreadable, SAID_AT_MOST)
    derived.saw(GATE, "job", objection, "text", CLOSED, why)
    if closed.exit_code != 0:
        code, known = closed.exit_code, EXIT_CODES.get(closed.exit_code)
        code_in_words = f"{code} ({known})" if known is not None else code
        ended = f"a step of the phase script ended with exit code {code_in_words}"
        derived.problems.append(f"{CLOSED}: {ended}; see raw/*.err")


def _ended_by_slurm(derived: Parsed, path: Path) -> None:
    """Read what Slurm says about a job whose script did not finish, kept by `bringup run`."""
    where = f"{RAW}/{path.name}"
    if match := _JOB_STATE.search(read_text(derived, path, where) or ""):
        derived.saw("run.job_state", "job", match["state"], "text", where)
        why = f"Slurm says that the job ended {match['state']}, reason {match['reason']}"
        derived.saw("run.closed", "job", None, "flag", where, why)


def _compared(folder: Path, closed: Closed) -> tuple[list[str], list[str]]:
    """Files that changed since the run was closed, and files that cannot be read."""
    changes, unreadable = list[str](), list[str]()
    present = checksums(folder)
    for name, then in closed.files.items():
        now = present.get(name)
        if now is None and (why := _hidden(folder / name)) is not None:
            unreadable.append(f"{name} {UNREADABLE}{why}")
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


def _hidden(path: Path) -> str | None:
    """Why a missing file may exist nevertheless (its folder cannot be read); None: it does not exist."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return str(error.strerror)
    return None


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
