"""bringup soak: what a rotation counts, who is left out, when enough is known, and what is slower than it was. Phases
end here as they are told to; nothing is submitted."""

import io
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from bringup.accept.contract import parse
from bringup.accept.lines import of_contract
from bringup.cli import main
from bringup.domains import pairs
from bringup.kernel.judge import EVIDENCE, Judged
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.subjects import nodes_of
from bringup.kernel.records import Closed, Outcome, read_record
from bringup.kernel.results import PLAYBOOK, PLAYBOOKS
from bringup.kernel.run_folder import Seal
from bringup.report.campaigns import Playbook
from bringup.report.collection import Collection
from bringup.run import playbook
from bringup.soak import counted, drift, rotations
from bringup.soak.records import KINDS, Proven, Soak, kind_of
from factory import GPU_CLUSTER, LOCAL_CLUSTER, a_verdict, healthy, observed
from loops import for_each
from rich.console import Console
from runs_for_tests import FAIL, OPEN, PASS, WARN
from scipy import stats

NODES, PHASES = ["n0", "n1", "n2"], ["discovery", "node_sweep", "nccl_pairwise"]
WRONG, LINK = "sweep.load.wrong_values", "nccl.pair.link"
BEGAN = {"name": "s", "began_at": "2026-01-01T00:00:00Z", "profile": "local-cpu", "site": None, "nodes": NODES}
FOUR = dict.fromkeys(("n0", "n1", "n2", "n3"), 0.0)
HOUR = Seal("", Closed(exit_code=0, closed_at="2026-01-01T01:00:00Z", files={}))


def well(phase: str, nodes: list[str]) -> Judged:
    """A phase in which all passed, of an hour."""
    run = healthy(phase, 3, GPU_CLUSTER, "local-cpu")
    verdicts = [v for v in run.verdicts.verdicts if v.subject[0] != "n" or {*nodes_of(v.subject)} <= {*nodes}]
    judged = run.verdicts.model_copy(update={"verdicts": verdicts})
    return replace(run, seal=HOUR, run=run.run.model_copy(update={"nodes": nodes}), verdicts=judged)


def bad(judged: Judged, *failed: tuple[str, str], outcome: Outcome = FAIL, value: float | None = None) -> Judged:
    others = [v for v in judged.verdicts.verdicts if (v.gate, v.subject) not in failed]
    verdicts = [
        *others,
        *(a_verdict(g, s, outcome, value=value) for g, s in failed if judged.run.phase in GATES[g].phases),
    ]
    return replace(judged, verdicts=judged.verdicts.model_copy(update={"verdicts": verdicts, "outcome": outcome}))


class Soaked:  # its phases end as `ends` says
    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch, ends: Callable[[str, list[str]], Judged]) -> None:
        self.folder, self.ends, self.ran, self.screen = place / "s", ends, list[tuple[str, int]](), io.StringIO()
        monkeypatch.setattr(rotations, "REPOSITORY", place)
        monkeypatch.setattr(playbook.Launch, "run", lambda launch: self.launched(launch.phase.stem, launch.nodes))
        self.folder.mkdir()

    def launched(self, phase: str, nodes: list[str]) -> Judged:
        self.ran.append((phase, len(nodes)))
        return self.ends(phase, nodes)

    def go(self, soak: Soak | None = None, **asked: object) -> Soak:
        fields = {**BEGAN, "gpus_per_node": 2, "phases": PHASES, "hours": None, "until": {}, **asked}
        request = playbook.Request(profiles.load("local-cpu"), "local-cpu")
        self.code = rotations.Soaking(self.folder, soak or Soak(**fields), request, Console(file=self.screen)).go()
        return read_record(self.folder / rotations.RECORD, Soak)


@for_each((0, 1000.0), (1, 1000.0), (7, 3.5))
def test_a_bound_is_the_exact_one_of_poisson_and_what_is_asked_is_known_at_it_and_not_before(faults, hours):
    most = stats.chi2.ppf(0.95, 2 * faults + 2) / 2
    known = Proven(kind="GPU", counts="GPU", hours=hours, faults=faults, asked=hours / most * 1.001)
    assert (known.bound, known.lacks) == pytest.approx((hours / most, 0.001 * hours), rel=1e-6)
    assert known.model_copy(update={"asked": hours / most * 0.999}).lacks == 0


def test_each_statement_is_of_one_kind_and_a_check_is_of_its_own_kind_first():
    of = [statement for kind in KINDS.values() for statement in kind.statements]
    assert sorted(of) == sorted(claim.id for claim in CLAIMS)
    named = {"load.gpu_faults": "GPU", "load.node_faults": "node", LINK: "link", "smoke.storage.write": "storage"}
    named |= {"train.straggler": "training", "smoke.requeue": "Slurm", "site.own": "node"}
    assert {gate: kind_of(gate) for gate in named} == named
    assert {kind_of(gate) for gate in GATES} == set(KINDS)


@for_each(
    ((), PASS, 6),
    (((WRONG, "n1"),), FAIL, 4),
    (((WRONG, "n1"),), OPEN, 4),  # absence is no health
    (((WRONG, "n1"),), WARN, 6),
    (((LINK, "n0--n2"),), FAIL, 6),  # of another kind
    ((("run.evidence", "job"),), FAIL, 0),  # no number of it may be used
)
def test_hours_count_where_a_kind_of_fault_was_looked_for_and_not_found(failed, outcome, gpu_hours):
    assert counted.hours([bad(well("node_sweep", NODES), *failed, outcome=outcome)]).get("GPU", 0) == gpu_hours
    run = well("node_sweep", NODES)
    assert "storage" not in counted.hours([run])  # nobody asked
    measured = [
        v if v.gate in EVIDENCE else v.model_copy(update={"outcome": Outcome.NO_LIMIT}) for v in run.verdicts.verdicts
    ]
    assert "GPU" not in counted.hours([replace(run, verdicts=run.verdicts.model_copy(update={"verdicts": measured}))])


@for_each(
    ([(WRONG, "n1"), (LINK, "n0--n1")], {("GPU", "n1"), ("link", "n1")}),
    ([(LINK, "n0--n2")], {("link", "n0--n2")}),
    ([("nccl.pair.slowest", "job")], {("link", "job")}),
    ([("nccl.pair.node", "n1"), ("nccl.pair.slowest", "job")], {("link", "n1")}),
    ([(WRONG, "n1"), ("nccl.pair.slowest", "job")], {("GPU", "n1"), ("link", "job")}),  # another kind, in another job
    ([], set()),
)
def test_a_fault_stands_where_it_is_and_what_a_named_node_explains_is_no_second_one(failed, places):
    runs = [bad(well(phase, NODES), *failed) for phase in PHASES[1:]]
    assert set(counted.faults(runs, [])) == places
    silent = bad(well("node_sweep", NODES), (WRONG, "n1"), outcome=OPEN)
    assert (set(counted.faults([silent], [])), set(counted.faults([silent], ["n1"]))) == (set(), {("node", "n1")})


def test_a_node_that_fails_is_left_out_by_name_and_time_and_the_rest_goes_on(tmp_path, monkeypatch):
    def ends(phase: str, nodes: list[str]) -> Judged:
        return bad(well(phase, nodes), (WRONG, "n1")) if "n1" in nodes and len(soaked.ran) > 3 else well(phase, nodes)

    soaked = Soaked(tmp_path, monkeypatch, ends)
    soak = soaked.go(until={"GPU": 8})
    assert soaked.ran == [*zip(PHASES * 3, [3, 3, 3, 3, 3, 2, 2, 2, 2], strict=True)]
    assert [(entry.node, entry.rotation, entry.phase) for entry in soak.without] == [("n1", 2, "node_sweep")]
    assert [(each.place, each.kind, each.gate, each.rotation) for each in soak.faults] == [("n1", "GPU", WRONG, 2)]
    assert (soak.proven[0].hours, soak.proven[0].faults, len(soak.rotations)) == (18 + (6 + 4 + 4) + 12, 1, 3)
    document = (soaked.folder / rotations.DOCUMENT).read_text()
    assert f"2026-01-01T01:00:00Z | n1 | GPU | {WRONG}" in document and "- n1 since 2" in document


def test_a_soak_ends_at_the_bound_that_was_asked_and_a_fault_that_stays_is_one(tmp_path, monkeypatch):
    soaked = Soaked(tmp_path, monkeypatch, well)
    soak = soaked.go(until={"link": 2, "GPU": 10})
    hours = {each.kind: each.hours for each in soak.proven}
    most = stats.chi2.ppf(0.95, 2) / 2
    assert hours["GPU"] >= 10 * most > hours["GPU"] - soak.rotations[-1].hours["GPU"] and hours["link"] >= 2 * most
    assert (soaked.code, soak.not_real, soak.ended) == (0, [], "each bound of --until is known: link=2, GPU=10")
    soaked.ends = lambda phase, nodes: bad(well(phase, nodes), ("nccl.pair.slowest", "job"))
    staying = soaked.go(soak.model_copy(update={"until": {"GPU": 20}, "ended": None}))
    assert [(each.place, each.rotation) for each in staying.faults] == [("job", len(soak.rotations) + 1)]
    assert len(staying.rotations) > len(soak.rotations) + 1 and soaked.code == 1


@for_each(
    ((2,), 1, 0, {"until": {"link": 4}}),
    ((2, 4), 2, 0, {"until": {"link": 4}}),
    ((2, 3, 4), 1, 1, {"until": {"link": 4}}),
    ((1,), 1, 2, {"hours": 1e-9}),  # it ends before anybody knows
)
def test_one_comparison_of_two_noisy_directions_accuses_no_link_and_a_second_one_in_a_row_does(
    tmp_path, monkeypatch, slow, suspicions, code, asked
):
    ways = [observed(pairs.BANDWIDTH, "n0->n1", 0.4655), observed(pairs.BANDWIDTH, "n1->n0", 0.0391)]
    (share,) = (seen.value for seen in pairs.derive(ways, NODES[:2]).observations if seen.quantity == LINK)
    assert share < profiles.load("local-cpu").expect[LINK].at_least

    def ends(phase: str, nodes: list[str]) -> Judged:
        run = well(phase, nodes)
        return bad(run, (LINK, "n0--n1"), value=share) if len(soaked.ran) in slow else run

    (tmp_path / str(slow)).mkdir()
    soaked = Soaked(tmp_path / str(slow), monkeypatch, ends)
    soak = soaked.go(**asked, nodes=NODES[:2], phases=["nccl_pairwise"])
    assert ([each.rotation for each in soak.faults], soaked.code) == ([3] * (code == 1), code)
    assert sum(times for words, times in soak.remarks.items() if "n0--n1: no fault" in words) == suspicions


def test_a_soak_does_not_end_at_its_bound_with_a_suspicion(tmp_path, monkeypatch):
    def ends(phase: str, nodes: list[str]) -> Judged:
        run = well(phase, nodes)
        return bad(run, (LINK, "n0--n2"), value=0.1) if len(soaked.ran) == 3 else run

    soaked = Soaked(tmp_path, monkeypatch, ends)
    assert (len(soaked.go(until={"GPU": 1}).rotations), soaked.code) == (2, 0)


def test_an_interrupted_soak_goes_on_where_it_was(tmp_path, monkeypatch):
    def ends(phase: str, nodes: list[str]) -> Judged:
        if len(soaked.ran) == 5:
            raise KeyboardInterrupt
        return well(phase, nodes)

    soaked = Soaked(tmp_path, monkeypatch, ends)
    with pytest.raises(KeyboardInterrupt):
        soaked.go(until={"GPU": 10})
    assert "bringup soak --resume s" in soaked.screen.getvalue()
    soak = read_record(soaked.folder / rotations.RECORD, Soak)
    kept = {
        "discovery": (read_record(tmp_path / PLAYBOOKS / "s-2" / PLAYBOOK, Playbook).steps[0], well("discovery", NODES))
    }
    monkeypatch.setattr(playbook, "passed_before", lambda folder, *rest: kept if folder.name == "s-2" else {})
    soak = soaked.go(soak)
    assert [phase for phase, _ in soaked.ran[5:]] == ["node_sweep", "nccl_pairwise"]
    assert [rotation.playbook.rpartition("/")[2] for rotation in soak.rotations][:2] == ["s-1", "s-2-again2"]


@for_each((("n0",), ["n0"], 1), (("n0", "n1"), [], 2))
def test_where_nothing_can_be_judged_the_first_node_is_tried(tmp_path, monkeypatch, broken, out, code):
    (tmp_path / str(code)).mkdir()
    soaked = Soaked(tmp_path / str(code), monkeypatch, well)
    soaked.ends = lambda phase, nodes: replace(well(phase, nodes), seal=None if nodes[0] in broken else HOUR)
    soak = soaked.go(until={"GPU": 3})
    assert ([each.node for each in soak.without], [each.place for each in soak.faults], soaked.code) == (out, out, code)


def test_a_link_that_stays_slower_is_one_fault(tmp_path, monkeypatch):
    def ends(phase: str, nodes: list[str]) -> Judged:
        run, is_slow = well(phase, nodes), len(soaked.ran) > 8
        slow = {"value": 0.9} if is_slow else {}
        verdicts = [v.model_copy(update=slow if v.subject == "n0--n1" else {}) for v in run.verdicts.verdicts]
        return replace(run, verdicts=run.verdicts.model_copy(update={"verdicts": verdicts}))

    soaked = Soaked(tmp_path, monkeypatch, ends)
    soak = soaked.go(until={"link": 16}, phases=["nccl_pairwise"])
    assert [(each.place, each.kind, each.change < -0.05) for each in soak.faults] == [("n0--n1", "link", True)]


def test_trainings_come_in_turn_and_their_reference_again_when_nodes_are_left_out():
    phases = ["discovery", "run_1gpu", "run_ddp_1node", "run_ddp_2node", "run_fsdp_2node"]
    soak = Soak(**BEGAN, gpus_per_node=2, phases=phases, hours=1, until={})
    past = {"number": 1, "playbook": "p", "began_at": BEGAN["began_at"], "seconds": 1, "phases": [], "hours": {}}
    later = soak.model_copy(update={"rotations": [rotations.Rotation(**past, nodes=NODES, failing=[])]})
    assert rotations.planned(soak, NODES) == ["discovery", "run_1gpu", "run_ddp_2node"]
    assert rotations.planned(later, NODES) == ["discovery", "run_fsdp_2node"]
    assert rotations.planned(later, NODES[:2]) == ["discovery", "run_1gpu", "run_fsdp_2node"]
    assert rotations.planned(soak, NODES[:1]) == ["discovery", "run_1gpu", "run_ddp_1node"]


@for_each(
    ("GPU", 6.0, GPU_CLUSTER, "proven", None),
    ("GPU", 6.1, GPU_CLUSTER, "not proven", "6.009 GPU-hours"),  # too few hours refute nothing
    ("GPU", 6.0, LOCAL_CLUSTER, "not proven", "no GPU"),
    ("training", 1.0, GPU_CLUSTER, "not asked", None),
)
def test_a_contract_asks_how_rare_faults_are_and_the_rotations_are_its_evidence(kind, hours, shows, state, why):
    runs = Collection(judged=[replace(healthy(phase, 3, shows, "local-cpu"), seal=HOUR) for phase in PHASES])
    line = {"says": "rare", "fact": f"soak.{kind}", "at_least": hours}
    made = of_contract(parse(json.dumps({"contract": "c", "nodes": "n[0-2]", "lines": {"it": line}}), "c"), runs)[1]
    assert (made.state, (why or "") in (made.why or "")) == (state, True), made


def made_up(changes: dict[str, float], count: int, last: int, every_s: float) -> dict[str, list[tuple[float, float]]]:
    chance, made = random.Random(1), dict[str, list[tuple[float, float]]]()
    for node, by in changes.items():
        values = [100 * chance.gauss(1, 0.01) * (1 + by * (turn >= count - last)) for turn in range(count)]
        made[f"{LINK} {node}"] = [(turn * every_s, value) for turn, value in enumerate(values)]
    return made


@for_each(
    ({**FOUR, "n2": -0.08}, 0, {"n2"}),
    ({**FOUR, "n2": -0.08}, -1, set()),  # in fewer rotations
    ({**FOUR, "n2": -0.03}, 0, set()),
    ({"n0": 0, "n1": -0.08}, 0, {"n1"}),
    (dict.fromkeys(FOUR, -0.2), 0, {drift.ALL}),  # is none of theirs
)
def test_who_stays_slower_than_in_its_own_first_hour_drifts(changes, more, names):
    last = drift.in_a_row(len(changes) + 1)
    for every_s in (60, 900, 7200):  # all, four or none of the rotations after the first are in the first hour
        speeds = made_up(changes, 3 * last, last + more, every_s)
        assert {who for _, who in drift.changes(speeds)} == names, every_s
    assert drift.changes(made_up(changes, 2 * last - 1, last, 900)) == {}  # too few to tell


def test_chance_alone_accuses_nobody_whatever_the_noise_is_like():
    chance, nodes = random.Random(1), [f"{LINK} n{node}" for node in range(30)]
    for _ in range(20):  # two modes: the first rotations may all be of one, and the last ones of the other
        lines = {name: [(60.0 * turn, chance.choice((1, 9)) + chance.random()) for turn in range(60)] for name in nodes}
        for turn in range(20, 61, 2):
            assert drift.changes({name: line[:turn] for name, line in lines.items()}) == {}


@for_each(
    ((), "needs --hours H, --until KIND=HOURS, or both"),
    (("--until", "GPUs=5"), "kinds are GPU, link, node, storage, Slurm, training"),
    (("--until", "GPU=-1"), "expected KIND=HOURS, as GPU=1000"),
    (("--hours", "1", "smok"), "did you mean smoke?"),
    (("--resume", "none"), "no soak is called so"),
)
def test_what_cannot_be_soaked_is_refused_in_one_line(monkeypatch, tmp_path, capsys, words, says):
    monkeypatch.setattr("bringup.soak.action.REPOSITORY", tmp_path)
    assert main(["soak", *words]) == 2
    assert says in capsys.readouterr().err
