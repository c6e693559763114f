"""What is predicted before anything runs: held against the real model and the real fully_shard, and never made up."""

import json
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from advised import H100, LLAMA, advice, question
from bringup import cli
from bringup.advise import answer as advise
from bringup.advise import bandwidth
from bringup.errors import ModelError, RecordError, RunError, UsageError
from bringup.formulae import memory, models, published, traffic
from bringup.formulae.flops import flops_per_token
from bringup.formulae.models import Job
from bringup.judge import EVIDENCE, Judged
from bringup.plan import profile as profiles
from bringup.plan.ceiling import Machine, Mfu, Sourced
from bringup.records import Advice, Observation, Outcome, PredictedStrategy, RunArgs, elements, read_record
from bringup.report import advice as advice_text
from bringup.results import TrainingRecords
from factory import a_run, a_verdict, judged_of
from loops import for_each
from programs import ROOT
from recipe import arguments
from runs_for_tests import FIXTURES
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


def flops_of_llama(sequence_length: int) -> float:
    flops = flops_per_token(LLAMA, sequence_length)
    assert flops is not None
    return flops


def name_of(line: dict[str, Any]) -> str:
    return f"{line['model']}-{line['strategy']}-{line['world']}x{line['sequence_length']}"


@for_each("line", COMPUTED, ids=name_of)
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
@for_each(("bf16", "sharded"), [(True, True), (True, False), (False, False)])
@for_each("attention", ["sdpa", "eager"])
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

    shape = models.dense_decoder("small", 1, 64, 4, 2, 16, 160, 512, tied=False)
    width, is_eager = 2 if bf16 else 4, attention == "eager"
    kind = "fsdp" if sharded else "single"
    job = Job(kind, 1, 2, tokens, rows, compute_bytes=width, eager_attention=is_eager)
    expected = memory.one_block(shape, job)
    if bf16 and sharded:
        expected -= job.tokens * 4 * shape.attention[0].head_size  # of rotary angles; fully_shard makes one per block
    if bf16 and not sharded:
        # autocast's copies of the weights are counted elsewhere
        expected += 2 * (elements(shape.blocks[0].tensors) - 2 * shape.hidden)
    assert saved(3) - saved(2) == expected


TINY = json.loads((models.MODELS / "tiny.json").read_text())


@for_each(
    ("config", "says"),
    [
        ({"model_type": "mixtral", "hidden_size": 64}, "no formula for model type 'mixtral'"),
        (TINY | {"attention_bias": True}, "attention_bias"),
        ({key: value for key, value in TINY.items() if key != "vocab_size"}, "has no vocab_size"),
        (None, "cannot be read"),
    ],
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


def test_zero_3_moves_half_as_much_again_as_zero_2():
    """With equal data types and but for the tail, which both gather once (ZeRO, section 7)."""
    layouts = (Job(kind, 2, 8, 512, reduce_bytes=2) for kind in ("zero2", "fsdp"))
    zero2, fsdp = (sum(each.sent for each in traffic.collectives(LLAMA, job)) for job in layouts)
    assert fsdp / zero2 == pytest.approx(1.5, abs=0.04)


def test_ddp_sends_eight_bytes_per_parameter_at_most():
    (collective,) = traffic.collectives(LLAMA, Job("ddp", 16, 8, 512))
    assert collective.sent == pytest.approx(8 * LLAMA.parameters, rel=0.01)
    assert traffic.leaving_node([collective], Job("ddp", 1, 8, 512)) == 0


def test_hsdp_keeps_the_gathers_in_the_node_however_many_micro_steps_there_are():
    for accumulation in (1, 8):
        leaving = {
            kind: traffic.leaving_node(traffic.collectives(LLAMA, job), job) / 8e9
            for kind in ("fsdp", "hsdp")
            for job in [Job(kind, 16, 8, 512, accumulation=accumulation)]
        }
        assert leaving["hsdp"] == pytest.approx(7.53, abs=0.01)  # GB per NIC: 2 x 15/16 x 4 bytes x P / 8
        assert leaving["fsdp"] == pytest.approx({1: 7.84, 8: 34.81}[accumulation], abs=0.01)  # only gathers repeat


def test_states_shrink_with_the_shards_and_padding_is_counted():
    assert memory.states(LLAMA, 1).total == 16 * LLAMA.parameters
    assert memory.states(LLAMA, 16).total == LLAMA.parameters
    tiny = models.load("tiny")
    assert memory.states(tiny, 1024).total > 16 * tiny.parameters / 1024  # a row cannot be cut


def by_name(answer: Advice) -> dict[str, PredictedStrategy]:
    return {strategy.strategy: strategy for strategy in answer.strategies}


def test_what_does_not_fit_on_one_gpu_is_not_advised():
    answer = advice()
    strategies = by_name(answer)
    assert [name for name, strategy in strategies.items() if strategy.fits == "does not fit"] == ["single", "ddp"]
    assert strategies["single"].peak_gib > 16 * LLAMA.parameters / 2**30
    assert answer.use in ("zero2", "fsdp", "hsdp")
    assert "--model llama3-8b --sequence-length 4096 --global-batch 16" in (answer.command or "")


def test_the_range_of_a_step_is_from_the_highest_mfu_and_all_overlaps_to_the_lowest_and_nothing_does():
    for strategy in advice().strategies:
        assert strategy.compute_s is not None
        least, most = strategy.compute_s
        assert strategy.step_s == [max(least, strategy.communication_s), most + strategy.communication_s]
        assert strategy.tokens_per_s == [16 * 4096 / strategy.step_s[1], 16 * 4096 / strategy.step_s[0]]


def test_with_fast_the_logits_of_all_tokens_are_never_there_and_the_run_is_one_with_fast():
    plain, fast = advice(), advice(chunked_loss=True)
    for before, after in zip(plain.strategies, fast.strategies, strict=True):
        assert after.peak_parts_gib["logits"] < before.peak_parts_gib["logits"] - 1
    assert "--recipe fast" in str(fast.command)
    assert "--recipe" not in str(plain.command)


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


def _of_h100() -> list[tuple[float, published.Published]]:
    return [(row.mfu, row) for row in published.all_published() if row.gpu == "H100"]


def test_compute_time_follows_from_peak_flops_and_the_mfus_that_were_published_for_this_gpu_and_setting():
    (single,) = [strategy for strategy in advice().strategies if strategy.strategy == "single"]
    at_all = flops_of_llama(4096) * 16 * 4096 / 989.4e12
    kept = [mfu for mfu, row in _of_h100() if not row.compiled and row.recomputed != "full"]
    assert single.compute_s == pytest.approx([at_all / max(kept), at_all / min(kept)])
    assert single.communication_s == 0
    answer = advice(activation_checkpointing=True)
    again = [mfu for mfu, row in _of_h100() if not row.compiled and row.recomputed == "full"]
    assert by_name(answer)["single"].compute_s == pytest.approx([at_all / max(again), at_all / min(again)])
    assert answer.mfu == [min(again), max(again)]
    assert "all activations recomputed, eager (llm-foundry)" in answer.assumptions[-1]


def test_recomputation_is_paid_once():
    """A given or measured MFU has paid for it, as that of a profile whose source recomputed."""
    whole = {"activation_checkpointing": True}
    once = flops_of_llama(4096) * 16 * 4096 / 989.4e12
    ran = trained(Outcome.PASS, Outcome.PASS)
    metrics: Any = SimpleNamespace(metrics=ran.training.metrics.model_copy(update={"mfu": 0.25}))
    measured = replace(ran, training=metrics)
    for facts in (advise.known(H100, [], 0.25), advise.known(H100, [measured], None)):
        single = by_name(advise.advise(question(**whole), facts))["single"]
        assert single.compute_s == pytest.approx([once / 0.25, once / 0.25])


def test_an_undeclared_number_is_unknown_and_no_default():
    answer = advice(profiles.load("generic"))
    for strategy in answer.strategies:
        assert (strategy.fits, strategy.compute_s, strategy.step_s, strategy.tokens_per_s) == (None, None, None, None)
        assert strategy.communication_s is None or strategy.strategy == "single"
    assert (answer.use, answer.command) == (None, None)
    text = advice_text.screen(answer)
    assert "unknown: whether it fits: profile generic declares no machine.gpu_memory_gib\n" in text
    assert "unknown: communication: profile generic declares no nccl.all_gather.busbw" in text
    assert not re.search(r"\d", next(line for line in text.splitlines() if line.startswith("  compute")))


def test_float32_has_no_bf16_peak_to_be_held_against():
    assert all(strategy.compute_s is None for strategy in advice(compute_bytes=4).strategies)


ON_64 = {"shape": models.load("llama3-70b"), "nodes": 8, "global_batch": 256}


@for_each(
    ("changes", "says"),
    [
        ({"sequence_length": 65536}, "none fits; take more nodes or shorter sequences"),
        # of 288 GiB 263 are unsharded gradients of micro-steps, on any number of nodes
        (ON_64 | {"activation_checkpointing": True}, "none fits; with --sync-each-batch this does: FSDP ("),
        (ON_64, "none fits; with --activation-checkpointing and --sync-each-batch this does: FSDP ("),
    ],
)
def test_nothing_fits_says_what_would(changes, says):
    answer = advice(**changes)
    assert answer.use is None
    assert answer.why.startswith(says)


def test_a_batch_that_no_strategy_can_divide_is_one_line():
    with pytest.raises(UsageError, match="not a multiple of 16 GPUs x 4 row"):
        advice(global_batch=3, rows=4)
    assert [strategy.strategy for strategy in advice(global_batch=3).strategies] == ["single"]  # one GPU can, 16 cannot


def test_micro_steps_follow_from_the_global_batch():
    strategies = by_name(advice(global_batch=64))
    several = dict.fromkeys(("ddp", "zero2", "fsdp", "hsdp"), 4)
    assert {name: strategy.accumulation for name, strategy in strategies.items()} == {"single": 64, **several}
    assert "hsdp" not in by_name(advice(nodes=1, global_batch=8))  # one node has no replicas


def test_smaller_shard_groups_hold_more_and_larger_ones_send_over_the_fabric():
    asked = {size: by_name(advice(nodes=4, global_batch=32, shard_size=size))["hsdp"] for size in (4, None, 16)}
    half, node, two = asked.values()
    assert [each.shards for each in asked.values()] == [4, 8, 16]
    assert half.states_gib == pytest.approx(2 * node.states_gib, rel=0.01)
    assert two.states_gib == pytest.approx(node.states_gib / 2, rel=0.01)

    def by_operation(size: int | None) -> dict[str, traffic.Collective]:
        job = Job("hsdp", 4, 8, 4096, shard_size=size)
        return {each.operation: each for each in traffic.collectives(LLAMA, job)}

    assert [(each.over, each.ranks) for each in by_operation(4).values()] == [("node", 4), ("node", 4), ("replicas", 8)]
    over_nodes = [("nodes", 16), ("nodes", 16), ("replicas", 2)]
    assert [(each.over, each.ranks) for each in by_operation(16).values()] == over_nodes
    # 2 x 7/8 of P/4 gradients, in 4 rings through each node; and what a ring of two nodes passes on, and 8 rings
    grads = 4 * LLAMA.parameters
    assert half.leaving_node_gb == pytest.approx(4 * 2 * 7 / 8 * grads / 4 / 1e9, rel=1e-3)
    assert node.leaving_node_gb == pytest.approx(8 * 2 * 3 / 4 * grads / 8 / 1e9, rel=1e-3)
    inside = sum(by_operation(16)[name].sent for name in ("all_gather", "reduce_scatter"))
    assert two.leaving_node_gb == pytest.approx((inside + 8 * grads / 16) / 1e9, rel=1e-3)
    command = advice(nodes=4, global_batch=32, shard_size=16)
    assert ("--shard-size 16" in (command.command or "")) == (command.use == "hsdp")


@for_each("size", [1, 3, 6, 12, 32])
def test_shard_groups_that_cannot_be_are_one_line(size):
    with pytest.raises(UsageError, match=r"on 4 nodes of 8 GPUs: 2, 4, 8, 16$"):
        advice(nodes=4, global_batch=32, shard_size=size)


def measured(nodes: int, message: float, source: Any = None) -> bandwidth.Speed:
    speed = (source or bandwidth.Measured([("run-7", CURVE, [])])).bus("all_reduce", nodes, message)
    assert isinstance(speed, bandwidth.Speed)
    return speed


@for_each(
    ("operation", "nodes", "shard_size", "rings", "says"),
    [
        ("all_reduce", 2, None, 8, "/ 8 GPUs for a replica's ring"),  # a GPU's part of what leaves a node
        ("all_reduce", 2, 4, 4, "/ 4 rings of replicas"),  # 4 shards in a node
        ("all_gather", 4, 16, 1, ""),  # of two nodes
    ],
)
def test_replicas_share_what_leaves_a_node(operation, nodes, shard_size, rings, says):
    source = bandwidth.Measured([("run-7", CURVE, [])])
    several = traffic.collectives(LLAMA, Job("hsdp", nodes, 8, 512, shard_size=shard_size))
    collective = next(each for each in several if each.operation == operation)
    took = bandwidth.seconds(collective, source, nodes, 8)
    whole = measured(2, collective.message * rings)  # CURVE is the same for all collectives
    assert took[0] == pytest.approx(collective.sent / (whole.gbps * 1e9 / rings))
    assert says in took[1]


def test_gradients_reduced_in_every_micro_step_cost_traffic_and_save_the_unsharded_ones():
    kept, each = (by_name(advice(global_batch=64, sync_each_batch=wanted)) for wanted in (False, True))
    for name in ("fsdp", "hsdp"):
        saved = kept[name].peak_parts_gib["reduction"] - each[name].peak_parts_gib["reduction"]
        assert saved > 0.8 * 4 * LLAMA.parameters / 2**30  # all but those of one group
        assert each[name].peak_gib < kept[name].peak_gib
        assert each[name].sent_inside_gb > kept[name].sent_inside_gb
    assert each["ddp"].peak_gib == kept["ddp"].peak_gib
    assert each["ddp"].leaving_node_gb == pytest.approx(4 * kept["ddp"].leaving_node_gb)
    assert each["single"] == kept["single"]
    assert "--rows-at-once 1 --no-activation-checkpointing --sync-each-batch" in (
        advice(global_batch=64, sync_each_batch=True).command or ""
    )
    with pytest.raises(UsageError, match="--sync-each-batch changes nothing here"):
        advice(sync_each_batch=True)


def candidate(strategy, seconds, *, fits="fits", leaving=1.0) -> PredictedStrategy:
    step_s = None if seconds is None else [seconds, seconds]
    return by_name(advice())[strategy].model_copy(update={"fits": fits, "step_s": step_s, "leaving_node_gb": leaving})


@for_each(
    ("strategies", "use"),
    [
        ([candidate("ddp", 1.0), candidate("fsdp", 0.97)], "ddp"),  # within 5 %: the simpler one
        ([candidate("ddp", 1.2), candidate("fsdp", 1.0)], "fsdp"),
        ([candidate("ddp", 1.0, fits="does not fit"), candidate("fsdp", 2.0)], "fsdp"),
        ([candidate("fsdp", None, leaving=2.0), candidate("hsdp", None, leaving=1.0)], "hsdp"),
        ([candidate("single", 0.1), candidate("ddp", 1.0)], "ddp"),
        ([candidate("single", 1.0)], "single"),
        ([candidate("ddp", 1.0, fits="does not fit")], None),
        ([candidate("ddp", 1.0, fits=None), candidate("fsdp", 1.0)], None),
        ([candidate("ddp", 1.0, fits="may not fit"), candidate("fsdp", 2.0)], "fsdp"),
        ([candidate("ddp", 1.0, fits="may not fit"), candidate("fsdp", 1.0, fits="does not fit")], None),
    ],
)
def test_the_choice(strategies, use):
    assert advise.choose(strategies)[0] == use


def seen(operation: str, at: str, scale: str, gbps: float) -> Observation:
    return Observation(
        quantity=f"nccl.{operation}.busbw@{at}", subject=scale, value=gbps, unit="GB/s", evidence="raw/x:1"
    )


CURVE = [
    seen(name, at, scale, gbps)
    for name in ("all_reduce", "all_gather", "reduce_scatter")
    for scale, speeds in (("1-node", (40.0, 340.0, 460.0)), ("2-nodes", (10.0, 80.0, 160.0)))
    for at, gbps in zip(("1MiB", "64MiB", "1GiB"), speeds, strict=True)
]


def test_measured_bandwidth_is_of_the_size_of_the_message_and_the_same_number_of_nodes():
    at_64 = "all_reduce 80 GB/s at 64MiB on 2-nodes (run-7), for messages of 64 MiB"
    assert measured(2, 64 * 2**20) == bandwidth.Speed(80.0, at_64)
    time_25 = 2**20 / 10 + 24 / 63 * (2**26 / 80 - 2**20 / 10)  # time is linear between 1 and 64 MiB
    assert measured(2, 25 * 2**20).gbps == pytest.approx(25 * 2**20 / time_25)
    assert "from 10 at 1MiB on 2-nodes (run-7) and 80 at 64MiB" in measured(2, 25 * 2**20).source
    assert measured(2, 2**19).gbps == 5.0  # as long as the smallest that was measured
    assert measured(2, 2**34).gbps == 160.0
    unknown = bandwidth.Measured([("run-7", CURVE, [])]).bus("all_reduce", 4, 2**30)
    assert unknown == "run-7 measured no all_reduce on 4-nodes"


def test_bandwidth_among_the_wrong_ranks_is_unknown():
    need = bandwidth.GATES["nccl.all_reduce.busbw"].needs[0]
    wrong = a_verdict(need, "2-nodes", Outcome.FAIL)
    source = bandwidth.Measured([("run-7", CURVE, [wrong])])
    assert source.bus("all_reduce", 2, 2**30) == f"{need} did not pass on 2-nodes in run-7"
    assert isinstance(source.bus("all_reduce", 1, 2**30), bandwidth.Speed)


def test_a_slow_fabric_makes_hsdp_the_advice():
    own = {"mfu": Mfu(value=0.4, source="of this test"), "gpu_memory_gib": Sourced(value=85, source="of this test")}
    machine = H100.machine.model_copy(update=own)
    facts = advise.Known("measured", machine, bandwidth.Measured([("run-7", CURVE, [])]))
    answer = advise.advise(question(global_batch=64), facts)
    strategies = by_name(answer)
    assert answer.use == "hsdp"
    assert (strategies["hsdp"].communication_s or 0) < (strategies["fsdp"].communication_s or 0)


def trained(*outcomes: Outcome) -> Judged:
    """A run with recorded numbers, and how it was closed and its evidence were judged."""
    verdicts = [a_verdict(gate, "job", outcome) for gate, outcome in zip(EVIDENCE, outcomes, strict=True)]
    run = a_run("run_1gpu", ["n0"], plan={})
    return judged_of(*verdicts, run=run, training=TrainingRecords(FIXTURES / "training/run_1gpu"))


@for_each(
    ("run", "error", "says"),
    [
        (trained(Outcome.PASS, Outcome.PASS), RecordError, "has no MFU"),
        (trained(Outcome.PASS, Outcome.INCOMPLETE), RunError, r"run\.evidence"),
        (
            judged_of(*(a_verdict(gate, "job", Outcome.PASS) for gate in EVIDENCE)),
            RecordError,
            "discovery measured no bandwidth",
        ),
    ],
)
def test_a_run_that_measured_nothing_or_whose_evidence_does_not_hold_is_no_source(run, error, says):
    with pytest.raises(error, match=says):
        advise.known(H100, [run], None)


def test_a_run_with_a_measured_peak_moves_the_predicted_ones(tmp_path):
    folder = shutil.copytree(FIXTURES / "training/run_1gpu", tmp_path / "run_1gpu")
    metrics = json.loads((folder / "metrics.json").read_text())
    peak = {"peak_measured_bytes": 1200, "peak_predicted_bytes": 1000}
    metrics |= {"mfu": 0.4, "mfu_reason": None, "memory_check": metrics["memory_check"] | peak}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    verdicts = [a_verdict(gate, "job", Outcome.PASS) for gate in EVIDENCE]
    run = judged_of(*verdicts, run=a_run("run_1gpu", ["n0"], plan={}), training=TrainingRecords(folder))
    before, after = advice(), advise.advise(question(), advise.known(H100, [run], None))
    for name, strategy in by_name(after).items():
        assert strategy.peak_gib == pytest.approx(1.2 * by_name(before)[name].peak_gib)
    assert any(line.startswith("measured peak / predicted peak 1.2: measured by") for line in after.assumptions)


def test_of_one_size_the_slowest_run_counts_in_whatever_order_they_are_named():
    fast, slow = ([seen("all_reduce", "1GiB", "2-nodes", gbps)] for gbps in (400.0, 100.0))
    for order in ([("a", fast, []), ("b", slow, [])], [("b", slow, []), ("a", fast, [])]):
        assert measured(2, 2**30, bandwidth.Measured(order)).gbps == 100.0


def test_the_verb_prints_one_screen_or_the_record(capsys):
    words = ["advise", "--model", "llama3-8b", "--nodes", "2", "--gpus-per-node", "8", "--profile", "h100-8x400g"]
    assert cli.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 160
    assert cli.main([*words, "--json"]) == 0
    assert Advice.model_validate_json(capsys.readouterr().out).use is not None
    assert cli.main(["advise", "--model", "nope", "--nodes", "2", "--gpus-per-node", "8"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_documented_answer_is_what_is_answered_today():
    page = (ROOT / "docs/reading-the-numbers.md").read_text()
    shown, _, _ = advice_text.screen(advice()).strip().partition("\n\nGPU memory, GiB")
    assert f"```\n{shown}\n…\n```\n" in page
    eight = by_name(advice(global_batch=128))
    assert [name for name, strategy in eight.items() if strategy.fits == "fits"] == ["fsdp"]
    assert {name: round(eight[name].leaving_node_gb) for name in ("fsdp", "hsdp")} == {"fsdp": 263, "hsdp": 32}


# the option that the batch script adds, and whether the strategy shards
SCRIPTS = {"run_ddp": ((), False), "run_fsdp": ((), True), "run_hsdp": (("--hsdp",), True)}
WORKLOADS = {workload.arguments for name in profiles.names() if (workload := profiles.load(name).workload) is not None}


@for_each("workload", ["", *sorted(WORKLOADS)])
@for_each(
    "changes",
    [
        {},
        {"global_batch": 64, "activation_checkpointing": True, "reduce_bytes": 2},
        {"global_batch": 64, "sync_each_batch": True},
        {"nodes": 1, "global_batch": 16, "rows": 2, "activation_checkpointing": True},
        {"compute_bytes": 4, "activation_checkpointing": True},
    ],
)
def test_the_advised_command_trains_what_was_asked_after_the_workload_of_any_profile(monkeypatch, workload, changes):
    asked = question(**changes)
    answer = advise.advise(asked, advise.known(H100, [], None))
    chosen = next(strategy for strategy in answer.strategies if strategy.strategy == answer.use)
    script = next(word for word in answer.command.split() if word.endswith(".sbatch"))
    assert (ROOT / script).is_file()
    extra, sharded = next(known for stem, known in SCRIPTS.items() if Path(script).stem.startswith(stem))
    words = ["program", "--check", *extra, "--global-batch", "32", *workload.split()]
    monkeypatch.setattr(sys, "argv", [*words, *shlex.split(answer.command.partition(script)[2])])
    monkeypatch.setattr(arguments, "WORLD", chosen.ranks)
    args, _ = arguments.parse("", takes_hsdp=bool(extra), sharded=sharded)
    assert (args.model, args.sequence_length, args.global_batch) == ("llama3-8b", 4096, asked.global_batch)
    assert (args.per_device_batch, args.gradient_accumulation) == (asked.layout.rows, chosen.accumulation)
    assert args.activation_checkpointing == asked.layout.activation_checkpointing
    assert args.bf16 is (False if asked.layout.compute_bytes == 4 else None)
    assert args.sync_each_batch == (asked.layout.sync_each_batch and chosen.accumulation > 1)


def test_a_model_of_your_own_is_advised_by_a_name_that_the_programs_take(monkeypatch, tmp_path, capsys):
    own = tmp_path / "own.json"
    own.write_text((ROOT / "training/models/llama3-8b.json").read_text())
    words = ["advise", "--json", "--profile", H100.name, "--model", str(own), "--nodes", "2", "--gpus-per-node", "8"]
    assert cli.main(words) == 0
    command = json.loads(capsys.readouterr().out)["command"]
    monkeypatch.setattr(sys, "argv", ["program", "--check", *command.partition(".sbatch")[2].split()])
    monkeypatch.setattr(arguments, "WORLD", 16)
    args, _ = arguments.parse("", takes_hsdp=True, sharded=True)
    assert args.model_config == own


@for_each("rows", [1, 2, 4, 8])
@for_each("nodes", [1, 2])
def test_what_is_said_to_fit_leaves_what_the_gate_of_headroom_wants(rows, nodes):
    """Mistral 7B as ZeRO-2 was advised at 76.0 of 79.1 GiB, and train.memory.headroom would have warned."""
    wanted = H100.expect["train.memory.headroom"].at_least
    room = H100.machine.gpu_memory_gib
    shape = models.load("mistral-7b")
    asked = question(shape=shape, nodes=nodes, sequence_length=2048, rows=rows, global_batch=8 * nodes * rows)
    fitting = [entry for entry in advise.advise(asked, advise.known(H100, [], None)).strategies if entry.fits == "fits"]
    assert all(1 - entry.peak_gib / room.value >= wanted for entry in fitting)


def test_what_is_said_to_fit_leaves_room_for_nccl_and_the_context_also_where_the_profile_asks_for_none():
    expect = {gate: limit for gate, limit in H100.expect.items() if gate != "train.memory.headroom"}
    without = advice(H100.model_copy(update={"expect": expect})).strategies
    room = H100.machine.gpu_memory_gib
    assert room is not None and without
    assert {(entry.ranks > 1, entry.outside_gib) for entry in without} == {(False, 1.0), (True, 3.0)}


def test_within_5_percent_of_the_memory_it_may_not_fit_and_a_measured_peak_moves_it():
    """Llama 3 8B with FSDP was advised at 8,320 tokens; with 5 % more than is predicted it does not fit."""

    def fsdp(memory_gib: float, *, measured: float | None = None) -> tuple[str | None, str | None, str]:
        factor = None if measured is None else Sourced(value=measured, source="run-7")
        machine = H100.machine.model_copy(update={"gpu_memory_gib": Sourced(value=memory_gib, source="of this test")})
        facts = advise.Known("ours", machine, bandwidth.Promised(H100), peak_factor=factor)
        answer = advise.advise(question(), facts)
        return by_name(answer)["fsdp"].fits, answer.use, answer.why

    needed = by_name(advice())["fsdp"].needed_gib - 1  # without the profile's headroom: 3 GiB outside
    assert fsdp(needed / 0.94)[0] == "fits"
    word, use, why = fsdp(needed / 0.96)
    assert (word, use) == ("may not fit", None)
    assert "may not fit, within 5 % of the memory: FSDP" in why
    assert fsdp(needed / 1.01)[0] == "does not fit"
    assert fsdp(needed / 0.94, measured=1.04)[0] == "may not fit"
    assert fsdp(needed / 0.94, measured=1.2)[0] == "does not fit"


def test_a_profile_extends_the_machine_of_its_base(tmp_path):
    path = tmp_path / "ours.yaml"
    path.write_text(
        "schema_version: 1\nname: ours\ndescription: ours\nextends: h100-8x400g\n"
        "machine:\n  mfu: {value: 0.45, source: measured by us}\n"
    )
    ours = profiles.load(str(path)).machine
    assert ours.mfu == Mfu(value=0.45, source="measured by us")
    assert ours.peak_bf16_tflops == H100.machine.peak_bf16_tflops
    assert profiles.parse(profiles.dump(profiles.load(str(path))), "dumped").machine == ours
    assert Machine() == profiles.load("generic").machine
