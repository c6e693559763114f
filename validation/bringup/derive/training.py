"""What follows from the facts of a training: exit code, devices, transport, and how each rank ended. Pure."""

from __future__ import annotations

from bringup.derive import training_ends as ends
from bringup.evidence.parsed import Parsed, Seen, is_number
from bringup.plan.subjects import JOB, rank_subjects, scale_name
from bringup.records import Observation, Run


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
    of_ranks = {device.subject: device for device in observed.of("train.rank.device")}
    listed = {count.subject: count for count in observed.of("train.rank.driver_gpus")}
    if not of_ranks:
        return
    where = next(iter(of_ranks.values())).evidence
    unsaid = [place for place in places if place not in of_ranks or of_ranks[place].value is None]
    kinds = sorted(
        {"cpu" if device.value == "cpu" else "cuda" for device in of_ranks.values() if device.value is not None}
    )
    why = f"{len(unsaid)} of {len(places)} ranks did not say their device, first {unsaid[0]}" if unsaid else None
    derived.saw("train.device", JOB, None if unsaid else " and ".join(kinds), "text", where, why)
    bypassed = [
        place
        for place in places
        if place in of_ranks and of_ranks[place].value == "cpu" and _is_positive(listed.get(place))
    ]
    uncounted = [place for place in places if place not in listed or listed[place].value is None]
    if bypassed:
        count = listed[bypassed[0]]
        remark = f"first {bypassed[0]}: the driver lists {count.value} GPUs, torch sees none"
        derived.saw("train.device.fallback", JOB, len(bypassed), "count", count.evidence, remark)
    elif unsaid or uncounted:
        first = (unsaid or uncounted)[0]
        derived.saw(
            "train.device.fallback", JOB, None, "count", where, f"{first} did not say its device and its driver's GPUs"
        )
    else:
        derived.saw("train.device.fallback", JOB, 0, "count", where)


def _is_positive(observation: Observation | None) -> bool:
    return observation is not None and is_number(observation.value) and observation.value > 0
