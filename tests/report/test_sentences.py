"""What failed is a sentence, the same in all outputs: what is wrong, what it means for a job, and the device behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest
from bringup import judge
from bringup.evidence.parsed import Parsed
from bringup.plan import profile as profiles
from bringup.records import Kind, Outcome, Value, Verdict
from bringup.report import document, explain, page, text, view
from bringup.report.junit import junit
from factory import a_run, a_verdict, gathered, judged_of

ECC = "discovery.gpu.ecc"
ECC_SAYS = "GPU-3 (uncorrected memory errors of a GPU: 2; jobs on it crash)"


def judged(gate: str, subject: str, *values: Value, why: str | None = None, profile: str = "h100-8x400g") -> Verdict:
    """The verdict about n0, or about a job or scale; the other values are those of n1, n2. The run is of a phase that
    plans none of these gates, so no other one has to pass first."""
    known = profiles.load(profile)
    at = known.expect[gate].at if gate in known.expect else None
    subjects = [subject, "n1", "n2"][: len(values)]
    parsed = Parsed()
    for each, value in zip(subjects, values, strict=True):
        unit = judge.catalogue.GATES[gate].unit
        parsed.saw(gate if at is None else f"{gate}@{at}", each, value, unit, "raw/x:1", why)
    run = a_run("run_1gpu", nodes=["n0", "n1", "n2"], gpus=8, profile=profile, plan={gate: subjects})
    return next(v for v in judge.judge(run, known, parsed).verdicts if (v.gate, v.subject) == (gate, subject))


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        ((ECC, "n0", 2), ECC_SAYS),
        (
            ("load.tcp_sent_again", "n0", 0.02954),
            "under load 2.95 % of the TCP segments that the node sends are sent again, allowed at most 1 % (GPU-3)",
        ),
        (
            ("discovery.gpu.remap_failed", "n0", True),
            "a GPU has no spare row left: its next memory error cannot be repaired (GPU-3)",
        ),
        (
            ("smoke.compute.tflops", "n0", 512.34),
            "the slowest GPU computes 512.3 TFLOP/s, expected at least 600 TFLOP/s: it slows down all ranks (GPU-3)",
        ),
        (
            ("discovery.rdma.flaps", "n0", 23),
            "GPU-3 (times that an RDMA port lost its link: 23, allowed at most 5; jobs stall then)",
        ),
        (("discovery.clock.offset", "n0", 12345.678), "the clock may be 12346 s off, allowed at most 0.1 s (GPU-3)"),
        (
            ("discovery.node.state", "n0", "DOWN"),
            "Slurm gives no jobs to this node: its state is DOWN (GPU-3)",
        ),
    ],
)
def test_a_miss_says_what_is_wrong_with_units_and_the_remark_behind(verdict, says):
    gate, subject, value = verdict
    assert text.sentence(judged(gate, subject, value, why="GPU-3")) == says


def test_a_limit_with_a_size_and_a_basis_names_both():
    slow = judged("nccl.all_reduce.busbw", "2-nodes", 12.0)
    assert slow.basis
    assert (
        text.sentence(slow)
        == f"all_reduce reaches 12 GB/s, expected at least {slow.limit:g} GB/s at 8GiB ({slow.basis})"
    )


def test_nodes_that_are_compared_say_what_the_others_have():
    odd = judged("discovery.kernel", "n0", "6.8", "6.1", "6.1")
    assert text.sentence(odd) == "the kernel differs from that of other nodes: 6.8 (2 of 3 have 6.1)"


def test_what_was_not_judged_gives_its_reason_first_and_nothing_that_was_not_seen():
    absent = a_verdict(ECC, "n0", Outcome.INCOMPLETE, "nothing", cause="no evidence arrived", evidence="none")
    assert text.sentence(absent) == "no evidence arrived"
    why = "not found out: the kernel log cannot be read"
    unknown = a_verdict(ECC, "n0", Outcome.INCOMPLETE, "nothing", cause=why, kind=Kind.UNKNOWN)
    assert text.sentence(unknown) == why
    alone = judged("discovery.kernel", "n0", "6.8")
    assert alone.outcome is Outcome.INCOMPLETE
    assert text.sentence(alone) == "compared with too few: 1 of 1 are known (observed 6.8)"
    undeclared = judged("smoke.compute.tflops", "n0", 0.35, profile="generic")
    assert undeclared.kind is Kind.UNDECLARED
    assert text.sentence(undeclared) == "0.35 TFLOP/s; profile generic declares no smoke.compute.tflops"
    good = judged(ECC, "n0", 0)
    assert (good.outcome, good.fails) == (Outcome.PASS, None)


def test_all_outputs_say_the_same_sentence(tmp_path: Path):
    bad = judged(ECC, "n0", 2, why="GPU-3")
    run = a_run(plan={ECC: ["n0"]})
    whole = replace(judged_of(bad, run=run), folder=tmp_path)
    collection = gathered(whole)
    cases = xml.fromstring(junit(collection))
    outputs = {
        "screen": view.screen(tmp_path, run, whole.verdicts),
        "report.md": document.run(whole),
        "explain": explain.screen(whole),
        "page": page.render(collection),
        "JUnit": "".join(failure.get("message", "") for failure in cases.iter("failure")),
    }
    for name, output in outputs.items():
        assert ECC_SAYS in output, f"{name}: does not say what is wrong"
        assert "expected 0" not in output, f"{name}: still says what was expected in its old form"
