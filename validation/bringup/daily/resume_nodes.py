"""`bringup resume-nodes`: only nodes that bringup drained, and that pass again. Without --apply it only says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bringup.daily import asked_again, drained
from bringup.daily.drained import May, Out
from bringup.errors import SlurmError
from bringup.report.text import plain
from bringup.run import playbook, slurm

Tell = Callable[[str], None]


def resume(only: Sequence[str], with_nodes: Sequence[str], apply: bool, request: playbook.Request, tell: Tell) -> int:
    """Exit code: 0 all that may be resumed is, 1 a node was asked again and did not pass, 2 Slurm refused. only: these
    nodes alone."""
    nodes_out = [entry for entry in drained.out_of_service().values() if not only or entry.node in only]
    for entry in nodes_out:
        tell(_in_words(entry))
    ready = [entry for entry in nodes_out if entry.may is May.RESUME]
    to_ask = [entry for entry in nodes_out if entry.may is May.ASK_AGAIN]
    if not nodes_out:
        tell("no node is kept out of service" if not only else f"none of {', '.join(only)} is kept out of service")
    if not apply:
        if ready or to_ask:
            tell("nothing was done; --apply resumes what passes, and runs the phases of nodes that a run drained")
        return 0
    refused = [entry for entry in ready if not _resumed(entry, tell)]
    not_passed: list[asked_again.Answer] = []
    if to_ask:
        answers = asked_again.ask(to_ask, with_nodes, request)
        not_passed = [answer for answer in answers if not answer.passes]
        for answer in answers:
            tell(f"{'resumed' if answer.passes else 'stays drained'}: {answer.node}: {plain(answer.why)}")
    return 2 if refused else 1 if not_passed else 0


def _in_words(entry: Out) -> str:
    words = {
        May.RESUME: "can be resumed",
        May.ASK_AGAIN: f"must pass {', '.join(entry.phases)} first",
        May.WAIT: "not yet",
        May.LEAVE: "left as it is",
    }
    return f"{entry.node}: {words[entry.may]}: {entry.why}; {entry.state}: {plain(entry.given)}"


def _resumed(entry: Out, tell: Tell) -> bool:
    """Looked at once more before: somebody may have drained it for a reason of their own by now."""
    try:
        if not drained.is_unchanged(entry, drained.out_of_service()):
            tell(f"left as it is: {entry.node}: its state or its reason has changed meanwhile")
            return True
        slurm.ask("scontrol", "update", f"NodeName={entry.node}", "State=RESUME")
    except SlurmError as error:
        tell(f"not resumed: {entry.node}: {plain(str(error))}")
        return False
    tell(f"resumed: {entry.node}: {entry.why}")
    return True
