"""What compare recommends: from runs on equally many ranks, with the reason; and nothing from a CPU."""

from dataclasses import replace
from typing import Any

import pytest
from bringup.kernel.judge import judge_folder
from bringup.kernel.records import Outcome
from bringup.training.comparison import recommend, sidebyside
from bringup.training.comparison.entries import Entry, entry
from bringup.training.comparison.recommend import RULES
from bringup.training.records import Straggler
from factory import an_entry
from loops import case_for_each
from trained_runs import RECORDS, run_of

STEMS = ("run_1gpu", "run_ddp_2node", "run_fsdp_2node", "run_hsdp_2node")


def on_gpus(stem: str, outcome: Outcome | None = Outcome.PASS, **changed: Any) -> Entry:
    """The run of the fixture, as if GPUs of 80 GiB had computed it. changed: its metrics, or what was observed."""
    finished = an_entry(RECORDS / stem)
    metrics, ranks = finished.metrics, finished.metrics.world_size
    memory = {"device_allocated_gib": 30.0, "device_reserved_gib": 60.0, "device_total_gib": 80.0}
    memory |= {name: changed.pop(name) for name in list(changed) if name in memory}
    observed = {name: changed.pop(name) for name in list(changed) if name in type(metrics.observed).model_fields}
    observed = {"devices": [f"GPU-{rank}" for rank in range(ranks)], **observed}
    fields = {"memory": metrics.memory.model_copy(update=memory), "straggler": None}
    fields |= {"observed": metrics.observed.model_copy(update=observed), **changed}
    return replace(finished, outcome=outcome, metrics=metrics.model_copy(update=fields))


def advice(*entries: Entry) -> recommend.Recommended:
    return recommend.recommend(sidebyside.compare(entries))


def test_on_a_cpu_nothing_is_recommended_and_what_it_showed_is_said_as_that():
    answer = advice(*(an_entry(RECORDS / stem) for stem in STEMS))
    assert answer.choice == [
        "Which strategy on 4 ranks of 2 nodes: cannot tell, because no GPU was at work. What follows is what the CPU "
        "showed, and says nothing about GPUs or NCCL."
    ]
    assert answer.why[0].startswith("HSDP made 63 % of the tokens/s of DDP: 23.2 % of its step was communication")
    assert answer.why[-1] == "A rank of DDP makes 38 % of the tokens/s of one alone."
    assert answer.next == ["Next: the same runs on the GPUs of this cluster."]


def test_a_stand_in_for_gpus_recommends_nothing_either():
    runs = [on_gpus(stem, devices=[f"GPU-00000000-0000-{rank}" for rank in range(4)]) for stem in STEMS[1:]]
    assert "cannot tell, because no GPU was at work" in advice(*runs).choice[0]


def test_the_fastest_is_recommended_with_the_exposed_communication_of_the_others():
    answer = advice(*(on_gpus(stem) for stem in STEMS))
    assert answer.choice == ["Which strategy on 4 ranks of 2 nodes: DDP."]
    fsdp = next(sentence for sentence in answer.why if sentence.startswith("FSDP"))
    # 0.3725 x 360.6 ms - 0.1395 x 183.1 ms, of 360.6 - 183.1
    assert "37.3 % of its step was communication that nothing overlapped, of DDP 14.0 %" in fsdp
    assert "a step takes 177 ms longer, of which that explains 109 ms" in fsdp
    assert "take 25 % of the memory of DDP" in fsdp
    assert answer.next[0].startswith("To try next: a larger --global-batch in micro-steps")


def test_communication_that_grew_by_more_than_the_step_is_no_part_of_what_the_step_takes_longer():
    """It said "31 ms longer, of which that explains 139"."""
    ddp, fsdp = on_gpus("run_ddp_2node"), on_gpus("run_fsdp_2node")
    steps = ddp.metrics.step_time_s
    a_little_longer = steps.model_copy(update={"p50": steps.p50 + 0.02})
    fsdp = replace(fsdp, metrics=fsdp.metrics.model_copy(update={"step_time_s": a_little_longer}))
    # 0.3725 x 203.1 ms - 0.1395 x 183.1 ms
    assert "it grew by 50 ms, and the step by 20 ms" in advice(ddp, fsdp).paragraph


def test_a_faster_run_with_a_larger_share_of_communication_says_how_much_less_its_step_takes():
    """It said "made 444 % of the tokens/s of DDP: 49.7 % of its step was communication", as if that were the reason."""

    def sentence(**changed: Any) -> str:
        rows = sidebyside.compare([on_gpus("run_ddp_2node", **changed), on_gpus("run_fsdp_2node")]).rows
        ddp, fsdp = map(recommend.Numbers, rows)
        return recommend.why(fsdp, ddp)

    assert "of FSDP 37.3 %: a step takes 177 ms less, and this part of it 109 ms. " in sentence()
    assert "of FSDP 37.3 %: a step takes 177 ms less all the same. " in sentence(communication_share=0.9)


def test_a_faster_run_that_fills_the_device_is_not_recommended():
    answer = advice(on_gpus("run_ddp_2node", device_reserved_gib=79.0), on_gpus("run_hsdp_2node"))
    says = "DDP is faster, and leaves less than 5 % of the device."
    assert answer.choice == ["Which strategy on 4 ranks of 2 nodes: HSDP.", says]
    assert "How it scales is not known" in answer.why[-1]


def test_runs_that_one_run_each_cannot_tell_apart_recommend_none_and_repeated_ones_are_named():
    ddp = on_gpus("run_ddp_2node")
    speed = ddp.metrics.tokens_per_s
    for share in (0.97, 0.92, 1.08):
        answer = advice(ddp, on_gpus("run_hsdp_2node", tokens_per_s=share * speed))
        assert "are within 10 % of each other, by one run of one of them. Repeat them in turn." in answer.choice[0]
        assert answer.strategy is None
    assert advice(ddp, on_gpus("run_hsdp_2node", tokens_per_s=0.88 * speed)).strategy == "DDP"
    repeated = [on_gpus("run_ddp_2node", tokens_per_s=speed * at) for at in (0.99, 1.01)]
    others = [on_gpus("run_hsdp_2node", tokens_per_s=speed * at) for at in (0.96, 0.97, 0.98)]
    answer = advice(ddp, *repeated, *others)
    assert (answer.strategy, answer.choice[1]) == ("DDP", "Within 5 % of it: HSDP.")


def test_strategies_on_different_gpus_or_with_a_slow_rank_stand_against_nobody():
    """HSDP was recommended because FSDP had run on another GPU, or beside a sick node."""
    fsdp, hsdp = on_gpus("run_fsdp_2node", gpu0="NVIDIA A100-SXM4-80GB"), on_gpus("run_hsdp_2node", gpu0="NVIDIA H100")
    answer = advice(fsdp, hsdp)
    assert answer.strategy is None
    assert "different GPUs (HSDP on NVIDIA H100; FSDP on NVIDIA A100-SXM4-80GB)" in answer.choice[0]
    base = on_gpus("run_fsdp_2node").metrics.tokens_per_s
    waited = Straggler(rank=3, node="n1", slowdown=1.8, part="forward")
    slow, other = on_gpus("run_fsdp_2node", tokens_per_s=base / 1.8, straggler=waited), on_gpus("run_hsdp_2node")
    answer = advice(slow, other)
    assert answer.strategy is None
    assert "all waited for one rank (FSDP: rank 3 on n1 took 1.8 times as long as the others)" in answer.choice[0]
    answer = advice(slow, other, on_gpus("run_ddp_2node"))
    assert answer.strategy == "DDP"
    assert "FSDP is left out: rank 3 on n1 took 1.8 times as long as the others" in answer.choice[1]


def test_other_nodes_are_said():
    ddp, hsdp = on_gpus("run_ddp_2node"), on_gpus("run_hsdp_2node", hosts=["n2", "n2", "n3", "n3"])
    assert any(sentence.startswith("They ran on different nodes (") for sentence in advice(ddp, hsdp).why)


def test_of_repetitions_the_middle_one_counts():
    speeds = (1.0, 100_000.0, 30_000.0)
    runs = [on_gpus("run_fsdp_2node", tokens_per_s=speed, loss=[6.0] * 12) for speed in speeds]
    ddp = on_gpus("run_ddp_2node", loss=[6.0] * 12)
    assert advice(ddp, *runs).why[0].startswith("FSDP made 69 % of the tokens/s of DDP")


@case_for_each(
    (None, False, "cannot tell, because FSDP was not judged"),
    (Outcome.FAIL, True, "cannot tell, because FSDP failed"),
    (Outcome.FAIL, False, "DDP."),  # a gate of speed
    (Outcome.INCOMPLETE, False, "DDP."),
)
def test_a_run_that_failed_or_was_not_judged_recommends_nothing(outcome, failed, says):
    answer = advice(on_gpus("run_ddp_2node"), replace(on_gpus("run_fsdp_2node", outcome), failed=failed))
    assert answer.choice[0].startswith(f"Which strategy on 4 ranks of 2 nodes: {says}")


@pytest.mark.parametrize(("gate", "failed"), [("train.scaling", False), ("train.loss.fell", True)])
def test_a_gate_of_speed_that_failed_leaves_the_numbers_what_they_are(tmp_path, gate, failed):
    judged = judge_folder(run_of("run_fsdp_2node", tmp_path))
    changed = [
        verdict.model_copy(update={"outcome": Outcome.FAIL if verdict.gate == gate else Outcome.PASS})
        for verdict in judged.verdicts.verdicts
    ]
    verdicts = judged.verdicts.model_copy(update={"verdicts": changed, "outcome": Outcome.FAIL})
    assert entry(replace(judged, verdicts=verdicts)).failed is failed


def test_why_is_not_known_where_communication_was_not_measured():
    unmeasured = {"communication": None, "communication_share": None, "communication_reason": "no step was profiled"}
    answer = advice(on_gpus("run_ddp_2node"), on_gpus("run_fsdp_2node", **unmeasured))
    assert "why is not known: communication of FSDP: no step was profiled" in answer.why[0]


def test_two_variants_of_a_strategy_stand_against_each_other():
    zero3 = on_gpus("run_fsdp_2node")
    answer = advice(zero3, on_gpus("run_fsdp_2node", reshard_after_forward=False, tokens_per_s=30_000.0))
    assert answer.choice[0] == "Which strategy on 4 ranks of 2 nodes: FSDP (ZeRO-2)."
    assert answer.why[0].startswith("FSDP (ZeRO-3) made 75 % of the tokens/s of FSDP (ZeRO-2)")


def test_one_strategy_alone_and_losses_that_disagree_tell_nothing():
    assert "cannot tell" in advice(on_gpus("run_1gpu"), on_gpus("run_ddp_2node")).choice[0]
    wrong = on_gpus("run_fsdp_2node", loss=[9.0] * 12)
    assert "with losses that agree" in advice(on_gpus("run_ddp_2node"), wrong).choice[0]


MEMORY_IS_FREE = 40.0
SITUATIONS: dict[str, dict[str, Any]] = {
    "the rank that": {"straggler": an_entry(RECORDS / "run_hsdp_2node").metrics.straggler},
    "--activation-checkpointing, or": {"device_reserved_gib": 79.0},
    "HSDP": {"communication_share": 0.4},
    "--no-reshard": {"communication_share": 0.4, "device_reserved_gib": MEMORY_IS_FREE},
    "more rows": {"communication_share": 0.4, "device_reserved_gib": MEMORY_IS_FREE},
    "a larger": {"kind": "ddp", "communication_share": 0.4},
    "without --activation": {"recomputed_layers": 4, "device_reserved_gib": MEMORY_IS_FREE},
    "--recipe fast": {"mfu": 0.3, "communication_share": 0.05},
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.do)
def test_each_rule_applies_where_its_reason_holds_and_not_to_a_run_without_faults(rule):
    situation = next(changed for start, changed in SITUATIONS.items() if rule.do.startswith(start))

    def applies(**changed: Any) -> bool:
        run = on_gpus("run_fsdp_2node", **changed)
        return rule.applies(recommend.Numbers(sidebyside.row_of(run, run, "")))

    assert applies(**situation)
    if situation.get("device_reserved_gib") == MEMORY_IS_FREE:
        assert not applies(**situation | {"device_reserved_gib": None})  # not known is not free
    assert not applies(communication_share=0.05, mfu=0.5)


def test_a_strategy_that_was_compared_is_not_proposed():
    fast = {"tokens_per_s": 90_000.0}
    assert "HSDP, because" in advice(on_gpus("run_fsdp_2node", **fast), on_gpus("run_ddp_2node")).next[0]
    assert "HSDP, because" not in advice(on_gpus("run_fsdp_2node", **fast), on_gpus("run_hsdp_2node")).next[0]


def test_runs_of_two_clusters_recommend_nothing():
    at = [{"cluster": "cluster", "controller": controller} for controller in ("ctl0", "ctl1")]
    runs = [on_gpus(stem) for stem in STEMS[1:3]]
    runs = [replace(entry, run=entry.run.model_copy(update=where)) for entry, where in zip(runs, at, strict=True)]
    (choice,) = advice(*runs).choice
    clusters = "DDP on cluster at ctl0; FSDP on cluster at ctl1"
    assert f"cannot tell, because they ran on different clusters ({clusters})." in choice
