"""A profile from runs: speeds become floors with room for the spread that was seen, limits stay, and nothing sick
gets in."""

from pathlib import Path

import pytest
from bringup import judge
from bringup import results as runs
from bringup.cli import main
from bringup.compare import learn as profiling
from bringup.evidence.parsed import Parsed
from bringup.plan import catalogue as gates
from bringup.plan import profile
from bringup.plan.expectation import Expectation
from bringup.plan.gate import Gate
from bringup.records import Outcome
from runs_for_tests import discovery, opened

BUSBW = gates.GATES["nccl.all_reduce.busbw"]


def seen(
    results: Path, gate: Gate, *facts: tuple[str, str, float | str], declared: str = "generic"
) -> profiling.RunObservations:
    """What (quantity, subject, value) give of a run of two nodes."""
    folder = opened(gate.phases[0], results, declared)
    parsed = Parsed()
    for quantity, subject, value in facts:
        parsed.saw(quantity, subject, value, gate.unit if quantity.startswith(gate.id) else "share", "f:1")
    return profiling._of_run(gate, runs.load(folder), profile.load(declared), parsed.observations)


def entry(gate: Gate, *several: profiling.RunObservations) -> Expectation:
    made = profiling._expectation(gate, list(several), None)
    assert made is not None
    return made


@pytest.fixture(autouse=True)
def outside_slurm(monkeypatch):
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)


def test_a_profile_made_of_a_run_loads_and_the_run_passes_it(tmp_path, monkeypatch, capsys):
    folder = discovery(tmp_path / "runs", monkeypatch)
    made = tmp_path / "here.yaml"
    assert main(["profile", "--from", str(folder), "--name", "here", "-o", str(made)]) == 0
    loaded = profile.load(str(made))
    assert loaded.name == "here"
    for limit in ("discovery.shm", "discovery.clock.offset"):  # they were met, and are no speeds
        assert loaded.expect[limit].expected == profile.load("local-cpu").expect[limit].expected
        assert "measured by discovery" in loaded.expect[limit].source
    assert judge.judge_folder(folder, loaded).verdicts.outcome is Outcome.PASS
    assert main(["profile", "--from", str(folder), "-o", str(made)]) == 2  # what is written stays
    assert "exists already" in capsys.readouterr().err


def test_a_profile_is_not_made_of_a_run_that_failed(tmp_path, monkeypatch, capsys):
    folder = discovery(tmp_path, monkeypatch)
    (folder / "raw/inventory.jsonl").unlink()
    assert main(["profile", "--from", str(folder)]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert "a profile is made of runs that passed" in out.err


GIB, SPREAD = "nccl.all_reduce.busbw@1GiB", "nccl.all_reduce.time_spread@"
FILES = gates.GATES["smoke.storage.files"]
OF_PEERS = (FILES, (FILES.id, "n0", 1000.0), (FILES.id, "n1", 1500.0))
MET = {"at_least": 300.0, "unit": "GB/s", "source": "the vendor's protocol", "at": "1GiB"}
OF_EACH_SIZE = MET | {"at_least": {"share_of_ceiling": 0.9}, "from_nodes": {16: 250.0}}


def busbw(speed: float, *more: tuple[str, str, float]) -> tuple[Gate | tuple[str, str, float], ...]:
    return BUSBW, (GIB, "2-nodes", speed), *more


def noisy(inside: float) -> tuple[Gate | tuple[str, str, float], ...]:
    return busbw(400.0, (f"{SPREAD}1GiB", "2-nodes", inside), (f"{SPREAD}8MiB", "2-nodes", 9.0))


@pytest.mark.parametrize(
    ("runs", "declared", "floor", "says"),
    [
        ([busbw(400.0, ("nccl.all_reduce.busbw@8MiB", "2-nodes", 100.0))], None, 200.0, ""),  # the largest size counts
        ([busbw(400.0, (GIB, "1-node", 440.0))], None, 200.0, "400 to 440, median 420 of 2; one run does not tell how"),
        # one GPU alone sets no floor
        ([busbw(400.0, (GIB, "1-gpu", 0.0), (f"{SPREAD}1GiB", "1-gpu", 9.0))], None, 200.0, ""),
        # the same scale in two runs gives the spread, 10 % at least
        ([busbw(400.0), busbw(404.0)], None, 364.0, "differed by 1%"),
        ([busbw(400.0), busbw(600.0)], None, 267.0, "differed by 50%"),
        # the repetitions inside a run say how small the spread cannot be
        ([noisy(0.6), noisy(0.6)], None, 250.0, ""),
        ([noisy(0.6)], None, 200.0, "the lowest, divided by 2"),
        ([noisy(3.0)], None, 100.0, ""),
        # nodes are peers, and their spread counts
        ([OF_PEERS, OF_PEERS], None, 667.0, ""),
        ([OF_PEERS], None, 500.0, ""),
        # a floor that was declared and met is not given up, and one for each number of nodes stays whole: one number of
        # these runs would hold for scales that they did not reach as well
        ([busbw(400.0)], MET, 300.0, "the vendor's protocol; measured by nccl_scaling"),
        *(([busbw(speed)], OF_EACH_SIZE, "as declared", "; measured by nccl_scaling") for speed in (300.0, 2000.0)),
        ([busbw(0.0)], None, None, ""),  # a speed of nothing becomes no floor
        ([(BUSBW,)], None, None, ""),
    ],
)
def test_a_speed_becomes_a_floor_with_room_for_the_spread_that_was_seen(tmp_path, runs, declared, floor, says):
    known = None if declared is None else Expectation.model_validate(declared)
    made = profiling._expectation(runs[0][0], [seen(tmp_path, *run) for run in runs], known)
    if made is None or floor is None:
        assert made is floor
        return
    assert made.at_least == (known.at_least if floor == "as declared" else floor)
    assert made.from_nodes == (known and known.from_nodes)
    assert says in made.source
    assert (made.at, made.unit) == (("1GiB", "GB/s") if runs[0][0] is BUSBW else (None, FILES.unit))


def test_what_nobody_has_declared_and_is_no_speed_is_expected_as_it_was_seen(tmp_path):
    nics, transport = gates.GATES["nccl.nics"], gates.GATES["nccl.transport"]
    assert entry(nics, seen(tmp_path, nics, ("nccl.nics", "2-nodes", 8))).at_least == 8
    assert entry(transport, seen(tmp_path, transport, ("nccl.transport", "2-nodes", "efa"))).one_of == ["efa"]


def test_runs_of_two_profiles_are_not_mixed(tmp_path, monkeypatch, capsys):
    folders = [
        discovery(tmp_path / name, monkeypatch, profile_name=name) for name in ("local-cpu", "local-cpu-unconfined")
    ]
    assert main(["profile", "--from", *map(str, folders)]) == 2
    assert "give runs of one profile" in capsys.readouterr().err


PORTS = gates.GATES["discovery.rdma.active"]


def test_ports_are_counted_at_the_highest_rate_that_any_has_and_no_ports_give_no_floor(tmp_path):
    counts = ((100, 10), (400, 8), (800, 0))
    facts = [(f"discovery.rdma.active@{rate}Gb/s", node, count) for node in ("n0", "n1") for rate, count in counts]
    made = entry(PORTS, seen(tmp_path, PORTS, *facts))
    assert (made.at, made.at_least, made.unit) == ("400Gb/s", 8.0, "count")
    (tmp_path / "none").mkdir()
    nothing = seen(tmp_path / "none", PORTS, ("discovery.rdma.active@100Gb/s", "n0", 0))
    assert profiling._expectation(PORTS, [nothing], None) is None
