"""What `bringup sweep` varies: fields of a training's arguments, as options of the programs.

A field has the name that it has in run_args.json, so that what was requested is held against what ran.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bringup.kernel.errors import UsageError
from bringup.kernel.plan.phases import NODES, PHASES, Phase

STRATEGY = "strategy"  # no option of the programs: the training of this strategy
Settings = dict[str, str]  # field -> value, as requested; empty: the base


class Field(NamedTuple):
    option: str
    values: Mapping[str, tuple[str, ...]] | None = None  # value -> words; None: any number from 1, after the option
    rivals: tuple[str, ...] = ()  # options with a value that exclude this one
    sharded: bool = False  # means something under FSDP only


def _choice(option: str, *values: str, sharded: bool = False) -> Field:
    return Field(option, {value: (option, value) for value in values}, sharded=sharded)


def _flag(option: str, on: str = "yes", off: str = "no", *, sharded: bool = False) -> Field:
    return Field(option, {on: (option,), off: ()}, sharded=sharded)


FIELDS: dict[str, Field] = {
    "global_batch": Field("--global-batch"),
    "per_device_batch": Field("--rows-at-once", rivals=("--gradient-accumulation",)),
    "gradient_accumulation": Field("--gradient-accumulation", rivals=("--rows-at-once",)),
    "sync_each_batch": _flag("--sync-each-batch"),
    "sequence_length": Field("--sequence-length"),
    "attention": _choice("--attention", "eager", "sdpa"),
    "compile": Field("--recipe", {"yes": ("--recipe", "fast"), "no": ("--recipe", "plain")}),
    "reshard_after_forward": _flag("--no-reshard-after-forward", "no", "yes", sharded=True),  # yes: ZeRO-3, no: ZeRO-2
    "shard_size": Field("--shard-size", sharded=True),  # of HSDP
    "reduce_dtype": _choice("--reduce-dtype", "float32", "bfloat16", sharded=True),
    "ddp_bucket_cap_mb": Field("--ddp-bucket-cap-mb"),
    "activation_checkpointing": _flag("--activation-checkpointing"),
    "dataloader_workers": Field("--dataloader-workers"),
}
_OF_THE_JOB = {NODES: Field(""), STRATEGY: Field("", {name: () for name in ("single", "ddp", "fsdp", "hsdp")})}


def read(words: Sequence[str], phase: Phase) -> dict[str, list[str]]:
    """Read field -> values, of `FIELD=VALUE,VALUE`. Raises UsageError."""
    values_by_field: dict[str, list[str]] = {}
    for word in words:
        name, _, listed = word.partition("=")
        field = _OF_THE_JOB.get(name) or FIELDS.get(name)
        values = [value for value in listed.split(",") if value]
        if field is None:
            there = ", ".join((*FIELDS, *_OF_THE_JOB))
            raise UsageError(f"--vary {word}: no field is called {name!r}; there are {there}")
        if name in values_by_field:
            raise UsageError(f"--vary {word}: {name} is there twice; give all its values at once, with commas")
        if not values:
            raise UsageError(f"--vary {word}: expected {name}=VALUE,VALUE")
        for value in values:
            if field.values is None and not (value.isdecimal() and int(value) >= 1):
                raise UsageError(f"--vary {word}: {value!r} is not a number from 1")
            if field.values is not None and value not in field.values:
                raise UsageError(f"--vary {word}: {value!r} is not one of {', '.join(field.values)}")
        if field.sharded and phase.strategy not in ("fsdp", "hsdp"):
            raise UsageError(f"--vary {word}: {name} means something under FSDP only; {phase.stem} is {phase.strategy}")
        values_by_field[name] = list(dict.fromkeys(values))
    if NODES in values_by_field and (len(values_by_field) > 1 or phase.max_nodes is not None):
        raise UsageError(f"--vary {NODES} stands alone, and needs a training across nodes: run_ddp_2node")
    if {"per_device_batch", "gradient_accumulation"} <= values_by_field.keys():
        raise UsageError("--vary per_device_batch and --vary gradient_accumulation: one follows from the other")
    return values_by_field


def variants(vary: Mapping[str, Sequence[str]], *, grid: bool, strategy: str | None) -> list[Settings]:
    """Return the base, then what differs from it: one field at a time, or every combination (grid). strategy: the
    base's, which is not trained a second time."""
    if grid:
        return [{}, *(dict(zip(vary, point, strict=True)) for point in itertools.product(*vary.values()))]
    alone = [{name: value} for name, values in vary.items() for value in values]
    return [{}, *(settings for settings in alone if settings != {STRATEGY: strategy})]


def curve(counts: Sequence[str], base: Sequence[str], *, weak: bool) -> list[Settings]:
    """Return a variant for each number of nodes, the fewest first. weak: the batch of the base is that of the fewest,
    and it grows with the nodes; otherwise it stays. Raises UsageError."""
    ordered = sorted(map(int, counts))
    if not weak:
        return [{NODES: str(count)} for count in ordered]
    given = [after for word, after in itertools.pairwise(base) if word == "--global-batch" and after.isdecimal()]
    if not given or any(count % ordered[0] for count in ordered):
        raise UsageError("--weak needs --global-batch N in the workload, and multiples of the fewest nodes")
    return [{NODES: str(count), "global_batch": str(int(given[-1]) * count // ordered[0])} for count in ordered]


def phase_of(phase: Phase, settings: Settings) -> Phase:
    """Return the training of these settings: of its strategy, on one node or across nodes. Raises UsageError."""
    strategy = settings.get(STRATEGY, phase.strategy)
    fewest = min(2, int(settings.get(NODES, phase.min_nodes)))
    for other in PHASES.values():
        if other.strategy == strategy and (other.one_gpu or other.min_nodes == fewest):
            return other
    raise UsageError(f"no training of {strategy} takes {'one node' if fewest == 1 else 'several nodes'}")


def options(base: Sequence[str], settings: Settings) -> list[str]:
    """Return the options of a variant: those of the base, without what they say of its fields, and the values."""
    words = list(base)
    for name, value in settings.items():
        if name in _OF_THE_JOB:
            continue
        field = FIELDS[name]
        takes_value = field.values is None or any(len(options) > 1 for options in field.values.values())
        words = _without(words, field.option, takes_value=takes_value)
        for rival in field.rivals:
            words = _without(words, rival, takes_value=True)
        words += (field.option, value) if field.values is None else field.values.get(value, (field.option, value))
    return words


def _without(words: Sequence[str], option: str, *, takes_value: bool) -> list[str]:
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == option:
            if takes_value:
                next(rest, None)
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return kept


def label(settings: Settings) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "base"


def as_requested(value: object) -> str:
    """Return a value of run_args.json as `--vary` spells it."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
