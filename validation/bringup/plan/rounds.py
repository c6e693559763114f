"""Which pairs of nodes are measured, and when: rounds of disjoint pairs that run side by side.

What is known in advance. Rounds that depend on what was measured: checks/nccl/next_round.py.
"""

from __future__ import annotations

from collections.abc import Sequence

Pair = tuple[str, str]
ALL_MEET = 8  # nodes up to which every pair meets; above, each round is chosen by what the rounds before it measured

MOST_ORDERED_PAIRS = (
    256  # of files: up to 16 nodes that is every pair; what a pair of mounts does wrong shows with any partner
)


def link_name(pair: Pair) -> str:
    return f"{pair[0]}--{pair[1]}"


def all_rounds(nodes: Sequence[str]) -> int:
    """Rounds in which every pair meets once: N - 1, or N when one node sits out in each."""
    return len(nodes) - 1 + len(nodes) % 2 if len(nodes) > 1 else 0


def is_adaptive(nodes: Sequence[str], number: int | None) -> bool:
    """Whether only the first round is known in advance. number: of rounds, when it was chosen."""
    return number is None and len(nodes) > ALL_MEET


def in_advance(nodes: Sequence[str], number: int | None = None) -> list[list[Pair]]:
    """The rounds that are planned before anything is measured."""
    if is_adaptive(nodes, number):
        return [neighbours(nodes)]
    return rounds(nodes, all_rounds(nodes) if number is None else number)


def neighbours(nodes: Sequence[str]) -> list[Pair]:
    """Of an odd number the last one rests."""
    return list(zip(nodes[::2], nodes[1::2], strict=False))


def ring(nodes: Sequence[str]) -> list[Pair]:
    """Every node with the one after it, the last with the first: each has two partners, with as many links as nodes."""
    if len(nodes) < 3:
        return neighbours(nodes)
    return list(zip(nodes, [*nodes[1:], nodes[0]], strict=True))


def rounds(nodes: Sequence[str], number: int) -> list[list[Pair]]:
    """The circle method: one place is fixed, the others turn by one each round. Of an odd number one rests in turn."""
    places: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    order = {node: index for index, node in enumerate(nodes)}
    found = []
    for _ in range(min(number, all_rounds(nodes))):
        facing = zip(places[: len(places) // 2], reversed(places[len(places) // 2 :]), strict=True)
        met = [(a, b) if order[a] < order[b] else (b, a) for a, b in facing if a is not None and b is not None]
        found.append(sorted(met, key=lambda pair: order[pair[0]]))
        places = [places[0], places[-1], *places[1:-1]]
    return found


def circle_rounds(nodes: Sequence[str]) -> list[int]:
    """Rounds for ordered pairs: in round s each node is paired with the s-th node after it in the list.

    Few nodes: every pair. More: rounds whose numbers are powers of two come first, so that a node's partners are spread
    over the list.
    """
    count = len(nodes)
    powers = [2**number for number in range(count.bit_length()) if 2**number < count]
    order = [*powers, *(number for number in range(1, count) if number not in powers)]
    return sorted(order[: max(1, MOST_ORDERED_PAIRS // max(1, count))])


def ordered_pairs(nodes: Sequence[str]) -> list[Pair]:
    return [
        (node, nodes[(place + number) % len(nodes)])
        for number in circle_rounds(nodes)
        for place, node in enumerate(nodes)
    ]


def in_rounds(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Any pairs, put into rounds in which no node is twice."""
    found: list[list[Pair]] = []
    for pair in pairs:
        free = next((met for met in found if not {node for other in met for node in other} & set(pair)), None)
        if free is None:
            found.append([pair])
        else:
            free.append(pair)
    return found


def say(met: Sequence[Pair]) -> str:
    """One round as the script and the probe read it: `n0,n3 n1,n2`."""
    return " ".join(",".join(pair) for pair in met)
