"""What to know about a GPU gate that did not pass. Data only."""

from __future__ import annotations

from bringup.plan.guide import Guide
from bringup.records import Action

_ENVIRONMENT = "01-environment"
_INFRASTRUCTURE = "02-infrastructure-validation"
_ON_THE_NODE = "srun --nodes=1 --nodelist={node} --exclusive --gpus-per-node={gpus}"

DRIVER_LOG = Guide(
    title="Driver messages in the kernel log",
    page=_ENVIRONMENT,
    action=Action.REBOOT,
    observes=(
        "The probe reads `/dev/kmsg` without waiting. Where it may not be read, the probe reads the journal of this "
        "boot. It counts the messages of the NVIDIA driver by device and kind: Xids of GPUs, SXids of NVSwitches, "
        "and four messages that have no number (a GPU fell off the bus, could not be initialized, or is not "
        "supported by the driver; the driver could not take a GPU over). `discovery.kernel_log.xid` counts the "
        "messages that ask for action: a reset, a reboot, a look at power or NVLink, an SXid that says Fatal, and "
        "every Xid in no known class. Xid 154 names its action itself; the last one of a GPU counts. Faults of the "
        "program (Xid 13, 31, 43, 94) and cleanups after an earlier Xid (45) do not count. "
        "`discovery.kernel_log.nonfatal` counts the NVLink Xids 144 to 150 that say Nonfatal and the SXids that say "
        "Non-fatal."
    ),
    why="A GPU or a switch that needs a reset gives wrong results, hangs, or is lost in the middle of a job.",
    usually_means=(
        "The verdict names the number, the device and the action. A message stays in the log until the next boot, "
        "also after a reset. *Incomplete*: the log could not be read. With `kernel.dmesg_restrict=1` a job of a "
        "normal user reads nothing, and that does not prove that there was no message. `bringup run` goes on to the "
        "later phases, and this verdict stays incomplete."
    ),
    next=(
        _ON_THE_NODE + " nvidia-smi --query-gpu=index,uuid,pci.bus_id --format=csv",
        "srun --nodes=1 --nodelist={node} bash -c \"dmesg -T | grep -iE 'nvrm|sxid'\"",
        "grep -r kernel_log {run}/raw/",
    ),
    by_hand=(
        "Do what the verdict says. To let users read the log, add them to the group `systemd-journal`, or submit this "
        "phase as root. All Xids and their actions are in [failure modes](07-failure-modes.md#xids)."
    ),
)
PRESENT = Guide(
    title="GPUs that are there and answer",
    page=_ENVIRONMENT,
    action=Action.REBOOT,
    observes=(
        "`discovery.gpu.count` counts the character devices `/dev/nvidia0`, `/dev/nvidia1`, … of the node. "
        "`discovery.gpu.answering` counts the GPUs that gave NVML their UUID. Without NVML it counts those that "
        "`nvidia-smi` lists. Both are compared with the number that Slurm granted on the first node of the job. Run "
        "different kinds of nodes apart."
    ),
    why="A job on a node with a missing GPU dies at start-up, or puts two ranks on one GPU.",
    usually_means=(
        "A GPU fell off the bus, the driver is not loaded on that node, or `gres.conf` does not describe the "
        "hardware. *Only `answering` fails*: the device file is still there and its GPU is lost, or gives no answer "
        "within `BRINGUP_GPU_S` (20 s); the verdict names it and repeats NVML's error. Nothing else about the GPUs "
        "of the node is judged until all of them answer. *Incomplete*: there is no NVML and no `nvidia-smi`, or no "
        "driver behind them, or it does not start; the verdict repeats what both said."
    ),
    next=(
        _ON_THE_NODE + " nvidia-smi -L",
        "srun --nodes=1 --nodelist={node} bash -c 'ls -l /dev/nvidia[0-9]*; lspci | grep -i nvidia'",
        "srun --nodes=1 --nodelist={node} bash -c \"dmesg -T | grep -iE 'nvrm|xid'\"",
    ),
)
DRIFT = Guide(
    title="GPUs that are the same everywhere",
    page=_ENVIRONMENT,
    action=Action.CONFIGURE,
    observes=(
        "Every node reports its GPU driver, and the model and memory of every GPU. The value of most nodes is taken "
        "as right. Without a majority (two nodes, two values) all nodes fail, because it is not known which one is "
        "right."
    ),
    why=(
        "Different drivers end in NCCL or CUDA errors that look like faults of the network. A smaller GPU runs out of "
        "memory first."
    ),
    usually_means=(
        "A node was reinstalled, or it missed an update. A GPU was replaced by another model. *Incomplete*: the GPUs "
        "did not answer, or there is no other node to compare with."
    ),
    next=(
        "srun --label --nodes={node_count} --nodelist={nodes} --ntasks-per-node=1 --gpus-per-node={gpus} "
        "nvidia-smi --query-gpu=driver_version,name,memory.total --format=csv,noheader",
        "grep -hE 'discovery.gpu.(driver|model|memory)' {run}/raw/inventory*.jsonl",
    ),
)
MIG = Guide(
    title="GPUs that are not divided (MIG)",
    page=_ENVIRONMENT,
    action=Action.CONFIGURE,
    observes="The MIG mode of every GPU. `off` and `not supported` pass.",
    why="Processes on parts of one GPU have no peer-to-peer access to each other. NCCL refuses two ranks on one GPU.",
    usually_means=(
        "The node served inference before. A cluster that divides its GPUs on purpose declares this gate "
        "`not_applicable`. *Incomplete*: the GPU did not answer the question."
    ),
    next=(
        _ON_THE_NODE + " nvidia-smi --query-gpu=index,mig.mode.current --format=csv",
        _ON_THE_NODE + " nvidia-smi mig -lgi",
    ),
    by_hand="An administrator ends it on the node, without jobs: `nvidia-smi -i INDEX -mig 0`.",
)
DISTINCT = Guide(
    title="GPUs that belong to one node",
    page=_ENVIRONMENT,
    action=Action.CONFIGURE,
    observes="The UUIDs of all GPUs that answered. The gate counts those of the node that another node reports too.",
    why=(
        "Two nodes that share a GPU share its memory and its speed. Every result about two nodes is then about one GPU."
    ),
    usually_means=(
        "One GPU was given to two virtual machines, or two names in Slurm are the same machine. In the second case "
        "`discovery.node.distinct` fails too. *Incomplete*: the GPUs of the node did not answer."
    ),
    next=(
        "srun --label --nodes={node_count} --nodelist={nodes} --ntasks-per-node=1 --gpus-per-node={gpus} nvidia-smi -L",
        "scontrol show node {node}",
    ),
)
MEMORY_ERRORS = Guide(
    title="GPU memory errors",
    page=_ENVIRONMENT,
    action=Action.RESET,
    observes=(
        "`discovery.gpu.ecc`: uncorrected ECC errors since the driver was loaded. `discovery.gpu.remap_pending`: a "
        "spare row waits for a reset. `discovery.gpu.remap_failed`: no spare row is left."
    ),
    why="An uncorrected error ends the process that meets it. A GPU without spare rows will have the next one.",
    usually_means=(
        "*Pending*: reset the GPU or reboot the node, and the spare row is used. *Failed*, or errors that come "
        "back: replace the GPU. *Incomplete*: the GPU did not report it. A GPU without ECC reports `not supported`: "
        "declare the gate `not_applicable`."
    ),
    next=(_ON_THE_NODE + " nvidia-smi -q -d ECC,ROW_REMAPPER",),
)
MEMORY_WEAR = Guide(
    title="GPU memory that wears out",
    page=_ENVIRONMENT,
    action=Action.WATCH,
    observes=(
        "`discovery.gpu.ecc_corrected`: errors that ECC corrected since the driver was loaded. "
        "`discovery.gpu.remapped_corrected` and `discovery.gpu.remapped_uncorrected`: rows that were replaced by spare "
        "ones in the life of the GPU, after errors of either kind. The profile says how many are usual. The worst GPU "
        "of a node is judged and named."
    ),
    why="Nothing was lost yet. A GPU whose numbers grow is the one that will have an error that cannot be corrected.",
    usually_means=(
        "*Many corrected errors*: one bad cell, which the GPU replaces at its next reset. *Many replaced rows*: the "
        "memory ages, or the GPU runs too hot. Compare with the other GPUs of the cluster, and with the numbers of "
        "last week. Only a warning. *Incomplete*: the GPU does not count this, as those without ECC, or does not "
        "replace rows, as those before A100: declare the gate `not_applicable`."
    ),
    next=(_ON_THE_NODE + " nvidia-smi -q -d ECC,ROW_REMAPPER",),
)
SLOWDOWN = Guide(
    title="GPUs that slow down to protect themselves",
    page=_ENVIRONMENT,
    action=Action.REPLACE,
    observes=(
        "Three bits of the clock event reasons: hardware slowdown, hardware thermal, hardware power brake. Idle "
        "clocks, the power cap and clocks that a user set are not faults and do not count."
    ),
    why="A GPU that slows down makes every rank of the job wait in each collective.",
    usually_means=(
        "Bad cooling: fans if it is one node of a rack, the room if it is all nodes. Or a power supply that asks for "
        "less load. *Incomplete*: the driver or `nvidia-smi` is too old for the question."
    ),
    next=(_ON_THE_NODE + " nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",),
)
PCIE = Guide(
    title="PCIe lanes of GPUs",
    page=_ENVIRONMENT,
    action=Action.REPLACE,
    observes=(
        "How many PCIe lanes each GPU is missing: the widest link of GPU and slot, minus the width in use. The "
        "generation is recorded and not judged, because an idle GPU lowers it."
    ),
    why="Half of the lanes carry half of the bandwidth between host and GPU.",
    usually_means=(
        "A card or a riser is not fully seated, or a lane is damaged. *Incomplete*: the GPU did not report the "
        "width of its link."
    ),
    next=(
        _ON_THE_NODE
        + " nvidia-smi --query-gpu=index,pci.bus_id,pcie.link.width.current,pcie.link.width.max --format=csv",
        "srun --nodes=1 --nodelist={node} bash -c 'lspci -vv -d 10de: | grep -E \"^[0-9a-f]|LnkCap:|LnkSta:\"'",
    ),
    by_hand="Reseat the card, then run this phase again. `lspci` shows the link only to root.",
)
FREE = Guide(
    title="GPUs that no other process uses",
    page=_ENVIRONMENT,
    action=Action.REBOOT,
    observes=(
        "Processes with a compute context on each GPU. This job has the node exclusively and computes nothing itself."
    ),
    why="Another process takes memory and speed from the job, and the job does not see why.",
    usually_means=(
        "A process lived longer than its job (see `discovery.slurm.proctrack`), a monitoring agent opened a context, "
        "or a user works outside of Slurm. *Incomplete*: the list of processes could not be read."
    ),
    next=(_ON_THE_NODE + " nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name --format=csv",),
    by_hand="`ps -o user,lstart,cmd -p PID` on the node names the owner.",
)
PERSISTENCE = Guide(
    title="A driver that stays loaded",
    page=_ENVIRONMENT,
    action=Action.CONFIGURE,
    observes="The persistence mode of every GPU. A miss is a warning.",
    why=(
        "Without it the driver unloads between jobs. The first call of a job then takes seconds, and error counters "
        "are lost."
    ),
    usually_means="The persistence daemon does not run on the node. *Incomplete*: the GPU did not answer the question.",
    next=("srun --nodes=1 --nodelist={node} systemctl status nvidia-persistenced --no-pager",),
    by_hand="An administrator starts it: `systemctl enable --now nvidia-persistenced`.",
)
BOUND = Guide(
    title="A GPU for each task",
    page=_INFRASTRUCTURE,
    action=Action.CONFIGURE,
    observes=(
        "Each task of `srun --gpus-per-task=1` finds out which GPU it would compute on: `CUDA_VISIBLE_DEVICES`, "
        "resolved among the devices that the task can open. A GPU is named by its UUID where the driver reports "
        "one. The gate counts the different GPUs of a node. An index is not evidence: a confined task sees its GPU "
        "as `0`, whichever it is."
    ),
    why="Two ranks on one GPU run at half speed or out of memory, and NCCL refuses them.",
    usually_means=(
        "Two tasks were bound to one GPU: `Cores=` in `gres.conf` do not fit, or a wrapper sets `--gpu-bind`. Or a "
        "task saw not exactly one GPU; the verdict says which. *Incomplete*: not all tasks ran on the node."
    ),
    next=(
        "grep smoke.binding {run}/raw/binding.jsonl",
        "srun --nodes=1 --nodelist={node} --ntasks={gpus} --gpus-per-task=1 --label nvidia-smi -L",
        "scontrol show config | grep -i gres",
    ),
    by_hand="Compare with `gres.conf` on the node, which stands beside `slurm.conf`.",
)
ISOLATED = Guide(
    title="No GPU for a job that requested none",
    page=_INFRASTRUCTURE,
    action=Action.CONFIGURE,
    observes=(
        "A job that requested no GPU tries to open every GPU device. The gate counts the devices that the kernel "
        "refused (`EPERM`). A missing device and a file mode (`EACCES`) do not count, because they do not prove that "
        "jobs are confined."
    ),
    why="Without this, any job can compute on the GPU of another job.",
    usually_means=(
        "*0*: devices are not confined. `ConstrainDevices=yes` is missing in `cgroup.conf`, or `task/cgroup` in "
        "`TaskPlugin`; `discovery.slurm.confines_devices` reads both. *Incomplete*: the step did not run. Some sites "
        "refuse jobs without a GPU in partitions with GPUs."
    ),
    next=(
        "cat {run}/raw/isolation.jsonl {run}/raw/isolation.err",
        "srun --nodes=1 --nodelist={node} nvidia-smi -L",
        "scontrol show config | grep -iE 'TaskPlugin|Constrain'",
    ),
    by_hand="The second command requests no GPU, and must list none.",
)
NEAR_GPU = Guide(
    title="CPUs near the GPU",
    page=_INFRASTRUCTURE,
    action=Action.CONFIGURE,
    observes=(
        "Each task that was given one GPU compares the CPUs that it may run on with the CPUs of the NUMA node of its "
        "GPU. The value is the share that belongs there. A miss is a warning."
    ),
    why="From the wrong socket, every copy between host and GPU crosses the link between the sockets.",
    usually_means=(
        "`gres.conf` has no `Cores=` and no `AutoDetect=nvml`, and Slurm does not know which cores are near which "
        "GPU. *Incomplete*: the firmware does not report the NUMA node of the GPU."
    ),
    next=(_ON_THE_NODE + " nvidia-smi topo -m", "grep smoke.cpu.near_gpu {run}/raw/binding.jsonl"),
    by_hand=(
        "Set `AutoDetect=nvml` in `gres.conf`, or `Cores=` for each device. Then `srun --gres-flags=enforce-binding` "
        "keeps to it."
    ),
)
JOBS_AT_ONCE = Guide(
    title="Two jobs at the same time",
    page=_INFRASTRUCTURE,
    action=Action.CONFIGURE,
    observes=(
        "Two jobs run on the same node at the same time, with one GPU each. The first one stays until the second has "
        "ended. Both name the GPU that they would compute on, and try to open every GPU. `smoke.jobs.distinct_gpus`: "
        "the two GPUs differ, by UUID or device, never by index. `smoke.jobs.refused_gpus`: each job was refused the "
        "GPU of the other (`EPERM`)."
    ),
    why="Two jobs on one GPU disturb each other without a message: both are slow, or one runs out of memory.",
    usually_means=(
        "*Only `refused_gpus` fails*: Slurm hands out different GPUs, and the kernel does not keep a job from the GPU "
        "of another. `ConstrainDevices=yes` is missing in `cgroup.conf`, or `task/cgroup` in `TaskPlugin`. "
        "*`distinct_gpus` fails*: the GPUs are not in `Gres`, or a wrapper sets `CUDA_VISIBLE_DEVICES`. *Incomplete*: "
        "one of the two jobs did not run beside the other. The gates are not planned for nodes with one GPU, nor "
        "where the partition gives whole nodes to a job (`OverSubscribe=EXCLUSIVE`; since 26.05 `Exclusive=NODE` or "
        "`TOPO`): two such jobs cannot run there."
    ),
    next=(
        "cat {run}/raw/first-job.jsonl {run}/raw/second-job.jsonl {run}/raw/first-job.err {run}/raw/second-job.err",
        "scontrol show config | grep -iE 'TaskPlugin|ConstrainDevices|GresTypes'",
    ),
)
COMPUTE = Guide(
    title="Products and copies of GPUs",
    page=_INFRASTRUCTURE,
    action=Action.REPLACE,
    observes=(
        "Every GPU multiplies matrices that repeat with period 7 (without a GPU, the CPU does). The exact result is "
        "known from a table of 7 x 7 whole numbers, and one wrong bit in any element counts in "
        "`smoke.compute.wrong_values`. `smoke.compute.tflops` is the median over a second, of the slowest GPU of the "
        "node; bf16 on GPUs. `smoke.compute.peers` compares the nodes with each other and needs three of them: a node "
        "fails that is below the median by more than the share in the profile and by more than five median absolute "
        "deviations. `smoke.compute.gpu_peers` compares the slowest GPU of a node with the median of all GPUs of all "
        "nodes; it needs three GPUs in a node. `smoke.compute.host_to_device` copies from pinned memory to each GPU, "
        "`smoke.compute.device_to_device` from each GPU to the next one; the slowest counts. Each GPU is in "
        "`observations.json` by its UUID, as `smoke.compute.gpu.*`."
    ),
    why="One GPU that computes wrong values spoils the model of a whole job. A slow one makes all ranks wait.",
    usually_means=(
        "*Wrong values*: a broken GPU or its memory. Take the node out before anything is trained on it. *Slow*: the "
        "GPU is throttled (power, heat), has a lower power limit, or another process uses it. *Slow copies*: PCIe "
        "lanes or generation lost, the wrong NUMA node, NVLink down. *Incomplete*: there is no torch on the node, a "
        "GPU did not answer, or the profile has no number."
    ),
    next=(
        "cat {run}/raw/compute.jsonl {run}/raw/compute.err",
        _ON_THE_NODE + " nvidia-smi -q -d PERFORMANCE,POWER,ECC",
        _ON_THE_NODE + " nvidia-smi nvlink --status",
    ),
)
