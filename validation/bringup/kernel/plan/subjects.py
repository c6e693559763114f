"""Subjects of verdicts: the job, nodes, ranks, pairs and links of nodes, and numbers of nodes (scales)."""

import re
from collections.abc import Collection, Iterable
from functools import cache
from typing import NamedTuple

from bringup.kernel.characters import many
from bringup.kernel.errors import UsageError
from bringup.kernel.plan import rounds
from bringup.kernel.plan.gate import Gate, RequestedField
from bringup.kernel.records import Run

JOB = "job"
ONE_GPU = "1-gpu"  # a scale: one rank alone; not used if a node has one GPU, because `1-node` is the same


class Scale(NamedTuple):
    """How many nodes and ranks the collectives run on at once."""

    name: str
    nodes: int
    ranks: int


def scales(nodes: int, ranks_per_node: int) -> list[Scale]:
    """Return one GPU (if a node has several), then 1, 2, 4, ... and all nodes, with all of their GPUs."""
    counts = [1]
    while counts[-1] * 2 < nodes:
        counts.append(counts[-1] * 2)
    alone = [Scale(ONE_GPU, 1, 1)] if ranks_per_node > 1 else []
    return [*alone, *(full_scale(count, ranks_per_node) for count in (counts if nodes == 1 else [*counts, nodes]))]


def full_scale(nodes: int, ranks_per_node: int) -> Scale:
    return Scale(scale_name(nodes), nodes, nodes * ranks_per_node)


def scale_name(nodes: int) -> str:
    return "1-node" if nodes == 1 else f"{nodes}-nodes"


def file_suffix(scale: Scale) -> str:
    """Return the suffix that phase scripts use for files of this scale: `collectives-1gpu.rc`, `collectives-4.rc`."""
    return "1gpu" if scale.name == ONE_GPU else str(scale.nodes)


def scale_of_file(suffix: str) -> str:
    """Return the scale that `file_suffix` gave this suffix."""
    return ONE_GPU if suffix == "1gpu" else scale_name(int(suffix))


def scale_nodes(subject: str) -> int:
    return int(subject.split("-")[0])


_SCALE = re.compile(r"(\d+)-(?:nodes?|gpu)")


@cache
def nodes_of_scale(subject: str) -> int | None:
    """Return 4 for `4-nodes`, 1 for `1-gpu`; None if the subject is not a scale."""
    match = _SCALE.fullmatch(subject)
    return int(match[1]) if match else None


def scale_ranks(subject: str, ranks_per_node: int) -> int:
    return 1 if subject == ONE_GPU else scale_nodes(subject) * ranks_per_node


def rank_subjects(nodes: list[str], ranks_per_node: int) -> list[str]:
    """Name the ranks, `n1/rank3`: ranks follow the node list, as SLURM_NODEID does."""
    ranks = ((node, local) for node in nodes for local in range(ranks_per_node))
    return [f"{node}/rank{rank}" for rank, (node, _) in enumerate(ranks)]


def nodes_of(subject: str) -> list[str]:
    """Name the nodes of a subject: n1 for `n1/rank3`, both nodes for a pair or link."""
    if "->" not in subject and "--" not in subject:  # most of a fleet's
        return [subject.partition("/")[0]]
    return [part.partition("/")[0] for part in re.split(r"->|--", subject)]


def counted(subjects: Collection[str]) -> str:
    """Count subjects by what they are: `4 ranks`, nodes, pairs or scales; `4 places` if of several kinds."""
    kinds = {_kind(subject) for subject in subjects}
    return many(len(subjects), kinds.pop() if len(kinds) == 1 else "place")


def _kind(subject: str) -> str:
    if "->" in subject or "--" in subject:
        return "pair"
    if nodes_of_scale(subject) is not None:
        return "scale"
    return "rank" if "/rank" in subject else "place" if subject == JOB or "/" in subject else "node"


def shared_node(pairs: Iterable[str]) -> str | None:
    """Return the one node that all these pairs name."""
    common = set.intersection(*(set(nodes_of(pair)) for pair in pairs))
    return common.pop() if len(common) == 1 else None


def scales_of(phase: str, nodes: int, ranks_per_node: int) -> list[Scale]:
    """Return the scales that a phase measures: the watched collectives run on all nodes only."""
    return [full_scale(nodes, ranks_per_node)] if phase == "nccl_monitoring" else scales(nodes, ranks_per_node)


def subjects(gate: Gate, phase: str, nodes: list[str], ranks_per_node: int, pair_rounds: int | None) -> list[str]:
    steps, most = scales_of(phase, len(nodes), ranks_per_node), gate.max_nodes
    match gate.per:
        case "job":
            return [JOB]
        case "node":
            return list(nodes)
        case "rank":
            return rank_subjects(nodes, ranks_per_node)
        case "scale":
            return [step.name for step in steps if step.nodes >= gate.min_nodes]
        case "pair":
            return [f"{writer}->{reader}" for writer, reader in rounds.ordered_pairs(nodes)]
        case "link":
            return [rounds.link_name(pair) for pairs in rounds.in_advance(nodes, pair_rounds) for pair in pairs]
        case "wide_scale":  # one rank has no bus: the busbw factor is 0 there
            return [step.name for step in steps if step.ranks > 1 and (most is None or step.nodes <= most)]


def pair_rounds(nodes: list[str], requested_rounds: str) -> int | None:
    """Read rounds of pairs to measure: `all`, a number, or empty for as many as needed (None). Raises UsageError."""
    if requested_rounds == "all":
        return rounds.all_rounds(nodes)
    if requested_rounds and not (requested_rounds.isdigit() and int(requested_rounds) > 0):
        raise UsageError(f"BRINGUP_PAIR_ROUNDS={requested_rounds}: expected `all` or a number of rounds")
    return int(requested_rounds) if requested_rounds else None


def requested(run: Run, subject: str, field: RequestedField, strategy: str | None) -> int | str | None:
    """Return the value that this run requested, for Requested(field)."""
    match field:
        case "gpus_per_node":
            return run.gpus_per_node
        case "world_size":
            return len(run.nodes) * run.ranks_per_node
        case "scale_nodes":
            return scale_nodes(subject)
        case "scale_ranks":
            return scale_ranks(subject, run.ranks_per_node)
        case "strategy":
            return strategy
