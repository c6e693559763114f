"""What an entrypoint promises to be, and the refusal when something else is about to train.

An argument is not evidence. Where accelerate does not expect an FSDP plugin it drops it silently and trains DDP, with
exit code 0, and it ignores keys that it does not know. So the kind and its variant are read from the model
(observed_strategy.py): before it is trained, after its first step, and at the end.
"""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bringup.kernel.characters import many
from bringup.kernel.facts.names import the_first
from bringup.training.formulae.models import shard_sizes
from bringup.training.records import ObservedStrategy, RunArgs

Kind = Literal["single", "ddp", "fsdp", "hsdp"]

SHARD = "(Shard(dim=0),)"
REPLICATE_SHARD = "(Replicate(), Shard(dim=0))"
PLAIN = "plain"

ADVICE = {
    "single": "start it as one process with one visible GPU (CUDA_VISIBLE_DEVICES=0)",
    "ddp": "start it with torchrun, 2 ranks or more",
    "fsdp": "was FSDP handed to the Trainer, and is it started with torchrun, 2 ranks or more?",
    "hsdp": "was FSDP handed to the Trainer, and does one torchrun per node start 2 or more ranks?",
}

Seen = tuple[str, "str | int", str]  # quantity, value, unit: a fact about the job that explains the refusal


class Refused(RuntimeError):
    """What was given cannot be trained. One line, raised by every rank alike. It says nothing about the cluster."""


class NotPromised(Refused):
    """This program will not train as something else than its name says: the cluster started it otherwise.

    `seen`: facts that explain it. `how`: what shows them, beside them; the line itself where it is not given.
    """

    def __init__(self, message: str, *seen: Seen, how: str | None = None) -> None:
        super().__init__(message)
        self.seen, self.how = seen, how or message


@dataclass(frozen=True)
class Expected:
    """The promise of an entrypoint. `max_hosts` None: any number from `min_hosts` up."""

    kind: Kind
    min_hosts: int = 1
    max_hosts: int | None = 1

    @property
    def sharded(self) -> bool:
        return self.kind in ("fsdp", "hsdp")


def require_places(expected: Expected, hosts: list[str]) -> None:
    """Refuse too few ranks or the wrong number of hosts. `hosts`: index = rank, the name that each rank gave."""
    kind, distinct, advice = expected.kind, sorted(set(hosts)), ADVICE[expected.kind]
    where = f"{many(len(hosts), 'rank')} on {many(len(distinct), 'host')} ({the_first(distinct)})"
    if kind != "single" and len(hosts) < 2:
        raise other_kind(expected, "single", where, "on 2 or more ranks")
    if len(distinct) < expected.min_hosts:
        wanted = f"across {expected.min_hosts} or more hosts"
        advice = "use the single-node entrypoint, or sbatch --nodes=2 or more"
    elif expected.max_hosts is not None and len(distinct) > expected.max_hosts:
        wanted, advice = f"on {many(expected.max_hosts, 'host')}", "use the multi-node entrypoint"
    elif kind == "single" and len(hosts) > 1:
        wanted = "on one rank"
    else:
        return
    raise NotPromised(f"expected {kind} {wanted}, observed {where}: {advice}")


def shard_group(hosts: list[str], wanted: int | None = None) -> int:
    """Return the size of a shard group of HSDP: the ranks of a host, unless another size is wanted. Refused where hosts
    have different numbers of ranks, and sizes of one rank, of all, or that are no part of a host and no whole hosts."""
    counted = Counter(hosts)
    per_host = set(counted.values())
    if len(per_host) > 1 or (wanted is None and per_host == {1}):
        raise NotPromised(
            "expected hsdp with the same number of ranks, 2 or more, on each host, observed "
            f"{sorted(per_host)}: {ADVICE['hsdp']}"
        )
    size = per_host.pop()
    sizes = shard_sizes(len(counted), size)
    if wanted is not None and wanted not in sizes:
        raise Refused(
            f"--shard-size {wanted}: expected a part of a host or whole hosts, and 2 groups or more, observed "
            f"{many(len(counted), 'host')} of {many(size, 'rank')}: give {' or '.join(map(str, sizes)) or 'more hosts'}"
        )
    return wanted or size


def kind_of(wrapper: str, placements: list[str], mesh: list[list[int]] | None, world: int) -> Kind | Literal["unknown"]:
    """Return single, ddp, fsdp, hsdp, or unknown. `wrapper` is empty when nothing wraps the model."""
    if placements == [SHARD] and mesh is not None and len(mesh) == 1 and len(mesh[0]) == world:
        return "fsdp"
    if placements == [REPLICATE_SHARD] and mesh is not None and len(mesh) > 1 and len(mesh[0]) > 1:
        return "hsdp"
    if placements == [PLAIN] and wrapper == "DistributedDataParallel":
        return "ddp"
    if placements == [PLAIN] and not wrapper and world == 1:
        return "single"
    return "unknown"


def other_kind(expected: Expected, kind: str, seen: str, where: str = "") -> NotPromised:
    """Return the refusal of another kind than declared. `seen`: what shows it."""
    advice = ADVICE[expected.kind]
    message = f"expected {expected.kind}{where and f' {where}'}, observed {kind} ({seen}): {advice}"
    return NotPromised(message, ("train.strategy", kind, "text"), how=f"{seen}: {advice}")


def require(observed: ObservedStrategy, expected: Expected, asked: RunArgs) -> None:
    """Refuse another kind than declared, another variant than requested, an HSDP shard group on too many hosts."""
    if observed.kind != expected.kind:
        seen = ", ".join([observed.distributed_type, observed.wrapper, *observed.placements])
        raise other_kind(expected, observed.kind, seen)
    scattered = observed.scattered(asked)
    if scattered:
        hosts = sorted({observed.hosts[rank] for rank in scattered[0]})
        raise NotPromised(
            f"expected hsdp with every shard group inside {many(asked.hosts_of_group, 'host')}, observed group "
            f"{scattered[0]} on {the_first(hosts)}: {ADVICE['hsdp']}",
            ("train.shard.inside_node", len(scattered), "count"),
        )
    different = observed.differs_from(asked)
    if different:
        raise NotPromised(
            f"expected the {expected.kind} variant that was requested, {'; '.join(different)}: does a configuration of "
            "accelerate launch say otherwise, or do the installed torch, transformers and accelerate not apply it?",
            ("train.variant", len(different), "count"),
        )


# accelerate launch says how to train through its environment, the options say it too: both have to agree
_MARK = "ACCELERATE_MIXED_PRECISION"  # accelerate launch always sets it


def refuse_what_is_ignored(asked: RunArgs, environment: Mapping[str, str] = os.environ) -> None:
    """Raise Refused where accelerate launch, if it started the program, says otherwise."""
    for variable, does in promised(asked).items() if _MARK in environment else ():
        absent = "false" if "_USE_" in variable else does
        if (stated := environment.get(variable, absent)).lower() != does.lower():
            name = variable.removeprefix("ACCELERATE_").lower()
            raise Refused(
                f"the configuration of accelerate launch says {name}: {stated}, this program has {does}; "
                f"change the one or the option (training/accelerate has one for {asked.strategy})"
            )


def promised(asked: RunArgs) -> dict[str, str]:
    """Return variables of accelerate launch, of keys that training/accelerate has -> what the program does."""
    sharded = asked.strategy in ("fsdp", "hsdp")
    of_all = {
        "ACCELERATE_USE_FSDP": str(sharded).lower(),
        _MARK: "bf16" if asked.compute_dtype == "bfloat16" else "no",
        "ACCELERATE_DYNAMO_BACKEND": "no",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": str(asked.gradient_accumulation),
    }
    if not sharded:
        return of_all
    shards = asked.shard_size or asked.world_size
    return {
        **of_all,
        "ACCELERATE_USE_PARALLELISM_CONFIG": str(asked.shard_size is not None).lower(),
        "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": str(asked.world_size // shards),
        "PARALLELISM_CONFIG_DP_SHARD_SIZE": str(shards),
        "FSDP_VERSION": "2",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
        "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
        "FSDP_OFFLOAD_PARAMS": "false",
        "FSDP_RESHARD_AFTER_FORWARD": str(asked.reshard_after_forward).lower(),
        "FSDP_ACTIVATION_CHECKPOINTING": str(asked.activation_checkpointing).lower(),
    }
