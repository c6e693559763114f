"""Which strategy of those that were compared, why, and what to try next: in sentences, from their numbers.

Only runs on equally many ranks whose losses agree stand against each other. What a CPU or a stand-in showed is said as
that, and recommends nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bringup.kernel.characters import many
from bringup.kernel.facts.names import listed
from bringup.kernel.plan import stand_ins
from bringup.kernel.records import Record, grouped, known
from bringup.training.comparison.entries import TOKENS_PER_S
from bringup.training.comparison.sidebyside import Row, SideBySide
from bringup.training.records import scaling

EXPOSED = 0.10  # of a step; below it another option brings more than less communication. A choice of this project
FULL = 0.95  # of the device's memory: the rest is what train.memory.headroom of the profile generic wants
ROOM = 0.70  # below it a second row, or kept activations, may fit. A choice of this project
SLOW_RANK = 1.10  # own work over the median: all wait for it. Less than train.straggler fails at, because it is advice
ONE_RUN = 0.10  # what one run each cannot tell apart: days, nodes and neighbours differ by as much
LOW_MFU = 0.40  # published runs of plain bf16 trainings reach 0.4 to 0.6 (docs/reading-the-numbers.md)
MOST_TRIED = 3  # of RULES in a paragraph


@dataclass(frozen=True)
class Numbers:
    """What the rules ask of a run. None: not known."""

    row: Row
    one_gpu: Row | None = None  # the run on one rank, where it was compared too
    variant: str | None = None  # where two runs of its strategy stand against each other
    runs: int = 1  # of which this one is the middle

    @property
    def name(self) -> str:
        return self.row.kind.upper() if self.variant is None else f"{self.row.kind.upper()} ({self.variant})"

    @property
    def exposed(self) -> float | None:
        return self.row.metrics.communication_share

    @property
    def memory(self) -> float | None:
        """Return the share of the device that PyTorch reserved at the peak."""
        memory = self.row.metrics.memory
        if memory.device_reserved_gib is None or not memory.device_total_gib:
            return None
        return memory.device_reserved_gib / memory.device_total_gib

    @property
    def slow_rank(self) -> str | None:
        """Name the rank all others waited for, and how long; None: none that counts."""
        straggler = self.row.metrics.straggler
        if straggler is None or straggler.slowdown <= SLOW_RANK:
            return None
        return f"rank {straggler.rank} on {straggler.node} took {straggler.slowdown:.2g} times as long as the others"

    @property
    def traits(self) -> set[str]:
        """Name what holds of the run, and is known to: what rules ask for."""
        metrics, is_exposed = self.row.metrics, self.exposed is not None and self.exposed > EXPOSED
        known = {
            self.row.kind: True,
            "shards": self.row.kind in ("fsdp", "hsdp"),
            "several nodes": len(self.row.hosts) > 1,
            "full": self.memory is not None and self.memory > FULL,
            "room": self.memory is not None and self.memory < ROOM,
            "exposed": is_exposed,
            "hidden": not is_exposed,
            "gathers twice": metrics.observed.reshard_after_forward is True,
            "recomputes": bool(metrics.observed.recomputed_layers),
            "plain recipe": self.row.entry.args.recipe != "fast",
            "low MFU": (metrics.mfu or 1) < LOW_MFU,
        }
        return {name for name, holds in known.items() if holds}


class Rule(Record):
    """Something to try with the strategy that is recommended."""

    when: list[str]
    do: str
    why: str
    strategy: str = ""

    def applies(self, run: Numbers) -> bool:
        return run.traits.issuperset(self.when)


RULES = known("to_try", list[Rule])


@dataclass(frozen=True)
class Recommended:
    """Sentences. choice says why nothing is recommended, where nothing is."""

    choice: list[str]
    why: list[str] = field(default_factory=list)  # the others against the fastest, and the fastest against one GPU
    next: list[str] = field(default_factory=list)
    strategy: str | None = None  # null: none is recommended

    @property
    def paragraph(self) -> str:
        return " ".join([*self.choice, *self.why, *self.next])


def recommend(beside: SideBySide) -> Recommended:
    candidates = _candidates(beside.rows)
    if candidates is None:
        needed = "It takes two strategies, or two variants of one, on equally many ranks, with losses that agree."
        return Recommended([f"Which strategy: cannot tell. {needed}"])
    slowed = [] if _no_gpu(candidates) else [run for run in candidates if run.slow_rank is not None]
    set_aside = [f"{run.name} is left out: {run.slow_rank}. Repeat it without that node." for run in slowed]
    if len(candidates) - len(slowed) > 1:
        candidates = [run for run in candidates if run not in slowed]
    fastest, others = candidates[0], candidates[1:]
    where = f"Which strategy on {fastest.row.metrics.world_size} ranks of {many(len(fastest.row.hosts), 'node')}"
    reasons = [*(why(fastest, other) for other in others), _of_one_gpu(fastest), *_other_nodes(candidates)]
    objection = _objection(candidates)
    if objection is not None:
        after = ["Next: the same runs on the GPUs of this cluster."] if _no_gpu(candidates) else []
        return Recommended([f"{where}: cannot tell, because {objection}."], reasons, after)
    chosen = next((run for run in candidates if run.memory is None or run.memory <= FULL), fastest)
    near = _as_fast(chosen, candidates)
    if near and min(run.runs for run in (chosen, *near)) == 1:
        names = " and ".join(run.name for run in (chosen, *near))
        alike = f"{names} are within {ONE_RUN:.0%} of each other, by one run of one of them".replace("%", " %")
        return Recommended([f"{where}: cannot tell, because {alike}. Repeat them in turn.", *set_aside], reasons)
    alike = f"Within {100 * TOKENS_PER_S.exclude:.0f} % of it: {', '.join(run.name for run in near)}."
    choice = [f"{where}: {chosen.name}.", *[alike] * bool(near), *set_aside]
    if chosen is not fastest:
        choice.append(f"{fastest.name} is faster, and leaves less than {100 * (1 - FULL):.0f} % of the device.")
    measured = {run.row.kind for run in candidates}
    to_try = (rule for rule in RULES if rule.strategy not in measured and rule.applies(chosen))
    tried = [f"{rule.do}, because {rule.why}" for rule in to_try][:MOST_TRIED]
    after = [f"To try next: {'; '.join(tried)}." if tried else "No rule has something to try next."]
    return Recommended(choice, reasons, after, chosen.name)


def why(theirs: Numbers, ours: Numbers) -> str:
    """Say how our run's speed and memory stand to theirs, and how much of it is exposed communication."""
    share = _speed(ours.row) / _speed(theirs.row)
    sentence = f"{ours.name} made {share:.0%} of the tokens/s of {theirs.name}"
    if ours.exposed is None or theirs.exposed is None:
        unknown = next(run for run in (ours, theirs) if run.exposed is None)
        reason = unknown.row.metrics.communication_reason or "it was not measured"
        sentence += f"; why is not known: communication of {unknown.name}: {reason}"
    else:
        sentence += f": {ours.exposed:.1%} of its step was communication that nothing overlapped"
        sentence += f", of {theirs.name} {theirs.exposed:.1%}"
        ours_ms, theirs_ms = (1e3 * run.row.metrics.step_time_s.p50 for run in (ours, theirs))
        longer, exposed = ours_ms - theirs_ms, ours.exposed * ours_ms - theirs.exposed * theirs_ms
        if longer > 0 and exposed > longer:  # what it computes became shorter
            sentence += f": it grew by {exposed:.0f} ms, and the step by {longer:.0f} ms"
        elif longer > 0 and exposed > 0:
            sentence += f": a step takes {longer:.0f} ms longer, of which that explains {exposed:.0f} ms"
        elif longer > 0:
            sentence += f": it does not explain the {longer:.0f} ms that a step takes longer"
        elif exposed < 0:
            sentence += f": a step takes {-longer:.0f} ms less, and this part of it {-exposed:.0f} ms"
        else:
            sentence += f": a step takes {-longer:.0f} ms less all the same"
    own, base = (run.row.metrics.memory_check.states_measured_bytes for run in (ours, theirs))
    if base:
        sentence += f". Parameters, gradients and optimizer take {own / base:.0%} of the memory of {theirs.name}"
    return f"{sentence}.".replace("%", " %")


def _candidates(rows: Sequence[Row]) -> list[Numbers] | None:
    """Return the runs to choose from, fastest first: of the largest number of ranks with two of them, a run of each
    strategy and variant; of repetitions the median. None: there is no such number."""
    one_gpu = next((row for row in rows if row.metrics.world_size == 1), None)
    usable = [row for row in rows if row.agrees and not row.learnt]
    for ranks in sorted({row.metrics.world_size for row in usable}, reverse=True):
        of_size = [row for row in usable if row.metrics.world_size == ranks]
        alike = grouped(((row.kind, row.variant), row) for row in of_size)
        if len(alike) > 1:
            kinds = [kind for kind, _ in alike]
            candidates = []
            for (kind, variant), repeated in alike.items():
                middle = sorted(repeated, key=_speed)[(len(repeated) - 1) // 2]
                several = variant if kinds.count(kind) > 1 else None
                candidates.append(Numbers(middle, one_gpu, several, len(repeated)))
            return sorted(candidates, key=lambda run: -_speed(run.row))
    return None


def _speed(row: Row) -> float:
    return row.metrics.tokens_per_s


def _no_gpu(candidates: Sequence[Numbers]) -> bool:
    """Whether one of them computed on the CPU, or on a stand-in for GPUs."""
    devices = [device for run in candidates for device in run.row.metrics.observed.devices]
    return any(device == "cpu" or device.startswith(stand_ins.GPU) for device in devices)


def _objection(candidates: Sequence[Numbers]) -> str | None:
    """Why nothing is recommended. None: it is."""
    if _no_gpu(candidates):
        return "no GPU was at work. What follows is what the CPU showed, and says nothing about GPUs or NCCL"
    gpus = grouped((str(run.row.metrics.gpu0), run.name) for run in candidates)
    clusters = grouped((run.row.entry.of_cluster, run.name) for run in candidates if run.row.entry.of_cluster)
    for what, names_at, where_to in (("GPUs", gpus, "one kind"), ("clusters", clusters, "one")):
        if len(names_at) > 1:
            where = "; ".join(f"{', '.join(names)} on {place}" for place, names in names_at.items())
            return f"they ran on different {what} ({where}). Run all of them on {where_to}"
    slowed = [f"{run.name}: {run.slow_rank}" for run in candidates if run.slow_rank is not None]
    if slowed:
        return f"all waited for one rank ({'; '.join(slowed)}). Repeat it without that node"
    unsound = [run for run in candidates if run.row.entry.outcome is None or run.row.entry.failed]
    if unsound:
        states = ", ".join(f"{run.name} {'failed' if run.row.entry.outcome else 'was not judged'}" for run in unsound)
        return f"{states}. What follows is what the records say"
    return None


def _as_fast(chosen: Numbers, candidates: Sequence[Numbers]) -> list[Numbers]:
    """Return the others that these runs cannot tell from the chosen one."""

    def is_near(run: Numbers) -> bool:
        least = ONE_RUN if min(run.runs, chosen.runs) == 1 else TOKENS_PER_S.exclude
        return run is not chosen and abs(_speed(run.row) / _speed(chosen.row) - 1) < least

    return list(filter(is_near, candidates))


def _other_nodes(candidates: Sequence[Numbers]) -> list[str]:
    hosts = {run.row.hosts for run in candidates if len(run.row.hosts) == len(candidates[0].row.hosts)}
    named = "; ".join(f"{run.name}: {listed(sorted(run.row.hosts))}" for run in candidates)
    return [f"They ran on different nodes ({named})."] if len(hosts) > 1 else []


def _of_one_gpu(run: Numbers) -> str:
    if run.one_gpu is None:
        return "How it scales is not known: no run on one rank was compared."
    share = scaling(run.row.metrics, run.one_gpu.metrics)
    return f"A rank of {run.name} makes {share:.0%} of the tokens/s of one alone.".replace("%", " %")
