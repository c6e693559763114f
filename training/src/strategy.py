"""What an entrypoint promises to be, what really runs, and the refusal when the two differ.

An argument is no evidence: accelerate drops an FSDP plugin without a word where it does not expect one and trains DDP, with
the loss of FSDP and exit code 0. So the kind is read from the model that is about to be trained, and again from the trained
one: its wrapper, the placements of its parameters, the mesh, and the hosts that answered inside the communicator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bringup.records import ObservedStrategy

if TYPE_CHECKING:  # torch and transformers cost seconds; an entrypoint declares its Expected before they are imported
    from transformers import Trainer

Kind = Literal["single", "ddp", "fsdp", "hsdp"]

SHARD = "(Shard(dim=0),)"
REPLICATE_SHARD = "(Replicate(), Shard(dim=0))"
PLAIN = "plain"

ADVICE = {
    "single": "start it as one process with one visible GPU (CUDA_VISIBLE_DEVICES=0)",
    "ddp": "start it with torchrun, 2 ranks or more",
    "fsdp": "was FSDP handed to the Trainer (unset BRINGUP_DRILL), and is it started with torchrun, 2 ranks or more?",
    "hsdp": "was FSDP handed to the Trainer (unset BRINGUP_DRILL), and does one torchrun per node start 2 or more ranks?",
}


class Refused(RuntimeError):
    """This program will not train as something else than its name says. One line; every rank raises it alike."""

    def __init__(self, message: str, observed_kind: str | None = None) -> None:
        super().__init__(message)
        self.observed_kind = observed_kind


@dataclass(frozen=True)
class Expected:
    """The promise of an entrypoint. `max_hosts` None: any number from `min_hosts` up."""

    kind: Kind
    min_hosts: int = 1
    max_hosts: int | None = 1

    @property
    def sharded(self) -> bool:
        return self.kind in ("fsdp", "hsdp")

    @property
    def min_ranks(self) -> int:
        return 1 if self.kind == "single" else 2


def require_places(expected: Expected, hosts: list[str]) -> None:
    """Refuse too few ranks, or the wrong number of hosts, for the name. `hosts`: index = rank, as the ranks named theirs."""
    distinct = sorted(set(hosts))
    where = f"{len(hosts)} rank(s) on {len(distinct)} host(s) ({_short(distinct)})"
    if len(hosts) < expected.min_ranks:
        raise Refused(f"expected {expected.kind} on {expected.min_ranks} or more ranks, observed {where}: "
                      f"{ADVICE[expected.kind]}", "single")
    if len(distinct) < expected.min_hosts:
        raise Refused(f"expected {expected.kind} across {expected.min_hosts} or more hosts, observed {where}: "
                      "use the single-node entrypoint, or sbatch --nodes=2 or more")
    if expected.max_hosts is not None and len(distinct) > expected.max_hosts:
        raise Refused(f"expected {expected.kind} on {expected.max_hosts} host(s), observed {where}: "
                      "use the multi-node entrypoint")
    if expected.kind == "single" and len(hosts) > 1:
        raise Refused(f"expected single, observed {where}: {ADVICE['single']}")


def observe(trainer: Trainer) -> ObservedStrategy:
    """What the wrapped model is, agreed on by all ranks. A collective: every rank calls it.

    parameters counts elements of the whole model, parameters_local_max those that one rank stores.
    """
    import group
    from facts import node_name
    from torch.distributed.tensor import DTensor

    model = trainer.model_wrapped
    parameters = list(model.parameters())
    placements = sorted({str(tuple(p.placements)) if isinstance(p, DTensor) else PLAIN for p in parameters})
    meshes = [p.device_mesh for p in parameters if isinstance(p, DTensor)]
    mesh = meshes[0].mesh.tolist() if meshes else None
    if mesh is not None and not isinstance(mesh[0], list):
        mesh = [mesh]  # one row: one shard group of all ranks
    wrapper = type(model).__name__
    distributed_type = trainer.accelerator.distributed_type.name
    plainly_wrapped = wrapper in ("DistributedDataParallel", "DataParallel")
    mine = (
        kind_of(wrapper if plainly_wrapped else "", placements, mesh, group.WORLD),
        distributed_type, wrapper, placements, mesh,
    )
    local = sum(p.to_local().numel() if isinstance(p, DTensor) else p.numel() for p in parameters)
    everyone = group.gather((mine, node_name(), device_name(), local))
    kinds = {theirs[0][0] for theirs in everyone}
    return ObservedStrategy(
        kind=mine[0] if len(kinds) == 1 else "unknown",
        distributed_type=distributed_type,
        wrapper=wrapper,
        placements=placements,
        mesh=mesh,
        mesh_dims=list(meshes[0].mesh_dim_names) if meshes and meshes[0].mesh_dim_names else None,
        parameters=sum(p.numel() for p in parameters),
        parameters_local_max=max(theirs[3] for theirs in everyone),
        backend=group.backend(),
        hosts=[theirs[1] for theirs in everyone],
        devices=[theirs[2] for theirs in everyone],
    )


def kind_of(wrapper: str, placements: list[str], mesh: list[list[int]] | None, world: int) -> Kind | Literal["unknown"]:
    """single, ddp, fsdp, hsdp, or unknown. `wrapper` is empty when nothing wraps the model."""
    if placements == [SHARD] and mesh is not None and len(mesh) == 1 and len(mesh[0]) == world:
        return "fsdp"
    if placements == [REPLICATE_SHARD] and mesh is not None and len(mesh) > 1 and len(mesh[0]) > 1:
        return "hsdp"
    if placements == [PLAIN] and wrapper == "DistributedDataParallel":
        return "ddp"
    if placements == [PLAIN] and not wrapper and world == 1:
        return "single"
    return "unknown"


def require(observed: ObservedStrategy, expected: Expected) -> None:
    """Refuse anything but the declared kind, and for HSDP a shard group that leaves its host. Raises Refused."""
    if observed.kind != expected.kind:
        seen = ", ".join([observed.distributed_type, observed.wrapper, *observed.placements])
        raise Refused(f"expected {expected.kind}, observed {observed.kind} ({seen}): {ADVICE[expected.kind]}", observed.kind)
    if observed.kind == "hsdp" and observed.mesh is not None:
        split = [row for row in observed.mesh if len({observed.hosts[rank] for rank in row}) > 1]
        if split:
            hosts = sorted({observed.hosts[rank] for rank in split[0]})
            raise Refused(f"expected hsdp with every shard group inside one host, observed group {split[0]} on {_short(hosts)}: "
                          f"{ADVICE['hsdp']}", observed.kind)


def device_name() -> str:
    """The UUID of this rank's GPU as nvidia-smi prints it, or cpu."""
    import group
    import torch

    if not group.CUDA:
        return "cpu"
    return f"GPU-{torch.cuda.get_device_properties(group.DEVICE).uuid}"


def _short(names: list[str], limit: int = 4) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
