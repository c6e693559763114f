"""Gates of phase 3: collectives. Data only."""

from __future__ import annotations

from bringup.gates.gate import Fixed, FromProfile, Gate, Requested

_INFRA = "docs/02-infrastructure-validation.md#"
_NCCL = ("nccl_scaling", "nccl_monitoring")

COLLECTIVES = (
    Gate(id="nccl.step", phases=_NCCL, question=4, per="scale",
         proves="the collective program ended by itself, without an error",
         quantity="nccl.step.exit_code", unit="count", rule="equals", expect=Fixed(0), fix=_INFRA + "nccl-step"),
    Gate(id="nccl.ranks", phases=_NCCL, question=4, per="scale",
         proves="one communicator spanned all ranks (counted inside it)",
         quantity="nccl.ranks", unit="count", rule="equals", expect=Requested("scale_ranks"), fix=_INFRA + "nccl-ranks"),
    Gate(id="nccl.hosts", phases=_NCCL, question=4, per="scale",
         proves="the ranks sat on that many different hosts",
         quantity="nccl.hosts", unit="count", rule="equals", expect=Requested("scale_nodes"), fix=_INFRA + "nccl-ranks"),
    Gate(id="nccl.devices", phases=_NCCL, question=1, per="scale",
         proves="no two ranks computed on one GPU (UUIDs gathered inside the communicator)",
         quantity="nccl.devices", unit="count", rule="equals", expect=Requested("scale_ranks"), fix=_INFRA + "nccl-ranks"),
    Gate(id="nccl.wrong_values", phases=_NCCL, question=4, per="scale",
         proves="every collective gave the right result at every size",
         quantity="nccl.wrong_values", unit="count", rule="equals", expect=Fixed(0), fix=_INFRA + "nccl-wrong-values"),
    Gate(id="nccl.transport", phases=_NCCL, question=4, per="scale", min_nodes=2,
         proves="the bytes between nodes went over the interconnect that the profile names",
         quantity="nccl.transport", unit="text", rule="one_of", expect=FromProfile(), needs=("nccl.ranks",),
         fix=_INFRA + "nccl-transport"),
    Gate(id="nccl.all_reduce.busbw", phases=_NCCL, question=4, per="wide_scale",
         proves="all_reduce reaches the expected bus bandwidth at the named size",
         quantity="nccl.all_reduce.busbw", unit="GB/s", rule="at_least", expect=FromProfile(),
         needs=("nccl.ranks", "nccl.hosts", "nccl.wrong_values"), fix=_INFRA + "nccl-bandwidth"),
    Gate(id="nccl.monitor.coverage", phases=("nccl_monitoring",), question=6, per="node",
         proves="the node was sampled during the whole run",
         quantity="monitor.coverage", unit="share", rule="at_least", expect=Fixed(0.8), fix=_INFRA + "monitor"),
)
