"""Real trainings on CPU: each strategy, also as accelerate starts it, trains what one process trains."""

import functools
import json
import sys
from collections.abc import Callable

import pytest
from bringup.training.formulae.models import CHUNKED_LOSS
from bringup.training.records import RunArgs
from loops import case_for_each
from programs import ROOT
from real_trainings import (
    ACCELERATE,
    BARE_LOOP,
    NOTHING_ELSE,
    ON_CPU,
    ONLY_TRAINED,
    TWELVE,
    Finished,
    changed,
    documents_tokenized,
    ended_well,
    one_node,
    train,
    two_nodes,
)
from tiers import first, in_test_all

KINDS = ["fsdp", "single", "ddp", "hsdp"]
BF16_GAP, BF16_NORM_GAP = 0.02, 0.1  # nats, and a share; 0.0016 and 0.042 were seen over 20 steps


@pytest.fixture(scope="module")
def of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Finished]:
    """A training of twelve steps of each kind, as it is first asked for."""
    return functools.cache(lambda kind: train(kind, tmp_path_factory.mktemp("runs") / kind, *TWELVE))


@pytest.fixture(scope="module")
def single(of: Callable[[str], Finished]) -> Finished:
    return of("single")


def require_same_training(run: Finished, single: Finished) -> None:
    """The loss and gradient norm of every step, and the rows, are those of one process; the records are valid."""
    assert set(run.codes) == {0}, run.output
    ours, reference = run.metrics(), single.metrics()
    assert ours.loss == pytest.approx(reference.loss, abs=1e-5)
    assert ours.grad_norm == pytest.approx(reference.grad_norm, rel=1e-5)
    assert len(ours.loss) == 12
    assert (ours.sample_count, ours.sample_distinct) == (12 * 8, 12 * 8)
    assert ours.tokens_per_step == reference.tokens_per_step == 8 * 128
    assert ours.tokens_per_s == pytest.approx(ours.tokens_per_s_per_rank * ours.world_size)
    assert (ours.mfu, ours.mfu_reason) == (None, "no peak is known for cpu")
    assert {name for name, value in run.args() if value != getattr(single.args(), name)} <= RunArgs.STRATEGY
    assert ours.observed.differs_from(run.args()) == []
    for rank in range(ours.world_size):
        assert run.value(rank, "train.rank.world_size") == ours.world_size
        assert run.value(rank, "train.rank.state") == "finished"
        assert "end" in run.facts(rank)


@pytest.mark.parametrize("kind", first(KINDS))
def test_trainer_computes_what_the_bare_loop_computes(of, tmp_path, kind):
    """Loss and gradient norm of every step, of plain PyTorch with DDP() and fully_shard() in plain sight."""
    trained, options = of(kind), ("--strategy", kind, *TWELVE)
    if kind == "hsdp":
        bare = two_nodes(tmp_path / "bare", 2, BARE_LOOP, *options)
    else:
        accumulation = ("--gradient-accumulation", "2") if kind == "ddp" else ()
        launcher = [sys.executable] if kind == "single" else None
        bare = one_node(tmp_path / "bare", BARE_LOOP, *options, *accumulation, launcher=launcher)
    assert set(bare.codes) == {0}, bare.output
    record = json.loads((bare.folder / "bare_loop.json").read_text())
    assert (record["strategy"], record["world_size"]) == (kind, trained.metrics().world_size)
    assert trained.metrics().loss == pytest.approx(record["loss"], rel=1e-5)
    assert trained.metrics().grad_norm == pytest.approx(record["grad_norm"], rel=1e-5)


def test_one_process_trains_and_the_loss_falls(single):
    require_same_training(single, single)
    metrics = single.metrics()
    assert metrics.observed.kind == "single"
    assert metrics.loss[-1] < metrics.loss[0] - 0.3
    assert metrics.step_time_s.window_steps == 10
    assert sum(metrics.startup.model_dump().values()) < metrics.wall_time_s
    assert "12 steps" in single.output
    assert "warn" not in single.output.lower()


@in_test_all
def test_accumulation_and_recomputation_change_nothing_in_one_process(tmp_path, single):
    options = (*TWELVE, "--gradient-accumulation", "4", "--activation-checkpointing")
    run = train("single", tmp_path / "recomputed", *options)
    require_same_training(run, single)
    assert (run.metrics().observed.recomputed_layers, run.metrics().observed.decoder_layers) == (4, 4)
    assert single.metrics().observed.recomputed_layers == 0
    assert {each.metrics().observed.layer_class for each in (run, single)} == {"LlamaDecoderLayer"}


def test_ddp_is_one_training_on_two_ranks(of, single):
    ddp = of("ddp")
    require_same_training(ddp, single)
    observed = ddp.metrics().observed
    assert (observed.kind, observed.wrapper, observed.hosts) == ("ddp", "DistributedDataParallel", ["n0", "n0"])
    assert len(set(ddp.metrics().parameter_checksums)) == 1


@in_test_all
def test_ddp_across_two_nodes(tmp_path, single):
    run = two_nodes(tmp_path / "ddp2", 1, "train_ddp_multi_node", *TWELVE)
    require_same_training(run, single)
    assert run.metrics().observed.hosts == ["n0", "n1"]
    assert run.args().nodes == 2


def test_fsdp_holds_half_of_the_parameters_per_rank(of, single):
    fsdp = of("fsdp")
    require_same_training(fsdp, single)
    observed = fsdp.metrics().observed
    assert (observed.kind, observed.placements, observed.mesh) == ("fsdp", ["(Shard(dim=0),)"], [[0, 1]])
    assert observed.reshard_after_forward is True
    assert observed.parameters_local_max * 2 == observed.parameters
    assert fsdp.value(0, "train.strategy") == "fsdp"
    communication = fsdp.metrics().communication
    assert {each.operation: each.calls for each in communication.collectives} == {"all_gather": 11, "reduce_scatter": 6}


ZERO2_RECOMPUTED = ("--no-reshard-after-forward", "--activation-checkpointing")
VARIANTS = [(ZERO2_RECOMPUTED, {"reshard_after_forward": False, "recomputed_layers": 4})]
VARIANTS += [(("--gradient-accumulation", "2"), {"reshard_after_forward": True, "recomputed_layers": 0})]


@case_for_each(*first(VARIANTS), ids=first(["zero2-recomputed", "accumulated"]))
def test_variants_of_fsdp_are_seen_and_train_the_same(tmp_path, single, options, seen):
    run = one_node(tmp_path / "variant", "train_fsdp_single_node", *ONLY_TRAINED, *options)
    require_same_training(run, single)
    observed = run.metrics().observed
    assert {name: getattr(observed, name) for name in seen} == seen


def test_bf16_is_compute_only_and_the_loss_stays_float32(tmp_path, single):
    run = one_node(tmp_path / "bf16", "train_fsdp_single_node", *ONLY_TRAINED, "--bf16", "--reduce-dtype", "bfloat16")
    assert run.codes == [0], run.output
    observed = run.metrics().observed
    assert (observed.master_dtype, observed.loss_dtype) == ("float32", "float32")
    assert (observed.compute_dtype, observed.reduce_dtype) == ("bfloat16", "bfloat16")
    assert run.metrics().loss == pytest.approx(single.metrics().loss, abs=BF16_GAP)
    assert run.metrics().grad_norm == pytest.approx(single.metrics().grad_norm, rel=BF16_NORM_GAP)
    assert len({loss * 32 % 1 for loss in run.metrics().loss}) > 10  # a bf16 loss near 6 moves in steps of 1/32


# what TrainingArguments count where a node with eight GPUs shows all of them to one process
EIGHT_IN_SIGHT = """
import functools
from transformers import TrainingArguments

setup = TrainingArguments._setup_devices.func

def _setup_devices(self):
    device = setup(self)
    self._n_gpu = 8
    return device

TrainingArguments._setup_devices = functools.cached_property(_setup_devices)
TrainingArguments._setup_devices.__set_name__(TrainingArguments, "_setup_devices")
"""


def test_one_process_takes_one_gpu_of_those_in_sight(tmp_path, monkeypatch):
    """Trainer would wrap the model in DataParallel. The benchmarks start this program without a launcher."""
    changed(EIGHT_IN_SIGHT, tmp_path, monkeypatch)
    run = ended_well(one_node(tmp_path / "run", "train_single_gpu", launcher=[sys.executable]))
    assert run.metrics().observed.kind == "single"


BUFFERS_ARE_SENT = """
from torch.nn.parallel import DistributedDataParallel

def _sync_buffers(self):
    raise AssertionError("buffers were broadcast before a forward pass")

DistributedDataParallel._sync_buffers = _sync_buffers
"""
GRADIENTS_ARE_BUCKETS = """
from transformers import Trainer

train = Trainer.training_step

def training_step(self, model, *rest):
    loss = train(self, model, *rest)
    if self.state.global_step:  # the buckets are made anew after the first step
        gradients = [p.grad for p in model.parameters()]
        storages = {g.untyped_storage().data_ptr(): g.untyped_storage().nbytes() for g in gradients}
        assert len(storages) < len(gradients), "gradients have memory of their own, beside DDP's buckets"
        assert sum(storages.values()) == 4 * sum(g.numel() for g in gradients)
    return loss

Trainer.training_step = training_step
"""


@pytest.mark.parametrize("program", first(["train_ddp_single_node", BARE_LOOP]))
def test_ddp_sends_no_buffers_and_its_buckets_are_the_gradients_in_every_micro_step(tmp_path, monkeypatch, program):
    """Rotary tables are the same on all ranks for ever, and ranks would wait for one another before each step. With
    gradients of their own, each rank has two copies of them: 4 bytes more per parameter."""
    recipe = program != BARE_LOOP
    changed(BUFFERS_ARE_SENT + (GRADIENTS_ARE_BUCKETS if recipe else ""), tmp_path, monkeypatch)
    options = NOTHING_ELSE if recipe else ("--strategy", "ddp")
    ended_well(one_node(tmp_path / "run", program, "--gradient-accumulation", "2", *options))


# a rank has 512 or 256 tokens in a micro-step here: some chunks, and a small one at the end. Compiling takes long on a
# CPU, and has a test of its own
SMALL_CHUNKS = """
import os
import bringup.training.formulae.memory

bringup.training.formulae.memory.CHUNK_TOKENS = 96
os.environ["TORCHDYNAMO_DISABLE"] = "1"
"""


@pytest.mark.parametrize("kind", first(KINDS))
def test_with_the_loss_in_chunks_the_same_is_trained(of, tmp_path, monkeypatch, kind):
    whole = of(kind)
    changed(SMALL_CHUNKS, tmp_path, monkeypatch)
    run = ended_well(train(kind, tmp_path / "run", *ONLY_TRAINED, "--recipe", "fast"))
    assert run.args().tuning[CHUNKED_LOSS] == "on"
    assert run.metrics().loss == pytest.approx(whole.metrics().loss, abs=2e-6)
    assert run.metrics().grad_norm == pytest.approx(whole.metrics().grad_norm, rel=1e-5)


@in_test_all
@pytest.mark.parametrize("program", ["train_ddp_single_node", "train_fsdp_single_node"])
def test_in_bfloat16_too_and_the_loss_stays_float32(tmp_path, monkeypatch, single, program):
    changed(SMALL_CHUNKS, tmp_path, monkeypatch)
    run = ended_well(one_node(tmp_path / "run", program, *ONLY_TRAINED, "--bf16", "--recipe", "fast"))
    metrics = run.metrics()
    assert metrics.observed.loss_dtype == "float32"
    assert metrics.loss == pytest.approx(single.metrics().loss, abs=BF16_GAP)
    assert len({loss * 32 % 1 for loss in metrics.loss}) > 10


# as Liger's fused LM head and loss: the head is never called, its weight is multiplied in the types that are there
FUSED_HEAD = """
import torch
from transformers.models.llama.modeling_llama import LlamaForCausalLM as Model
from transformers.modeling_outputs import CausalLMOutputWithPast

def forward(self, input_ids, labels, **kwargs):
    hidden = self.model(input_ids=input_ids).last_hidden_state
    logits = hidden[:, :-1] @ self.lm_head.weight.t()
    loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels[:, 1:].flatten())
    return CausalLMOutputWithPast(loss=loss)

Model.forward = forward
"""


@in_test_all
@pytest.mark.parametrize("strategy", ["fsdp", "hsdp"])
def test_a_fused_head_gets_hidden_states_in_the_type_of_its_weight(tmp_path, monkeypatch, single, strategy):
    """As Liger's, which people add to such a training. It gives the losses of the head that is called."""
    changed(FUSED_HEAD, tmp_path, monkeypatch)
    fused = ended_well(train(strategy, tmp_path / "fused", *ONLY_TRAINED, "--bf16"))
    assert fused.metrics().loss == pytest.approx(single.metrics().loss, abs=BF16_GAP)


def test_hsdp_shards_inside_a_node_and_replicates_across(of, single):
    hsdp = of("hsdp")
    require_same_training(hsdp, single)
    observed = hsdp.metrics().observed
    assert (observed.kind, observed.mesh) == ("hsdp", [[0, 1], [2, 3]])
    assert observed.placements == ["(Replicate(), Shard(dim=0))"]
    assert observed.hosts == ["n0", "n0", "n1", "n1"]
    sums = hsdp.metrics().parameter_checksums
    assert (sums[0], sums[1]) == (sums[2], sums[3])


@in_test_all
def test_a_shard_group_of_several_nodes(tmp_path, single):
    options = (*TWELVE, "--hsdp", "--shard-size", "2")
    run = two_nodes(tmp_path / "groups", 1, "train_fsdp_multi_node", *options, nodes=4)
    require_same_training(run, single)
    metrics = run.metrics()
    assert (metrics.observed.kind, metrics.observed.mesh) == ("hsdp", [[0, 1], [2, 3]])
    assert metrics.observed.hosts == ["n0", "n1", "n2", "n3"]
    assert metrics.observed.parameters_local_max * 2 == metrics.observed.parameters
    assert metrics.observed.scattered(run.args()) == []
    assert run.args().shard_size == 2
    assert {(each.operation, each.over, each.ranks) for each in metrics.communication.collectives} == {
        ("all_gather", "nodes", 2),
        ("reduce_scatter", "nodes", 2),
        ("all_reduce", "replicas", 2),
    }
    predicted = metrics.memory_check.states_predicted_bytes
    assert metrics.memory_check.states_measured_bytes == pytest.approx(predicted, rel=1e-3)


def test_rows_are_tokenized_by_one_rank_of_each_node(of):
    assert [count > 0 for count in documents_tokenized(of("fsdp"))] == [True, False]
    assert [count > 0 for count in documents_tokenized(of("hsdp"))] == [True, False, True, False]


@pytest.mark.parametrize("kind", first(["ddp", "fsdp"]))
def test_accelerate_launch_trains_what_torchrun_trains(of, tmp_path, kind):
    theirs = of(kind)
    launcher = [*ACCELERATE, str(ROOT / f"training/accelerate/{kind}_1node_8gpu.yaml"), *ON_CPU, "--num_processes", "2"]
    run = ended_well(train(kind, tmp_path / "accelerate", *TWELVE, launcher=launcher))
    assert run.metrics().observed == theirs.metrics().observed
    assert run.args() == theirs.args()
    assert run.metrics().loss == pytest.approx(theirs.metrics().loss, abs=1e-5)


@in_test_all
def test_accelerate_launch_makes_the_mesh_of_torchrun(tmp_path, of):
    options = (*ONLY_TRAINED, "--hsdp")
    run = two_nodes(tmp_path / "accelerate", 2, "train_fsdp_multi_node", *options, config="hsdp_2node_16gpu")
    assert set(run.codes) == {0}, run.output
    assert run.metrics().observed == of("hsdp").metrics().observed
    assert run.metrics().loss == pytest.approx(of("hsdp").metrics().loss, abs=1e-5)


@in_test_all
def test_gradients_that_are_summed_show_in_the_norm_and_not_in_the_loss(tmp_path, single):
    run = one_node(tmp_path / "summed", "train_fsdp_single_node", *ONLY_TRAINED, drill="sum-gradients")
    assert run.metrics().loss == pytest.approx(single.metrics().loss, abs=1e-4)
    assert run.metrics().grad_norm == pytest.approx([2 * norm for norm in single.metrics().grad_norm], rel=1e-3)
