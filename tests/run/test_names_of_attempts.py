"""A phase that is submitted again and a job that is requeued leave a folder each; the newest one counts."""

import pytest
from bringup import results
from bringup.plan.phases import PHASES
from bringup.run import open as opening
from bringup.run.launch import newest_attempt


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
