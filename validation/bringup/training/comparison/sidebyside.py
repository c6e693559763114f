"""Training runs side by side. Unlike runs are refused with the field that differs, unless --vary names it; losses are
compared before speeds."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bringup.kernel.errors import NotComparable, UsageError
from bringup.kernel.records import grouped
from bringup.training.comparison.entries import Entry
from bringup.training.records import ARGUMENTS, RunArgs, TrainMetrics, differing_fields, scaling, variant_of

LOSS_TOLERANCE_NATS = {"float32": 1e-5, "bfloat16": 2e-2}
"""fp32: strategies differ by rounding order only (measured: 1.4e-6 over 20 steps). bf16: one last place of a loss near
6."""

NOT_SAID = (
    "The rows are what the files say. Not known: whether they are as the run wrote them, how its ranks ended, what "
    "disturbed its GPUs and its network, whether it meets the numbers of a profile"
)
"""Of runs whose evidence is not there."""

_FOLLOW = {"recipe": ("tuning", "compile"), "compile": ("tuning", "recipe")}
"""What differs too where this one does."""


@dataclass(frozen=True)
class Row:
    """One run beside the base: the run with the fewest ranks, the first of them that was named."""

    entry: Entry
    name: str
    scaling: float | None  # tokens/s of a rank over those of one GPU, as recorded. None: no such run is known
    gap: float | None  # largest difference of the losses in a step, nats; None: no losses, or another workload
    agrees: bool
    learnt: tuple[str, ...] = ()  # arguments in which it learns something else than the base: its losses are others

    @property
    def metrics(self) -> TrainMetrics:
        return self.entry.metrics

    @property
    def kind(self) -> str:
        return self.metrics.observed.kind

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(self.metrics.observed.hosts)

    @property
    def shape(self) -> str:
        """Write `2 x 8`: nodes, and ranks on each."""
        return f"{len(self.hosts)} x {self.metrics.world_size // len(self.hosts)}"

    @property
    def variant(self) -> str:
        return variant_of(self.entry.args, self.metrics.observed)

    def loss(self, at: int) -> str:
        return f"{self.metrics.loss[at]:.4f}" if self.metrics.loss else "none"

    @property
    def gap_in_words(self) -> str:
        if self.learnt:
            return f"other {', '.join(self.learnt)}"
        if self.gap is None:
            return "no losses"
        return f"{self.gap:.1e}{'' if self.agrees else ' DISAGREES'}"


_RUN: dict[str, Callable[[Row], str]] = {
    "run": lambda row: row.name,
    "judged": lambda row: "NOT JUDGED" if row.entry.outcome is None else row.entry.outcome.upper(),
    "strategy": lambda row: row.kind,
    "variant": lambda row: row.variant,
}
_MEASURED: dict[str, Callable[[Row], str]] = {
    "ranks": lambda row: str(row.metrics.world_size),
    "hosts": lambda row: str(len(row.hosts)),
    "tokens/s": lambda row: f"{row.metrics.tokens_per_s:,.0f}",
    "tokens/s/rank": lambda row: f"{row.metrics.tokens_per_s_per_rank:,.0f}",
    "MFU": lambda row: number(row.metrics.mfu, "{:.1%}", "unknown"),
    "scaling": lambda row: number(row.scaling, "{:.2f}", "unknown"),
    "step p50 ms": lambda row: f"{row.metrics.step_time_s.p50 * 1e3:.1f}",
    "step p95 ms": lambda row: f"{row.metrics.step_time_s.p95 * 1e3:.1f}",
    "imports s": lambda row: f"{row.metrics.startup.import_s:.1f}",  # over ranks: what a start costs at scale
    "start-up s": lambda row: f"{sum(seconds for _, seconds in row.metrics.startup):.1f}",
    "exposed comm.": lambda row: number(
        row.metrics.communication_share, "{:.1%}", "none" if row.metrics.world_size == 1 else "unknown"
    ),
    "states GiB": lambda row: f"{row.metrics.memory_check.states_measured_bytes / 2**30:.3g}",
    "host GiB": lambda row: f"{row.metrics.memory.host_rss_gib:.2f}",
    "device GiB": lambda row: number(row.metrics.memory.device_allocated_gib, "{:.2f}", "none"),
    "loss first": lambda row: row.loss(0),
    "loss last": lambda row: row.loss(-1),
    "loss gap": lambda row: row.gap_in_words,
}


@dataclass(frozen=True)
class SideBySide:
    rows: list[Row]  # fewest ranks first
    note: str  # what the columns are relative to
    vary: tuple[str, ...] = ()  # arguments that may differ; each is a column

    @property
    def header(self) -> tuple[str, ...]:
        return (*_RUN, *self.vary, *_MEASURED)

    @property
    def cells(self) -> list[list[str]]:
        """Return the cells as the header names them."""
        rows = []
        for row in self.rows:
            varied = [str(getattr(row.entry.args, field)) for field in self.vary]
            rows.append([*(text(row) for text in _RUN.values()), *varied, *(text(row) for text in _MEASURED.values())])
        return rows

    @property
    def columns(self) -> tuple[list[str], list[list[str]]]:
        """Return the same with a run a column, for the screen: its head, and a line for each quantity."""
        heads = [f"{row.kind} {row.shape.replace(' ', '')}" for row in self.rows]
        for head, several in Counter(heads).items():
            numbers = iter(range(1, several + 1))
            heads = [f"{each} #{next(numbers)}" if each == head and several > 1 else each for each in heads]
        lines = [list(line) for line in zip(self.header, *self.cells, strict=True)]
        named = ["run", "strategy", "ranks", "hosts", *(["MFU"] if self._on_a_cpu else [])]
        return ["", *heads], [line for line in lines if line[0] not in named and set(line[1:]) != {"none"}]

    @property
    def _on_a_cpu(self) -> bool:
        """Say whether no run has a GPU, of whose peak MFU is a share."""
        return all(device == "cpu" for row in self.rows for device in row.metrics.observed.devices)

    @property
    def unlike(self) -> list[str]:
        """Say what was trained, and in which arguments the runs differ, a line for each."""
        args = [row.entry.args for row in self.rows]
        base = args[0]
        fields = [field for field in RunArgs.model_fields if field not in ARGUMENTS["said_otherwise"]]
        differ = {field: [_short(getattr(each, field)) for each in args] for field in fields}
        batch = f"{base.global_batch} rows of {base.sequence_length} tokens a step"
        lines = [f"all: {base.model}, {batch}, {base.compute_dtype}, {base.steps} steps, seed {base.seed}"]
        return lines + [f"{field}: {', '.join(known)}" for field, known in differ.items() if len(set(known)) > 1]

    @property
    def reasons(self) -> list[str]:
        """Say why a number of a run is not known."""
        known = grouped(
            (f"{what}: {why}", head)
            for head, row in zip(self.columns[0][1:], self.rows, strict=True)
            for what, value, why in (
                *([] if self._on_a_cpu else [("MFU", row.metrics.mfu, row.metrics.mfu_reason)]),
                ("exposed comm.", row.metrics.communication_share, row.metrics.communication_reason),
            )
            if value is None and why and row.metrics.world_size > 1
        )
        return [f"unknown {why} ({', '.join(heads)})" for why, heads in known.items()]

    @property
    def not_judged(self) -> list[str]:
        """Say which runs have records and no evidence, and what that leaves open. Empty: all were judged."""
        by_reason = grouped((why, row.name) for row in self.rows if (why := row.entry.not_judged) is not None)
        lines = [f"NOT JUDGED: {', '.join(names)}: {why}" for why, names in by_reason.items()]
        return [*lines, NOT_SAID] if lines else []

    @property
    def disagreeing(self) -> list[Row]:
        """Return runs whose losses do not agree with the base's."""
        return [row for row in self.rows if not row.agrees]


def compare(entries: Sequence[Entry], vary: Sequence[str] = ()) -> SideBySide:
    """Compare runs. vary: fields of the arguments in which they may differ. Raises UsageError for an unknown one,
    NotComparable when the runs differ in another one."""
    known = sorted(RunArgs.model_fields.keys() - {"schema_version", "tuning"})
    for field in vary:
        if field not in known:
            raise UsageError(f"--vary {field}: no argument of a training is called so; there are {', '.join(known)}")
    base = min(entries, key=lambda entry: entry.metrics.world_size)
    allowed = RunArgs.STRATEGY | {*vary, *(other for field in vary for other in _FOLLOW.get(field, ()))}
    for entry in entries:
        differing = differing_fields(base.args, entry.args, allowed)
        learnt = learns_otherwise(base.args, entry.args)
        if not differing and not learnt and len(entry.metrics.loss) != len(base.metrics.loss):
            differing = [f"{len(base.metrics.loss)} vs {len(entry.metrics.loss)} losses"]
        if differing:
            names = ", ".join(dict.fromkeys(field.split()[0] for field in differing))
            unlike = f"{base.folder.name} and {entry.folder.name} are not comparable: {'; '.join(differing)}"
            raise NotComparable(f"{unlike}; --vary FIELD allows a field to differ ({names})")
    ordered = sorted(entries, key=lambda entry: entry.metrics.world_size)
    names_of_runs = short_names([entry.folder.name for entry in ordered])
    rows = [row_of(entry, base, name) for entry, name in zip(ordered, names_of_runs, strict=True)]
    dtype = base.args.compute_dtype
    tolerance = LOSS_TOLERANCE_NATS.get(dtype)
    unknown = f"no tolerance is known for {dtype}"
    kept = unknown if tolerance is None else f"losses must agree within {tolerance:g} ({dtype})"
    gap = f"the largest of a step, against {base.folder.name} (train.loss.agrees judges the mean of all)"
    note = f"loss gap: {gap}; {kept}; tokens/s: all ranks, steady window"
    return SideBySide(rows, note, tuple(dict.fromkeys(vary)))


def number(value: float | None, form: str, otherwise: str = "") -> str:
    """Write a number. form: `{:.1%}`. otherwise: where there is no value."""
    return otherwise if value is None else form.format(value).replace("%", " %")


def _short(value: object) -> str:
    return "none" if value is None else "yes" if value is True else "no" if value is False else str(value)


def learns_otherwise(base: RunArgs, other: RunArgs) -> tuple[str, ...]:
    """Return the arguments in which `other` learns something else than `base`. Empty: their losses have to agree."""
    return tuple(sorted(field for field in ARGUMENTS["learnt"] if getattr(base, field) != getattr(other, field)))


def short_names(names: list[str]) -> list[str]:
    """Shorten to the stems where all runs are of one playbook: it is in every name."""
    parts = [name.partition("-") for name in names]
    one_playbook = len({rest for _, _, rest in parts}) == 1 and len({stem for stem, _, _ in parts}) == len(names)
    return [stem for stem, _, _ in parts] if one_playbook else names


def row_of(entry: Entry, base: Entry, name: str) -> Row:
    learnt = learns_otherwise(base.args, entry.args)
    tolerances = [LOSS_TOLERANCE_NATS.get(args.compute_dtype) for args in (base.args, entry.args)]
    known = [tolerance for tolerance in tolerances if tolerance is not None]
    gap = None
    if not learnt and len(entry.metrics.loss) == len(base.metrics.loss):
        gap = max((abs(a - b) for a, b in zip(entry.metrics.loss, base.metrics.loss, strict=True)), default=None)
    scaled = None if entry.metrics.summary is None else entry.metrics.summary.scaling
    if scaled is None and base.metrics.world_size == 1:
        scaled = scaling(entry.metrics, base.metrics)
    agrees = bool(learnt) or (gap is not None and len(known) == len(tolerances) and gap <= max(known))
    return Row(entry, name, scaled, gap, agrees, learnt)
