"""A profile from runs: speeds become floors with room for the spread that was seen, limits stay, and nothing sick
gets in."""

from pathlib import Path

import pytest
from bringup.cli import main
from bringup.compare import learn as profiling
from bringup.kernel import judge
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan import catalogue as gates
from bringup.kernel.plan import profile
from bringup.kernel.plan.expectation import Expectation
from bringup.kernel.plan.gate import Gate
from bringup.kernel.run_folder import RunFolder
from loops import case_for_each
from runs_for_tests import PASS, discovery, opened

BUSBW, PORTS = gates.GATES["nccl.all_reduce.busbw"], gates.GATES["discovery.rdma.active"]
SPEED, SPREAD = "nccl.all_reduce.busbw@1GiB", "nccl.all_reduce.time_spread@1GiB"


def seen(results: Path, gate: Gate, *facts: tuple[str, str, float | str]) -> profiling.RunObservations:
    """What (quantity, subject, value) give of a run of two nodes."""
    folder = opened(gate.phases[0], results, "generic")
    parsed = Parsed()
    for quantity, subject, value in facts:
        parsed.saw(quantity, subject, value, gate.unit if quantity.startswith(gate.id) else "share", "f:1")
    return profiling._of_run(gate, RunFolder(folder).run, profile.load("generic"), parsed.observations)


def entry(gate: Gate, *several: profiling.RunObservations, declared: Expectation | None = None) -> Expectation:
    made = profiling._expectation(gate, list(several), declared)
    assert made is not None
    return made


@pytest.fixture(autouse=True)
def outside_slurm(monkeypatch):
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)


def test_a_profile_made_of_a_run_loads_and_the_run_passes_it(tmp_path, monkeypatch, refused):
    folder = discovery(tmp_path / "runs", monkeypatch)
    made = tmp_path / "here.yaml"
    assert main(["profile", "--from", str(folder), "--name", "here", "-o", str(made)]) == 0
    loaded = profile.load(str(made))
    assert loaded.name == "here"
    for limit in ("discovery.shm", "discovery.clock.offset"):  # they were met, and are no speeds
        assert loaded.expect[limit].expected == profile.load("local-cpu").expect[limit].expected
        assert "measured by discovery" in loaded.expect[limit].source
    assert judge.judge_folder(folder, loaded).verdicts.outcome is PASS
    assert "exists already" in refused("profile", "--from", folder, "-o", made)  # what is written stays


def test_a_profile_is_not_made_of_a_run_that_failed(tmp_path, monkeypatch, refused):
    folder = discovery(tmp_path, monkeypatch)
    (folder / "raw/inventory.jsonl").unlink()
    assert "a profile is made of runs that passed" in refused("profile", "--from", folder)


def test_the_largest_size_counts_and_one_run_gives_half(tmp_path):
    small = ("nccl.all_reduce.busbw@8MiB", "2-nodes", 100.0)
    made = entry(BUSBW, seen(tmp_path, BUSBW, small, (SPEED, "2-nodes", 400.0), (SPEED, "1-node", 440.0)))
    assert (made.at, made.at_least, made.unit) == ("1GiB", 200.0, "GB/s")
    assert "400 to 440" in made.source
    assert "one run does not tell how runs differ; the lowest, divided by 2" in made.source


def test_one_gpu_alone_sets_no_floor(tmp_path):
    facts = ((SPEED, "2-nodes", 400.0), (SPEED, "1-gpu", 0.0), (SPREAD, "1-gpu", 9.0))
    assert entry(BUSBW, seen(tmp_path, BUSBW, *facts)).at_least == 200.0


# 10 % at least
@case_for_each((404.0, 364.0, "differed by 1%"), (600.0, 267.0, "differed by 50%"))
def test_the_same_scale_in_two_runs_gives_the_spread(tmp_path, again, floor, says):
    made = entry(BUSBW, *(seen(tmp_path, BUSBW, (SPEED, "2-nodes", value)) for value in (400.0, again)))
    assert made.at_least == floor
    assert says in made.source


@pytest.mark.parametrize(("count", "inside", "floor"), [(2, 0.6, 250.0), (1, 0.6, 200.0), (1, 3.0, 100.0)])
def test_the_repetitions_inside_a_run_say_how_small_the_spread_cannot_be(tmp_path, count, inside, floor):
    small = ("nccl.all_reduce.time_spread@8MiB", "2-nodes", 9.0)
    facts = ((SPEED, "2-nodes", 400.0), (SPREAD, "2-nodes", inside), small)
    assert entry(BUSBW, *(seen(tmp_path, BUSBW, *facts) for _ in range(count))).at_least == floor


def test_nodes_are_peers_and_their_spread_counts(tmp_path):
    gate = gates.GATES["smoke.storage.files"]
    runs_of_two = [seen(tmp_path, gate, (gate.id, "n0", 1000.0), (gate.id, "n1", 1500.0)) for _ in range(2)]
    assert entry(gate, *runs_of_two).at_least == 667.0
    assert entry(gate, runs_of_two[0]).at_least == 500.0


WHOLE = {"at_least": {"share_of_ceiling": 0.9}, "from_nodes": {16: 250.0}}


@pytest.mark.parametrize(("limit", "speed"), [({"at_least": 300.0}, 400.0), (WHOLE, 300.0), (WHOLE, 2000.0)])
def test_a_floor_that_was_declared_and_met_is_not_given_up(tmp_path, limit, speed):
    """Of one for each number of nodes, a number of these runs would hold for scales that they did not reach as well."""
    declared = Expectation.model_validate({"at": "1GiB", "unit": "GB/s", "source": "the vendor's protocol"} | limit)
    made = entry(BUSBW, seen(tmp_path, BUSBW, (SPEED, "2-nodes", speed)), declared=declared)
    assert (made.at_least, made.from_nodes) == (declared.at_least, declared.from_nodes)
    assert made.source.startswith("the vendor's protocol; measured by nccl_scaling")


def test_a_speed_of_nothing_becomes_no_floor(tmp_path):
    for facts in ([(SPEED, "2-nodes", 0.0)], []):
        assert profiling._expectation(BUSBW, [seen(tmp_path, BUSBW, *facts)], None) is None


def test_what_nobody_has_declared_and_is_no_speed_is_expected_as_it_was_seen(tmp_path):
    nics, transport = gates.GATES["nccl.nics"], gates.GATES["nccl.transport"]
    assert entry(nics, seen(tmp_path, nics, ("nccl.nics", "2-nodes", 8))).at_least == 8
    assert entry(transport, seen(tmp_path, transport, ("nccl.transport", "2-nodes", "efa"))).one_of == ["efa"]


def test_runs_of_two_profiles_are_not_mixed(tmp_path, monkeypatch, refused):
    names = ("local-cpu", "local-cpu-unconfined")
    folders = [discovery(tmp_path / name, monkeypatch, profile_name=name) for name in names]
    assert "give runs of one profile" in refused("profile", "--from", *folders)


def test_ports_are_counted_at_the_highest_rate_that_any_has_and_no_ports_give_no_floor(tmp_path):
    counts = {100: 10, 400: 8, 800: 0}
    facts = ((f"{PORTS.id}@{rate}Gb/s", node, count) for node in ("n0", "n1") for rate, count in counts.items())
    made = entry(PORTS, seen(tmp_path, PORTS, *facts))
    assert (made.at, made.at_least, made.unit) == ("400Gb/s", 8.0, "count")
    (tmp_path / "none").mkdir()
    nothing = seen(tmp_path / "none", PORTS, ("discovery.rdma.active@100Gb/s", "n0", 0))
    assert profiling._expectation(PORTS, [nothing], None) is None
