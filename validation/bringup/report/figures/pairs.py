"""Node x node: what each node sends to each other one. It judges nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from bringup.derive import pairs
from bringup.records import Observation
from bringup.report.figures import canvas

HEAT_MAP = "pairs.png"
MAX_NUMBERS, MAX_NAMES = 12, 32  # nodes up to which cells hold numbers, axes names
MAX_MAP = 128  # nodes up to which a map shows more than white: above, few of the pairs are measured
MAX_WORST = 12  # nodes that are named


def draw(observations: Sequence[Observation], nodes: Sequence[str], into: Path) -> list[tuple[str, str]]:
    """(title, file name) of the heat map; none when no pair was measured. Rows send, columns receive; the scale
    begins at 0."""
    directions, _ = pairs.measured(observations)
    known = {pair: direction.best for pair, direction in directions.items() if pair[0] in nodes and pair[1] in nodes}
    if not known:
        return []
    index = {node: number for number, node in enumerate(nodes)}
    cells = [[float("nan")] * len(nodes) for _ in nodes]
    for (source, target), gbps in known.items():
        cells[index[source]][index[target]] = gbps
    if len(nodes) > MAX_MAP:
        return _strip(known, nodes, into)
    side = min(10.0, 3.2 + 0.42 * len(nodes))
    figure, [axis] = canvas.panels(1, 1, (side + 1.4, side))
    most = max(known.values())
    axis.set_facecolor("white")  # not measured; no colour of the scale comes near
    image = axis.imshow(cells, cmap="cividis", vmin=0, vmax=most or 1.0, interpolation="nearest")
    figure.colorbar(image, ax=axis, label="GB/s, best of its measurements", shrink=0.85)
    if len(nodes) <= MAX_NUMBERS:
        for (source, target), gbps in known.items():
            axis.text(
                index[target],
                index[source],
                f"{gbps:.3g}",
                ha="center",
                va="center",
                fontsize="small",
                color="black" if gbps > 0.55 * most else "white",
            )
    if len(nodes) <= MAX_NAMES:
        named = canvas.labels(nodes)
        axis.set_xticks(range(len(nodes)), named, rotation=90 if len(nodes) > 8 else 0)
        axis.set_yticks(range(len(nodes)), named)
    possible = len(nodes) * (len(nodes) - 1)
    axis.set(
        xlabel="receives",
        ylabel="sends",
        title=f"Bandwidth between nodes: {len(known)} of {possible} directions measured\n(white: not measured)",
    )
    canvas.save(figure, into / HEAT_MAP)
    return [("Bandwidth between nodes", HEAT_MAP)]


def _strip(known: Mapping[tuple[str, str], float], nodes: Sequence[str], into: Path) -> list[tuple[str, str]]:
    """A large fleet: every measured direction over the node that sends, and the slowest senders by name."""
    sent: dict[str, list[float]] = {}
    for (source, _), gbps in known.items():
        sent.setdefault(source, []).append(gbps)
    place = {node: number for number, node in enumerate(nodes)}
    figure, [axis] = canvas.panels(1, 1, (12, 4.6))
    axis.plot(
        [place[source] for source, _ in known], list(known.values()), ".", markersize=3, alpha=0.6, label="a direction"
    )
    medians = {node: median(values) for node, values in sent.items()}
    slowest = sorted(medians, key=lambda node: medians[node])[:MAX_WORST]
    axis.plot(
        [place[node] for node in slowest],
        [medians[node] for node in slowest],
        "x",
        color="black",
        label=f"the {len(slowest)} slowest senders, median",
    )
    axis.axhline(median(medians.values()), color="black", linewidth=1, linestyle="--", label="median of all")
    named = ", ".join(f"{node} {medians[node]:.3g}" for node in slowest)
    possible = len(nodes) * (len(nodes) - 1)
    axis.set_ylim(bottom=0)
    title = f"Bandwidth between nodes: {len(known)} of {possible} directions measured"
    xlabel = canvas.label(f"node that sends, in the order of the run; slowest: {named}", 160)
    canvas.finish(axis, title, xlabel, "GB/s", legend="lower left")
    canvas.save(figure, into / HEAT_MAP)
    return [("Bandwidth between nodes", HEAT_MAP)]
