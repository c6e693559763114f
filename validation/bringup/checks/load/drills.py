"""Faults that come under load and that only counters tell. Data only."""

from __future__ import annotations

from typing import Any

from bringup.checks.simulated import port, under_load
from bringup.plan.drill import Command, Drill, NoDrill
from bringup.records import Outcome

_SCALING = {"phase": "nccl_scaling", "when": "raw/collectives-1gpu.jsonl"}  # the counters have been read by then
_TRAINING = {"phase": "run_ddp_2node", "when": "raw/launch.log"}
_SWEEP = {"phase": "node_sweep", "when": "raw/sweep.jsonl"}
_ALONE = {"phase": "run_1gpu", "when": "raw/launch.log", "subject": "n0", "undo": (("gpu", "n0", "repair"),)}
_CONTROLLER = "/sys/devices/system/edac/mc/mc0"
_XID = (
    "cp /dev/kmsg /dev/kmsg.before && "
    "echo '4,7,61000000,-;NVRM: Xid (PCI:0000:c1:00): 79, pid=0, GPU has fallen off the bus.' >>/dev/kmsg"
)
# on the cable of n1, outside of it, so that n1 does not know of it
_EVERY_SEVENTH = (
    'table netdev drill { chain lossy { type filter hook ingress device "vn1" priority 0; '
    + "numgen inc mod 7 == 0 drop; }; }"
)


def _on_n1(script: str) -> tuple[Command, ...]:
    return (("on", "n1", "bash", "-c", script),)


def _counts(id: str, fault: str, phase: dict[str, str], gate: str, counter: str, count: int, **more: Any) -> Drill:
    """The memory controller of n1 counts so many, in the middle of the load."""
    return Drill(
        **{"outcome": Outcome.FAIL, **phase, **more},
        id=id,
        fault=fault,
        during=_on_n1(f"echo {count} >{_CONTROLLER}/{counter}"),
        undo=_on_n1(f"echo 0 >{_CONTROLLER}/{counter}"),
        gate=gate,
        subject="n1",
        value=count,
        says=f"{counter} on mc0 went from 0 to {count}",
        silent=("n0",),
    )


def _xid(id: str, fault: str, phase: dict[str, str]) -> Drill:
    return Drill(
        **phase,  # type: ignore[arg-type]
        id=id,
        fault=fault,
        during=_on_n1(_XID),
        undo=(("on", "n1", "mv", "/dev/kmsg.before", "/dev/kmsg"),),
        gate="load.kernel_log",
        subject="n1",
        outcome=Outcome.FAIL,
        says="Xid 79 on PCI:0000:c1:00",
        silent=("n0",),
    )


def _loss(id: str, fault: str, phase: str, **more: Any) -> Drill:
    return Drill(
        **more,
        id=id,
        fault=fault,
        phase=phase,
        inject=(("sh", "nft", _EVERY_SEVENTH),),
        undo=(("sh", "nft", "delete", "table", "netdev", "drill"),),
        gate="load.tcp_sent_again",
        subject="n1",
        outcome=Outcome.WARN,
        between=(0.02, 0.5),
    )


DRILLS: tuple[Drill, ...] = (
    _xid("xid-under-load", "the kernel of one node says under load that a GPU fell off the bus", _SWEEP),
    _xid("xid-in-collectives", "the kernel of one node says during collectives that a GPU fell off the bus", _SCALING),
    _xid("xid-in-training", "the kernel of one node says during a training that a GPU fell off the bus", _TRAINING),
    _counts(
        "memory-fault-under-load",
        "host memory of one node has an uncorrected error under load",
        _SWEEP,
        "load.node_faults",
        "ue_count",
        1,
    ),
    _counts(
        "memory-fault-in-collectives",
        "host memory of one node has an uncorrected error during collectives",
        _SCALING,
        "load.node_faults",
        "ue_count",
        1,
    ),
    _counts(
        "memory-corrected-in-training",
        "host memory of one node corrects many errors during a training",
        _TRAINING,
        "load.node_corrected",
        "ce_count",
        40,
        outcome=Outcome.WARN,
    ),
    _loss(
        "lossy-cable",
        "the cable of one node loses every seventh packet that the node sends, during collectives",
        "nccl_scaling",
        consequences=(("nccl.*", "2-nodes"), ("nccl.*", "*/rank*")),
    ),
    under_load(
        "gpu-lost-in-training",
        "a GPU of the node that trains falls off the bus, and the job does not notice",
        (("gpu", "n0", "1", "lost"),),
        "load.gpu_faults",
        **_ALONE,
        value=1,
        says="gpus fell from 2 to 1: not heard of GPU-00000000-0000-b52f-0d8c-4f100a8aa07f",
    ),
    under_load(
        "gpu-corrects-in-training",
        "a GPU of the node that trains corrects memory errors",
        (("gpu", "n0", "1", "ecc_corrected=40"),),
        "load.gpu_corrected",
        **_ALONE,
        outcome=Outcome.WARN,
        value=40,
        says="went from 0 to 40",
    ),
    under_load(
        "rdma-sends-again",
        "an RDMA port of one node sends a tenth of its packets again, during collectives",
        port("counters.port_xmit_packets=1000000", "hw_counters.local_ack_timeout_err=100000"),
        "load.rdma_sent_again",
        **_SCALING,
        outcome=Outcome.WARN,
        value=0.1,
        says="100000 of 1000000 on mlx5_1:1",
        silent=("n0", "n2"),
    ),
)
NO_DRILL: tuple[NoDrill, ...] = ()
