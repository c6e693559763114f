"""The formulae of memory and traffic, held against the real model, the real fully_shard and real autograd."""

import json
from dataclasses import replace
from typing import Any

import predict
import pytest
import torch
from advised import LLAMA
from bringup.kernel.errors import ModelError
from bringup.kernel.records import read_record
from bringup.training.formulae import memory, models, traffic
from bringup.training.formulae.models import Job
from bringup.training.records import RunArgs, elements
from loops import for_each
from runs_for_tests import FIXTURES
from torch.distributed.tensor import debug
from transformers import LlamaConfig, LlamaForCausalLM

# what training/src/predict.py printed with torch 2.13 (a line per run): the real model and the real fully_shard on fake
# tensors
COMPUTED = [json.loads(line) for line in (FIXTURES / "training/predicted.jsonl").read_text().splitlines()]
TOLERANCE = 0.05  # of the peak; the gate allows 0.15


def job_of(line: dict[str, Any]) -> Job:
    return Job(
        line["strategy"],
        line["nodes"],
        line["gpus_per_node"],
        line["sequence_length"],
        line["rows"],
        line["accumulation"],
        shard_size=line.get("shard_size"),
        sync_each_batch=line.get("sync_each_batch", False),
        compute_bytes=2 if line["bf16"] else 4,
        reduce_bytes=4 if line["reduce_dtype"] == "float32" else 2,
        activation_checkpointing=line["activation_checkpointing"],
        eager_attention=line["attention"] == "eager",
    )


def name_of(line: dict[str, Any]) -> str:
    return f"{line['model']}-{line['strategy']}-{line['world']}x{line['sequence_length']}"


@for_each(*COMPUTED, ids=name_of)
def test_the_formulae_agree_with_the_real_model_and_the_real_fully_shard(line):
    shape, job = models.load(line["model"]), job_of(line)
    assert shape.parameters == line["parameters"]
    states = memory.states(shape, job.shards)
    held = line["states_bytes"]
    assert (states.parameters, states.gradients) == (held["parameters"], held["gradients"])
    # a step counter of 4 bytes per tensor is left out
    assert states.optimizer == pytest.approx(held["optimizer"], rel=1e-3)
    peak = memory.peak(shape, job).total - memory.WORKSPACE  # there is no cuBLAS under fake tensors
    assert peak == pytest.approx(line["peak_bytes"]["total"], rel=TOLERANCE)
    called = {(each["operation"], each["group_size"]): (each["calls"], each["bytes"]) for each in line["collectives"]}
    predicted = traffic.collectives(shape, job)
    assert {(each.operation, each.ranks): (each.calls, each.size) for each in predicted} == called


def test_the_computed_runs_span_what_is_advised_on():
    # DDP does not run on fake collectives
    assert {line["strategy"] for line in COMPUTED} == {"single", "fsdp", "zero2", "hsdp"}
    assert {line["world"] for line in COMPUTED if line["model"] == "llama3-8b"} >= {16, 128, 1024}
    assert {line["activation_checkpointing"] for line in COMPUTED} == {True, False}
    assert max(line["accumulation"] for line in COMPUTED) > 1


@pytest.mark.filterwarnings("default")
def test_what_is_stored_is_what_the_real_fully_shard_gives_now(capsys):
    debug._clear_sharding_prop_cache()  # other tests of this process may have been other ranks
    stored = next(line for line in COMPUTED if name_of(line) == "tiny-hsdp-4x128")
    assert predict.main(["--model", "tiny", "--strategy", "hsdp", "--nodes", "2", "--gpus-per-node", "2"]) == 0
    now = json.loads(capsys.readouterr().out)
    assert now["peak_bytes"]["total"] == pytest.approx(stored["peak_bytes"]["total"], rel=0.01)  # as torch counts it
    assert all(now[name] == stored[name] for name in stored.keys() - {"peak_bytes", "torch"})


@pytest.mark.filterwarnings("default")
@for_each((True, True), (True, False), (False, False))
@for_each("sdpa", "eager")
def test_what_a_block_saves_is_what_autograd_saves(bf16, sharded, attention):
    """Exactly, of real tensors: the difference that one more block makes. sharded: bfloat16 weights, else autocast."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    sizes = {"hidden_size": 64, "intermediate_size": 160, "vocab_size": 512, **heads}
    rows, tokens = 2, 32

    def saved(layers: int) -> int:
        config = LlamaConfig(**sizes, num_hidden_layers=layers)
        dtype = torch.bfloat16 if bf16 and sharded else torch.float32
        model = LlamaForCausalLM._from_config(config, dtype=dtype, attn_implementation=attention)
        weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        kept: dict[int, torch.Tensor] = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.untyped_storage().data_ptr() not in weights:
                kept[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        with (
            torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor),
            torch.autocast("cpu", torch.bfloat16, enabled=bf16 and not sharded),
        ):
            model.model(input_ids=torch.zeros(rows, tokens, dtype=torch.long), use_cache=False)
        return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())

    shape = models.shape_of({"model_type": "llama", "num_hidden_layers": 1, **sizes}, "small")
    width, is_eager = 2 if bf16 else 4, attention == "eager"
    job = Job("fsdp" if sharded else "single", 1, 2, tokens, rows, compute_bytes=width, eager_attention=is_eager)
    expected = memory.one_block(shape, job)
    if bf16 and sharded:
        expected -= job.tokens * 4 * shape.attention[0].head_size  # of rotary angles; fully_shard makes one per block
    if bf16 and not sharded:
        # autocast's copies of the weights are counted elsewhere
        expected += 2 * (elements(shape.blocks[0].tensors) - 2 * shape.hidden)
    assert saved(3) - saved(2) == expected


TINY = json.loads((models.MODELS / "tiny.json").read_text())


@for_each(
    ({"model_type": "mixtral", "hidden_size": 64}, "no formula for model type 'mixtral'"),
    (TINY | {"attention_bias": True}, "attention_bias"),
    ({key: value for key, value in TINY.items() if key != "vocab_size"}, "has no vocab_size"),
    (None, "cannot be read"),
)
def test_a_model_without_a_formula_is_refused_and_never_guessed(tmp_path, config, says):
    (tmp_path / "config.json").write_text("[" if config is None else json.dumps(config))
    with pytest.raises(ModelError, match=says):
        models.load(str(tmp_path))
    with pytest.raises(ModelError, match="no model named 'gpt'; there are llama3-70b, llama3-8b"):
        models.load("gpt")


def test_without_a_checkout_a_model_with_a_name_is_not_there_and_that_is_the_reason(tmp_path, monkeypatch):
    """After `pip install .` elsewhere it was: there are ; or give …"""
    monkeypatch.setattr(models, "MODELS", tmp_path)
    with pytest.raises(ModelError, match="those with a name come with a checkout of bringup; or give the path"):
        models.load("llama3-8b")


def test_ddp_sends_eight_bytes_per_parameter_at_most():
    (collective,) = traffic.collectives(LLAMA, Job("ddp", 16, 8, 512))
    assert collective.sent == pytest.approx(8 * LLAMA.parameters, rel=0.01)
    assert traffic.leaving_node([collective], Job("ddp", 1, 8, 512)) == 0
    (larger,) = traffic.collectives(LLAMA, Job("ddp", 16, 8, 512, bucket_mib=100))
    assert larger.size == collective.size
    assert larger.message == pytest.approx(4 * collective.message, rel=0.01)


def test_ddp_needs_what_one_gpu_needs():
    """Its gradients are its buckets. As Trainer has it by default, there are two copies."""
    single, ddp = (Job(kind, 1, 8, 4096, accumulation=8) for kind in ("single", "ddp"))
    assert memory.peak(LLAMA, ddp).total == memory.peak(LLAMA, single).total
    apart = memory.peak(LLAMA, replace(ddp, buckets_apart=True)).total
    assert apart - memory.peak(LLAMA, ddp).total == 4 * LLAMA.parameters


def test_the_first_step_of_a_resumed_ddp_run_has_its_gradients_twice():
    """They become views of the buckets with the first reduction, before which other micro-steps have them."""
    args = read_record(FIXTURES / "training/run_ddp_2node/run_args.json", RunArgs)
    for micro_steps, sync, apart in ((1, False, False), (4, False, True), (4, True, False)):
        run = args.model_copy(update={"gradient_accumulation": micro_steps, "sync_each_batch": sync})
        assert models.job_of(run, reads_checkpoint=True).buckets_apart is apart
        assert models.job_of(run).buckets_apart is False
