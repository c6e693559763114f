"""What is advised before anything runs: what fits, which strategy, with which command; and never made up."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from advised import H100, LLAMA, advice, by_name, flops_of_llama, question
from bringup.kernel.errors import UsageError
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.ceiling import Machine, Mfu, Sourced
from bringup.report import advice as advice_text
from bringup.training.advise import answer as advise
from bringup.training.advise import bandwidth
from bringup.training.formulae import models, published, traffic
from bringup.training.formulae.models import Job
from bringup.training.records import Advice, PredictedStrategy
from loops import for_each
from programs import ROOT
from recipe import arguments


def test_what_does_not_fit_on_one_gpu_is_not_advised():
    answer = advice()
    strategies = by_name(answer)
    assert [name for name, strategy in strategies.items() if strategy.fits == "does not fit"] == ["single", "ddp"]
    assert strategies["single"].peak_gib > 16 * LLAMA.parameters / 2**30
    assert answer.use in ("zero2", "fsdp", "hsdp")
    assert "--model llama3-8b --sequence-length 4096 --global-batch 16" in (answer.command or "")


def test_the_range_of_a_step_is_from_the_highest_mfu_and_all_overlaps_to_the_lowest_and_nothing_does():
    for strategy in advice().strategies:
        least, most = strategy.compute_s
        assert strategy.step_s == [max(least, strategy.communication_s), most + strategy.communication_s]
        assert strategy.tokens_per_s == [16 * 4096 / strategy.step_s[1], 16 * 4096 / strategy.step_s[0]]


def test_with_fast_the_logits_of_all_tokens_are_never_there_and_the_run_is_one_with_fast():
    plain, fast = advice(), advice(chunked_loss=True)
    for before, after in zip(plain.strategies, fast.strategies, strict=True):
        assert after.peak_parts_gib["logits"] < before.peak_parts_gib["logits"] - 1
    assert "--recipe fast" in str(fast.command)
    assert "--recipe" not in str(plain.command)


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
    ({"sequence_length": 65536}, "none fits; take more nodes or shorter sequences"),
    # of 288 GiB 263 are unsharded gradients of micro-steps, on any number of nodes
    (ON_64 | {"activation_checkpointing": True}, "none fits; with --sync-each-batch this does: FSDP ("),
    (ON_64, "none fits; with --activation-checkpointing and --sync-each-batch this does: FSDP ("),
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


@for_each(1, 3, 6, 12, 32)
def test_shard_groups_that_cannot_be_are_one_line(size):
    with pytest.raises(UsageError, match=r"on 4 nodes of 8 GPUs: 2, 4, 8, 16$"):
        advice(nodes=4, global_batch=32, shard_size=size)


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
    options = "--rows-at-once 1 --no-activation-checkpointing --sync-each-batch"
    assert options in advice(global_batch=64, sync_each_batch=True).command
    with pytest.raises(UsageError, match="--sync-each-batch changes nothing here"):
        advice(sync_each_batch=True)


def candidate(strategy, seconds, *, fits="fits", leaving=1.0) -> PredictedStrategy:
    step_s = None if seconds is None else [seconds, seconds]
    return by_name(advice())[strategy].model_copy(update={"fits": fits, "step_s": step_s, "leaving_node_gb": leaving})


@for_each(
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
)
def test_the_choice(strategies, use):
    assert advise.choose(strategies)[0] == use


def test_the_verb_prints_one_screen_or_the_record(shown, refused):
    words = ["advise", "--model", "llama3-8b", "--nodes", "2", "--gpus-per-node", "8", "--profile", "h100-8x400g"]
    lines = shown(0, *words).splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 160
    assert Advice.model_validate_json(shown(0, *words, "--json")).use is not None
    assert "nope" in refused("advise", "--model", "nope", "--nodes", "2", "--gpus-per-node", "8")


def test_the_documented_answer_is_what_is_answered_today():
    page = (ROOT / "docs/reading-the-numbers.md").read_text()
    shown, _, _ = advice_text.screen(advice()).strip().partition("\n\nGPU memory, GiB")
    assert f"```\n{shown}\n…\n```\n" in page
    eight = by_name(advice(global_batch=128))
    assert [name for name, strategy in eight.items() if strategy.fits == "fits"] == ["fsdp"]
    assert {name: round(eight[name].leaving_node_gb) for name in ("fsdp", "hsdp")} == {"fsdp": 263, "hsdp": 32}


# the option that the batch script adds, and whether the strategy shards
SCRIPTS = {"run_ddp": ((), False), "run_fsdp": ((), True), "run_hsdp": (("--hsdp",), True)}
WORKLOADS = {
    workload.arguments
    for name in profiles.names()
    if (workload := profiles.load(name, strict=False).workload) is not None
}


@for_each("", *sorted(WORKLOADS))
@for_each(
    {},
    {"global_batch": 64, "activation_checkpointing": True, "reduce_bytes": 2},
    {"global_batch": 64, "sync_each_batch": True},
    {"nodes": 1, "global_batch": 16, "rows": 2, "activation_checkpointing": True},
    {"compute_bytes": 4, "activation_checkpointing": True},
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
    args = arguments.parse("", takes_hsdp=bool(extra), sharded=sharded)
    assert (args.model, args.sequence_length, args.global_batch) == ("llama3-8b", 4096, asked.global_batch)
    assert (args.per_device_batch, args.gradient_accumulation) == (asked.layout.rows, chosen.accumulation)
    assert args.activation_checkpointing == asked.layout.activation_checkpointing
    assert args.bf16 is (False if asked.layout.compute_bytes == 4 else None)
    assert args.sync_each_batch == (asked.layout.sync_each_batch and chosen.accumulation > 1)


def test_a_model_of_your_own_is_advised_by_a_name_that_the_programs_take(monkeypatch, tmp_path, shown):
    own = tmp_path / "own.json"
    own.write_text((ROOT / "training/models/llama3-8b.json").read_text())
    words = ["advise", "--json", "--profile", H100.name, "--model", str(own), "--nodes", "2", "--gpus-per-node", "8"]
    command = json.loads(shown(0, *words))["command"]
    monkeypatch.setattr(sys, "argv", ["program", "--check", *command.partition(".sbatch")[2].split()])
    monkeypatch.setattr(arguments, "WORLD", 16)
    args = arguments.parse("", takes_hsdp=True, sharded=True)
    assert args.model_config == own


@for_each(1, 2, 4, 8)
@for_each(1, 2)
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
    assert H100.machine.gpu_memory_gib is not None and without
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
