"""What `bringup run --resume` keeps, and what a run keeps of the job that wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest
from bringup import judge
from bringup.errors import RunError
from bringup.known_faults import signs
from bringup.plan import profile as profiles
from bringup.records import Outcome, Playbook, Step, write_record
from bringup.report import explain
from bringup.results import BATCH_LOG, PLAYBOOK, PLAYBOOKS, REPOSITORY, load
from bringup.run import resume
from factory import a_verdict, judged_of
from rich.console import Console
from runs_for_tests import discovery


@pytest.mark.parametrize(
    ("then", "now", "is_kept"),
    [
        (Outcome.PASS, Outcome.PASS, True),
        (Outcome.WARN, Outcome.WARN, True),  # it ran again with every --resume, and warned again
        (Outcome.PASS, Outcome.WARN, True),
        (Outcome.PASS, Outcome.FAIL, False),
        (Outcome.INCOMPLETE, Outcome.PASS, False),
        (Outcome.FAIL, Outcome.FAIL, False),
    ],
)
def test_what_passed_or_only_warned_is_kept_as_it_is_judged_now(tmp_path, monkeypatch, then, now, is_kept):
    monkeypatch.setattr(resume, "judge_folder", lambda folder, profile: judged_of(a_verdict(outcome=now)))
    folder = tmp_path / PLAYBOOKS / "x"
    (tmp_path / "validation/results/x").mkdir(parents=True)
    (tmp_path / "validation/results/x/verdicts.json").write_text("{}")
    step = Step(phase="discovery", folder="validation/results/x", outcome=then, blocks=False, seconds=1)
    playbook = Playbook(name="x", nodes=["n0"], profile="p", planned=["discovery"], left_out=[], steps=[step])
    kept = resume.kept(folder, playbook, ["discovery"], profiles.load("local-cpu"), Console())
    assert [step.outcome for step, _ in kept.values()] == ([now] if is_kept else [])


def test_a_phase_that_ended_after_bringup_run_was_killed_is_judged_and_saved(tmp_path, monkeypatch):
    saved = []

    def judge_and_save(folder, profile):
        saved.append(folder)
        return judged_of(a_verdict(outcome=Outcome.PASS))

    monkeypatch.setattr(resume, "judge_and_save", judge_and_save)
    run = tmp_path / "validation/results/x"
    run.mkdir(parents=True)
    step = Step(phase="discovery", folder="validation/results/x", outcome=Outcome.PASS, blocks=False, seconds=1)
    playbook = Playbook(name="x", nodes=["n0"], profile="p", planned=["discovery"], left_out=[], steps=[step])
    assert "discovery" in resume.kept(
        tmp_path / PLAYBOOKS / "x", playbook, ["discovery"], profiles.load("local-cpu"), Console()
    )
    assert saved == [run]


@pytest.mark.parametrize("where", [PLAYBOOKS, "sent"])
def test_a_playbook_in_a_copy_is_not_continued(tmp_path, where):
    """What runs now would lie in the repository, and what was kept in the copy."""
    folder = tmp_path / where / "x"
    folder.mkdir(parents=True)
    playbook = Playbook(name="x", nodes=["n0"], profile="p", planned=["discovery"], left_out=[], steps=[])
    write_record(folder / PLAYBOOK, playbook)
    with pytest.raises(RunError, match="is a copy"):
        resume.earlier(folder)


def test_explain_reads_the_screen_in_the_runs_own_folder_and_no_log_by_a_jobs_number(tmp_path, monkeypatch):
    """A requeued run was explained by the log of the attempt before it: a node failure of that one."""
    monkeypatch.setenv("SLURM_JOB_ID", "987654")
    folder = discovery(tmp_path, monkeypatch, close=False)
    other = REPOSITORY / "slurm-logs/discovery-987654.out"
    other.parent.mkdir(exist_ok=True)
    try:
        other.write_text(
            "slurmstepd: error: *** JOB 987654 ON n1 CANCELLED AT 2026 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***\n"
        )
        assert "slurm.node-failure" not in explain.screen(judge.judge_folder(folder))
    finally:
        other.unlink()
    (folder / BATCH_LOG).write_text(
        "slurmstepd: error: *** JOB 987654 ON n1 CANCELLED AT 2026-11-20T10:00:00 DUE TO TIME LIMIT ***\n"
    )
    screen = explain.screen(judge.judge_folder(folder))
    assert f"{BATCH_LOG}:1" in screen


def test_what_a_screen_repeats_of_a_steps_log_is_counted_once_and_shown_there(tmp_path: Path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch, close=False)
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    for name in ("raw/launch.log", BATCH_LOG):
        (folder / name).write_text(line)
    signs_seen = signs.in_run(folder, load(folder))
    assert [(sign.evidence, sign.count) for sign in signs_seen if "memory" in sign.signature] == [
        ("raw/launch.log:1", 1)
    ]
