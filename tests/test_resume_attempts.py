"""A job that was requeued leaves a folder for every attempt; the newest one counts."""

from dataclasses import replace

from bringup import results as runs
from bringup.plan.phases import PHASES
from bringup.run import resume


def test_the_tenth_attempt_is_newer_than_the_ninth_and_a_name_is_no_pattern(tmp_path, monkeypatch):
    phase = replace(PHASES["discovery"], results="results")
    monkeypatch.setattr(runs, "REPOSITORY", tmp_path)
    for name in ("x", "x-r2", "x-r9", "x-r10", "x-r2-other", "[x]", "[x]-r1"):
        (tmp_path / "results" / name).mkdir(parents=True)
    found = [resume.newest_attempt(phase, name) for name in ("x", "[x]", "none")]
    assert [path.name if path else None for path in found] == ["x-r10", "[x]-r1", None]
