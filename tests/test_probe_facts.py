"""How a probe reports: a long fact never ends it, and a gate cannot take a fact that did not fit for a whole one."""

import io
import json
import sys

import collectives
import inventory
import pytest
from bringup.kernel.facts import facts
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.records import Outcome, Verdict
from fabric import fabric
from factory import a_run
from facts import MAX_LINE_BYTES, MAX_NAME, MAX_TEXT, Facts
from loops import for_each
from runs_for_tests import about, add_derived

HOSTS = [f"queue-dynamic-p5-48xlarge-training-{number}" for number in range(1, 9)]
EFA = [f"rdmap{bus}s{slot}" for bus in range(79, 239, 5) for slot in (0,)]  # as the kernel names 32 of them


def parsed_of(question, at: str = "n0") -> Parsed:
    """What the judge reads of what a probe said; no line is one that srun would cut."""
    stream = io.StringIO()
    probe = Facts("probe", stream)
    probe.at = at
    question(probe)
    probe.finish()
    assert max(len(line.encode()) for line in stream.getvalue().splitlines()) <= MAX_LINE_BYTES
    parsed = facts.parse(stream.getvalue(), "f")
    assert parsed.problems == []
    return parsed


def bypassed(hosts: list[tuple[str, list[str]]]) -> Verdict:
    members = [(host, rank, 1_000_000 + rank, f"GPU-{rank:036}") for rank, (host, _) in enumerate(hosts)]
    parsed = parsed_of(lambda probe: collectives.say_members(probe, "8-nodes", members, hosts), HOSTS[0])
    parsed.saw("nccl.transport", "8-nodes", "sockets", "text", "e")
    run = a_run("nccl_monitoring", HOSTS, gpus=1, profile="generic")
    return about("nccl.rdma.bypassed", add_derived(parsed, run), run)["8-nodes"]


@for_each((HOSTS, "rdmap79s0"), (HOSTS, "and 24 more"), (HOSTS[-1:], HOSTS[-1]), ([], ""))
def test_eight_hosts_with_thirty_two_efa_devices_each_are_told_and_judged(having, says):
    """One host of eight is enough to be bypassed."""
    assert len(EFA) == 32
    verdict = bypassed([(host, EFA if host in having else []) for host in HOSTS])
    assert verdict.outcome is (Outcome.FAIL if having else Outcome.PASS)
    assert says in verdict.observed


def test_a_node_with_two_hundred_veths_tells_its_ports_too(tmp_path):
    for number in range(200):
        (tmp_path / f"net/veth{number:08x}").mkdir(parents=True)
    parsed = parsed_of(lambda probe: fabric(probe, tmp_path / "net", tmp_path / "none", tmp_path / "none"))
    interfaces, ports, _ = [each for each in parsed.observations if not each.quantity.endswith("finished")][:3]
    assert (interfaces.quantity, interfaces.value, ports.value) == ("discovery.net.interfaces", None, 0)
    assert str(interfaces.why).startswith("200 entries do not fit on one line: veth00000000, ")


def test_lists_that_differ_in_what_does_not_fit_are_not_read_as_equal():
    long = [f"device-{number:04}" for number in range(300)]
    for last in ("a", "b"):
        assert parsed_of(lambda probe, last=last: probe.saw("q", [*long, last], "text")).observations[0].value is None


@for_each("x", "ü", "漢", "🙂", '"', "\n")
def test_no_text_name_or_remark_is_too_long_for_a_line(letter):
    parsed = parsed_of(lambda probe: probe.saw(letter * 400, letter * 2000, "text", letter * 400, letter * 2000))
    assert isinstance(parsed.observations[0].value, str | None)
    parsed = parsed_of(lambda probe: probe.unknown("q", "text", letter * 2000, "n0/" + letter * 400), letter * 200)
    assert str(parsed.observations[0].why).endswith("…")


def test_what_fits_is_told_as_it_is():
    parsed = parsed_of(lambda probe: probe.saw("q", "x" * MAX_TEXT, "text", "s" * MAX_NAME, "r" * MAX_TEXT))
    observation = parsed.observations[0]
    assert (observation.value, observation.subject, observation.why) == ("x" * MAX_TEXT, "s" * MAX_NAME, "r" * MAX_TEXT)


@pytest.mark.parametrize("error", [ValueError("invalid literal"), StopIteration(), OSError("gone")])
def test_a_question_that_breaks_leaves_the_answers_to_the_others(capsys, monkeypatch, error):
    def broken(_):
        raise error

    broken.__name__ = "fabric"
    monkeypatch.setattr(inventory, "fabric", broken)
    monkeypatch.setattr(sys, "argv", ["inventory.py"])
    inventory.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert type(error).__name__ in next(line["why"] for line in lines if line.get("quantity") == "discovery.fabric")
    assert "discovery.gpu.count" in {line.get("quantity") for line in lines}
    assert lines[-1]["end"] == len(lines) - 1
