"""The layers of where the bandwidth goes that a training measures."""

from collections.abc import Sequence

from bringup.kernel.judge import Judged
from bringup.kernel.plan.phases import PHASES
from bringup.report.layers import Layer
from bringup.training.advise import bandwidth
from bringup.training.records.folder import records_of


def of_steps(judged: Sequence[Judged], *, across: bool) -> list[Layer]:
    """Return two layers of the collective that moves most bytes in a step, of two runs of the faster one: what the
    network gives to messages of its size, and what the step gets. Empty: no training timed its collectives."""
    known = [
        (collective, each)
        for each in judged
        if (records := records_of(each)) is not None and records.metrics.communication is not None
        for collective in records.metrics.communication.collectives
        if (collective.over != "node" and len(each.run.nodes) > 1) is across
    ]
    if not known:
        return []
    most, run = max(known, key=lambda pair: (pair[0].sent_bytes, pair[0].busbw_gb_per_s))
    curves = bandwidth.measured([each for each in judged if each.run.phase == "nccl_scaling"])
    speed = curves.bus(most.operation, len(run.run.nodes), most.message_bytes)
    alone = speed.gbps if isinstance(speed, bandwidth.Speed) else None
    size = f"messages of {most.message_bytes / 2**20:.3g} MiB"
    title = PHASES[run.run.phase].title
    return [
        Layer(f"{most.operation} of {size}, as in a step", alone, "the size of messages", PHASES["nccl_scaling"].title),
        Layer(f"the same inside a step: {title}", most.busbw_gb_per_s, "ranks that come late, work beside it", ""),
    ]
