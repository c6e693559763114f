"""Who is in a communicator, as its members tell each other: the facts of probes/collectives.py and the gates that read
them."""

import io
import json
import sys
from pathlib import Path

import pytest
from bringup import judge
from bringup.evidence import curve, facts
from bringup.evidence.parsed import Parsed
from bringup.plan import planned as plan
from bringup.records import Outcome, Verdict
from bringup.report.charts import sheet
from factory import a_run
from probing import told_by
from runs_for_tests import FIXTURES, about, opened

sys.path.append(str(Path(__file__).resolve().parents[3] / "infrastructure-validation/probes"))
import bench
import collectives
import gpus
from facts import Facts
from loops import for_each

# (host, rank, pid, device) of the four ranks of two nodes
GPUS = [("n0", 0, 429, "GPU-a"), ("n0", 1, 430, "GPU-b"), ("n1", 2, 376, "GPU-c"), ("n1", 3, 377, "GPU-d")]
# recorded on two nodes, of which one had lost a device file
RECORDED = """\
0: {"probe": "collectives", "at": "n0", "subject": "2-nodes", "quantity": "nccl.ranks", "value": 4, "unit": "count"}
0: {"probe": "collectives", "at": "n0", "subject": "2-nodes", "quantity": "nccl.hosts", "value": 2, "unit": "count"}
0: {"probe": "collectives", "at": "n0", "subject": "2-nodes", "quantity": "nccl.devices", "value": 3, "unit": "count", \
"why": "2 ranks have nvidia0 (char 195:0) of n1"}
0: {"probe": "collectives", "at": "n0", "end": 3}
"""


def gathered(members) -> Parsed:
    return told_by(lambda probe: collectives.say_members(probe, "2-nodes", members, []))


def verdict(parsed: Parsed, gate: str) -> Verdict:
    return about(gate, parsed, a_run("nccl_monitoring", profile="generic"))["2-nodes"]


def test_four_ranks_on_four_gpus_pass():
    assert {verdict(gathered(GPUS), f"nccl.{what}").outcome for what in ("ranks", "hosts", "devices")} == {Outcome.PASS}


def test_two_ranks_on_one_gpu_fail_and_are_named_though_ranks_and_hosts_are_right():
    parsed = gathered([*GPUS[:3], ("n1", 3, 377, "GPU-c")])
    judged_verdict = verdict(parsed, "nccl.devices")
    assert (judged_verdict.outcome, judged_verdict.observed, judged_verdict.expected) == (
        Outcome.FAIL,
        "3 (2 ranks have GPU-c of n1)",
        "4",
    )
    assert verdict(parsed, "nccl.ranks").outcome is verdict(parsed, "nccl.hosts").outcome is Outcome.PASS


def test_what_was_recorded_of_a_node_that_lost_a_device_fails():
    judged_verdict = verdict(facts.parse(RECORDED, "raw/collectives-2.jsonl"), "nccl.devices")
    assert (judged_verdict.outcome, judged_verdict.evidence) == (Outcome.FAIL, "raw/collectives-2.jsonl:3")
    assert "nvidia0 (char 195:0) of n1" in judged_verdict.observed


def test_the_same_device_file_on_two_hosts_is_two_devices():
    members = [(host, rank, pid, f"nvidia{rank % 2} (char 195:{rank % 2})") for host, rank, pid, _ in GPUS]
    assert verdict(gathered(members), "nccl.devices").outcome is Outcome.PASS


def test_a_rank_without_a_gpu_is_incomplete_and_no_device_of_its_own():
    assert verdict(gathered([*GPUS[:3], ("n1", 3, 377, None)]), "nccl.devices").outcome is Outcome.INCOMPLETE


@pytest.mark.parametrize(("allowed", "taken"), [(["a", "b"], ["a", "b"]), (["a"], ["a", "a"]), ([], [None, None])])
def test_ranks_take_devices_in_turn_and_wrap_around_where_there_are_fewer(monkeypatch, allowed, taken):
    monkeypatch.setattr(gpus, "openable", lambda: (allowed, []))
    assert [collectives.placeholder(local) for local in (0, 1)] == taken


def test_of_a_pair_one_rank_of_each_node_writes_nccls_log_and_elsewhere_all_do():
    assert [collectives.writes_log(local, ["all_reduce"], None) for local in range(4)] == [True, False, False, False]
    assert all(collectives.writes_log(local, [], None) for local in range(4))


# --- one GPU alone
# ----------------------------------------------------------------------------------------------------------

# of a node with several GPUs; the last line is what a rank that has no peer can only say
ALONE = """\
0: {"probe": "collectives", "at": "n0", "subject": "1-gpu", "quantity": "nccl.ranks", "value": 1, "unit": "count"}
0: {"probe": "collectives", "at": "n0", "subject": "1-gpu", "quantity": "nccl.hosts", "value": 1, "unit": "count"}
0: {"probe": "collectives", "at": "n0", "subject": "1-gpu", "quantity": "nccl.devices", "value": 1, "unit": "count"}
0: {"probe": "collectives", "at": "n0", "subject": "1-gpu", "quantity": "nccl.device", "value": "cpu", "unit": "text"}
0: {"probe": "collectives", "at": "n0", "subject": "1-gpu", "quantity": "nccl.device.fallback", "value": 0, "unit": "count"}
0: {"probe": "collectives", "at": "n0", "subject": "1-gpu", "quantity": "nccl.all_reduce.time@8KiB", "value": 23.9, "unit": "us"}
0: {"probe": "collectives", "at": "n0", "subject": "1-gpu", "quantity": "nccl.wrong_values", "value": 0, "unit": "count"}
0: {"probe": "collectives", "at": "n0", "subject": "n0/rank0", "quantity": "nccl.rank.wrong_values", "value": 0, "unit": "count"}
0: {"probe": "collectives", "at": "n0", "subject": "n0/rank0", "quantity": "nccl.rank.local_time", "value": 1.0, "unit": "ratio"}
0: {"probe": "collectives", "at": "n0", "end": 9}
"""  # noqa: E501  # a line of the probe is one line
ONE_RANK = {
    "nccl.step",
    "nccl.ranks",
    "nccl.hosts",
    "nccl.devices",
    "nccl.device",
    "nccl.device.fallback",
    "nccl.wrong_values",
}


def scaling(results: Path, gpus_per_node: int = 2) -> Path:
    return opened("nccl_scaling", results, gpus=gpus_per_node)


def test_one_gpu_is_the_first_scale_and_is_planned_for_no_speed_and_no_network():
    planned = plan.plan("nccl_scaling", ["n0", "n1"], 2, set())
    assert planned["nccl.step"] == ["1-gpu", "1-node", "2-nodes"]
    assert {gate for gate, subjects in planned.items() if "1-gpu" in subjects} == ONE_RANK


@pytest.mark.parametrize(
    ("phase", "gpus_per_node", "scales"),
    [
        ("nccl_scaling", 1, ["1-node", "2-nodes"]),
        ("nccl_monitoring", 2, ["2-nodes"]),
        ("nccl_monitoring", 1, ["2-nodes"]),
    ],
)
def test_one_gpu_is_no_scale_where_it_is_all_of_a_node_or_all_nodes_run_at_once(phase, gpus_per_node, scales):
    assert plan.plan(phase, ["n0", "n1"], gpus_per_node, set())["nccl.ranks"] == scales


def test_one_gpu_that_computes_rightly_passes_and_says_nothing_of_its_rank_among_others(tmp_path):
    folder = scaling(tmp_path)
    (folder / "raw/collectives-1gpu.jsonl").write_text(ALONE)
    (folder / "raw/collectives-1gpu.rc").write_text("0\n")
    judged = judge.judge_folder(folder).verdicts.verdicts
    assert {
        verdict.gate for verdict in judged if verdict.subject == "1-gpu" and verdict.outcome is Outcome.PASS
    } == ONE_RANK
    assert {verdict.outcome for verdict in judged if verdict.subject == "n0/rank0"} == {Outcome.INCOMPLETE}


def test_one_gpu_that_computes_wrongly_or_ends_badly_fails(tmp_path):
    folder = scaling(tmp_path)
    (folder / "raw/collectives-1gpu.jsonl").write_text(
        ALONE.replace('wrong_values", "value": 0', 'wrong_values", "value": 3')
    )
    (folder / "raw/collectives-1gpu.rc").write_text("134\n")
    judged = {(verdict.gate, verdict.subject): verdict for verdict in judge.judge_folder(folder).verdicts.verdicts}
    assert judged["nccl.wrong_values", "1-gpu"].outcome is judged["nccl.step", "1-gpu"].outcome is Outcome.FAIL


def test_the_bandwidth_that_nccl_tests_print_for_one_gpu_is_no_point_of_any_curve(tmp_path):
    folder = scaling(tmp_path)
    rows = "".join(f"{size:12} {size // 4:10} float sum -1  5.1 1.6 0.00 0  5.0 1.6 0.00 0\n" for size in (8192, 2**30))
    table = (FIXTURES / "nccl/tests-healthy.txt").read_text()
    columns = next(line for line in table.splitlines() if "busbw" in line)
    device = "#  Rank  0 Group  0 Pid  81 on n0 device  0 [0000:19:00] NVIDIA H100 80GB HBM3\n"
    for listed in (device, ""):  # with the list of devices cut out one rank cannot be told from many
        (folder / "raw/all_reduce_perf-1gpu.txt").write_text(
            f"{listed}{columns}\n{rows}# Out of bounds values : 0 OK\n"
        )
        judged = judge.judge_folder(folder)
        assert {
            observation.subject
            for observation in judged.observations
            if observation.quantity == "nccl.all_reduce.time@1GiB"
        } == {"1-gpu"}
        assert curve.curves(judged.observations) == {}
        assert sheet.draw(judged) == []
        assert not [observation for observation in judged.observations if observation.quantity.startswith("nccl.curve")]
        assert (
            next(
                verdict
                for verdict in judged.verdicts.verdicts
                if (verdict.gate, verdict.subject) == ("nccl.wrong_values", "1-gpu")
            ).outcome
            is Outcome.PASS
        )


def test_of_two_measurements_of_a_size_the_slower_is_a_point_of_the_curve_and_of_equal_ones_the_first():
    parsed = Parsed()
    for line, busbw in enumerate((390.0, 380.0, 380.0), start=1):
        parsed.saw("nccl.all_reduce.busbw@1GiB", "2-nodes", busbw, "GB/s", f"raw/all_reduce_perf-2.txt:{line}")
    [(size, busbw, shown)] = curve.curves(parsed.observations)["2-nodes"]["all_reduce"]
    assert (size, busbw, shown.evidence) == (2**30, 380.0, "raw/all_reduce_perf-2.txt:2")


def test_no_folder_among_the_evidence_is_taken_for_that_of_a_scale_by_mistake(tmp_path):
    folder = scaling(tmp_path)
    for name in ("nccl-1x", "nccl-0", "nccl-", "nccl-1gpu2"):
        (folder / "raw" / name).mkdir()
        (folder / "raw" / name / "n0.log").write_text("x")
    (folder / "raw/collectives-0.rc").write_text("0\n")
    assert {observation.quantity for observation in judge.judge_folder(folder).observations} == {"run.restarts"}


@for_each(
    ("name", "size"),
    [("16MiB", 2**24), ("8B", 8), *((name, None) for name in ("MiB", "²KiB", "1.5GiB", "-1B", "9" * 5000 + "B"))],
    ids=lambda value: str(value)[:8],
)
def test_a_size_is_whole_and_of_ordinary_digits_or_none(name, size):
    assert curve.size_bytes(name) == size


@pytest.mark.parametrize("code", ["9" * 5000, "", "-1", "²", "0x0", "1 2"])
def test_what_no_step_could_have_ended_with_is_no_exit_code(tmp_path, code):
    folder = scaling(tmp_path)
    (folder / "raw/collectives-1gpu.rc").write_text(code)
    judged = judge.judge_folder(folder)
    assert not [seen for seen in judged.observations if seen.quantity.startswith("nccl.step")]
    assert any("not an exit code" in problem for problem in judged.problems)


def test_a_log_of_nccl_that_cannot_be_read_is_a_problem_and_leaves_the_transport_unknown(tmp_path):
    folder = scaling(tmp_path)
    fact = {"subject": "1-gpu", "quantity": "nccl.backend", "value": "nccl", "unit": "text"}
    lines = [json.dumps({"probe": "collectives", "at": "n0", **rest}) for rest in (fact, {"end": 1})]
    (folder / "raw/collectives-1gpu.jsonl").write_text("".join(f"0: {line}\n" for line in lines))
    (folder / "raw/nccl-1gpu/nccl.n0.1.log").mkdir(parents=True)  # a folder: what no user can read, root neither
    judged = judge.judge_folder(folder)
    assert "raw/nccl-1gpu/nccl.n0.1.log: cannot be read: a folder is in the place of a file" in judged.problems
    assert [seen.value for seen in judged.observations if seen.quantity == "nccl.transport"] == [None]


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
    facts = [json.loads(line) for line in output.getvalue().splitlines()]
    assert {fact["quantity"]: fact["value"] for fact in facts}["nccl.all_reduce.busbw@8GiB"] is None
    assert {fact["why"] for fact in facts} == {
        "17.0 GiB are needed for 8GiB, and n0/rank1 has 14.0 GiB of GPU memory free"
    }
