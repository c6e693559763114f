"""How a line of the report is read from one training. None: it was not recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bringup.evidence.names import listed, shortened
from bringup.report.training.trained import Trained

Read = Callable[[Trained], str | None]


def fact(what: str) -> Read:
    """Of the cluster, from discovery in the same report."""
    return lambda trained: trained.facts.get(what)


def field(path: str, unit: str = "") -> Read:
    """`metrics.step_time_s.p50`; nothing where it is null, or an empty list."""

    def read(trained: Trained) -> str | None:
        value: object = trained
        for name in path.split("."):
            value = getattr(value, name, None)
        return None if value is None or value == [] else f"{words(value)} {unit}".rstrip()

    return read


def words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return shortened([words(entry) for entry in value])
    return str(value)


def of_nodes(column: str) -> Read:
    """A column of the monitor."""
    return lambda trained: trained.sampled.nodes.get(column)


def of_gpus(column: str) -> Read:
    """A column of the monitor, of a GPU."""
    return lambda trained: trained.sampled.gpus.get(column)


def first(*readers: Read) -> Read:
    def read(trained: Trained) -> str | None:
        return next((value for reader in readers if (value := reader(trained)) is not None), None)

    return read


def worst_seen(quantity: str) -> Read:
    """The largest value observed, with its place."""

    def read(trained: Trained) -> str | None:
        seen = [
            (float(each.value), each.unit, each.subject)
            for each in trained.seen(quantity)
            if isinstance(each.value, int | float)
        ]
        if not seen:
            return None
        value, unit, subject = max(seen)
        return f"{words(value)} {unit} ({subject})"

    return read


def counted(texts: Iterable[str]) -> str:
    """`n0, n1`, each once."""
    return listed(list(texts))
