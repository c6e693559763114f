"""What follows from the facts of a training: exit code, devices, transport, and how each rank ended. Pure."""

from __future__ import annotations

from bringup.derive import training_ends as ends
from bringup.evidence.parsed import Parsed, Seen, is_number
from bringup.plan.subjects import JOB, rank_subjects, scale_name
from bringup.records import Run


def ranks_ended(derived: Parsed, observed: Seen, run: Run) -> None:
    derived.add(ends.derive(observed, run))


def transport(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive train.transport under NCCL: what its log says, when every node left one. Under gloo the record has it."""
    nodes, scale = len(run.nodes), scale_name(len(run.nodes))
    if not any((backend.subject, backend.value) == (scale, "nccl") for backend in observed.of("nccl.backend")):
        return
    hosts = observed.by_subject("nccl.log.hosts").get(scale, [])
    logged = next((host.value for host in hosts if is_number(host.value)), 0)
    transports = observed.by_subject("nccl.transport").get(scale, [])
    if logged < nodes or not transports:
        why = f"{logged} of {nodes} nodes left a log of NCCL; an NCCL_DEBUG that was set by hand suppresses it"
        derived.saw("train.transport", JOB, None, "text", f"raw/nccl-{nodes}", why)
    else:
        derived.saw("train.transport", JOB, transports[-1].value, "text", transports[-1].evidence, transports[-1].why)


def devices(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive train.device: what all ranks computed on. A fallback is ranks on the CPU though the driver lists GPUs."""
    places = rank_subjects(run.nodes, run.ranks_per_node)
    said = {device.subject: device for device in observed.of("train.rank.device")}
    listed = {count.subject: count for count in observed.of("train.rank.driver_gpus")}
    if not said:
        return
    where = next(iter(said.values())).evidence
    unsaid = [place for place in places if place not in said or said[place].value is None]
    kinds = sorted({"cpu" if each.value == "cpu" else "cuda" for each in said.values() if each.value is not None})
    why = f"{len(unsaid)} of {len(places)} ranks did not say their device, first {unsaid[0]}" if unsaid else None
    derived.saw("train.device", JOB, None if unsaid else " and ".join(kinds), "text", where, why)
    on_cpu = [listed[place] for place in places if place in listed and place in said and said[place].value == "cpu"]
    bypassed = [count for count in on_cpu if is_number(count.value) and count.value > 0]
    unsaid += [place for place in places if place not in listed or listed[place].value is None]
    why = f"{unsaid[0]} did not say its device and its driver's GPUs" if unsaid else None
    if bypassed:
        where, first = bypassed[0].evidence, bypassed[0]
        why = f"first {first.subject}: the driver lists {first.value} GPUs, torch sees none"
    number = len(bypassed) if bypassed or not unsaid else None
    derived.saw("train.device.fallback", JOB, number, "count", where, why)
