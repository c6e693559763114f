"""Which pairs of nodes are measured, and when: rounds of disjoint pairs that run side by side.

These rounds are known in advance. Rounds that depend on measurements are in domains/next_round.py.
"""

from collections.abc import Sequence

Pair = tuple[str, str]
ROUND = "pair.round"  # of a link: in which round it is measured
ALL_PAIRS = 8  # up to this number of nodes every pair is measured; above, results of earlier rounds choose each round

MOST_ORDERED_PAIRS = 256  # of the file tests: all pairs of 16 nodes. A bad mount shows with any partner


def link_name(pair: Pair) -> str:
    return f"{pair[0]}--{pair[1]}"


def all_rounds(nodes: Sequence[str]) -> int:
    """Return the number of rounds that measure every pair once: N - 1, or N when one node is idle in each."""
    return len(nodes) - 1 + len(nodes) % 2 if len(nodes) > 1 else 0


def is_adaptive(nodes: Sequence[str], number: int | None) -> bool:
    """Say whether only the first round is known in advance. number: of rounds, if the user set it."""
    return number is None and len(nodes) > ALL_PAIRS


def in_advance(nodes: Sequence[str], number: int | None = None) -> list[list[Pair]]:
    """Return the rounds that are planned before anything is measured."""
    if is_adaptive(nodes, number):
        return [neighbours(nodes)]
    return rounds(nodes, all_rounds(nodes) if number is None else number)


def neighbours(nodes: Sequence[str]) -> list[Pair]:
    """Pair each node with the next one. If the number is odd, the last node is idle."""
    return list(zip(nodes[::2], nodes[1::2], strict=False))


def ring(nodes: Sequence[str]) -> list[Pair]:
    """Pair every node with the next one, and the last with the first: each has two partners; N links of N nodes."""
    if len(nodes) < 3:
        return neighbours(nodes)
    return list(zip(nodes, [*nodes[1:], nodes[0]], strict=True))


def rounds(nodes: Sequence[str], number: int) -> list[list[Pair]]:
    """Make rounds by the circle method: one place is fixed, the others move by one each round. If the number of nodes
    is odd, one node is idle in each round."""
    places: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    order = {node: index for index, node in enumerate(nodes)}
    planned = []
    for _ in range(min(number, all_rounds(nodes))):
        facing = zip(places[: len(places) // 2], reversed(places[len(places) // 2 :]), strict=True)
        pairs = [(a, b) if order[a] < order[b] else (b, a) for a, b in facing if a is not None and b is not None]
        planned.append(sorted(pairs, key=lambda pair: order[pair[0]]))
        places = [places[0], places[-1], *places[1:-1]]
    return planned


def circle_rounds(nodes: Sequence[str]) -> list[int]:
    """Return rounds for ordered pairs: in round s each node is paired with the s-th node after it in the list.

    Few nodes: every pair. More nodes: rounds whose numbers are powers of two come first, to spread a node's partners
    over the list.
    """
    count = len(nodes)
    powers = [2**number for number in range(count.bit_length()) if 2**number < count]
    order = [*powers, *(number for number in range(1, count) if number not in powers)]
    return sorted(order[: max(1, MOST_ORDERED_PAIRS // max(1, count))])


def ordered_pairs(nodes: Sequence[str]) -> list[Pair]:
    return [(node, nodes[(at + step) % len(nodes)]) for step in circle_rounds(nodes) for at, node in enumerate(nodes)]


def in_rounds(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Put the pairs into rounds, with each node at most once in a round."""
    filled: list[list[Pair]] = []
    for pair in pairs:
        free = next((others for others in filled if not {node for other in others for node in other} & {*pair}), None)
        if free is None:
            filled.append(free := [])
        free.append(pair)
    return filled


def as_line(pairs: Sequence[Pair]) -> str:
    """Write one round in the format that the script and the probe read: `n0,n3 n1,n2`."""
    return " ".join(",".join(pair) for pair in pairs)
