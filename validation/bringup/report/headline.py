"""The overall word of a report, and the decision. It is that of the answers: no pass stands above an open question."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from bringup.answers import stand_ins_of
from bringup.evidence.names import listed
from bringup.plan.catalogue import GATES
from bringup.plan.claims import CLAIMS
from bringup.plan.phases import PHASES
from bringup.plan.subjects import nodes_of
from bringup.records import Answer, Decision, Headline, Mark, Outcome, Verdict
from bringup.records.grouped import grouped

_OF_DRILLS = frozenset(claim.id for claim in CLAIMS if claim.drills)
_OPEN = (Mark.PARTLY, Mark.NOT_ASKED)
NEVER_SEEN = (
    ("kernel log cannot be read", "the kernel log is closed to this account (group systemd-journal)"),
    ("dcgmi is not installed", "DCGM is not installed"),
    ("ib_write_bw is not installed", "perftest is not installed"),
    ("ib_write_lat is not installed", "perftest is not installed"),
)
"""Words of a probe -> what an ordinary account does not see on a usual image, however often it looks."""


def headline(
    outcome: Outcome,
    answers: Sequence[Answer],
    verdicts: Iterable[Verdict],
    nodes: Collection[str],
    ran: Collection[str],
) -> Headline:
    """outcome: the worst of all that was planned. nodes: of the report. ran: stems of the phases that ran."""
    mark = whole(answers)
    if outcome is Outcome.FAIL or mark is Mark.FAIL:
        why = (
            _unhealthy(verdicts, nodes)
            if outcome is Outcome.FAIL
            else "faults that were made on purpose were not found"
        )
        return _made(Mark.FAIL, _questions(answers, Mark.FAIL), Decision.REFUSE, why)
    if outcome is Outcome.INCOMPLETE or mark is Mark.INCOMPLETE:
        open_ones = _questions(answers, Mark.INCOMPLETE)
        exceptions = _never_seen_here(answers, verdicts, ran)
        if exceptions:
            return _made(Mark.INCOMPLETE, open_ones, Decision.EXCEPT, f"not known here: {'; '.join(exceptions)}")
        return _made(Mark.INCOMPLETE, open_ones, Decision.OPEN, "nothing failed; what is not known is listed")
    if mark is Mark.REHEARSED:
        claims = [claim for answer in answers for claim in answer.claims if claim.mark is mark]
        cure = "run it where GPU, NCCL and fabric are the real ones"
        return _made(mark, f"nothing failed; {stand_ins_of(claims)}", Decision.OPEN, cure)
    if mark is Mark.PARTLY:
        return _partly(answers, ran)
    return _made(mark, "", Decision.ACCEPT, "all six questions are answered")


def whole(answers: Sequence[Answer]) -> Mark:
    marks = {answer.mark for answer in answers}
    for bad in (Mark.FAIL, Mark.INCOMPLETE):
        if bad in marks:
            return bad
    if Mark.REHEARSED in marks:
        return Mark.REHEARSED
    if not marks or marks & set(_OPEN):
        return Mark.PARTLY
    return Mark.WARN if Mark.WARN in marks else Mark.PASS


def _made(mark: Mark, says: str, decision: Decision, because: str) -> Headline:
    return Headline(mark=mark, says=says, decision=decision, because=because)


def _questions(answers: Sequence[Answer], mark: Mark) -> str:
    numbers = [str(answer.question) for answer in answers if answer.mark is mark]
    return f"question{'s'[: len(numbers) > 1]} {', '.join(numbers)}" if numbers else ""


def of_the_whole(verdicts: Iterable[Verdict], nodes: Collection[str]) -> set[str]:
    """Gates that failed on most of the nodes of which they were judged: a fault of the cluster accuses no node."""
    judged = grouped((v.gate, v) for v in verdicts if _node(v) in nodes)
    failed = {gate: {_node(v) for v in alike if v.outcome is Outcome.FAIL} for gate, alike in judged.items()}
    return {gate for gate, bad in failed.items() if len(bad) > 1 and 2 * len(bad) > len(set(map(_node, judged[gate])))}


def _node(verdict: Verdict) -> str:
    return verdict.subject.partition("/")[0]


def _unhealthy(verdicts: Iterable[Verdict], nodes: Collection[str]) -> str:
    """Which nodes failed, which are only suspected, and what failed for the whole."""
    every = list(verdicts)
    whole = of_the_whole(every, nodes)
    failed = [verdict for verdict in every if verdict.outcome is Outcome.FAIL]
    bad = list(dict.fromkeys(_node(v) for v in failed if _node(v) in nodes and v.gate not in whole))
    warned = (
        v for v in every if not v.outcome.is_quiet and v.outcome is not Outcome.INCOMPLETE and v.gate not in whole
    )
    suspected = [node for node in dict.fromkeys(node for v in warned for node in nodes_of(v.subject)) if node in nodes]
    suspected = [node for node in suspected if node not in bad]
    others = dict.fromkeys(_title(v.gate) for v in failed if _node(v) not in nodes or v.gate in whole)
    words = [f"{len(bad)} of {len(nodes)} nodes failed: {listed(bad)}"] if bad else []
    words += [f"suspected: {listed(suspected)}"] if suspected else []
    words += [f"not of one node: {', '.join(list(others)[:3])}{', …' if len(others) > 3 else ''}"] if others else []
    return "; ".join(words)


def _title(gate: str) -> str:
    return GATES[gate].guide.title if gate in GATES else gate


def _never_seen_here(answers: Sequence[Answer], verdicts: Iterable[Verdict], ran: Collection[str]) -> list[str]:
    """What an ordinary account on a usual image cannot see, where nothing else is open. Empty: something else is."""
    gaps = [verdict.cause or "" for verdict in verdicts if verdict.outcome is Outcome.INCOMPLETE]
    excused = [next((says for words, says in NEVER_SEEN if words in cause), "") for cause in gaps]
    claims = [claim for answer in answers for claim in answer.claims if claim.claim not in _OF_DRILLS]
    without_limit = [claim for claim in claims if claim.is_without_limit]
    rest = {claim.mark for claim in claims if not claim.is_without_limit}
    is_whole = all(phase.stem in ran for phase in PHASES.values())
    if not is_whole or rest - {Mark.PASS, Mark.WARN, Mark.INCOMPLETE} or not all(excused):
        return []
    return list(dict.fromkeys([*excused, *(f"no limit: {claim.says}" for claim in without_limit)]))


def _partly(answers: Sequence[Answer], ran: Collection[str]) -> Headline:
    open_claims = [claim for answer in answers for claim in answer.claims if claim.mark in _OPEN]
    numbers = [answer.question for answer in answers if answer.mark in _OPEN]
    says = f"nothing failed; not all was asked of question{'s'[: len(numbers) > 1]} {', '.join(map(str, numbers))}"
    judged_by_nobody = [claim for claim in open_claims if claim.is_without_limit]
    left = [claim for claim in open_claims if claim not in judged_by_nobody]
    if judged_by_nobody and all(claim.claim in _OF_DRILLS for claim in left):
        says = "nothing failed; numbers without a limit are shown and not judged"
    drills = "bringup drill --anywhere makes faults, and sees whether they are noticed"
    missing = [phase for phase in PHASES.values() if phase.stem not in ran]
    if answers and not missing and all(claim.claim in _OF_DRILLS for claim in left):
        if judged_by_nobody:
            exceptions = "; ".join(dict.fromkeys(claim.says for claim in judged_by_nobody))
            return _made(Mark.PARTLY, says, Decision.EXCEPT, f"no limit says how good these have to be: {exceptions}")
        return _made(Mark.PARTLY, says, Decision.ACCEPT, f"all is answered but whether faults are noticed: {drills}")
    if not missing:
        return _made(Mark.PARTLY, says, Decision.OPEN, "the answers say what they do not claim")
    least, most = (sum(phase.minutes[end] for phase in missing) for end in (0, 1))
    names = ", ".join(phase.stem for phase in missing)
    return _made(Mark.PARTLY, says, Decision.OPEN, f"missing, {least} to {most} minutes and the queue: {names}")
