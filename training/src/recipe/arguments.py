"""The arguments of the one workload, judged before torch is imported.

A typing error costs milliseconds and one line, not seconds per rank.
"""
# ruff: noqa: RUF009  # what it calls is dataclasses.field

import argparse
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

from recipe import TRAINING
from recipe.rank import WORLD, complain, node_name, patience_s

MODELS = TRAINING / "models"
FAST_WARMUP = 2  # steps: the first, which is observed, and the one that compiles
HALF = "half"
DATA_FILES = (".jsonl", ".json")  # what names of files with JSON lines end in
SLOW = 10  # so many times --timeout may these steps take


class _Later(argparse.Action):
    """Of two options for one thing the later counts, as of one given twice: those of a job follow the profile's."""

    def __call__(self, parser: Any, given: argparse.Namespace, value: Any, option: str | None = None) -> None:
        given.gradient_accumulation = given.rows_at_once = None
        setattr(given, self.dest, value)


def _number(kind: Callable[[str], float], low: float, above: str) -> Callable[[str], float]:
    def convert(text: str) -> float:
        value = kind(text)  # argparse turns its ValueError into a line that names the option
        if not (math.isfinite(value) and value >= low):
            raise argparse.ArgumentTypeError(f"{text} is not {above}")
        return value

    convert.__name__ = kind.__name__
    return convert


_natural = _number(int, 1, "1 or more")
_two = _number(int, 2, "2 or more: a token is predicted from those before it")
_count = _number(int, 0, "0 or more")
_positive = _number(float, sys.float_info.min, "more than 0")


def _option(words: str, default: Any = None, kind: Any = None, **more: Any) -> Any:
    """Make a field that is an option of its name. words: its help; kind: text -> value, ValueError for a wrong one."""
    if "(default" not in words and isinstance(default, int | float | str):
        words += " (default: %(default)s)"
    return field(metadata={"help": words, "default": default, "type": kind} | more)


_of_two = partial(_option, kind=_natural, action=_Later)


def _switch(words: str, default: bool | None = False, action: Any = argparse.BooleanOptionalAction) -> Any:
    return field(metadata={"help": words, "default": default, "action": action})


@dataclass(frozen=True)
class Args:
    """The workload, resolved as far as it can be without torch. What has a help text is an option of all programs."""

    entrypoint: str
    start_s: int  # that ranks may start apart: BRINGUP_START_S
    per_device_batch: int  # rows per rank and micro-step
    run_dir: Path = _option("folder of this run, made by `bringup open` (default: this folder)", Path(), Path)
    check: bool = _switch("judge the arguments for $WORLD_SIZE ranks, and end")
    model: str = _option("random weights: a training/models/*.json, a config.json; or a hub name, a folder", "tiny")
    dataset: str = _option("generated (no network), a hub name, a folder, or a file of JSON lines", "generated")
    sequence_length: int = _option("tokens per row", 128, _two)
    global_batch: int = _option("rows per optimizer step, over all ranks", 8, _natural)
    gradient_accumulation: int = _of_two(
        "micro-steps per optimizer step (default: 1); of this option and the next one the later counts"
    )
    rows_at_once: int | None = _of_two(
        "rows per rank and micro-step; so one workload suits any number of ranks (default: all rows of the rank)"
    )
    sync_each_batch: bool = _switch(
        "reduce gradients in every micro-step: under FSDP none is kept unsharded then; under DDP it saves nothing"
    )
    steps: int = _option("optimizer steps", 24, _natural)  # 22 steady ones: enough for every gate
    warmup_steps: int = _option("first steps, measured, but left out of the steady window", 2, _count)
    learning_rate: float = _option("constant", 1e-3, _positive)
    seed: int = _option("of weights, data and their order", 42, _count)
    bf16: bool | None = _switch("bfloat16 compute over float32 weights (default: on GPUs that compute in it)", None)
    reduce_dtype: str = _option("gradients on the wire, FSDP with bf16", "float32", choices=("float32", "bfloat16"))
    reshard_after_forward: bool = _switch("FSDP: gather parameters again for the backward pass", default=True)
    ddp_bucket_cap_mb: int | None = _option("MiB of gradients that DDP reduces at once (default: 25)", kind=_natural)
    activation_checkpointing: bool = _switch("recompute activations in the backward pass")
    recipe: Literal["plain", "fast"] = _option(
        "fast: compiled blocks and the loss in chunks, where they are there", "plain", choices=("plain", "fast")
    )
    attention: str = _option("attention implementation", "sdpa", choices=("eager", "sdpa"))
    dataloader_workers: int = _option("processes per rank", 0, _count)
    save_steps: int = _option(
        "a checkpoint every so many steps and at the end, of which two stay; half: in the middle; 0: none",
        0,
        lambda text: HALF if text == HALF else _count(text),
    )
    checkpoint_dir: Path | None = _option("checkpoints go below it (default: RUN_DIR/checkpoints)", kind=Path)
    rehearse_resume: bool = _switch("half way, save, wipe the state, read it back, compare (default)", default=True)
    resume: str | None = _option(
        "go on from the newest whole checkpoint of a run; auto: of the attempts before, if Slurm requeued this job",
        metavar="RUN_DIR|auto",
    )
    timeout_s: int = _option(
        "seconds a collective may wait (default: %(default)s); at the start $BRINGUP_START_S (600)", 60, _natural
    )
    profiled_steps: int = _option("steps after the training, in which torch.profiler times collectives", 3, _count)
    hsdp: bool = _switch("shard inside the node, replicate across nodes", action="store_true")
    shard_size: int | None = _option(
        "HSDP: ranks of a shard group, a part of a node or several whole nodes (default: the ranks of a node)",
        kind=_natural,
    )

    @property
    def model_config(self) -> Path | None:
        """Return the JSON of a model that starts from random weights; None for a hub name, or a folder with weights."""
        path = Path(self.model) if self.model.endswith(".json") else MODELS / f"{self.model}.json"
        return path if path.is_file() else None


def parse(doc: str, *, takes_hsdp: bool, sharded: bool) -> Args:
    """Parse the arguments. Exits with code 2 and one line when they cannot work."""
    given = _parser(doc, takes_hsdp).parse_args()
    here = f"seen from {node_name()}"
    known = sorted(path.stem for path in MODELS.glob("*.json"))
    if given.model not in known and "/" not in given.model:
        complain(f"--model {given.model}: expected one of {', '.join(known)}, a hub name like owner/name, or a folder")
    if given.dataset != "generated" and "/" not in given.dataset and not given.dataset.endswith(DATA_FILES):
        complain(
            f"--dataset {given.dataset}: expected generated, a hub name like owner/name, a folder, or a file "
            f"({', '.join(DATA_FILES)})"
        )
    for option, named in (("--model", given.model), ("--dataset", given.dataset)):
        is_path = named.startswith(("/", "./", "../")) or named.count("/") > 1 or named.endswith(DATA_FILES)
        in_container = given.check and "SLURM_JOB_ID" in os.environ  # perhaps: the batch script is outside of it
        if is_path and not in_container and not Path(named).exists():
            complain(f"{option} {named}: no such file or folder, {here}")
    if not given.check and not (given.run_dir / "raw").is_dir():
        complain(f"--run-dir {given.run_dir}: no such run folder (it must have raw/), {here}; `bringup open` makes one")
    if given.resume not in (None, "auto") and not Path(given.resume).is_dir():
        complain(f"--resume {given.resume}: no such folder, {here}; give the folder of a run, or auto")
    if given.checkpoint_dir is not None and not given.checkpoint_dir.is_dir():
        complain(f"--checkpoint-dir {given.checkpoint_dir}: no such folder, {here}; it has to be one on all nodes")
    try:
        start_s = patience_s()
    except ValueError as error:
        complain(str(error))
    accumulation, rows = _shares(given.global_batch, given.gradient_accumulation, given.rows_at_once)
    if given.warmup_steps >= given.steps:
        complain(f"--warmup-steps {given.warmup_steps} leaves nothing to measure of --steps {given.steps}; lower it")
    if given.recipe == "fast" and given.warmup_steps < FAST_WARMUP:
        complain(f"--recipe fast compiles in its second step: give --warmup-steps {FAST_WARMUP} or more")
    if not sharded and (given.reduce_dtype != "float32" or not given.reshard_after_forward):
        complain("--reduce-dtype and --no-reshard-after-forward mean something under FSDP only; leave them out")
    if given.ddp_bucket_cap_mb is not None and (sharded or WORLD == 1):
        complain("--ddp-bucket-cap-mb means something under DDP only; leave it out")
    if given.sync_each_batch and (WORLD == 1 or accumulation == 1):
        why = "one rank reduces nothing" if WORLD == 1 else "a step of one micro-step reduces once in any case"
        complain(f"--sync-each-batch changes nothing here: {why}; leave it out")
    if given.shard_size is not None and not given.hsdp:
        complain(f"--shard-size {given.shard_size} is the size of a shard group of --hsdp; give both, or leave it out")
    values = {
        "entrypoint": Path(sys.argv[0]).stem,
        "start_s": start_s,
        "gradient_accumulation": accumulation,
        "per_device_batch": rows,
        "save_steps": (given.steps + 1) // 2 if given.save_steps == HALF else given.save_steps,
    }
    return Args(**vars(given) | values)


def _shares(global_batch: int, accumulation: int | None, rows: int | None) -> tuple[int, int]:
    """Return (micro-steps per optimizer step, rows per rank and micro-step): one of them was given, or neither."""
    given, of_what = (rows, "row(s) at once") if rows is not None else (accumulation or 1, "accumulation step(s)")
    least = WORLD * given
    if global_batch % least:
        nearest = max(1, round(global_batch / least)) * least
        complain(
            f"--global-batch {global_batch} is not divisible by {WORLD} rank(s) x {given} {of_what}; "
            f"the nearest that is: {nearest}"
        )
    other = global_batch // least
    return (given, other) if rows is None else (other, given)


def _parser(doc: str, takes_hsdp: bool) -> argparse.ArgumentParser:
    how_it_looks = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, allow_abbrev=False, formatter_class=how_it_looks)
    # without the usage block: the line that says what is wrong must not scroll away 8 x N times
    parser.error = lambda message: complain(f"{message} (see --help)")  # type: ignore[method-assign]
    parser.set_defaults(hsdp=False, shard_size=None)  # of programs that do not take them
    for each in fields(Args):
        if "help" in each.metadata and (takes_hsdp or each.name not in ("hsdp", "shard_size")):
            name = each.name.removesuffix("_s").replace("_", "-")  # a name ends with its unit, an option does not
            parser.add_argument(f"--{name}", dest=each.name, **each.metadata)
    return parser
