"""`bringup run --resume`: what an earlier run finished is kept, also what it did not live to see finish."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from bringup import results as runs
from bringup.errors import RecordError, RunError
from bringup.judge import Judged, judge_folder
from bringup.plan.phases import PHASES, Phase
from bringup.plan.profile import Profile
from bringup.records import Outcome, Playbook, Step, read_record
from bringup.report.text import shown_path
from bringup.report.write import judge_and_save
from bringup.results import PLAYBOOK
from bringup.run.launch import Launch, newest_attempt, progress

GOOD = (Outcome.PASS, Outcome.WARN)  # a warning is not a reason to run a phase again: it would only be said again


def earlier(folder: Path) -> Playbook:
    """Read the earlier playbook. Raises RecordError if it cannot be read, RunError in a copy of the repository."""
    playbook = read_record(folder / PLAYBOOK, Playbook)
    tree = runs.tree_of(folder)
    if tree is None or tree.resolve() != runs.REPOSITORY.resolve():
        raise RunError(f"--resume {folder}: is a copy; name the playbook in {runs.REPOSITORY / runs.PLAYBOOKS}")
    return playbook


def kept(
    folder: Path, playbook: Playbook, planned: list[str], profile: Profile | None, console: Console
) -> dict[str, tuple[Step, Judged]]:
    """Return the phases of the earlier playbook in `folder` that need not run again, judged again.

    A phase without a step was under way when that run was killed: its job or script may have finished unseen. When it
    is still running, it is waited for.
    """
    recorded = {step.phase: step for step in playbook.steps}
    steps: dict[str, tuple[Step, Judged]] = {}
    for stem in planned:
        step = recorded.get(stem)
        if step is None:
            step = _unseen(PHASES[stem], folder, playbook.name, console)
        judged = None if step is None else _judged_now(folder, step, profile)
        if step is not None and judged is not None:
            steps[stem] = step.model_copy(update={"outcome": judged.verdicts.outcome}), judged
    return steps


def _unseen(phase: Phase, folder: Path, name: str, console: Console) -> Step | None:
    with progress(console, phase.title) as tell:
        Launch(phase, name, folder, tell).wait_for_earlier()
    run_folder = newest_attempt(phase, name)
    if run_folder is None or not runs.is_there(run_folder, runs.CLOSED):
        return None
    # judged by the caller
    return Step(phase=phase.stem, folder=shown_path(run_folder), outcome=Outcome.PASS, blocks=False, seconds=0)


def _judged_now(folder: Path, step: Step, profile: Profile | None) -> Judged | None:
    """Judge an earlier step again, from its evidence, with today's gates and this run's profile, or with its own. None:
    the phase runs again."""
    if step.outcome not in GOOD:
        return None
    try:
        run_folder = runs.step_folder(folder, step)
        # a run that ended after `bringup run` was killed has no verdicts yet
        judged = (judge_folder if (run_folder / runs.VERDICTS).exists() else judge_and_save)(run_folder, profile)
    except (RunError, RecordError):
        return None  # removed or damaged
    return judged if judged.verdicts.outcome in GOOD else None
