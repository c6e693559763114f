"""Advice as one screen. Numbers are rounded for reading; `--json` has them whole."""

from collections.abc import Callable
from functools import partial

from bringup.kernel.records import grouped
from bringup.report.render import render
from bringup.report.text import terminal_width
from bringup.training.formulae.models import NAMES
from bringup.training.records import Advice, PredictedStrategy

WORDS = {"gathered": "copies to compute with", "reduction": "gradients on their way", "logits": "logits and loss"}
VISIBLE = 0.001  # of the peak: a part that is less for every strategy has no line


def screen(advice: Advice) -> str:
    strategies, count = advice.strategies, advice.parameters
    parts = {
        part: WORDS.get(part, part)
        for part in strategies[0].peak_parts_gib
        if any(strategy.peak_parts_gib[part] >= VISIBLE * strategy.peak_gib for strategy in strategies)
    }
    # steps between saves are those of the advised strategy, if nothing overlaps
    step_s = next((strategy.step_s for strategy in strategies if strategy.strategy == advice.use), None)
    every = advice.checkpoints
    beside = max(1, ((terminal_width() or 1000) - 30) // 10)  # strategies in the columns of a terminal
    return render(
        "advice.txt.j2",
        advice=advice,
        groups=[strategies[first : first + beside] for first in range(0, len(strategies), beside)],
        names=NAMES,
        parameters=f"{count / 1e9:.2f} billion" if count >= 1e8 else f"{count / 1e6:.2f} million",
        parts=parts,
        gib=partial(_rounded, digits=1, least=0.1),
        gigabytes=partial(_rounded, digits=2, least=0.01),
        number=_number,
        sources=_distinct(strategies, lambda strategy: strategy.sources),
        unknown=_distinct(strategies, lambda strategy: strategy.unknown),
        steps=None if every is None or step_s is None else max(1, round(every.interval_s / step_s[1])),
    )


def _rounded(value: float, digits: int, least: float) -> str:
    """Below the least value, two digits that say something."""
    return f"{value:.{digits}f}" if value >= least else f"{value:.2g}" if value else "0"


def _number(values: float | list[float] | None, digits: int, index: int = 0) -> str:
    """Return one end of a range as text."""
    value = values[index] if isinstance(values, list) else values
    return "unknown" if value is None else f"{value:,.{digits}f}"


def _distinct(strategies: list[PredictedStrategy], texts: Callable[[PredictedStrategy], list[str]]) -> list[str]:
    """Return each text once, with the strategies it is about where it is not about all."""
    about = grouped((text, NAMES[strategy.strategy]) for strategy in strategies for text in texts(strategy))
    return [text if len(names) == len(strategies) else f"{text} [{', '.join(names)}]" for text, names in about.items()]
