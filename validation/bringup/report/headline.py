"""The overall word of a report, and the decision. It is that of the answers: no pass stands above an open question."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from bringup.answers import stand_ins_of
from bringup.evidence.names import first_few
from bringup.judge import Judged
from bringup.plan.catalogue import GATES
from bringup.plan.claims import CLAIMS
from bringup.plan.phases import PHASES
from bringup.records import Answer, Decision, Headline, Mark, Outcome, Verdict
from bringup.report import fleet

_OF_DRILLS = frozenset(claim.id for claim in CLAIMS if claim.drills)
_OPEN = (Mark.PARTLY, Mark.NOT_ASKED)
_WORST_FIRST = (Mark.FAIL, Mark.INCOMPLETE, Mark.REHEARSED, *_OPEN, Mark.WARN)
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
    judged: Sequence[Judged],
    ran: Collection[str],
    aside: Sequence[str] = (),
) -> Headline:
    """Say the outcome in a line. outcome: the worst of all planned. ran: stems of phases that ran. aside: nodes of the
    partition that were not taken, and why. Who accepts reads how many nodes, which were aside, and what warned."""
    made = _headline(outcome, answers, judged, ran)
    if made.decision not in (Decision.ACCEPT, Decision.EXCEPT):
        return made
    nodes = dict.fromkeys(node for run in judged for node in run.run.nodes)
    warned = dict.fromkeys(v.gate for run in judged for v in run.verdicts.verdicts if v.outcome is Outcome.WARN)
    titles = dict.fromkeys(GATES[gate].guide.title if gate in GATES else gate for gate in warned)
    scope = [f"of {len(nodes)} node{'s'[: len(nodes) != 1]}"] if nodes else []
    because = "; ".join([made.because, *([f"warned: {', '.join(titles)}"] if titles else []), *scope, *aside])
    decision = Decision.EXCEPT if titles else made.decision
    return made.model_copy(update={"decision": decision, "because": because})


def _headline(outcome: Outcome, answers: Sequence[Answer], judged: Sequence[Judged], ran: Collection[str]) -> Headline:
    mark = whole(answers)
    if outcome is Outcome.FAIL or mark is Mark.FAIL:
        why = _unhealthy(judged) if outcome is Outcome.FAIL else "faults that were made on purpose were not found"
        return _made(Mark.FAIL, _questions(answers, Mark.FAIL), Decision.REFUSE, why)
    if outcome is Outcome.INCOMPLETE or mark is Mark.INCOMPLETE:
        open_ones = _questions(answers, Mark.INCOMPLETE)
        exceptions = _never_seen_here(answers, [v for run in judged for v in run.verdicts.verdicts], ran)
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
    marks = {answer.mark for answer in answers} or {Mark.NOT_ASKED}
    worst = next(mark for mark in (*_WORST_FIRST, Mark.PASS) if mark in marks)
    return Mark.PARTLY if worst in _OPEN else worst


def _made(mark: Mark, says: str, decision: Decision, because: str) -> Headline:
    return Headline(mark=mark, says=says, decision=decision, because=because)


def _questions(answers: Sequence[Answer], *marks: Mark) -> str:
    numbers = [str(answer.question) for answer in answers if answer.mark in marks]
    return f"question{'s'[: len(numbers) > 1]} {', '.join(numbers)}" if numbers else ""


def _unhealthy(judged: Sequence[Judged]) -> str:
    """Which nodes failed, which are only suspected, and what failed for the whole."""
    nodes = fleet.nodes(judged)
    of_nodes = {id(verdict) for run in judged for verdict in fleet.of_single_nodes(run)}
    others = [
        v.gate for run in judged for v in run.verdicts.verdicts if v.outcome is Outcome.FAIL and id(v) not in of_nodes
    ]
    titles = list(dict.fromkeys(GATES[gate].guide.title if gate in GATES else gate for gate in others))
    whole = [f"not of one node: {first_few(titles, 3)}"] if titles else []
    return "; ".join(filter(None, [fleet.standing(judged, nodes).words, *whole]))


def _never_seen_here(answers: Sequence[Answer], verdicts: Iterable[Verdict], ran: Collection[str]) -> list[str]:
    """Say what an ordinary account on a usual image cannot see, if nothing else is open. Empty: something else is."""
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
    without_limit = list(dict.fromkeys(claim.says for claim in open_claims if claim.is_without_limit))
    only_drills = all(claim.claim in _OF_DRILLS for claim in open_claims if not claim.is_without_limit)
    says = f"nothing failed; not all was asked of {_questions(answers, *_OPEN)}"
    if without_limit and only_drills:
        says = "nothing failed; some numbers have no limit, or only this cluster's own"
    missing = [phase for phase in PHASES.values() if phase.stem not in ran]
    if missing:
        least, most = (sum(phase.minutes[end] for phase in missing) for end in (0, 1))
        names = ", ".join(phase.stem for phase in missing)
        return _made(Mark.PARTLY, says, Decision.OPEN, f"missing, {least} to {most} minutes and the queue: {names}")
    if not answers or not only_drills:
        return _made(Mark.PARTLY, says, Decision.OPEN, "the answers say what they do not claim")
    if without_limit:
        exceptions = f"nothing says how good these have to be: {'; '.join(without_limit)}"
        return _made(Mark.PARTLY, says, Decision.EXCEPT, exceptions)
    drills = "bringup drill --anywhere makes faults, and sees whether they are noticed"
    return _made(Mark.PARTLY, says, Decision.ACCEPT, f"all is answered but whether faults are noticed: {drills}")
