"""Runs that are given to `bringup advise`: what their bandwidth, peak and MFU change, and which are no source."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from advised import H100, LLAMA, advice, by_name, flops_of_llama, question
from bringup.kernel.errors import RecordError, RunError
from bringup.kernel.judge import EVIDENCE, Judged
from bringup.kernel.plan.ceiling import Mfu, Sourced
from bringup.kernel.records import Observation, Outcome
from bringup.training.advise import answer as advise
from bringup.training.advise import bandwidth
from bringup.training.formulae import traffic
from bringup.training.formulae.models import Job
from factory import a_run, a_verdict, judged_of, records_in
from loops import for_each
from runs_for_tests import FIXTURES


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


def measured(nodes: int, message: float, source: Any = None) -> bandwidth.Speed:
    speed = (source or bandwidth.Measured([("run-7", CURVE, [])])).bus("all_reduce", nodes, message)
    assert isinstance(speed, bandwidth.Speed)
    return speed


@for_each(
    ("all_reduce", 2, None, 8, "/ 8 GPUs for a replica's ring"),  # a GPU's part of what leaves a node
    ("all_reduce", 2, 4, 4, "/ 4 rings of replicas"),  # 4 shards in a node
    ("all_gather", 4, 16, 1, ""),  # of two nodes
)
def test_replicas_share_what_leaves_a_node(operation, nodes, shard_size, rings, says):
    source = bandwidth.Measured([("run-7", CURVE, [])])
    several = traffic.collectives(LLAMA, Job("hsdp", nodes, 8, 512, shard_size=shard_size))
    collective = next(each for each in several if each.operation == operation)
    took = bandwidth.seconds(collective, source, nodes, 8)
    whole = measured(2, collective.message * rings)  # CURVE is the same for all collectives
    assert took[0] == pytest.approx(collective.sent / (whole.gbps * 1e9 / rings))
    assert says in took[1]


def seen(operation: str, at: str, scale: str, gbps: float) -> Observation:
    of = {"subject": scale, "value": gbps, "unit": "GB/s", "evidence": "raw/x:1"}
    return Observation(quantity=f"nccl.{operation}.busbw@{at}", **of)


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
    source = bandwidth.Measured([("run-7", CURVE, [a_verdict(need, "2-nodes", Outcome.FAIL)])])
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
    return judged_of(*verdicts, run=run, training=records_in(FIXTURES / "training/run_1gpu"))


@for_each(
    (trained(Outcome.PASS, Outcome.PASS), RecordError, "has no MFU"),
    (trained(Outcome.PASS, Outcome.INCOMPLETE), RunError, r"run\.evidence"),
    (
        judged_of(*(a_verdict(gate, "job", Outcome.PASS) for gate in EVIDENCE)),
        RecordError,
        "discovery measured no bandwidth",
    ),
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
    run = judged_of(*verdicts, run=a_run("run_1gpu", ["n0"], plan={}), training=records_in(folder))
    before, after = advice(), advise.advise(question(), advise.known(H100, [run], None))
    for name, strategy in by_name(after).items():
        assert strategy.peak_gib == pytest.approx(1.2 * by_name(before)[name].peak_gib)
    assert any(line.startswith("measured peak / predicted peak 1.2: measured by") for line in after.assumptions)


def test_of_one_size_the_slowest_run_counts_in_whatever_order_they_are_named():
    fast, slow = ([seen("all_reduce", "1GiB", "2-nodes", gbps)] for gbps in (400.0, 100.0))
    for order in ([("a", fast, []), ("b", slow, [])], [("b", slow, []), ("a", fast, [])]):
        assert measured(2, 2**30, bandwidth.Measured(order)).gbps == 100.0
