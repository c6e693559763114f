"""Preflight from the first check to the last attempt. Nothing is drained, and no job is cancelled."""

import itertools
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bringup.kernel import results as runs
from bringup.kernel.characters import many
from bringup.kernel.errors import BringupError, UsageError
from bringup.kernel.records import Outcome, write_record, write_text
from bringup.kernel.results import REPOSITORY
from bringup.preflight import allocation as allocations
from bringup.preflight import checks, command
from bringup.preflight.checks import Request, Setting, Tell
from bringup.preflight.records import Preflight, PreflightAttempt, PreflightLook
from bringup.report import text
from bringup.report.campaigns import LeftOut
from bringup.run import open as opening
from bringup.run import waiting

UNHEALTHY = Outcome.FAIL.exit_code


def run(request: Request, environment: Mapping[str, str], tell: Tell) -> int:
    """Exit code: that of the command; 1: too few healthy nodes, and it did not run. Raises UsageError."""
    allocation = allocations.of_environment(environment)
    if not request.nodes <= len(allocation.nodes):
        job = f"a job of {many(len(allocation.nodes), 'node')}"
        raise UsageError(f"preflight: --nodes {request.nodes} does not fit {job}")
    if shutil.which(request.command[0]) is None:
        raise UsageError(f"preflight: {request.command[0]!r} is no program on the PATH")
    name = opening.default_name()
    folder = REPOSITORY / runs.PREFLIGHTS / name
    folder.mkdir(parents=True)
    setting = Setting(request, allocation, name, folder, tell)
    record = Preflight(
        name=name,
        job=allocation.job,
        allocated=allocation.nodes,
        wanted=request.nodes,
        program=request.command[0],
        profile=request.profile.name,
        retries=request.retries,
        stall_after_s=request.stall_after_s,
    )
    return _Flight(setting, record).go()


@dataclass
class _Flight:
    """The attempts. The record is on disk after each step, so that a job that ends early leaves what was known."""

    setting: Setting
    record: Preflight
    at_work: list[str] = field(default_factory=list)  # the nodes of the command
    spares: list[str] = field(default_factory=list)  # the best one first
    links: set[checks.Link] = field(default_factory=set)  # bad ones: a later look may not come to pairs
    can_write: bool = True

    def go(self) -> int:
        self._save()
        if not self._choose_first():
            return UNHEALTHY
        for number in itertools.count(1):
            spares = f"; spare: {', '.join(self.spares)}" if self.spares else "; no spare"
            self.setting.tell(f"chosen     {', '.join(self.at_work)}{spares}")
            ended = self._start(number)
            if ended.code == 0:
                break
            code = 124 if ended.code is None else ended.code  # as timeout(1) ends for what it ended
            ended_how = "printed nothing for too long" if ended.code is None else f"ended with {ended.code}"
            if number > self.setting.request.retries:
                return self._conclude(code, f"the command {ended_how}, and was started {many(number, 'time')}")
            self.setting.tell(f"the command {ended_how}: looking at its nodes")
            try:
                why_not = self._exchange(number)
            except (BringupError, OSError) as error:  # the command's code counts, not that of a look
                why_not = f"its nodes could not be looked at: {error}"
            if why_not is not None:
                return self._conclude(code, f"the command {ended_how}; {why_not}")
        return self._conclude(0, "the command succeeded")

    def _choose_first(self) -> bool:
        """Return False where too few nodes are healthy, and everything about it is printed."""
        nodes = self.setting.allocation.nodes
        looked, judged = checks.look(self.setting, nodes, 0, is_first=True)
        self.record = self.record.model_copy(update={"before": looked})
        self._say(looked)
        self.links.update(looked.links)
        healthy = [node for node in nodes if node not in _names(looked.accused)]
        ranked = checks.ranked(healthy, judged)
        chosen = checks.choose(ranked, self.record.wanted, looked.links)
        if chosen is None:
            bad = f", and {many(len(looked.links), 'link')} between them are bad" if looked.links else ""
            needs = f"it needs {self.record.wanted} healthy nodes"
            there = f"{len(healthy)} of {len(nodes)} are healthy{bad}"
            self._conclude(UNHEALTHY, f"the command did not run: {needs}, and {there}")
            return False
        self._take(chosen, [node for node in ranked if node not in chosen])
        return True

    def _take(self, chosen: Sequence[str], spares: Sequence[str]) -> None:
        # rank 0 is on Slurm's first node
        self.at_work = [node for node in self.setting.allocation.nodes if node in chosen]
        self.spares = list(spares)

    def _start(self, number: int) -> command.Ended:
        allocation, folder = self.setting.allocation, self.setting.folder
        hostfile = folder / f"hosts-{number}"
        write_text(hostfile, "".join(f"{node}\n" for node in self.at_work))
        others, started_at = waiting.steps_of(allocation.job), opening.now()
        attempt = PreflightAttempt(
            nodes=self.at_work, spares=self.spares, started_at=started_at, seconds=0, how="running", exit_code=None
        )
        self._save(attempts=[*self.record.attempts, attempt])
        environment = allocation.for_command(self.at_work, hostfile) | {"BRINGUP_ATTEMPT": str(number)}
        ended = command.run(self.setting.request.command, environment, self.setting.request.stall_after_s)
        command.keep(self.setting.request.command, ended, folder / f"command-{number}.log")
        if ended.code != 0 and not waiting.end_steps(allocation.job, others, self.setting.tell):
            stays = "a step of the command stays in Slurm's books, or may"
            self.setting.tell(f"{stays}; further steps share its cores (SLURM_OVERLAP=1)")
            self.setting = replace(self.setting, allocation=allocation.overlapping())
        self._update(seconds=ended.seconds, how="stalled" if ended.code is None else "ended", exit_code=ended.code)
        return ended

    def _exchange(self, number: int) -> str | None:
        """Exchange the nodes that are accused. Return why none was; None: the command can be started again."""
        nodes = [node for node in self.setting.allocation.nodes if node in {*self.at_work, *self.spares}]
        looked, judged = checks.look(self.setting, nodes, number, until=self.at_work)
        self._update(look=looked)
        self._say(looked)
        self.links.update(looked.links)
        accused = _names(looked.accused)
        culprits = [node for node in self.at_work if node in accused]
        is_between = any(set(link) <= set(self.at_work) for link in looked.links)
        if not culprits and not is_between:
            return "nothing was observed that speaks against one of its nodes, and none was exchanged"
        staying = [node for node in self.at_work if node not in accused]
        spares = checks.ranked([node for node in self.spares if node not in accused], judged)
        chosen = checks.choose([*staying, *spares], len(self.at_work), self.links)
        if chosen is None:
            who = ", ".join(culprits) or "a link between its nodes"
            return f"{who}: see above, and no healthy spare is left"
        out = [node for node in self.at_work if node not in chosen]
        new = [node for node in chosen if node not in self.at_work]
        exchanged = dict(zip(out, new, strict=True))
        self._update(exchanged=exchanged)
        for old, spare in exchanged.items():
            self.setting.tell(f"exchanged  {old}: {spare} takes its place")
        # a node of a bad link is healthy by itself, and stays a spare
        self._take(chosen, [node for node in (*spares, *out) if node not in chosen and node not in accused])
        return None

    def _update(self, **fields: object) -> None:
        *earlier, last = self.record.attempts
        self._save(attempts=[*earlier, last.model_copy(update=fields)])

    def _save(self, **fields: object) -> None:
        """Save the record, with these fields. A disk that is full ends no command, and changes no exit code."""
        self.record = self.record.model_copy(update=fields)
        try:
            write_record(self.setting.folder / runs.PREFLIGHT, self.record, replace=True)
        except OSError as error:
            if self.can_write:
                self.setting.tell(f"the record cannot be written: {error}")
            self.can_write = False

    def _say(self, looked: PreflightLook) -> None:
        for entry in looked.accused:
            self.setting.tell(f"left out   {entry.node}: {text.plain(entry.why)}")
        for remark in looked.remarks:
            self.setting.tell(f"remark     {text.plain(remark)}")

    def _conclude(self, code: int, words: str) -> int:
        self._save(conclusion=words)
        pairs = [f"{old} for {new}" for attempt in self.record.attempts for old, new in attempt.exchanged.items()]
        exchanged = f"exchanged: {', '.join(pairs)}" if pairs else "no node was exchanged"
        self.setting.tell(f"{words}; {exchanged}; record: {text.shown_path(self.setting.folder)}/{runs.PREFLIGHT}")
        return code


def _names(accused: Sequence[LeftOut]) -> set[str]:
    return {entry.node for entry in accused}
