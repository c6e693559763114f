"""Which nodes of a partition one run can judge: those with as many GPUs of one type, and the features of the site."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from bringup.run.slurm import Node

NO_GPU = "no GPU"
MIG = re.compile(r"\d+g\.\d+gb")  # a part of a GPU, as Gres types are usually called: 1g.10gb
_SHOWN = 4


def set_aside(known: Mapping[str, Node], names: Sequence[str]) -> dict[str, str]:
    """Node of `names` -> why a run does not take it by itself: it lacks the features that jobs ask for (the site file's
    constraint), or other nodes are more common. Of two kinds that are equally common, the one with more GPUs is taken.
    """
    wanted = constraint()
    aside = {name: f"not {wanted}" for name in names if wanted and not has_features(known[name].features, wanted)}
    if len(aside) == len(names):  # Slurm refuses such a job, and says why
        aside = {}
    left = [name for name in names if name not in aside]
    kinds = Counter(kind(known[name]) for name in left if known[name].gpus)
    if not kinds:
        return {}
    most_common = max(kinds, key=lambda common: (kinds[common], _gpus(known, left, common)))
    return {
        name: aside.get(name) or kind(known[name])
        for name in names
        if name in aside or kind(known[name]) != most_common
    }


def in_words(aside: Mapping[str, str]) -> str:
    """`n0 (no GPU); n3, n4 (gpu:a100:2)`"""
    names: dict[str, list[str]] = {}
    for name, why in aside.items():
        names.setdefault(why, []).append(name)
    return "; ".join(
        f"{', '.join(several[:_SHOWN])}{f' and {len(several) - _SHOWN} more' if len(several) > _SHOWN else ''} ({why})"
        for why, several in names.items()
    )


def kind(node: Node) -> str:
    return node.gres or NO_GPU


def divided(nodes: Mapping[str, Node]) -> str | None:
    """What it means for a run that these nodes have parts of GPUs (MIG), in one line. None: they have none."""
    of_parts = {name: kind(node) for name, node in nodes.items() if MIG.search(node.gres or "")}
    if not of_parts:
        return None
    return (
        f"GPUs are divided (MIG), and Slurm counts the parts: {in_words(of_parts)}; discovery fails there, because "
        "ranks on parts of a GPU have neither NVLink nor NCCL between them"
    )


def _gpus(known: Mapping[str, Node], names: Sequence[str], wanted: str) -> int:
    return max(known[name].gpus for name in names if kind(known[name]) == wanted)


def constraint() -> str:
    """The features that jobs ask for. Alternatives with counts ([a*2&b*4]) are left to Slurm."""
    wanted = os.environ.get("SBATCH_CONSTRAINT") or os.environ.get("SLURM_CONSTRAINT") or ""
    return wanted if re.fullmatch(r"[\w.:=+-]+([&|,][\w.:=+-]+)*", wanted) else ""


def has_features(features: Sequence[str], wanted: str) -> bool:
    """a&b|c: all of a group, of one group at least."""
    return any(set(re.split("[&,]", group)) <= set(features) for group in wanted.split("|"))
