"""What to know about a gate of single nodes under load that did not pass. Data only."""

from __future__ import annotations

from bringup.plan.guide import Guide

_PAGE = "02-infrastructure-validation"
_AGAIN = "sbatch --nodes=1 --nodelist={node} infrastructure-validation/scripts/node_sweep.sbatch"

RANKS = Guide(
    title="Ranks of the sweep",
    page=_PAGE,
    observes=(
        "A rank for each GPU runs four parts: it names its device, trains two seeded steps, multiplies matrices for "
        "`BRINGUP_LOAD_S` seconds (default 60), and takes part in collectives inside its node. `sweep.ranks` counts "
        "the ranks of a node that came to the end of every part."
    ),
    why=(
        "A rank that died or hung says nothing about its GPU. Speeds of a node are judged only when all of its ranks "
        "ended."
    ),
    usually_means=(
        "The verdict names the first part that a rank did not end. *seeded_step or sustained_load*: CUDA gave an "
        "error, or memory did not suffice. *node_sweep*: the collectives inside the node hang or fail; look at "
        "NVLink, the fabric manager and `/dev/shm`. *Incomplete*: no rank of the node started."
    ),
    next=("cat {run}/raw/sweep.err", _AGAIN),
)
SAME_BITS = Guide(
    title="The same bits on every device",
    page=_PAGE,
    observes=(
        "Each rank trains two steps of a small transformer, three times: on its CPU in float32 with one thread, and "
        "on its GPU in bfloat16. Seed, inputs and algorithms are fixed, so the losses and the gradients have to be "
        "the same, bit by bit. They are compared with the rank's own repetitions, and with those of all devices of "
        "the same kind: model, instruction set, version of torch and of CUDA. The count is that of devices that "
        "differ."
    ),
    why=(
        "A GPU or a core can compute wrongly without any error (silent data corruption). One such device spoils the "
        "gradients of a whole training."
    ),
    usually_means=(
        "*A device differs from itself*: it computes wrongly now and then. *It differs from its peers*: it computes "
        "wrongly always, or a library on that node is another one (compare `discovery.library.libcuda` and the "
        "versions). *No majority agrees*: two devices differ, and which is right is not known; run it on more nodes. "
        "*Incomplete*: the step could not run there, and the verdict says why."
    ),
    next=(_AGAIN, "grep -r sweep.gpu.step {run}/raw/"),
    by_hand="A device that differs twice should leave the cluster: `dcgmi diag -r 3`, then have it replaced.",
)
LOAD = Guide(
    title="Sustained load",
    page=_PAGE,
    observes=(
        "All GPUs of all nodes multiply matrices at the same time for `BRINGUP_LOAD_S` seconds (default 60; "
        "`--minutes 30` for a burn). Speed is counted in windows of a second. `sweep.load.drift`: the last third of "
        "the time as a share of the first third, after a warm-up, of the GPU that lost most. `sweep.load.peers`: the "
        "node's slowest GPU as a share of the median of all nodes. `sweep.load.wrong_values`: the last product of "
        "every window is compared with the exact one."
    ),
    why="Heat, power limits and weak power supplies show after tens of seconds, under the load of all GPUs at once.",
    usually_means=(
        "*Drift*: the GPU throttles. Look at its temperature, at fans, at cold plates, and at the power cap. *Slower "
        "than the peers from the begin*: another power limit or clock, or another process on the node. *Wrong "
        "values*: take the node out. *Incomplete*: the profile has no number, or a rank ended early."
    ),
    next=(
        "srun --nodes=1 --nodelist={node} --gpus-per-node={gpus} nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
        _AGAIN,
        "grep -r sweep.gpu.load {run}/raw/",
    ),
)
INSIDE = Guide(
    title="Collectives inside every node",
    page=_PAGE,
    observes=(
        "The ranks of each node form a group of their own, all nodes at once. Every collective runs at a small and "
        "at a large size, and its values are compared with the exact ones. `sweep.inside.peers`: bus bandwidth of "
        "the large all_reduce as a share of the median of all nodes; of two nodes, of the faster one."
    ),
    why=(
        "The collectives of `nccl_scaling` on one node run on the first node only. A broken NVLink on another node "
        "would show there as a slow cluster."
    ),
    usually_means=(
        "*Wrong values*: a GPU or a link damages data; take the node out. *Slower than the others*: NVLink is down "
        "or degraded, the fabric manager does not run, or NCCL does not use NVLink on that node. *Incomplete*: the "
        "group could not be formed, and the verdict says why."
    ),
    next=(
        "srun --nodes=1 --nodelist={node} --gpus-per-node={gpus} nvidia-smi nvlink -s",
        "srun --nodes=1 --nodelist={node} --gpus-per-node={gpus} nvidia-smi topo -m",
        _AGAIN,
    ),
)
COUNTERS = Guide(
    title="Counters under load",
    page=_PAGE,
    observes=(
        "Counters are read before and after the load, and what each rose by is counted. `sweep.gpu_faults` and "
        "`sweep.gpu_corrected`: memory errors, remapped rows, NVLink and PCIe of each GPU, by NVML. "
        "`sweep.node_faults` and `sweep.node_corrected`: ports of RDMA devices, network cards, memory controllers "
        "(EDAC) and throttled CPUs, from `/sys`. `sweep.kernel_log`: messages of the GPU driver that ask for action."
    ),
    why="A fault that only load brings out is not seen by a look at an idle node, and ends the training instead.",
    usually_means=(
        "The verdict names the counter and the device. *Faults*: reset or replace the device; the [table of "
        "Xids](06-failure-modes.md#xids) says which. *Corrected errors*: they only warn; many of them, or on one "
        "device, are a device or a cable that is about to fail. *Incomplete*: NVML does not answer, the node lists "
        "no such counter (declare it not applicable), or the kernel log may not be read by users."
    ),
    next=("grep -r sweep.counter {run}/raw/", _AGAIN),
)
