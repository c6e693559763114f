"""What to know about a gate of single nodes under load that did not pass. Data only."""

from __future__ import annotations

from bringup.plan.guide import Guide
from bringup.records import Action

_PAGE = "02-infrastructure-validation"
_AGAIN = "sbatch --nodes=1 --nodelist={node} infrastructure-validation/scripts/node_sweep.sbatch"

RANKS = Guide(
    title="Ranks of the sweep",
    page=_PAGE,
    action=Action.REBOOT,
    observes=(
        "A rank for each GPU runs four parts: it names its device, trains two seeded steps, multiplies matrices for "
        "`BRINGUP_LOAD_S` seconds (default 60), and takes part in collectives inside its node. `sweep.ranks` counts "
        "the ranks of a node that finished every part."
    ),
    why=(
        "A rank that died or hung proves nothing about its GPU. Speeds of a node are judged only when all of its "
        "ranks ended."
    ),
    usually_means=(
        "The verdict names the first part that a rank did not finish. *seeded_step or sustained_load*: CUDA gave an "
        "error, or memory ran out. *node_sweep*: the collectives inside the node hang or fail; look at NVLink, the "
        "fabric manager and `/dev/shm`. *Incomplete*: no rank of the node started."
    ),
    next=("cat {run}/raw/sweep.err", _AGAIN),
)
SAME_BITS = Guide(
    title="The same bits on every device",
    page=_PAGE,
    action=Action.REPLACE,
    observes=(
        "Each rank trains two steps of a small transformer, three times: on its CPU in float32 with one thread, and "
        "on its GPU in bfloat16. Seed, inputs and algorithms are fixed, so losses and gradients must be equal bit "
        "for bit. They are compared with the rank's own repetitions, and with those of all devices of the same kind: "
        "model, instruction set, version of torch and of CUDA. The value is the number of devices that differ."
    ),
    why=(
        "A GPU or a core can compute wrongly without any error (silent data corruption). One such device spoils the "
        "gradients of a whole training."
    ),
    usually_means=(
        "*A device differs from itself*: it sometimes computes wrong values. *It differs from its peers*: it always "
        "computes wrong values, or a library on that node differs (compare `discovery.library.libcuda` and the "
        "versions). *No majority agrees*: two devices differ, and it is not known which one is right; run it on more "
        "nodes. *Incomplete*: the step could not run there, and the verdict says why."
    ),
    next=(_AGAIN, "grep -r sweep.gpu.step {run}/raw/"),
    by_hand="A device that differs twice should leave the cluster: `dcgmi diag -r 3`, then have it replaced.",
)
LOAD = Guide(
    title="Sustained load",
    page=_PAGE,
    action=Action.REPLACE,
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
        "than the peers from the start*: another power limit or clock, or another process on the node. *Wrong "
        "values*: take the node out. *Incomplete*: the profile has no number, or a rank ended early."
    ),
    next=(
        "srun --nodes=1 --nodelist={node} --gpus-per-node={gpus} nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
        _AGAIN,
        "grep -r sweep.gpu.load {run}/raw/",
    ),
)
PCIE = Guide(
    title="PCIe link under load",
    page=_PAGE,
    action=Action.REPLACE,
    observes=(
        "Generation and lanes of each GPU's PCIe link by NVML, read every second of the load while the GPU is busy, "
        "and the most that the GPU can have in its slot. The best answer in the last third of the load counts. The "
        "value is the number of GPUs whose link is slower than it can be."
    ),
    why=(
        "An idle GPU lowers the generation to save power, so a link that trained to a lower one shows only under "
        "load. It halves the speed of copies from the host, of checkpoints, and of the network."
    ),
    usually_means=(
        "*A lower generation*: bad signals; a riser, a cable of the board, or a setting of the BIOS. *Fewer lanes*: "
        "the GPU is not fully seated in its slot, or a lane is dead. *Incomplete*: the Python that computes has no "
        "pynvml, or the driver does not report it (MIG, virtual GPUs: declare it not applicable)."
    ),
    next=(
        "srun --nodes=1 --nodelist={node} --gpus-per-node={gpus} nvidia-smi -q | grep -A 8 'GPU Link Info'",
        _AGAIN,
    ),
)
INSIDE = Guide(
    title="Collectives inside every node",
    page=_PAGE,
    action=Action.RESET,
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
DCGM = Guide(
    title="NVIDIA's own diagnostic (DCGM)",
    page=_PAGE,
    action=Action.REPLACE,
    observes=(
        "`dcgmi diag -r LEVEL -j` on every node, before the load. `BRINGUP_DCGM_LEVEL` is 1 (seconds: drivers and "
        "settings), 2 (default, about two minutes: memory and PCIe), 3 (half an hour: stress) or 4 (hours). "
        "`BRINGUP_DCGM_S` limits the time. Every result of every test is in `observations.json`, as "
        "`dcgm.test.NAME` of `node/gpuN`. `sweep.dcgm.failed` counts results that failed. `sweep.dcgm.doubtful` counts "
        "tests that were skipped, warned, or passed with a warning, and only warns. `sweep.dcgm.gpus`: GPUs that the "
        "answer lists. DCGM 3 and 4 are read. GPUs have the numbers of DCGM."
    ),
    why=(
        "It tests what the programs of this playbook do not: the whole memory of a GPU, the power it can take, PCIe "
        "under load. Support contracts ask for its result."
    ),
    usually_means=(
        "The verdict names GPU, test and DCGM's words. *software*: a setting, such as persistence mode; the hardware "
        "may be fine. *memory, diagnostic, pcie*: the GPU; look at the kernel log. *Doubtful*: DCGM skips tests that "
        "it does not support on the model, and those after one that failed. *Incomplete*: `dcgmi` is not installed, "
        "`nv-hostengine` does not run, it took too long, or DCGM skipped everything; the verdict says which. A site "
        "without DCGM declares the gates `not_applicable`, and it is not run."
    ),
    next=(
        "srun --nodes=1 --nodelist={node} --exclusive --gpus-per-node={gpus} dcgmi diag -r 2",
        "srun --nodes=1 --nodelist={node} dcgmi discovery -l",
        "srun --nodes=1 --nodelist={node} systemctl status nvidia-dcgm --no-pager",
        "cat {run}/raw/dcgm-{node}.json",
    ),
    by_hand="`nvvs.log` and `nv-hostengine.log` in `/var/log/nvidia-dcgm` say more.",
)
