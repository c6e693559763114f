"""Advice as one screen. Numbers are rounded for reading; `--json` has them whole."""

from __future__ import annotations

from collections.abc import Callable

from bringup.formulae.models import NAMES
from bringup.records import Advice, PredictedStrategy

PARTS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "gathered": "copies to compute with",
    "reduction": "gradients on their way",
    "activations": "activations",
    "logits": "logits and loss",
    "workspace": "workspace",
}
UNKNOWN = "unknown"
WIDTH = 11
VISIBLE = 0.001  # of the peak: a part that is less for every strategy has no line
SOURCES = """\
memory    states 16 bytes per parameter / shards (ZeRO, arXiv 1910.02054 sec. 3); activations: what autograd saves
traffic   in a ring of n a rank sends (n-1)/n of an all-gather or reduce-scatter, 2(n-1)/n of an all-reduce
          (nccl-tests' doc)
time      compute = (6 W + 12 L H d S) x tokens / (peak x MFU) (PaLM, arXiv 2204.02311 app. B)
          communication = sent / bus bandwidth
          the whole formulae: validation/bringup/formulae; read as: docs/reading-the-numbers.md#advise"""


def _parameters(number: int) -> str:
    return f"{number / 1e9:.2f} billion" if number >= 1e8 else f"{number / 1e6:.2f} million"


def screen(advice: Advice) -> str:
    strategies = advice.strategies
    other = any(each.strategy == "hsdp" and each.shards != advice.gpus_per_node for each in strategies)
    lines = [
        f"{advice.model}: {_parameters(advice.parameters)} parameters on {advice.nodes} node(s) of "
        f"{advice.gpus_per_node} GPUs, {advice.sequence_length} tokens per row, {advice.global_batch} rows per step",
        f"{advice.compute_dtype} over float32 weights, AdamW, {advice.reduce_dtype} gradients between sharded ranks"
        + (", activations recomputed" if advice.activation_checkpointing else "")
        + f"; profile {advice.profile}",
        "computed, not measured",
        "",
        _row("", [NAMES[strategy.strategy] for strategy in strategies]),
        _row("rows per GPU x micro-steps", [f"{strategy.rows} x {strategy.accumulation}" for strategy in strategies]),
        *([_row("GPUs that share the states", [str(strategy.shards) for strategy in strategies])] if other else []),
        "memory per GPU at the peak, GiB",
        *(
            _row(f"  {words}", [_gib(strategy.peak_parts_gib[part]) for strategy in strategies])
            for part, words in PARTS.items()
            if any(strategy.peak_parts_gib[part] >= VISIBLE * strategy.peak_gib for strategy in strategies)
        ),
        _row("  PyTorch allocates", [_gib(strategy.peak_gib) for strategy in strategies]),
        _row("  context, NCCL (left for)", [_gib(strategy.outside_gib) for strategy in strategies]),
        _row(
            f"  fits in {UNKNOWN if advice.gpu_memory_gib is None else f'{advice.gpu_memory_gib:g}'}",
            [{True: "yes", False: "no", None: UNKNOWN}[strategy.fits] for strategy in strategies],
        ),
        _row("host GiB of a node, hub model", [_gib(strategy.host_gib) for strategy in strategies]),
        "traffic per step, GB",
        _row("  a GPU sends, inside its node", [_gigabytes(strategy.sent_inside_gb) for strategy in strategies]),
        _row("  leaves a node", [_gigabytes(strategy.leaving_node_gb) for strategy in strategies]),
        "time per step, s",
        _row("  compute", [_number(strategy.compute_s, 2) for strategy in strategies]),
        _row("  communication", [_number(strategy.communication_s, 3) for strategy in strategies]),
        _row("  step, all overlaps", [_number(_at(strategy.step_s, 0), 2) for strategy in strategies]),
        _row("  step, nothing does", [_number(_at(strategy.step_s, 1), 2) for strategy in strategies]),
        _row("tokens/s, all GPUs, at least", [_number(_at(strategy.tokens_per_s, 0), 0) for strategy in strategies]),
        _row("tokens/s, all GPUs, at most", [_number(_at(strategy.tokens_per_s, 1), 0) for strategy in strategies]),
        "",
        f"use {NAMES[advice.use]}: {advice.why}" if advice.use else f"no strategy is named: {advice.why}",
    ]
    if advice.command:
        lines.append(f"  {advice.command}")
    lines += ["", *advice.assumptions]
    lines += [f"bandwidth: {text}" for text in _distinct(strategies, lambda strategy: strategy.sources)]
    lines += [f"unknown: {text}" for text in _distinct(strategies, lambda strategy: strategy.unknown)]
    return "\n".join([*lines, "", SOURCES])


def _row(name: str, cells: list[str]) -> str:
    return f"{name:<30}" + "".join(f"{cell:>{WIDTH}}" for cell in cells)


def _gib(value: float) -> str:
    return f"{value:.1f}" if value >= 0.1 else f"{value:.2g}" if value else "0"


def _at(values: list[float] | None, index: int) -> float | None:
    return None if values is None else values[index]


def _gigabytes(value: float) -> str:
    return f"{value:.2f}" if value >= 0.01 else f"{value:.2g}" if value else "0"


def _number(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def _distinct(strategies: list[PredictedStrategy], texts: Callable[[PredictedStrategy], list[str]]) -> list[str]:
    """Each text once, with the strategies it is about where it is not about all."""
    about: dict[str, list[str]] = {}
    for strategy in strategies:
        for text in texts(strategy):
            about.setdefault(text, []).append(NAMES[strategy.strategy])
    return [text if len(names) == len(strategies) else f"{text} [{', '.join(names)}]" for text, names in about.items()]
