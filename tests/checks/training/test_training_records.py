"""From the records of a training run to verdicts and comparisons, on records of real runs of the tiny model."""

import json
import os
import shutil
from pathlib import Path

import pytest
from bringup import judge
from bringup.derive import measured as training
from bringup.plan import planned as plan
from bringup.plan import profile
from bringup.plan.phases import PHASES
from bringup.records import Outcome, RankTimes, TrainMetrics, Verdict, read_record
from showing import shows_failing
from trained_runs import RECORDS, STEMS, bad, change, rank_said, run_of


@pytest.mark.parametrize("stem", STEMS)
def test_a_healthy_run_of_every_strategy_passes(tmp_path, stem):
    assert bad(run_of(stem, tmp_path)) == {}


@pytest.mark.parametrize(
    ("stem", "fields", "gate"),
    [
        ("run_1gpu", {"loss": [5.0] * 12}, "train.loss.fell"),
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
            "train.world_size",
        ),
        ("run_ddp_2node", {"transport": "tcp:eth0+tcp:eth9"}, "train.transport"),
        ("run_ddp_2node", {"observed_kind": "single"}, "train.strategy"),
        ("run_ddp_2node", {"sample_distinct": 700}, "train.samples.repeated"),
        ("run_ddp_2node", {"parameter_checksums": [1.0, 1.0, 1.0, 1.5]}, "train.replicas.difference"),
        ("run_hsdp_2node", {"parameter_checksums": [1.0, 2.0, 1.0, 2.5]}, "train.replicas.difference"),
        # a rehearsal in between read both replicas back alike
        ("run_ddp_2node", {"parameter_checksums_rehearsed": [1.0, 1.0, 1.0, 1.5]}, "train.replicas.difference"),
        pytest.param(
            "run_fsdp_2node",
            {"observed_parameters_local_max": 213568},
            "train.shard.size",
            marks=shows_failing("train.shard.size"),
        ),
        pytest.param(
            "run_hsdp_2node",
            {"observed_mesh": [[0, 2], [1, 3]], "parameter_checksums": [1.0] * 4},
            "train.shard.inside_node",
            marks=shows_failing("train.shard.inside_node"),
        ),
        ("run_fsdp_2node", {"observed_kind": "ddp"}, "train.strategy"),
        ("run_fsdp_2node", {"observed_recomputed_layers": 4}, "train.variant"),
        ("run_ddp_1node", {"observed_loss_dtype": "bfloat16"}, "train.variant"),
    ],
)
def test_every_training_gate_can_fail(tmp_path, stem, fields, gate):
    folder = run_of(stem, tmp_path)
    change(folder, "metrics.json", **fields)
    assert bad(folder)[gate, "job"].outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("stem", "requested", "says"),
    [
        ("run_hsdp_2node", {"shard_size": 4}, "shard_size: asked 4, observed 2"),
        ("run_fsdp_1node", {"sync_each_batch": True, "gradient_accumulation": 2}, "sync_each_batch: asked True, obs"),
    ],
)
def test_an_option_of_which_the_run_shows_nothing_is_another_variant(tmp_path, stem, requested, says):
    folder = run_of(stem, tmp_path)
    path = folder / "run_args.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | requested))
    verdict = bad(folder)["train.variant", "job"]
    assert verdict.outcome is Outcome.FAIL
    assert says in str(verdict.cause)


def test_training_across_nodes_whose_transport_is_not_known_is_incomplete(tmp_path):
    folder = run_of("run_fsdp_2node", tmp_path)
    change(folder, "metrics.json", transport=None, transport_reason="no interface carried 9 bytes on 1 ranks' hosts")
    verdict = bad(folder)["train.transport", "job"]
    assert verdict.outcome is Outcome.INCOMPLETE
    assert "no interface carried 9 bytes" in (verdict.cause or "")


def under_nccl(results: Path, *networks: str) -> Path:
    """A run on GPUs of two nodes, with a log of NCCL per network that a node named."""
    folder = run_of("run_ddp_2node", results)
    change(
        folder, "metrics.json", transport=None, transport_reason="NCCL's log in raw/ names it", observed_backend="nccl"
    )
    of_backend = {"subject": "2-nodes", "quantity": "nccl.backend", "value": "nccl", "unit": "text"}
    nccl_facts = {"probe": "train", "at": "n0"} | of_backend
    (folder / "raw/backend.jsonl").write_text(
        f"0: {json.dumps(nccl_facts)}\n0: {json.dumps({'probe': 'train', 'at': 'n0', 'end': 1})}\n"
    )
    (folder / "raw/nccl-2").mkdir()
    for node, network in enumerate(networks):
        (folder / f"raw/nccl-2/nccl.n{node}.40.log").write_text(
            f"n{node}:40:41 [0] NCCL INFO Using network {network}\n"
        )
    return folder


def of_transport(folder: Path, name: str) -> Verdict:
    verdicts = judge.judge_folder(folder, profile.load(name)).verdicts.verdicts
    return next(v for v in verdicts if v.gate == "train.transport")


@pytest.mark.parametrize(
    ("networks", "outcome", "says"),
    [
        (("IB", "IB"), Outcome.PASS, "IB"),
        (("IBext_v10", "IBext_v10"), Outcome.PASS, "IBext_v10"),  # HPC-X
        (("Libfabric", "Libfabric"), Outcome.INCOMPLETE, "Libfabric is not known to this version"),  # no provider
        (("FastSocket", "FastSocket"), Outcome.FAIL, "FastSocket"),
        (("Socket", "Socket"), Outcome.FAIL, "Socket"),
        (("IB", "Socket"), Outcome.FAIL, "IB+Socket"),
        (("IB",), Outcome.INCOMPLETE, "1 of 2 nodes left a log of NCCL"),
        ((), Outcome.INCOMPLETE, "0 of 2 nodes left a log of NCCL"),
    ],
)
def test_under_nccl_the_log_of_every_node_says_what_carried_training(tmp_path, networks, outcome, says):
    folder = under_nccl(tmp_path, *networks)
    verdict = of_transport(folder, "h100-8x400g")
    assert verdict.outcome is outcome
    assert says in f"{verdict.observed} {verdict.cause}"


@pytest.mark.parametrize(("providers", "outcome"), [(("efa", "efa"), Outcome.PASS), (("efa", "tcp"), Outcome.FAIL)])
def test_training_over_efa_is_known_by_the_provider_of_every_node(tmp_path, providers, outcome):
    selected = "NET/OFI Selected provider is"
    folder = under_nccl(
        tmp_path, *(f"Libfabric\nn0:40:41 [0] NCCL INFO {selected} {each} (found 8 nics)" for each in providers)
    )
    assert of_transport(folder, "h100-efa-p5").outcome is outcome


def test_two_logs_of_one_node_say_nothing_of_the_other(tmp_path):
    folder = under_nccl(tmp_path, "IB")
    (folder / "raw/nccl-2/nccl.n0.77.log").write_text("n0:77:78 [0] NCCL INFO Using network IB\n")
    verdict = of_transport(folder, "h100-8x400g")
    assert verdict.outcome is Outcome.INCOMPLETE
    assert "1 of 2 nodes left a log of NCCL" in (verdict.cause or "")


def test_one_node_has_no_transport_to_judge():
    for stem in STEMS:
        nodes = ["n0", "n1"] if PHASES[stem].min_nodes == 2 else ["n0"]
        assert ("train.transport" in plan.plan(stem, nodes, 2, set())) is (len(nodes) == 2)


def test_a_loss_that_drifts_from_the_reference_fails(tmp_path):
    folder = run_of("run_ddp_1node", tmp_path)
    losses = read_record(folder / "metrics.json", TrainMetrics).loss
    change(folder, "metrics.json", loss=[*losses[:6], losses[6] + 2e-3, *(loss + 1e-3 for loss in losses[7:])])
    verdict = bad(folder)["train.loss.agrees", "job"]
    assert verdict.outcome is Outcome.FAIL
    assert float(verdict.observed.split()[0]) == pytest.approx((2e-3 + 5e-3) / len(losses), rel=0.01)
    assert "most at step 7: " in verdict.observed


def test_a_gradient_of_another_scale_fails_though_the_loss_agrees(tmp_path):
    folder = run_of("run_fsdp_1node", tmp_path)
    norms = read_record(folder / "metrics.json", TrainMetrics).grad_norm
    change(folder, "metrics.json", grad_norm=[2 * norm for norm in norms])
    failed = bad(folder)
    # the record was changed after it was sealed
    assert set(failed) == {("train.grad_norm.agrees", "job"), ("run.evidence", "job")}
    assert failed["train.grad_norm.agrees", "job"].outcome is Outcome.FAIL
    assert failed["train.grad_norm.agrees", "job"].observed.startswith("1 (most at step ")


def test_without_a_reference_agreement_is_incomplete_and_says_what_to_run(tmp_path):
    verdict = bad(run_of("run_ddp_1node", tmp_path, reference=False))["train.loss.agrees", "job"]
    assert verdict.outcome is Outcome.INCOMPLETE
    assert "sbatch training/slurm/run_1gpu.sbatch" in (verdict.cause or "")


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


def test_a_reference_of_another_recipe_is_no_reference(tmp_path):
    folder = run_of("run_ddp_1node", tmp_path)
    change(folder, "run_args.json", learning_rate=0.01)
    verdict = bad(folder)["train.loss.agrees", "job"]
    assert verdict.outcome is Outcome.INCOMPLETE
    assert "learning_rate 0.001 vs 0.01" in (verdict.cause or "")


def test_losses_that_are_missing_are_incomplete(tmp_path):
    folder = run_of("run_ddp_1node", tmp_path)
    change(folder, "metrics.json", loss=[6.0, 5.0])
    failed = bad(folder)
    assert failed["train.loss.fell", "job"].outcome is Outcome.INCOMPLETE
    assert failed["train.loss.agrees", "job"].outcome is Outcome.INCOMPLETE


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
def test_metrics_cut_off_anywhere_are_incomplete(tmp_path, keep):
    folder = run_of("run_fsdp_2node", tmp_path)
    text = (folder / "metrics.json").read_text()
    (folder / "metrics.json").write_text(text[: int(len(text) * keep)])
    failed = bad(folder)
    assert {v.outcome for v in failed.values()} == {Outcome.INCOMPLETE}
    assert ("train.world_size", "job") in failed


def test_measured_steps_without_an_end_are_refused(tmp_path):
    """Two numbers a node: the reader of samples needs both."""
    folder = run_of("run_ddp_2node", tmp_path)
    change(folder, "metrics.json", window_unix_s={"n0": [], "n1": [1.0, 2.0]})
    assert bad(folder)["train.world_size", "job"].outcome is Outcome.INCOMPLETE


def test_a_rank_on_another_node_than_planned_is_incomplete_where_it_was_planned(tmp_path):
    folder = run_of("run_ddp_2node", tmp_path)
    rank = folder / "raw/rank3.jsonl"
    rank.write_text(rank.read_text().replace("n1", "n0"))
    assert bad(folder)["train.rank.finished", "n1/rank3"].outcome is Outcome.INCOMPLETE


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
    assert [subject for subject, v in failed.items() if v.outcome is Outcome.FAIL] == ["n1/rank3"]
    assert len(failed) == 4
    assert failed["n1/rank3"].observed == "killed by signal 9"
    assert "lost its peers" in (failed["n0/rank0"].cause or "")


def test_a_rank_that_raised_by_itself_fails_with_its_own_words(tmp_path):
    folder = run_of("run_ddp_1node", tmp_path)
    rank_said(folder, "n0", 1, state="raised", error="ValueError: no data")
    verdict = bad(folder)["train.rank.finished", "n0/rank1"]
    assert verdict.outcome is Outcome.FAIL
    assert "ValueError: no data" in verdict.observed


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
    assert {v.gate for v in verdicts if v.outcome is Outcome.NO_LIMIT} == {
        "train.device",
        "train.monitor.overhead",
        "train.loss.fell",
        "train.loss.agrees",
        "train.grad_norm.agrees",
        "train.straggler",
        "train.stall",
        "train.rank.stall",
    }
    assert not any(judge.is_fault_or_gap(v) for v in verdicts)
    change(folder, "metrics.json", observed_kind="single")
    assert any(judge.is_fault_or_gap(v) for v in judge.judge_folder(folder, bare).verdicts.verdicts)


@pytest.mark.parametrize("mesh", [[[0, 1], [2, 9]], [], [[]], [[0, 1], [2]], [[0, 1], [1, 2]]])
def test_a_mesh_that_is_no_grid_of_the_ranks_is_no_record(tmp_path, mesh):
    folder = run_of("run_hsdp_2node", tmp_path)
    change(folder, "metrics.json", observed_mesh=mesh)
    assert bad(folder)["train.strategy", "job"].outcome is Outcome.INCOMPLETE


def test_rows_that_were_never_consumed_are_not_distinct(tmp_path):
    folder = run_of("run_ddp_1node", tmp_path)
    change(folder, "metrics.json", sample_count=0, sample_distinct=0)
    assert bad(folder)["train.samples.repeated", "job"].outcome is Outcome.INCOMPLETE


def test_a_reference_that_is_no_one_gpu_run_is_no_reference(tmp_path):
    folder = run_of("run_ddp_1node", tmp_path)
    for file in ("run_args.json", "metrics.json"):
        shutil.copyfile(folder / file, folder / f"raw/reference.{file}")
    verdict = bad(folder)["train.loss.agrees", "job"]
    assert verdict.outcome is Outcome.INCOMPLETE
    assert "it is a ddp run on 2 ranks" in (verdict.cause or "")
