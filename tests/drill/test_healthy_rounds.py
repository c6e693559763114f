"""Healthy rounds: what counts as a false alarm, and on what cluster they run."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from bringup import judge
from bringup import results as runs
from bringup.drill import environment, perform, result
from bringup.drill import suite as campaign
from bringup.plan.drill import Shape
from bringup.records import DrillReport, HealthyRound, Outcome, read_record
from factory import a_drill_report, a_verdict, judged_of


def test_a_healthy_round_with_an_alarm_is_a_failure():
    quiet = HealthyRound(number=1, verdicts=200, false_alarms=[], seconds=1, evidence=[])
    assert result.exit_code(a_drill_report(healthy=[quiet], healthy_planned=1)) == 0
    assert result.exit_code(a_drill_report(healthy=[quiet], healthy_planned=2)) == 2
    assert (
        result.exit_code(a_drill_report(healthy=[quiet.model_copy(update={"false_alarms": ["x"]})], healthy_planned=1))
        == 1
    )


def test_a_healthy_round_keeps_the_evidence_of_every_phase(tmp_path, monkeypatch):
    """The phases 1 to 3 of one playbook have one name: kept in one folder, each replaced the one before."""
    stems = ("discovery", "smoke")
    homes = {stem: tmp_path / "results" / stem / "d-round-1" for stem in stems}
    for home in homes.values():
        home.mkdir(parents=True)
    monkeypatch.setattr(runs, "PLAYBOOKS", tmp_path / "playbooks")
    monkeypatch.setattr(runs, "attempts", lambda phase, name: [homes[phase.stem]])
    monkeypatch.setattr(perform, "_last_attempt", lambda stem, name: homes[stem])
    monkeypatch.setattr(
        judge, "judge_folder", lambda folder: judged_of(a_verdict("discovery.gpu.count", "n1", Outcome.PASS, "1"))
    )
    ended = environment.Ended((), 0, "", "")
    here = SimpleNamespace(bringup=lambda *words, environment, phases: ended)
    healthy = perform.healthy_round(1, stems, here, tmp_path / "kept", name="d")
    assert (healthy.verdicts, healthy.false_alarms) == (2, [])
    assert all((tmp_path / "kept/round-1" / stem / "d-round-1").is_dir() for stem in stems)


@pytest.mark.parametrize("resumed", [False, True])
def test_the_rounds_run_on_the_cluster_that_was_asked_for_also_when_they_are_continued(tmp_path, monkeypatch, resumed):
    shapes = []

    @contextmanager
    def clusters(folder, name):
        yield SimpleNamespace(of=shapes.append)

    def a_round(number, phases, here, folder, *, name):
        return HealthyRound(number=number, verdicts=3, false_alarms=[], seconds=1, evidence=[])

    monkeypatch.setattr(campaign, "DRILLS", tmp_path)
    monkeypatch.setattr(campaign, "local_clusters", clusters)
    monkeypatch.setattr(perform, "healthy_round", a_round)
    request = campaign.Request(drills=[], healthy=2, shape=Shape(6, 1))
    if resumed:
        folder, _ = campaign._begin(request)
        request = campaign.Request(drills=[], resume=folder)
    assert campaign.run(request) == 0
    assert shapes == [Shape(6, 1)] * 2
    (report,) = tmp_path.glob("*/drill.json")
    assert "on 6 nodes of 1 GPUs" in result.markdown(read_record(report, DrillReport))
