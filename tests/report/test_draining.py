"""Draining: which nodes the evidence speaks against, and the commands that a person pastes."""

import re
import shlex

import pytest
from bringup.kernel.judge import Judged
from bringup.kernel.records import Action, Outcome, Run, Verdict
from bringup.report import drain, fleet
from factory import a_run, a_verdict, judged_of
from loops import for_each
from programs import ran
from pydantic import ValidationError

NODES = ("n0", "n1", "n2", "n3")


def judged(*verdicts: Verdict, nodes: tuple[str, ...] = NODES, name: str = "run") -> Judged:
    return judged_of(*verdicts, run=a_run("discovery", nodes, name=name, plan={}))


def keep_away_of(run: Judged) -> drain.KeepAway:
    return drain.keep_away([run], fleet.nodes([run]))


def test_a_node_that_failed_is_drained_with_its_gates_as_the_reason_and_the_action_of_its_verdicts():
    healthy = a_verdict("discovery.gpu.count", "n0", Outcome.PASS)
    run = judged(a_verdict("discovery.gpu.count", "n1"), a_verdict("discovery.shm", "n1"), healthy)
    (proposal,) = drain.proposals([run])
    why = "Reason=bringup: discovery.gpu.count discovery.shm; reboot (2026-01-01T00:00Z, run run)"
    assert proposal.command == ["scontrol", "update", "NodeName=n1", "State=DRAIN", why]
    assert shlex.split(proposal.line) == proposal.command
    divided = a_verdict("discovery.gpu.count", "n1").model_copy(update={"action": Action.CONFIGURE})
    (proposal,) = drain.proposals([judged(divided)])
    assert proposal.why.startswith("bringup: discovery.gpu.count; configure (")
    (slow,) = drain.proposals([judged(a_verdict("smoke.compute.peers", "n1"))])  # it needs a person's hands
    assert slow.command is not None


@for_each(*(f"discovery.{name}" for name in ("kernel", "os", "cpu.model", "hugepages", "memory", "library.libc")))
def test_a_node_that_is_only_odd_is_named_and_gets_no_line(gate):
    """A rolling update, or a partition with two kinds of CPU, printed a line for each healthy node that is in the
    minority."""
    keep_away = keep_away_of(judged(a_verdict(gate, "n2")))
    reason = f"it is not broken; it differs from other nodes, or lacks a setting ({gate})"
    assert keep_away.lines == [f"# no line for n2: {reason}"]
    assert (keep_away.exclude, keep_away.others, keep_away.suspected) == ("", "n0,n1,n3", "n2")


@for_each(
    [a_verdict("discovery.gpu.count", "n1", Outcome.INCOMPLETE)],  # absence condemns nobody
    [a_verdict("discovery.gpu.persistence", "n1", Outcome.WARN)],
    [a_verdict("train.rank.finished", "n1/rank3")],  # perhaps the program
    [a_verdict("nccl.pair.link", "n0--n1")],  # which of the two?
    [a_verdict("discovery.slurm.proctrack", "job")],
    [a_verdict("discovery.gpu.count", "stranger")],  # not a node of this run
)
def test_no_node_is_drained_for_what_is_not_a_fault_of_a_node(verdicts):
    assert drain.proposals([judged(*verdicts)]) == []


def test_a_gate_that_most_nodes_fail_speaks_against_no_node_and_one_that_half_fail_against_each():
    (proposal,) = drain.proposals([judged(*(a_verdict("discovery.gpu.count", node) for node in NODES[:3]))])
    assert proposal.command is None
    assert proposal.line.startswith("# discovery.gpu.count failed on 3 of 4 nodes")
    proposals = drain.proposals([judged(*(a_verdict("discovery.gpu.count", node) for node in NODES[:2]))])
    assert [proposal.command[2] for proposal in proposals] == ["NodeName=n0", "NodeName=n1"]
    keep = keep_away_of(judged(*(a_verdict("discovery.gpu.count", node) for node in NODES)))
    assert [line[0] for line in keep.lines] == ["#"]
    assert (keep.exclude, keep.others) == ("", "n0,n1,n2,n3")


def test_a_node_that_slurm_keeps_out_keeps_its_reason():
    run = judged(a_verdict("discovery.node.state", "n1"), a_verdict("discovery.gpu.count", "n1"))
    (proposal,) = drain.proposals([run])
    assert proposal.command is None
    assert "already" in proposal.line


def test_no_name_reaches_a_shell_or_another_option():
    for name in ("n1; reboot", "$(reboot)", "-n1", "n1 State=IDLE", "n[0-9]", "../n1", "n1\n"):
        with pytest.raises(ValidationError, match="nodes"):  # the page offered it behind --nodelist=
            Run.model_validate(a_run().model_dump() | {"nodes": ["n0", name, "n2"]})
    for name in ("ALL", "all"):
        (proposal,) = drain.proposals([judged(a_verdict("discovery.gpu.count", name), nodes=("n0", name, "n2"))])
        assert proposal.command is None, name
        assert proposal.line.startswith("#")
    (proposal,) = drain.proposals([judged(a_verdict("discovery.gpu.count", "n1"))])
    assert re.fullmatch(r"Reason=[A-Za-z0-9 ._:/,;()+=-]+", proposal.command[-1])
    assert ran(["bash", "-c", f"printf '%s\\n' {proposal.line}"], check=True).stdout.splitlines() == proposal.command


def test_nodes_with_one_reason_are_one_command_and_one_list_to_exclude():
    nodes = tuple(f"n{number}" for number in range(32))
    bad = [a_verdict("discovery.gpu.count", node) for node in ("n1", "n2", "n3", "n4", "n9")]
    keep = keep_away_of(judged(*bad, a_verdict("discovery.shm", "n9"), nodes=nodes))
    assert len(keep.lines) == 2
    assert shlex.split(keep.lines[0])[2] == "NodeName=n1,n2,n3,n4"
    assert shlex.split(keep.lines[1])[2] == "NodeName=n9"
    assert keep.exclude == "--exclude=n[1-4,9]"
    assert (keep.others, keep.other_count) == ("n[0,5-8],n[10-31]", 27)


def test_a_node_against_which_something_speaks_is_not_offered_as_healthy():
    """n2 sent 3 % of its data again, and was offered as one of `the other 2 nodes`."""
    warned = a_verdict("load.tcp_sent_again", "n2", Outcome.WARN)
    slow = a_verdict("nccl.pair.link", "n0->n3")
    run = judged(a_verdict("discovery.gpu.count", "n1"), warned, slow, nodes=("n0", "n1", "n2", "n3", "n4"))
    keep = keep_away_of(run)
    assert (keep.exclude, keep.others, keep.other_count) == ("--exclude=n1", "n4", 1)
    assert keep.suspected == "n0,n2,n3"
