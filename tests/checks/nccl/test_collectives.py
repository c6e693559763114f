"""Who is in a communicator, as its members tell each other: the facts of probes/collectives.py and the gates that read
them."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import bench
import collectives
import gpus
import nccl_files
import pytest
import torch
from bench import KIB, MIB, Bench, label_of
from bringup.kernel import judge
from bringup.kernel.facts import facts
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.judge import Judged
from bringup.kernel.plan import expectation
from bringup.kernel.plan import scope as plan
from bringup.readers import curve
from bringup.report import figures
from facts import Facts
from loops import for_each
from probing import told_by
from runs_for_tests import FAIL, FIXTURES, OPEN, PASS, judged, opened, parsed_of
from showing import check

# (host, rank, pid, device) of the four ranks of two nodes
GPUS = [("n0", 0, 429, "GPU-a"), ("n0", 1, 430, "GPU-b"), ("n1", 2, 376, "GPU-c"), ("n1", 3, 377, "GPU-d")]
FILES = [(host, rank, pid, f"nvidia{rank % 2} (char 195:{rank % 2})") for host, rank, pid, _ in GPUS]


def line(quantity: str, value: object, subject: str = "1-gpu", **more: str) -> str:
    fact = {"probe": "collectives", "at": "n0", "subject": subject, "quantity": f"nccl.{quantity}", "value": value}
    return f"0: {json.dumps(fact | {'unit': 'text' if isinstance(value, str) else 'count'} | more)}\n"


def end(count: int) -> str:
    return f'0: {{"probe": "collectives", "at": "n0", "end": {count}}}\n'


# recorded on two nodes, of which one had lost a device file
LOST = "2 ranks have nvidia0 (char 195:0) of n1"
RECORDED = line("ranks", 4, "2-nodes") + line("hosts", 2, "2-nodes") + line("devices", 3, "2-nodes", why=LOST) + end(3)


def gathered(members) -> Parsed:
    return told_by(lambda probe: collectives.say_members(probe, "2-nodes", members, []))


@for_each(
    (gathered(GPUS), PASS, "4"),
    (gathered([*GPUS[:3], ("n1", 3, 377, "GPU-c")]), FAIL, "3 (2 ranks have GPU-c of n1)"),
    (facts.parse(RECORDED, "raw/collectives-2.jsonl"), FAIL, LOST),
    (gathered(FILES), PASS, "4"),  # the same device file on two hosts
    (gathered([*GPUS[:3], ("n1", 3, 377, None)]), OPEN, ""),  # no device of its own
)
def test_ranks_that_share_a_gpu_are_named_though_ranks_and_hosts_are_right(parsed, outcome, says):
    by_gate = judged(parsed, "nccl_monitoring", ("n0", "n1"), profile_name="generic")
    check(by_gate["nccl.devices 2-nodes"], outcome, says)
    assert by_gate["nccl.ranks 2-nodes"].outcome is by_gate["nccl.hosts 2-nodes"].outcome is PASS


@for_each((["a", "b"], ["a", "b"]), (["a"], ["a", "a"]), ([], [None, None]))
def test_ranks_take_devices_in_turn_and_wrap_around_where_there_are_fewer(monkeypatch, allowed, taken):
    monkeypatch.setattr(gpus, "openable", lambda: (allowed, []))
    assert [collectives.placeholder(local) for local in (0, 1)] == taken


def test_of_a_pair_one_rank_of_each_node_writes_nccls_log_and_elsewhere_all_do():
    assert [nccl_files.writes_log(local, ["all_reduce"]) for local in range(4)] == [True, False, False, False]
    assert all(nccl_files.writes_log(local, []) for local in range(4))


# --- one GPU alone

ALONE = (
    line("ranks", 1)
    + line("hosts", 1)
    + line("devices", 1)
    + line("device", "cpu")
    + line("device.fallback", 0)
    + line("all_reduce.time@8KiB", 23.9, unit="us")
    + line("wrong_values", 0)
    + line("rank.wrong_values", 0, "n0/rank0")
    + line("rank.local_time", 1.0, "n0/rank0", unit="ratio")  # what a rank that has no peer can only say
    + end(9)
)
ONE_RANK = {f"nccl.{name}" for name in ("step", "ranks", "hosts", "devices", "device", "device.fallback")}
ONE_RANK.add("nccl.wrong_values")


def scaling(results: Path, **evidence: str) -> Path:
    """A run on two nodes with two GPUs. evidence: of one GPU alone, by its end."""
    folder = opened("nccl_scaling", results)
    for suffix, text in evidence.items():
        (folder / f"raw/collectives-1gpu.{suffix}").write_text(text)
    return folder


def verdicts(folder: Path) -> dict[tuple[str, str], str]:
    return {(v.gate, v.subject): v.outcome for v in judge.judge_folder(folder).verdicts.verdicts}


def test_one_gpu_is_the_first_scale_and_is_planned_for_no_speed_and_no_network():
    planned = plan.plan("nccl_scaling", ["n0", "n1"], 2, set())
    assert planned["nccl.step"] == ["1-gpu", "1-node", "2-nodes"]
    assert {gate for gate, scales in planned.items() if "1-gpu" in scales} == {*ONE_RANK, "nccl.launch"}
    for phase, gpus_per_node, scales in (
        ("nccl_scaling", 1, ["1-node", "2-nodes"]),  # it is all of a node
        ("nccl_monitoring", 2, ["2-nodes"]),  # all nodes run at once
        ("nccl_monitoring", 1, ["2-nodes"]),
    ):
        assert plan.plan(phase, ["n0", "n1"], gpus_per_node, set())["nccl.ranks"] == scales


def test_one_gpu_that_computes_rightly_passes_and_one_that_computes_wrongly_or_ends_badly_fails(tmp_path):
    by_gate = verdicts(scaling(tmp_path / "right", jsonl=ALONE, rc="0\n"))
    assert {gate for (gate, subject), of in by_gate.items() if subject == "1-gpu" and of is PASS} == ONE_RANK
    assert {of for (_, subject), of in by_gate.items() if subject == "n0/rank0"} == {OPEN}  # of its rank among others
    wrong = ALONE.replace('wrong_values", "value": 0', 'wrong_values", "value": 3')
    by_gate = verdicts(scaling(tmp_path / "wrong", jsonl=wrong, rc="134\n"))
    assert by_gate["nccl.wrong_values", "1-gpu"] is by_gate["nccl.step", "1-gpu"] is FAIL


def seen(judged_run: Judged, begin: str) -> list[object]:
    return [fact.value for fact in judged_run.observations if fact.quantity.startswith(begin)]


def test_the_bandwidth_that_nccl_tests_print_for_one_gpu_is_no_point_of_any_curve(tmp_path):
    folder = scaling(tmp_path)
    rows = "".join(f"{size:12} {size // 4:10} float sum -1  5.1 1.6 0.00 0  5.0 1.6 0.00 0\n" for size in (8192, 2**30))
    table = (FIXTURES / "nccl/tests-healthy.txt").read_text()
    columns = next(line for line in table.splitlines() if "busbw" in line)
    device = "#  Rank  0 Group  0 Pid  81 on n0 device  0 [0000:19:00] NVIDIA H100 80GB HBM3\n"
    for listed in (device, ""):  # with the list of devices cut out one rank cannot be told from many
        text = f"{listed}{columns}\n{rows}# Out of bounds values : 0 OK\n"
        (folder / "raw/all_reduce_perf-1gpu.txt").write_text(text)
        run = judge.judge_folder(folder)
        times = [fact.subject for fact in run.observations if fact.quantity == "nccl.all_reduce.time@1GiB"]
        assert set(times) == {"1-gpu"}
        assert curve.curves(run.observations) == {}
        assert figures.draw(run) == []
        assert seen(run, "nccl.curve") == []
        assert verdicts(folder)["nccl.wrong_values", "1-gpu"] is PASS


def test_of_two_measurements_of_a_size_the_slower_is_a_point_of_the_curve_and_of_equal_ones_the_first():
    speeds = enumerate((390.0, 380.0, 380.0), start=1)
    where = "raw/all_reduce_perf-2.txt:"
    facts = [("nccl.all_reduce.busbw@1GiB", "2-nodes", busbw, None, f"{where}{line}") for line, busbw in speeds]
    [(size, busbw, shown)] = curve.curves(parsed_of(facts).observations)["2-nodes"]["all_reduce"]
    assert (size, busbw, shown.evidence) == (2**30, 380.0, "raw/all_reduce_perf-2.txt:2")


def test_no_folder_among_the_evidence_is_taken_for_that_of_a_scale_by_mistake(tmp_path):
    folder = scaling(tmp_path)
    for name in ("nccl-1x", "nccl-0", "nccl-", "nccl-1gpu2"):
        (folder / "raw" / name).mkdir()
        (folder / "raw" / name / "n0.log").write_text("x")
    (folder / "raw/collectives-0.rc").write_text("0\n")
    assert {observation.quantity for observation in judge.judge_folder(folder).observations} == {"run.restarts"}


@for_each(
    ("16MiB", 2**24),
    ("8B", 8),
    *((name, None) for name in ("MiB", "²KiB", "1.5GiB", "-1B", "9" * 5000 + "B")),
    ids=lambda value: str(value)[:8],
)
def test_a_size_is_whole_and_of_ordinary_digits_or_none(name, size):
    assert expectation.size_bytes(name) == size


@pytest.mark.parametrize("code", ["9" * 5000, "", "-1", "²", "0x0", "1 2"])
def test_what_no_step_could_have_ended_with_is_no_exit_code(tmp_path, code):
    run = judge.judge_folder(scaling(tmp_path, rc=code))
    assert seen(run, "nccl.step") == []
    assert any("not an exit code" in problem for problem in run.problems)


def test_a_log_of_nccl_that_cannot_be_read_is_a_problem_and_leaves_the_transport_unknown(tmp_path):
    folder = scaling(tmp_path, jsonl=line("backend", "nccl") + end(1))
    (folder / "raw/nccl-1gpu/nccl.n0.1.log").mkdir(parents=True)  # a folder: what no user can read, root neither
    run = judge.judge_folder(folder)
    assert "raw/nccl-1gpu/nccl.n0.1.log: cannot be read: a folder is in the place of a file" in run.problems
    assert seen(run, "nccl.transport") == [None]


def test_a_size_that_does_not_fit_into_the_memory_of_a_gpu_is_not_measured_and_says_why(monkeypatch):
    """A GPU with 16 GB of which somebody else took a part: the smaller sizes are still measured."""
    gib = 2**30
    sizes, too_large, why = collectives.fitting((gib, 8 * gib), [15 * gib, 14 * gib, 15 * gib, 15 * gib], GPUS)
    assert (sizes, too_large, why) == ([gib], [8 * gib], "n0/rank1 has 14.0 GiB of GPU memory free")
    assert collectives.fitting((gib, 8 * gib), [17 * gib] * 4, GPUS)[:2] == ([gib, 8 * gib], [])
    assert collectives.fitting((gib, 8 * gib), [None] * 4, GPUS)[:2] == ([gib, 8 * gib], [])
    assert collectives.fitting((gib, 8 * gib), [gib] * 4, GPUS)[0] == [gib]
    assert bench.largest([80 * gib, 70 * gib]) == gib == bench.largest([8 * gib])
    assert bench.largest([8 * gib, 2 * gib]) == 256 * 2**20  # the rank with the least decides
    assert bench.largest([0]) == bench.GPU_SIZES[0]
    monkeypatch.setattr("sys.stdout", output := io.StringIO())
    collectives.say_not_measured(Facts("collectives"), "2-nodes", "all_reduce", too_large, why)
    facts = {fact["quantity"]: fact for fact in map(json.loads, output.getvalue().splitlines())}
    assert facts["nccl.all_reduce.busbw@8GiB"]["value"] is None
    assert {fact["why"] for fact in facts.values()} == {f"17.0 GiB are needed for 8GiB, and {why}"}


# ---- among many ranks there is always something to measure, its name is its size, and who was wrong is told

DIVIDED = ("all_gather", "reduce_scatter", "all_to_all")


def bench_of(world: int, rank: int = 0) -> Bench:
    """One rank of so many, which has nobody to talk to."""
    return Bench(torch, SimpleNamespace(all_gather_single=print, reduce_scatter_single=print), "cpu", rank, world)


@for_each(*DIVIDED)
@for_each(2, 3, 24, 2048, 2049, 2056)
def test_every_rank_has_a_part_of_the_smallest_size(name, world):
    operation = getattr(bench_of(world), name)(8 * KIB)
    assert operation.result().numel() >= 1
    assert operation.result().numel() % len(operation.expected) == 0
    assert operation.nbytes >= 4 * world


def right(rank: Bench, operation: bench.Operation) -> None:
    """As if the collective had run, on all ranks."""
    operation.prepare()
    parts = operation.result().view(len(operation.expected), -1)
    for part, period in zip(parts, operation.expected.values(), strict=True):
        rank.repeat(part, period)


@for_each(*DIVIDED)
def test_a_wrong_value_is_counted_where_a_size_has_fewer_elements_than_ranks(name):
    rank = bench_of(2056)
    operation = getattr(rank, name)(8 * KIB)
    right(rank, operation)
    assert operation.wrong() == {}
    operation.result()[0] += 1
    assert operation.wrong() == {next(iter(operation.expected)): 1}


@for_each(*DIVIDED, "all_reduce", "broadcast", "sendrecv")
def test_a_wrong_value_is_counted_wherever_it_is(monkeypatch, collective):
    """At the beginning and the end of a piece that is compared at once, and in what is left of a period."""
    monkeypatch.setattr(bench, "PIECE", 7 * 16)
    for world in (2, 3):
        rank = bench_of(world, rank=1)
        operation = getattr(rank, collective)(8 * KIB)
        right(rank, operation)
        assert operation.wrong() == {}
        parts = operation.result().view(len(operation.expected), -1)
        for element in (0, 111, 112, parts.shape[1] - 1):
            parts[-1][element] += 1
        assert operation.wrong() == {list(operation.expected)[-1]: 4}


@for_each(*DIVIDED, "all_reduce", "broadcast", "sendrecv")
def test_no_collective_holds_more_than_two_buffers_of_its_size(monkeypatch, collective):
    """8 GiB have to fit on a GPU with 24 GB, beside what NCCL takes. Every tensor that lives is counted when an
    operation is made, run, and compared: the largest temporary of torch included."""
    size = 16 * MIB
    monkeypatch.setattr(bench, "PIECE", 7 * 2**16)
    rank = bench_of(4)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        operation = getattr(rank, collective)(size)
        operation.prepare()
        operation.wrong()
    lives = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            lives += event.nbytes()
            most = max(most, lives)
    assert 0.9 * size < most < 2 * size + 10 * bench.PIECE


@for_each(
    (2, 8 * KIB, "8KiB"),
    (3, 8 * KIB, "8KiB"),  # 8,184 B
    (24, 16 * MIB, "16MiB"),
    (2048, 8 * KIB, "8KiB"),
    (1500, 8 * KIB, "6000B"),
    (4096, 8 * KIB, "16KiB"),
    (8192, 8 * KIB, "32KiB"),
)
def test_a_measurement_is_named_after_the_bytes_that_were_moved(world, size, label):
    assert label_of(size, bench_of(world).all_gather(size).nbytes) == label


def test_who_gave_and_who_got_wrong_values_is_told_apart():
    clean: dict[int, int] = {}
    assert bench.blame([{2: 5}, {2: 5}, {2: 5}, {2: 5}]) == {2: 20}
    assert bench.blame([clean, {0: 3, 1: 3, 2: 3, 3: 3}, clean, clean]) == {1: 12}
    assert bench.blame([clean, {0: 3}, clean, clean]) == {0: 3, 1: 3}  # between two ranks, and nobody knows which
    assert bench.blame([clean] * 4) == {}


def test_a_rank_keeps_its_record_where_torch_can_write_it_as_json(tmp_path):
    def dump(collectives: bool, active: bool) -> bytes:
        return b'{"entries":[]}'

    collectives.keep_flight(SimpleNamespace(_dump_fr_trace_json=dump), False, str(tmp_path / "flight.rank0.json"))
    collectives.keep_flight(SimpleNamespace(_dump_fr_trace_json=dump), True, str(tmp_path / "flight.rank1.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["flight.rank0.json"]


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path, capsys):
    dumps = SimpleNamespace(_dump_fr_trace_json=lambda collectives, active: b"{}")
    collectives.keep_flight(dumps, False, str(tmp_path / "gone" / "flight.rank0.json"))
    assert "the flight record was not kept" in capsys.readouterr().err
