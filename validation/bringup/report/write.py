"""Judge a run, show it, and write what is derived beside its evidence. One place for the phase scripts and for
`bringup run`."""

import errno
import sys
from pathlib import Path

from bringup.kernel import judge, results
from bringup.kernel.plan.profile import Profile
from bringup.kernel.records import Observations, Outcome, write_record, write_text
from bringup.report import document, figures, terminal, view

READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


@judge.no_garbage_collection()
def judge_and_save(folder: Path, profile: Profile | None = None) -> judge.Judged:
    """Judge a run; write observations.json, verdicts.json, report.md and its figures.

    A read-only copy is judged too, and a line says so. Any other failure to write, such as a full disk, is raised as
    OSError.
    """
    judged = judge.judge_folder(folder, profile)
    try:
        written = document.run(judged, figures.draw(judged))
        seen = Observations(observations=judged.observations, problems=judged.problems)
        write_record(folder / results.OBSERVATIONS, seen, replace=True)
        write_record(folder / results.VERDICTS, judged.verdicts, replace=True)
        write_text(folder / results.REPORT, written, replace=True)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
        print(f"bringup: {folder}: no report was written: {error.strerror}", file=sys.stderr)
    return judged


def judge_and_show(folder: Path, profile: Profile | None) -> Outcome:
    """Judge a run, save the result, and show one screen of it."""
    judged = judge_and_save(folder, profile)
    show(judged)
    return judged.verdicts.outcome


def show(judged: judge.Judged) -> None:
    terminal.show(view.screen(judged))
