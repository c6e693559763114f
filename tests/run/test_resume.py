"""What `bringup run --resume` keeps, what a run keeps of its job, and which of its attempts is the newest."""

from pathlib import Path

import pytest
from bringup.kernel import judge, results
from bringup.kernel.errors import RunError
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Outcome, write_record
from bringup.kernel.results import BATCH_LOG, PLAYBOOK, PLAYBOOKS, REPOSITORY
from bringup.kernel.run_folder import RunFolder
from bringup.readers.known import signs
from bringup.report import explain
from bringup.report.campaigns import Playbook, Step
from bringup.run import open as opening
from bringup.run import playbook as playbooks
from bringup.run.launch import newest_attempt
from factory import a_verdict, judged_of
from loops import case_for_each
from rich.console import Console
from runs_for_tests import discovery


def played(place: Path, outcome: Outcome) -> tuple[Path, Playbook]:
    """A playbook with one step, and the folder of that step's run beside it."""
    (place / "validation/results/x").mkdir(parents=True)
    step = Step(phase="discovery", folder="validation/results/x", outcome=outcome, blocks=False, seconds=1)
    playbook = Playbook(name="x", nodes=["n0"], profile="p", planned=["discovery"], left_out=[], steps=[step])
    return place / PLAYBOOKS / "x", playbook


def kept(folder: Path, playbook: Playbook) -> list[Outcome]:
    steps = playbooks.passed_before(folder, playbook, ["discovery"], profiles.load("local-cpu"), Console())
    return [step.outcome for step, _ in steps.values()]


@case_for_each(
    (Outcome.PASS, Outcome.PASS, True),
    (Outcome.WARN, Outcome.WARN, True),  # it ran again with every --resume, and warned again
    (Outcome.PASS, Outcome.WARN, True),
    (Outcome.PASS, Outcome.FAIL, False),
    (Outcome.INCOMPLETE, Outcome.PASS, False),
    (Outcome.FAIL, Outcome.FAIL, False),
)
def test_what_passed_or_only_warned_is_kept_as_it_is_judged_now(tmp_path, monkeypatch, then, now, is_kept):
    monkeypatch.setattr(playbooks.judge, "judge_folder", lambda folder, profile: judged_of(a_verdict(outcome=now)))
    folder, playbook = played(tmp_path, then)
    (tmp_path / "validation/results/x/verdicts.json").write_text("{}")
    assert kept(folder, playbook) == ([now] if is_kept else [])


def test_a_phase_that_ended_after_bringup_run_was_killed_is_judged_and_saved(tmp_path, monkeypatch):
    saved = []

    def judge_and_save(folder, profile):
        saved.append(folder)
        return judged_of(a_verdict(outcome=Outcome.PASS))

    monkeypatch.setattr(playbooks.write, "judge_and_save", judge_and_save)
    assert kept(*played(tmp_path, Outcome.PASS)) == [Outcome.PASS]
    assert saved == [tmp_path / "validation/results/x"]


@pytest.mark.parametrize("where", [PLAYBOOKS, "sent"])
def test_a_playbook_in_a_copy_is_not_continued(tmp_path, where):
    """What runs now would lie in the repository, and what was kept in the copy."""
    folder = tmp_path / where / "x"
    folder.mkdir(parents=True)
    write_record(folder / PLAYBOOK, played(tmp_path, Outcome.PASS)[1])
    with pytest.raises(RunError, match="is a copy"):
        playbooks.earlier_run(folder)


def test_explain_reads_the_screen_in_the_runs_own_folder_and_no_log_by_a_jobs_number(tmp_path, monkeypatch):
    """A requeued run was explained by the log of the attempt before it: a node failure of that one."""
    monkeypatch.setenv("SLURM_JOB_ID", "987654")
    folder = discovery(tmp_path, monkeypatch, close=False)
    other = REPOSITORY / "slurm-logs/discovery-987654.out"
    other.parent.mkdir(exist_ok=True)
    says = "slurmstepd: error: *** JOB 987654 ON n1 CANCELLED AT 2026-11-20T10:00:00 DUE TO {} ***\n"
    try:
        other.write_text(says.format("NODE FAILURE, SEE SLURMCTLD LOG"))
        assert "slurm.node-failure" not in explain.screen(judge.judge_folder(folder))
    finally:
        other.unlink()
    (folder / BATCH_LOG).write_text(says.format("TIME LIMIT"))
    assert f"{BATCH_LOG}:1" in explain.screen(judge.judge_folder(folder))


def test_what_a_screen_repeats_of_a_steps_log_is_counted_once_and_shown_there(tmp_path: Path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch, close=False)
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    for name in ("raw/launch.log", BATCH_LOG):
        (folder / name).write_text(line)
    [seen] = [sign for sign in signs.in_run(RunFolder(folder)) if "memory" in sign.signature]
    assert (seen.evidence, seen.count) == ("raw/launch.log:1", 1)


# --- a phase that is submitted again and a job that is requeued leave a folder each


@pytest.fixture
def phase(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "REPOSITORY", tmp_path)
    return PHASES["discovery"]


def test_the_tenth_attempt_is_newer_than_the_ninth_and_a_name_is_no_pattern(phase, tmp_path):
    for name in ("x", "x-r2", "x-r9", "x-r10", "x-r2-other", "[x]", "[x]-r1"):
        (tmp_path / phase.results / name).mkdir(parents=True)
    newest = [newest_attempt(phase, name) for name in ("x", "[x]", "none")]
    assert [path.name if path else None for path in newest] == ["x-r10", "[x]-r1", None]


def test_a_second_submission_that_is_requeued_has_a_name_of_its_own_and_is_found(phase, tmp_path, monkeypatch):
    """It was called x-r1-r1 and not found: the unclosed x-r1 was judged. A third submission met a requeue's folder."""
    made = []
    for submission, restarts in ((1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 0)):
        monkeypatch.setenv("BRINGUP_RUN_NAME", results.attempt_name("x", submission))
        monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))
        made.append(opening.default_name())
        (tmp_path / phase.results / made[-1]).mkdir(parents=True)
    assert made == ["x", "x-r1", "x-r2", "x-s2", "x-s2-r1", "x-s3"]
    assert [path.name for path in results.attempts(phase, "x")] == made
    assert results.attempts(phase, "x-s") == []
