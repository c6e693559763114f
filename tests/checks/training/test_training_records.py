"""From the records of a training run to verdicts and comparisons, on records of real runs of the tiny model."""

import json
import os
import shutil
from pathlib import Path

import pytest
from bringup.kernel import judge
from bringup.kernel.plan import profile
from bringup.kernel.plan import scope as plan
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Outcome, Verdict, read_record
from bringup.training.domain import records as training
from bringup.training.records import RankTimes, TrainMetrics
from loops import case_for_each, for_each
from runs_for_tests import FAIL, OPEN, PASS, failing
from showing import check, shows_failing
from trained_runs import RECORDS, STEMS, bad, change, rank_said, run_of


@pytest.mark.parametrize("stem", STEMS)
def test_a_healthy_run_of_every_strategy_passes(tmp_path, stem):
    assert bad(run_of(stem, tmp_path)) == {}


ACROSS = {"observed_mesh": [[0, 2], [1, 3]], "parameter_checksums": [1.0] * 4}
FIELDS = [  # what a record has otherwise; the gate about the job; its outcome; its words
    ("run_1gpu", {"loss": [5.0] * 12}, "train.loss.fell", FAIL, ""),
    ("run_ddp_1node", {"loss": [6.0, 5.0]}, "train.loss.fell", OPEN, ""),
    ("run_ddp_1node", {"loss": [6.0, 5.0]}, "train.loss.agrees", OPEN, ""),
    (
        "run_ddp_2node",
        {
            "world_size": 3,
            "parameter_checksums": [1.0] * 3,
            "observed_hosts": ["n0", "n0", "n1"],
            "observed_devices": ["cpu"] * 3,
            "rank_times_s": dict.fromkeys(RankTimes.model_fields, [0.1] * 3),
            "standstills": [{"seconds": 0.0}] * 3,
            "communication": None,
            "communication_share": None,
        },
        *("train.world_size", FAIL, ""),
    ),
    # two numbers a node: the reader of samples needs both
    ("run_ddp_2node", {"window_unix_s": {"n0": [], "n1": [1.0, 2.0]}}, "train.world_size", OPEN, ""),
    ("run_ddp_2node", {"transport": "tcp:eth0+tcp:eth9"}, "train.transport", FAIL, ""),
    ("run_fsdp_2node", {"transport": None, "transport_reason": "no way seen"}, "train.transport", OPEN, "no way seen"),
    ("run_ddp_2node", {"observed_kind": "single"}, "train.strategy", FAIL, ""),
    ("run_fsdp_2node", {"observed_kind": "ddp"}, "train.strategy", FAIL, ""),
    *(  # a mesh that is no grid of the ranks is no record
        ("run_hsdp_2node", {"observed_mesh": mesh}, "train.strategy", OPEN, "")
        for mesh in ([[0, 1], [2, 9]], [], [[]], [[0, 1], [2]], [[0, 1], [1, 2]])
    ),
    ("run_ddp_2node", {"sample_distinct": 700}, "train.samples.repeated", FAIL, ""),
    ("run_ddp_1node", {"sample_count": 0, "sample_distinct": 0}, "train.samples.repeated", OPEN, ""),
    ("run_ddp_2node", {"parameter_checksums": [1.0, 1.0, 1.0, 1.5]}, "train.replicas.difference", FAIL, ""),
    ("run_hsdp_2node", {"parameter_checksums": [1.0, 2.0, 1.0, 2.5]}, "train.replicas.difference", FAIL, ""),
    # a rehearsal in between read both replicas back alike
    ("run_ddp_2node", {"parameter_checksums_rehearsed": [1.0, 1.0, 1.0, 1.5]}, "train.replicas.difference", FAIL, ""),
    ("run_fsdp_2node", {"observed_parameters_local_max": 213568}, "train.shard.size", FAIL, ""),
    ("run_hsdp_2node", ACROSS, "train.shard.inside_node", FAIL, ""),
    ("run_fsdp_2node", {"observed_recomputed_layers": 4}, "train.variant", FAIL, ""),
    ("run_ddp_1node", {"observed_loss_dtype": "bfloat16"}, "train.variant", FAIL, ""),
]
IN_EACH = {"sync_each_batch": True, "gradient_accumulation": 2}
ARGUMENTS = [
    ("run_hsdp_2node", {"shard_size": 4}, "train.variant", FAIL, "shard_size: asked 4, observed 2"),
    ("run_fsdp_1node", IN_EACH, "train.variant", FAIL, "sync_each_batch: asked True, obs"),
    ("run_ddp_1node", {"learning_rate": 0.01}, "train.loss.agrees", OPEN, "learning_rate 0.001 vs 0.01"),
]


@shows_failing(*failing(row[2:] for row in FIELDS))
@for_each(*FIELDS, *ARGUMENTS)
def test_every_training_gate_can_fail_and_passes_nothing_that_is_not_there(
    tmp_path_factory, stem, fields, gate, outcome, says
):
    folder = run_of(stem, tmp_path_factory.mktemp("run"))
    of_arguments = (stem, fields, gate, outcome, says) in ARGUMENTS
    change(folder, "run_args.json" if of_arguments else "metrics.json", **fields)
    verdict = bad(folder)[gate, "job"]
    assert verdict.outcome is outcome
    assert says in str(verdict.cause)


def under_nccl(results: Path, *networks: str) -> Path:
    """A run on GPUs of two nodes, with a log of NCCL per network that a node named."""
    folder = run_of("run_ddp_2node", results)
    why = "NCCL's log in raw/ names it"
    change(folder, "metrics.json", transport=None, transport_reason=why, observed_backend="nccl")
    of_backend = {"subject": "2-nodes", "quantity": "nccl.backend", "value": "nccl", "unit": "text"}
    nccl_facts = {"probe": "train", "at": "n0"} | of_backend
    (folder / "raw/backend.jsonl").write_text(
        f"0: {json.dumps(nccl_facts)}\n0: {json.dumps({'probe': 'train', 'at': 'n0', 'end': 1})}\n"
    )
    (folder / "raw/nccl-2").mkdir()
    for node, network in enumerate(networks):
        line = f"n{node}:40:41 [0] NCCL INFO Using network {network}\n"
        (folder / f"raw/nccl-2/nccl.n{node}.40.log").write_text(line)
    return folder


def of_transport(folder: Path, name: str) -> Verdict:
    verdicts = judge.judge_folder(folder, profile.load(name)).verdicts.verdicts
    return next(v for v in verdicts if v.gate == "train.transport")


@case_for_each(
    (("IB", "IB"), PASS, "IB"),
    (("IBext_v10", "IBext_v10"), PASS, "IBext_v10"),  # HPC-X
    (("Libfabric", "Libfabric"), OPEN, "Libfabric is not known to this version"),  # no provider
    (("FastSocket", "FastSocket"), FAIL, "FastSocket"),
    (("Socket", "Socket"), FAIL, "Socket"),
    (("IB", "Socket"), FAIL, "IB+Socket"),
    (("IB",), OPEN, "1 of 2 nodes left a log of NCCL"),
    ((), OPEN, "0 of 2 nodes left a log of NCCL"),
)
def test_under_nccl_the_log_of_every_node_says_what_carried_training(tmp_path, networks, outcome, says):
    check(of_transport(under_nccl(tmp_path, *networks), "h100-8x400g"), outcome, says)


@pytest.mark.parametrize(("providers", "outcome"), [(("efa", "efa"), PASS), (("efa", "tcp"), FAIL)])
def test_training_over_efa_is_known_by_the_provider_of_every_node(tmp_path, providers, outcome):
    selected = "NET/OFI Selected provider is"
    words = (f"Libfabric\nn0:40:41 [0] NCCL INFO {selected} {each} (found 8 nics)" for each in providers)
    assert of_transport(under_nccl(tmp_path, *words), "h100-efa-p5").outcome is outcome


def test_two_logs_of_one_node_say_nothing_of_the_other(tmp_path):
    folder = under_nccl(tmp_path, "IB")
    (folder / "raw/nccl-2/nccl.n0.77.log").write_text("n0:77:78 [0] NCCL INFO Using network IB\n")
    check(of_transport(folder, "h100-8x400g"), OPEN, "1 of 2 nodes left a log of NCCL")


def test_one_node_has_no_transport_to_judge():
    for stem in STEMS:
        nodes = ["n0", "n1"] if PHASES[stem].min_nodes == 2 else ["n0"]
        assert ("train.transport" in plan.plan(stem, nodes, 2, set())) is (len(nodes) == 2)


def test_a_loss_that_drifts_from_the_reference_fails(tmp_path):
    folder = run_of("run_ddp_1node", tmp_path)
    losses = read_record(folder / "metrics.json", TrainMetrics).loss
    change(folder, "metrics.json", loss=[*losses[:6], losses[6] + 2e-3, *(loss + 1e-3 for loss in losses[7:])])
    verdict = bad(folder)["train.loss.agrees", "job"]
    assert verdict.outcome is FAIL
    assert float(verdict.observed.split()[0]) == pytest.approx((2e-3 + 5e-3) / len(losses), rel=0.01)
    assert "most at step 7: " in verdict.observed


def test_a_gradient_of_another_scale_fails_though_the_loss_agrees(tmp_path):
    folder = run_of("run_fsdp_1node", tmp_path)
    norms = read_record(folder / "metrics.json", TrainMetrics).grad_norm
    change(folder, "metrics.json", grad_norm=[2 * norm for norm in norms])
    failed = bad(folder)
    # the record was changed after it was sealed
    assert set(failed) == {("train.grad_norm.agrees", "job"), ("run.evidence", "job")}
    assert failed["train.grad_norm.agrees", "job"].outcome is FAIL
    assert failed["train.grad_norm.agrees", "job"].observed.startswith("1 (most at step ")


def test_without_a_reference_agreement_is_incomplete_and_says_what_to_run(tmp_path):
    verdict = bad(run_of("run_ddp_1node", tmp_path, reference=False))["train.loss.agrees", "job"]
    check(verdict, OPEN, "sbatch training/slurm/run_1gpu.sbatch")


def test_the_reference_is_the_newest_run_that_is_comparable(tmp_path):
    """A later run of another model is passed over. Where no run is comparable, the newest of all stays."""
    for age, (name, model) in enumerate((("mine", "tiny"), ("older", "tiny"), ("theirs", "llama"))):
        shutil.copytree(RECORDS / "run_1gpu", tmp_path / f"run_1gpu-{name}")
        change(tmp_path / f"run_1gpu-{name}", "run_args.json", model=model)
        change(tmp_path / f"run_1gpu-{name}", "metrics.json", wall_time_s=float(100 + age))
        os.utime(tmp_path / f"run_1gpu-{name}", (1000 + age, 1000 + age) if name != "older" else (1, 1))
    folder = run_of("run_ddp_1node", tmp_path, reference=False)
    assert bad(folder) == {}
    assert read_record(folder / "raw/reference.metrics.json", TrainMetrics).wall_time_s == 100
    for name in ("mine", "older"):
        shutil.rmtree(tmp_path / f"run_1gpu-{name}")
    alone = bad(run_of("run_ddp_1node", tmp_path, reference=False))["train.loss.agrees", "job"]
    assert "model tiny vs llama" in str(alone.cause) or "model llama vs tiny" in str(alone.cause)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
def test_metrics_cut_off_anywhere_are_incomplete(tmp_path, keep):
    folder = run_of("run_fsdp_2node", tmp_path)
    text = (folder / "metrics.json").read_text()
    (folder / "metrics.json").write_text(text[: int(len(text) * keep)])
    failed = bad(folder)
    assert {v.outcome for v in failed.values()} == {OPEN}
    assert ("train.world_size", "job") in failed


def test_a_rank_on_another_node_than_planned_is_incomplete_where_it_was_planned(tmp_path):
    folder = run_of("run_ddp_2node", tmp_path)
    rank = folder / "raw/rank3.jsonl"
    rank.write_text(rank.read_text().replace("n1", "n0"))
    assert bad(folder)["train.rank.finished", "n1/rank3"].outcome is OPEN


# as torchrun prints it, labelled by srun; shortened to the lines that count
TORCHRUN = """\
1: [0]:
1:   time      : 2026-11-20_12:39:05
1:   host      : n1
1:   rank      : 2 (local_rank: 0)
1:   exitcode  : 1 (pid: 75)
1: Root Cause (first observed failure):
1: [1]:
1:   rank      : 3 (local_rank: 1)
1:   exitcode  : -9 (pid: 76)
0:   rank      : 0 (local_rank: 0)
0:   exitcode  : -15 (pid: 99)
"""


def test_the_killed_rank_is_the_culprit_and_those_that_lost_it_are_not(tmp_path):
    folder = run_of("run_ddp_2node", tmp_path)
    (folder / "metrics.json").unlink()
    (folder / "raw/launch.log").write_text(TORCHRUN)
    (folder / "raw/rank3.jsonl").write_text("")
    lost = "RuntimeError: [enforce fail] Read error [10.77.1.11]:41226: Connection reset by peer"
    for rank, node in ((0, "n0"), (1, "n0"), (2, "n1")):
        rank_said(folder, node, rank, state="raised", error=lost)
    failed = {subject: v for (gate, subject), v in bad(folder).items() if gate == "train.rank.finished"}
    assert [subject for subject, v in failed.items() if v.outcome is FAIL] == ["n1/rank3"]
    assert len(failed) == 4
    assert failed["n1/rank3"].observed == "killed by signal 9"
    assert "lost its peers" in (failed["n0/rank0"].cause or "")


def test_a_rank_that_raised_by_itself_fails_with_its_own_words(tmp_path):
    folder = run_of("run_ddp_1node", tmp_path)
    rank_said(folder, "n0", 1, state="raised", error="ValueError: no data")
    check(bad(folder)["train.rank.finished", "n0/rank1"], FAIL, "ValueError: no data")


def test_replicas_are_compared_inside_their_groups_only():
    observed = read_record(RECORDS / "run_hsdp_2node/metrics.json", TrainMetrics).observed
    low, high = training.farthest_replicas(observed, [1.0, 2.0, 1.0, 2.0])
    assert high % 2 == low % 2  # of one column
    assert training.farthest_replicas(observed, [1.0, 1.0, 1.0, 2.0]) == (1, 3)
    assert training.farthest_replicas(observed, [2.0, 1.0, 1.0, 1.0]) == (2, 0)
    assert training.farthest_replicas(observed, [1.0, 1.0]) is None
    assert training.shard_count(observed) == 2


def test_an_undeclared_number_does_not_stop_the_phases_that_follow(tmp_path):
    folder = run_of("run_ddp_1node", tmp_path)
    bare = profile.load("local-cpu").model_copy(update={"expect": {}})
    verdicts = judge.judge_folder(folder, bare).verdicts.verdicts
    measured = ("device", "monitor.overhead", "straggler", "stall", "rank.stall")
    names = (*measured, "loss.fell", "loss.agrees", "grad_norm.agrees")
    assert {v.gate for v in verdicts if v.outcome is Outcome.NO_LIMIT} == {f"train.{name}" for name in names}
    assert not any(judge.is_fault_or_gap(v) for v in verdicts)
    change(folder, "metrics.json", observed_kind="single")
    assert any(judge.is_fault_or_gap(v) for v in judge.judge_folder(folder, bare).verdicts.verdicts)


def test_a_reference_that_is_no_one_gpu_run_is_no_reference(tmp_path):
    folder = run_of("run_ddp_1node", tmp_path)
    for file in ("run_args.json", "metrics.json"):
        shutil.copyfile(folder / file, folder / f"raw/reference.{file}")
    check(bad(folder)["train.loss.agrees", "job"], OPEN, "it is a ddp run on 2 ranks")


# ---- a rank that stood still for a while: who it was

STILL = {"seconds": 20.2, "step": 9, "part": "process", "cpu_s": 0.01}
BEATING = {"seconds": 0.0, "step": None, "part": None, "cpu_s": None}
RANK, JOB = ("train.rank.stall", "n1/rank3"), ("train.stall", "job")
IT_STOOD = {RANK: ["in step 9: the process stood still", "20.2"]}
IT_STOOD[JOB] = ["step 9 took", "n1/rank3 stood still for 20.2 s"]


@for_each(
    (STILL, 20.0, IT_STOOD),
    # one that computed meanwhile was not stopped
    (STILL | {"cpu_s": 19.0}, 20.0, {RANK: ["one call kept the interpreter for itself"], JOB: []}),
    (BEATING, 20.0, {JOB: ["no rank stood still in what it does itself"]}),
    (BEATING, 1.0, {}),
    (BEATING, [40.0, 55.0, 41.0, 42.0, 40.0], {}),  # 15 s more than the median, and uneven only
)
def test_the_rank_that_was_stopped_fails_and_those_that_waited_pass(tmp_path_factory, last, excess_s, expected):
    """In step 9 every rank took so much longer."""
    folder = run_of("run_ddp_2node", tmp_path_factory.mktemp("run"))
    steps = excess_s
    if not isinstance(steps, list):
        steps = json.loads((folder / "metrics.json").read_text())["steps_s"]
        steps[6] = steps[0] + excess_s
    change(folder, "metrics.json", steps_s=steps, standstills=[BEATING] * 3 + [last])
    stalls = {about: verdict for about, verdict in bad(folder).items() if "stall" in about[0]}
    assert {about: verdict.outcome for about, verdict in stalls.items()} == dict.fromkeys(expected, FAIL)
    for about, says in expected.items():
        assert [words for words in says if words not in f"{stalls[about].cause} {stalls[about].observed}"] == []


def test_of_two_steps_none_is_usual(tmp_path):
    folder = run_of("run_ddp_1node", tmp_path)
    change(folder, "metrics.json", steps_s=[0.1, 30.0])
    assert bad(folder)[JOB].outcome is OPEN


def test_the_lines_that_are_shown_while_it_trains_leave_no_note(tmp_path):
    folder = run_of("run_ddp_2node", tmp_path)
    (folder / "raw/progress.jsonl").write_text('{"step": 1, "of": 12, "loss_of_rank_0": 6.2, "step_s": 0.5}\n')
    problems = judge.judge_folder(folder).problems
    assert not [note for note in problems if "progress.jsonl" in note and "not a fact" in note]
