"""Two clusters of one name, whose nodes have the same names, and one checkout: no run of one speaks for the other."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from bringup.compare import history, learn, regression
from bringup.health import baseline
from bringup.kernel import results
from bringup.kernel.errors import CannotStart, NotComparable
from bringup.kernel.judge import EVIDENCE, Judged, judge_folder
from bringup.kernel.plan import profile as profiles
from bringup.kernel.records import Outcome, Run, SlurmCluster
from bringup.report import collection
from bringup.report.campaigns import Step
from bringup.run import auto_profile, playbook, slurm
from bringup.training.records import REFERENCE_METRICS
from factory import a_run, a_verdict, an_entry, judged_of
from loops import for_each
from runs_for_tests import discovery, opened, reseal, unpacked
from trained_runs import RECORDS, run_of

FIRST, SECOND = SlurmCluster("cluster", "ctl0"), SlurmCluster("cluster", "ctl1")
HOLDS = [a_verdict(gate, "job", Outcome.PASS) for gate in EVIDENCE]


def fields(cluster: SlurmCluster) -> dict[str, str | None]:
    return {"cluster": cluster.name, "controller": cluster.controller}


def of(cluster: SlurmCluster, run: Run) -> Run:
    return run.model_copy(update=fields(cluster))


def moved(folder: Path, cluster: SlurmCluster) -> Path:
    path = folder / results.RUN
    path.write_text(json.dumps(json.loads(path.read_text()) | fields(cluster)))
    return reseal(folder) if (folder / results.CLOSED).exists() else folder


@for_each(
    (SECOND, True),
    (SlurmCluster("other", "ctl0"), True),
    (FIRST, False),
    (SlurmCluster("cluster", None), False),
    (SlurmCluster(None, None), False),
    (SlurmCluster("other", None), True),
)
def test_two_clusters_are_two_by_name_or_controller_and_not_where_one_says_nothing(other, is_another):
    assert (FIRST.is_another(other), other.is_another(FIRST)) == (is_another, is_another)


def measured(day: int, cluster: SlurmCluster, value: float) -> Judged:
    run = a_run("nccl_scaling", name=f"r{day}", plan={}).model_copy(update={"opened_at": f"2026-01-{day:02}T06:00:00Z"})
    return judged_of(*HOLDS, a_verdict("nccl.all_reduce.busbw", "2-nodes", value=value), run=of(cluster, run))


def test_the_slower_cluster_is_no_regression_of_the_faster_one():
    days = [measured(day, FIRST, 390.0) for day in range(1, 11)]
    days += [measured(day, SECOND, 300.0) for day in (11, 12, 13)]
    answers = {finding.series.where: finding.said for finding in history.judge(history.series(days))}
    where = "nccl_scaling, 2-nodes, cluster at {}"
    assert answers == {where.format("ctl0"): history.TOO_FEW, where.format("ctl1"): history.TOO_FEW}
    assert [finding.series.where for finding in history.judge(history.series(days[:10]))] == ["nccl_scaling, 2-nodes"]


def test_trainings_on_another_kind_of_gpu_are_another_series(tmp_path):
    judged = judge_folder(run_of("run_ddp_2node", tmp_path))
    metrics = judged.training.metrics.model_copy(update={"gpu0": "NVIDIA H100 80GB HBM3"})
    training = SimpleNamespace(args=judged.training.args, metrics=metrics)
    assert len(history.series([judged, replace(judged, training=training)])) == 2


def test_repetitions_are_of_one_cluster_and_a_baseline_of_another_one_is_said():
    entry = an_entry(RECORDS / "run_ddp_2node")
    named = [entry.run.model_copy(update={"name": name}) for name in "abc"]
    runs = zip((FIRST, SECOND, FIRST), named, strict=True)
    first, second, again = (replace(entry, run=of(cluster, run)) for cluster, run in runs)
    with pytest.raises(NotComparable, match="cluster cluster at ctl0 in run_ddp_2node, cluster at ctl1"):
        regression.check([again], [first, second])
    (compared,) = regression.check([second], [first])
    assert compared.environment == ["cluster cluster at ctl0 → cluster at ctl1"]


def test_a_profile_and_a_baseline_are_made_of_one_cluster(tmp_path, monkeypatch):
    two = {name: discovery(tmp_path / name, monkeypatch) for name in ("a", "b")}
    first, second = judge_folder(moved(two["a"], FIRST)), judge_folder(moved(two["b"], SECOND))
    for make in (lambda runs: learn.measured(runs, "here"), baseline.made_of):
        assert make([first]) is not None
        says = r"is of cluster cluster at ctl1, .* of cluster at ctl0: give runs of one"
        with pytest.raises(NotComparable, match=says):
            make([first, second])


def test_a_page_of_two_clusters_whose_nodes_have_the_same_names_is_refused(tmp_path, monkeypatch):
    folders = [moved(discovery(tmp_path / name, monkeypatch), c) for name, c in (("a", FIRST), ("b", SECOND))]
    with pytest.raises(NotComparable, match="give runs of one"):
        collection.gather(folders)
    assert len(collection.gather(folders[:1]).judged) == 1


def test_the_numbers_of_auto_are_not_those_of_a_cluster_of_the_same_name(tmp_path, monkeypatch):
    folder = tmp_path / "validation/results/discovery/recorded"
    folder.parent.mkdir(parents=True)
    unpacked("h100-healthy", tmp_path, "h100-healthy/discovery/h100-healthy-round-1").rename(folder)
    moved(folder, FIRST)
    monkeypatch.setattr(results, "REPOSITORY", tmp_path)
    for here, is_open in ((FIRST, False), (SECOND, True), (SlurmCluster(None, None), False)):
        monkeypatch.setattr(slurm, "this_cluster", lambda here=here: here)
        assert auto_profile.profile(profiles.load("auto"), ["n0"]).is_open is is_open


def test_a_training_is_not_scaled_against_one_gpu_of_another_cluster(tmp_path, monkeypatch):
    for here, is_kept in ((FIRST, True), (SECOND, False)):
        place = tmp_path / here.controller
        monkeypatch.setattr(slurm, "this_cluster", lambda: FIRST)
        run_of("run_1gpu", place, reference=False, name="one")
        monkeypatch.setattr(slurm, "this_cluster", lambda here=here: here)
        assert (opened("run_ddp_2node", place, nodes=["n0", "n1"], name="two") / REFERENCE_METRICS).exists() is is_kept


def test_a_playbook_of_another_cluster_is_not_resumed(monkeypatch, tmp_path):
    names = ["n0", "n1"]
    step = Step(phase="discovery", folder="validation/results/x", outcome=Outcome.PASS, blocks=False, seconds=1)
    earlier = playbook.Playbook(name="x", nodes=names, profile="p", planned=["discovery"], left_out=[], steps=[step])
    kept = {"discovery": (step, judged_of(run=of(FIRST, a_run(nodes=names))))}
    monkeypatch.setattr(playbook, "earlier_run", lambda folder: earlier)
    monkeypatch.setattr(playbook, "passed_before", lambda *asked: kept)
    monkeypatch.setattr(playbook, "known_partitions", dict)
    request = playbook.Request(profiles.load("local-cpu"), "local-cpu", phases=["discovery"], resume=tmp_path)
    monkeypatch.setattr(slurm, "this_cluster", lambda: FIRST)
    assert playbook._plan(request, names, 2, None)[2] == kept
    monkeypatch.setattr(slurm, "this_cluster", lambda: SECOND)
    with pytest.raises(CannotStart, match="that run was on cluster at ctl0, this is cluster at ctl1"):
        playbook._plan(request, names, 2, None)
