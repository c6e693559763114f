"""Help for a variant of NCCL that did not pass. Data only."""

from __future__ import annotations

from bringup.plan.guide import Guide
from bringup.records import Action

VARIANTS = Guide(
    title="NCCL's paths, one at a time",
    page="03-collectives",
    action=Action.CONFIGURE,
    observes=(
        "all_reduce on one node and on two, with NCCL restricted to one path: `nvlink` (P2P over NVLink only; one "
        "node), `nic` (neither P2P nor shared memory, so that inside a node the bytes go over the NICs too), `ring` "
        "(the algorithm), `nvls_off` (no reduction in the NVLink switches). By nccl-tests where `NCCL_TESTS_BIN` "
        "names them, else by PyTorch. The variables are in `validation/bringup/plan/variants.py`.\n"
        "\n"
        "`nccl.variant.*.effect` is read from the logs of all ranks, in `raw/variant_*`: which way every channel "
        "goes (`via P2P/…`, `via NET/…`), which algorithm all_reduce took (`Algo RING`), how many `nvls channels` "
        "there are. `nccl.variant.*.busbw` is judged only where that was seen."
    ),
    why=(
        "NCCL chooses the fastest path that works, and reports nothing about one that does not. A NIC that is slow "
        "inside a node, or a ring that is slow while the switches reduce, shows only when NCCL has no other path. A "
        "variable that was set proves nothing: a file of the site (`/etc/nccl.conf`), a tuner plugin or a newer NCCL "
        "may win."
    ),
    usually_means=(
        "*No effect*: the verdict shows the path that was used instead; look for `/etc/nccl.conf`, `~/.nccl.conf`, a "
        "tuner plugin, variables in the site file. `nic` over TCP: NCCL finds no RDMA device. *Too slow*: `nvlink` "
        "and `ring` on one node, NVLink or its fabric; `nic`, NICs, PCIe or the first switch (`fabric.loopback` and "
        "`fabric.rail.slowest` name the NIC); `nvls_off` alone, NCCL chose a bad algorithm. *Incomplete*: the step "
        "failed, as it does where that path does not exist; or a log is missing or was not written by NCCL (gloo). "
        "Nodes after the second are not tested."
    ),
    next=(
        "grep -rh 'via ' {run}/raw --include='nccl.*.log'",
        "cat {run}/raw/variant_nic-1.err",
        "srun --nodes=1 --nodelist={node} cat /etc/nccl.conf",
    ),
)
