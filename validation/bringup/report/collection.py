"""The runs that one report is about: a playbook's, or those that were named, each judged again from its evidence; and
their headline: the overall word and the decision. It is that of the answers: no pass stands above an open question.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from bringup.domains.gpu_names import named
from bringup.kernel import results
from bringup.kernel.answers import answers, stand_ins_of, title
from bringup.kernel.errors import BringupError
from bringup.kernel.facts.names import first_few, listed
from bringup.kernel.judge import Judged, judge_folder
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.profile import Profile
from bringup.kernel.records import Answer, Decision, Headline, Mark, Outcome, Verdict, grouped, known, worst
from bringup.registry import DRILLED, called
from bringup.report import fleet, run_folders
from bringup.report.campaigns import Playbook
from bringup.report.run_folders import Absent, NamedRuns

_OF_DRILLS = frozenset(claim.id for claim in CLAIMS if claim.drills)
_OPEN = (Mark.PARTLY, Mark.NOT_ASKED)
_WORST_FIRST = (Mark.FAIL, Mark.INCOMPLETE, Mark.NOT_PROVEN, *_OPEN, Mark.WARN)
NEVER_SEEN = known("never_seen", dict[str, str])


@dataclass(frozen=True)
class Collection(NamedRuns):
    """The runs of these folders, judged."""

    judged: list[Judged] = field(default_factory=list)
    drills: list[object] = field(default_factory=list)

    @property
    def seconds(self) -> dict[Path, float]:
        """Return what a playbook's phases took."""
        return {folder: step.seconds for folder, step in self.steps.items()}

    @property
    def verdicts(self) -> list[Verdict]:
        return [verdict for judged in self.judged for verdict in judged.verdicts.verdicts]

    @cached_property
    def answers(self) -> list[Answer]:
        """Return the answers to the six questions."""
        return answers(self.judged, [absent.phase for absent in self.absent], self.drills, self.unhealthy_nodes)

    @cached_property
    def headline(self) -> Headline:
        nodes = dict.fromkeys(node for judged in self.judged for node in judged.run.nodes)
        ran = [judged.run.phase for judged in self.judged]
        made = headline(self.outcome, self.answers, self.judged, ran, self.set_aside)
        if made.decision is not Decision.ACCEPT or not (partly := self._not_in_all_phases(list(nodes))):
            return made
        return _made(Mark.PARTLY, "nothing failed", Decision.OPEN, f"not all phases ran on {listed(partly)}")

    def _not_in_all_phases(self, nodes: Sequence[str]) -> list[str]:
        """Nodes on which a phase that takes all nodes did not run."""
        wide = [judged.run for judged in self.judged if PHASES[judged.run.phase].max_nodes is None]
        took_part = [set(known) for known in grouped((run.phase, node) for run in wide for node in run.nodes).values()]
        return [node for node in nodes if any(node not in of_phase for of_phase in took_part)]

    @property
    def outcome(self) -> Outcome:
        """Return the worst outcome of everything that was planned: what is absent is incomplete."""
        return worst([*(judged.verdicts.outcome for judged in self.judged), *(Outcome.INCOMPLETE for _ in self.absent)])


def of_playbook(playbook: Playbook, judged: Sequence[Judged], folder: Path) -> Collection:
    """Collect what a playbook has just judged."""
    steps = {step.phase: step for step in playbook.steps}
    return Collection(
        absent=[Absent(step.phase, step.why_not_run or "did not run") for step in playbook.steps if not step.folder],
        left_out=[*playbook.left_out, *map(run_folders.unhealthy_node, playbook.unhealthy_nodes)],
        unhealthy_nodes=[entry.node for entry in playbook.unhealthy_nodes],
        set_aside=playbook.set_aside,
        playbooks=[folder],
        steps={each.folder: steps[each.run.phase] for each in judged if each.run.phase in steps},
        judged=list(judged),
    )


def gather(folders: Sequence[Path], profile: Profile | None = None) -> Collection:
    """Judge the runs in these folders (of runs, playbooks, drills), in the order of the phases. A run that cannot be
    judged is absent, and says why; raises RunError, FileError or RecordError only when nothing was left to judge."""
    of_drills = [folder for folder in folders if results.holds(folder, results.DRILLS)]
    drills = [called(DRILLED)(folder) for folder in of_drills]
    chosen = run_folders.find([folder for folder in folders if folder not in of_drills])
    judged: list[Judged] = []
    unread: list[tuple[Path, BringupError | OSError]] = []
    for folder in chosen.once:
        try:
            run = judge_folder(folder, profile)
            # a copy of it counts once
            if not any((run.run, run.verdicts) == (other.run, other.verdicts) for other in judged):
                judged.append(run)
        except (BringupError, OSError) as error:
            unread.append((folder, error))
    if unread and not judged and not chosen.playbooks and not drills:
        raise unread[0][1]
    names = {folder: step.phase for folder, step in chosen.steps.items()}
    absent = [*chosen.absent, *(Absent(names.get(folder, folder.name), str(error)) for folder, error in unread)]
    of_node = grouped((node, (run.folder, run.run)) for run in judged for node in run.run.nodes)
    for several in of_node.values():  # nodes of one name and of two clusters would be one on the page: NotComparable
        run_folders.refuse_other_clusters(several)
    order = list(PHASES)
    gpus = {uuid: name for run in judged for uuid, name in run.names.items()}  # as discovery named them
    judged = [replace(run, verdicts=named(run.verdicts, gpus)) for run in judged]
    judged.sort(key=lambda run: (order.index(run.run.phase), run.run.opened_at, run.run.name))
    return Collection(**vars(chosen) | {"absent": absent}, judged=judged, drills=drills)


# --- the headline


def headline(
    outcome: Outcome, answers: Sequence[Answer], runs: Sequence[Judged], ran: Container[str], aside: Sequence[str] = ()
) -> Headline:
    """Say the outcome in a line. outcome: the worst of all planned. ran: stems of phases that ran. aside: nodes of the
    partition that were not taken, and why. Who accepts reads how many nodes, which were aside, and what warned."""
    made = _headline(outcome, answers, runs, ran)
    if made.decision not in (Decision.ACCEPT, Decision.EXCEPT):
        return made
    nodes = dict.fromkeys(node for run in runs for node in run.run.nodes)
    warned = dict.fromkeys(v.gate for run in runs for v in run.verdicts.verdicts if v.outcome is Outcome.WARN)
    titles = dict.fromkeys(map(title, warned))
    scope = [f"of {len(nodes)} node{'s'[: len(nodes) != 1]}"] if nodes else []
    because = "; ".join([made.because, *([f"warned: {', '.join(titles)}"] if titles else []), *scope, *aside])
    return made.model_copy(update={"decision": Decision.EXCEPT if titles else made.decision, "because": because})


def _headline(outcome: Outcome, answers: Sequence[Answer], judged: Sequence[Judged], ran: Container[str]) -> Headline:
    marks = {answer.mark for answer in answers} or {Mark.NOT_ASKED}
    mark = next(mark for mark in (*_WORST_FIRST, Mark.PASS) if mark in marks)
    mark = Mark.PARTLY if mark in _OPEN else mark
    if outcome is Outcome.FAIL or mark is Mark.FAIL:
        why = _unhealthy(judged) if outcome is Outcome.FAIL else "faults that were made on purpose were not found"
        return _made(Mark.FAIL, _questions(answers, Mark.FAIL), Decision.REFUSE, why)
    if outcome is Outcome.INCOMPLETE or mark is Mark.INCOMPLETE:
        open_ones = _questions(answers, Mark.INCOMPLETE)
        exceptions = _never_seen_here(answers, [v for run in judged for v in run.verdicts.verdicts], ran)
        if exceptions:
            return _made(Mark.INCOMPLETE, open_ones, Decision.EXCEPT, f"not known here: {'; '.join(exceptions)}")
        return _made(Mark.INCOMPLETE, open_ones, Decision.OPEN, "nothing failed; what is not known is listed")
    if mark is Mark.NOT_PROVEN:
        claims = [claim for answer in answers for claim in answer.claims if claim.mark is mark]
        cure = "run it where GPU, NCCL and fabric are the real ones"
        return _made(mark, f"nothing failed; {stand_ins_of(claims)}", Decision.OPEN, cure)
    if mark is Mark.PARTLY:
        return _partly(answers, ran)
    return _made(mark, "", Decision.ACCEPT, "all six questions are answered")


def _made(mark: Mark, says: str, decision: Decision, because: str) -> Headline:
    return Headline(mark=mark, says=says, decision=decision, because=because)


def _questions(answers: Sequence[Answer], *marks: Mark) -> str:
    numbers = [str(answer.question) for answer in answers if answer.mark in marks]
    return f"question{'s'[: len(numbers) > 1]} {', '.join(numbers)}" if numbers else ""


def _unhealthy(judged: Sequence[Judged]) -> str:
    """Which nodes failed, which are only suspected, and what failed for the whole."""
    nodes = fleet.nodes(judged)
    own = {id(verdict) for run in judged for verdict in fleet.of_single_nodes(run)}
    others = [v.gate for run in judged for v in run.verdicts.verdicts if v.outcome is Outcome.FAIL and id(v) not in own]
    titles = list(dict.fromkeys(map(title, others)))
    whole = [f"not of one node: {first_few(titles, 3)}"] if titles else []
    return "; ".join(filter(None, [fleet.standing(judged, nodes).words, *whole]))


def _never_seen_here(answers: Sequence[Answer], verdicts: Iterable[Verdict], ran: Container[str]) -> list[str]:
    """Say what an ordinary account on a usual image cannot see, if nothing else is open. Empty: something else is."""
    gaps = [verdict.cause or "" for verdict in verdicts if verdict.outcome is Outcome.INCOMPLETE]
    excused = [next((says for words, says in NEVER_SEEN.items() if words in cause), "") for cause in gaps]
    claims = [claim for answer in answers for claim in answer.claims if claim.claim not in _OF_DRILLS]
    without_limit = [claim for claim in claims if claim.is_without_limit]
    rest = {claim.mark for claim in claims if not claim.is_without_limit}
    is_whole = all(phase.stem in ran for phase in PHASES.values())
    if not is_whole or rest - {Mark.PASS, Mark.WARN, Mark.INCOMPLETE} or not all(excused):
        return []
    return list(dict.fromkeys([*excused, *(f"no limit: {claim.says}" for claim in without_limit)]))


def _partly(answers: Sequence[Answer], ran: Container[str]) -> Headline:
    open_claims = [claim for answer in answers for claim in answer.claims if claim.mark in _OPEN]
    without_limit = list(dict.fromkeys(claim.says for claim in open_claims if claim.is_without_limit))
    only_drills = all(claim.claim in _OF_DRILLS for claim in open_claims if not claim.is_without_limit)
    says = f"nothing failed; not all was asked of {_questions(answers, *_OPEN)}"
    if without_limit and only_drills:
        says = "nothing failed; some numbers have no limit, or only this cluster's own"
    if missing := [phase for phase in PHASES.values() if phase.stem not in ran]:
        least, most = (sum(phase.minutes[end] for phase in missing) for end in (0, 1))
        names = ", ".join(phase.stem for phase in missing)
        return _made(Mark.PARTLY, says, Decision.OPEN, f"missing, {least} to {most} minutes and the queue: {names}")
    if not answers or not only_drills:
        return _made(Mark.PARTLY, says, Decision.OPEN, "the answers say what was not asked")
    if without_limit:
        exceptions = f"nothing says how good these have to be: {'; '.join(without_limit)}"
        return _made(Mark.PARTLY, says, Decision.EXCEPT, exceptions)
    drills = "bringup drill --anywhere makes faults, and sees whether they are noticed"
    return _made(Mark.PARTLY, says, Decision.ACCEPT, f"all is answered but whether faults are noticed: {drills}")
