"""What a person has to know about the gates of training. Data only."""

from __future__ import annotations

from bringup.plan.guide import Guide
from bringup.records import Action

SINGLE_GPU = "04-training-single-gpu"
DDP = "05-training-ddp-design"
FSDP = "06-training-fsdp-design"
_ACROSS = "06-training-fsdp-multiple-node"
_REFUSED = "grep -hE 'refused|rank\\(s\\)' {run}/raw/launch.log"
OBSERVED = "grep -A25 '\"observed\"' {run}/metrics.json"
_ENVIRONMENT = "env | grep -E 'BRINGUP_DRILL|ACCELERATE_|FSDP_'"
_LOSSES = (
    'python3 -c \'import json, sys; m = json.load(open(sys.argv[1])); print(m["loss"], m["grad_norm"])\' '
    "{run}/metrics.json"
)

EXIT_CODE = Guide(
    title="Exit code",
    page=SINGLE_GPU,
    action=Action.CONFIGURE,
    observes=(
        "The exit code with which the phase script closed the run. It is the exit code of the training step. When "
        "ranks failed, the cause names the first one: rank, node, cause and time."
    ),
    why="A training that did not finish proves nothing of what follows.",
    usually_means=(
        "2: the program refused to train, and one line says why. 1: an exception, or under torchrun any fault of "
        "any rank, because torchrun has one code for all. 137 or 143: the step was killed, by a time limit or a "
        "memory limit. `train.rank.finished` says which rank ended how. Incomplete: the run was never closed."
    ),
    next=(
        "grep -vE ' W[0-9]{4} ' {run}/raw/launch.log | tail -n 40",
        "grep -hE 'train.rank.(state|error)' {run}/raw/rank*.jsonl",
        "scontrol show job {job} | grep -E 'JobState|ExitCode|Reason'",
    ),
)

LOSS = Guide(
    title="Loss",
    page=SINGLE_GPU,
    action=Action.CONFIGURE,
    observes=(
        "The loss of the first step minus the loss of the last step, in nats, of the global batch. Every step must "
        "have left a loss. The profile says how much it has to fall; `generic` requires 0.1."
    ),
    why="A falling loss shows that gradients reach the parameters.",
    usually_means=(
        "The learning rate is 0, far too small, or far too large. Labels are wrong. The optimizer holds other "
        "parameters than those of the model. A pretrained model, or a run of few steps, falls by less: declare a "
        "smaller number in the profile. A loss that is not a number ends the run earlier, and the message names "
        "the step. Incomplete: a step left no loss."
    ),
    next=(
        _LOSSES,
        "sbatch training/slurm/run_1gpu.sbatch --model tiny --dataset generated",
    ),
    by_hand="The second command is a training that learns: its loss falls from 6.21 to 4.96 in 12 steps.",
)

RANK = Guide(
    title="Rank finished",
    page=DDP,
    action=Action.CONFIGURE,
    observes=(
        "How each planned rank ended. The rank's own last report counts first: `finished`, `raised` (an exception), "
        "`hung` (it found that it made no progress) or `refused` (it is not the promised strategy), in "
        "`raw/rank<R>.jsonl`. For a rank that wrote none, the rest of the run is read: torchrun's failure summary in "
        "`raw/launch.log`, where a negative exit code is a signal; Slurm's messages about memory, lost nodes and "
        "programs that did not start; and the stacks in `raw/stacks/`.\n"
        "\n"
        "A rank that lost its peers did not finish, but it is not the cause. It is *incomplete*, with its own "
        "message and the name of the rank that failed first. So are ranks that raised because of a closed connection "
        "or a timeout, ranks that NCCL's watchdog ended, and ranks whose own loss was finite when the averaged "
        "gradient was not.\n"
        "\n"
        "A rank without progress for half of `--timeout` writes the stacks of all its threads to "
        "`raw/stacks/rank<R>.txt`, and its steps and the collectives that it has begun to `rank<R>.json`. The rank "
        "that has started the fewest collectives is the one that hung: the others wait for it. If all have started "
        "the same number, no rank is named."
    ),
    why=(
        "When one rank fails, all end. The rank that failed first has to be found among those that only lost their "
        "peers."
    ),
    usually_means=(
        "`killed by signal 9`: out of memory when Slurm or the kernel said so, else an administrator. Signal 11 or "
        "6: a crash in native code. `hung` in `dataloader.py`: storage; in your own code: look at the line. A NaN on "
        "one rank: bad rows, or a GPU that computes wrongly; on all ranks in one step: the learning rate. `could not "
        "begin`: the node has no Python environment, or cannot write the results folder. `lost with its node`: the "
        "node died or lost its network. `late`: the rank or its launcher did not start within `BRINGUP_START_S` (600 "
        "s): a slow filesystem under the Python environment, or a node that does not launch it. Incomplete on all "
        "ranks: no rank was behind the others, as when the network is down; or Slurm ended the step."
    ),
    next=(
        "grep -hE 'train.rank.(state|error)' {run}/raw/rank*.jsonl",
        "tail -n 20 {run}/raw/stacks/rank*.txt",
        "grep -h entered {run}/raw/stacks/rank*.json",
        "srun --nodes=1 --nodelist={node} dmesg -T | grep -iE 'out of memory|xid'",
    ),
    by_hand=(
        "In a stack the main thread is the last one, its innermost frame first. `kill -USR2 PID` writes the stacks "
        "of a healthy rank. Under NCCL torch's flight recorder writes the last collectives of every rank to "
        "`raw/flight/` when one times out. What NCCL's RAS service reported about the job is in "
        "`raw/nccl-*/ras.rank*.txt`. NCCL's messages were taken from public reports and were not seen here. The "
        "kernel log may need root."
    ),
)

WORLD = Guide(
    title="World size",
    page=DDP,
    action=Action.CONFIGURE,
    observes="How many ranks answered in an all-reduce of ones. Expected: nodes × ranks per node.",
    why="Ranks that train without each other all end with exit code 0 and a falling loss.",
    usually_means=(
        "Fewer: the ranks formed several groups, because they did not get the same `MASTER_ADDR` and `MASTER_PORT`. "
        "Incomplete: the run ended before it wrote `metrics.json`, or the ranks ran on other nodes than planned."
    ),
    next=(
        "grep -h train.rank.world_size {run}/raw/rank*.jsonl",
        "grep -E 'nnodes|nproc|rdzv' {run}/raw/launch.log",
    ),
)

TRANSPORT = Guide(
    title="Transport",
    page=DDP,
    action=Action.CONFIGURE,
    observes=(
        "Across nodes: what carried training's own bytes. Under NCCL it is the network that one process of every "
        "node names in `raw/nccl-<nodes>/` (`Using network`). Under gloo it is the interface whose counter grew by "
        "at least a byte per parameter and step (`transport` in `metrics.json`). Expected: what the profile names."
    ),
    why="Over the wrong network training is correct, and many times slower.",
    usually_means=(
        "Sockets or another interface where phase 3 passed: the environment of this job differs (`NCCL_IB_DISABLE`, "
        "`NCCL_IB_HCA`, `NCCL_SOCKET_IFNAME`, a container without `/dev/infiniband`), or a node has lost its NICs "
        "since. Two names joined by `+` come from different nodes. Incomplete: the profile declares no "
        "`train.transport`; a node left no log, because `NCCL_DEBUG` was set by hand; or `train.world_size` did not "
        "pass."
    ),
    next=(
        "grep -h 'Using network' {run}/raw/nccl-*/*.log",
        "grep -A1 '\"transport\"' {run}/metrics.json",
        "bash infrastructure-validation/scripts/nccl_scaling.sh --nodelist {nodes}",
    ),
)

SAMPLES = Guide(
    title="Samples",
    page=DDP,
    action=Action.CONFIGURE,
    observes="Rows that all ranks consumed, minus the number of different rows. Expected: 0.",
    why="When ranks read the same rows, N GPUs do the work of one, and the loss still falls.",
    usually_means=(
        "Ranks read the same part of the data. Or the data has fewer rows than steps × global batch, so reading "
        "started again. Incomplete: another number of rows was consumed than requested, or the run ended early."
    ),
    next=("grep -E 'sample_(count|distinct)' {run}/metrics.json",),
)

LOSS_AGREES = Guide(
    title="Loss agrees",
    page=DDP,
    action=Action.CONFIGURE,
    observes=(
        "The largest difference over all steps between the loss of this run and the loss of the one-GPU run of the "
        "same recipe. The profile gives the tolerance: 1e-5 nats in float32 on the local cluster, 0.02 in bfloat16. "
        "In bfloat16 the strategies round in different places. What one block hands to the next is float32 on one GPU "
        "and under DDP, and bfloat16 under FSDP and HSDP (`observed.residual_dtype`). 0.0016 was seen over 20 steps "
        "of the tiny model."
    ),
    why="A strategy only divides the work. The training must stay the same.",
    usually_means=(
        "Other weights at the start, gradients that are summed and not averaged, uneven token counts, other rows, or "
        "a GPU that computes wrongly. Incomplete: there was no reference, or the two runs differ in a setting that "
        "must be equal, and the verdict names it (`learning_rate 0.001 vs 0.01`)."
    ),
    next=(
        "sbatch training/slurm/run_1gpu.sbatch",
        _LOSSES,
        "ls -dt {run}/../run_1gpu-*",
    ),
    by_hand=(
        "The first command makes a reference; give it the options of this phase, then run this phase again. "
        "`BRINGUP_REFERENCE=training/results/run_1gpu-RUN` names one. `bringup compare` puts both runs side by "
        "side."
    ),
)

NORM_AGREES = Guide(
    title="Gradient norm agrees",
    page=DDP,
    action=Action.CONFIGURE,
    observes=(
        "The gradient norm before clipping, of every step, on the rank where it is highest: the largest relative "
        "difference from the one-GPU run, and its step. The profile allows 1e-5 on a CPU and 10 % with bfloat16 "
        "compute."
    ),
    why=(
        "Adam and clipping cancel a wrong scale of the gradients, so the loss does not show it. An example: torch "
        "2.7 and 2.8 summed gradients over gloo and did not average them, and every loss was equal to six digits."
    ),
    usually_means=(
        "With a loss that agrees: gradients of the wrong scale. A difference near the number of ranks minus one "
        "means a sum where a mean should be. With a loss that drifts, too: see *Loss agrees*. The norm of one rank "
        "alone is high in one step: a bit flipped on its device. Incomplete: as for *Loss agrees*."
    ),
    next=(
        "grep -A15 '\"grad_norm\"' {run}/metrics.json {run}/raw/reference.metrics.json",
        "grep -h refused {run}/raw/launch.log",
    ),
)

REPLICAS = Guide(
    title="Replicas",
    page=DDP,
    action=Action.REPLACE,
    observes=(
        "The sum of all parameters that each rank holds at the end of training: the largest difference inside a "
        "group of replicas. The groups are all ranks for DDP, and the columns of the mesh for HSDP. Expected: "
        "exactly 0."
    ),
    why=(
        "Replicas that drift apart are several models. Under HSDP no other gate shows that replicas started with "
        "different weights."
    ),
    usually_means=(
        "Parameters that the reducer does not see, a rank that started from other weights, a step that one rank "
        "skipped, or memory that changed a bit. Incomplete: the run ended early."
    ),
    next=("grep -A9 parameter_checksums {run}/metrics.json",),
    by_hand="The index is the rank. A GPU whose replica differs again in a second run should be taken out of service.",
)

STRATEGY = Guide(
    title="Strategy",
    page=FSDP,
    action=Action.CONFIGURE,
    observes=(
        "The kind of the model before the first step, and again after the last one, read from its wrapper and the "
        "placements of its parameters.\n"
        "\n"
        "| kind | placements of all parameters | and |\n"
        "| --- | --- | --- |\n"
        "| `single` | plain | nothing wraps the model, one rank |\n"
        "| `ddp` | plain | the wrapper is `DistributedDataParallel` |\n"
        "| `fsdp` | `(Shard(dim=0),)` | one mesh row with all ranks |\n"
        "| `hsdp` | `(Replicate(), Shard(dim=0))` | several mesh rows of several ranks |\n"
        "| `unknown` | anything else, or ranks that disagree | |\n"
    ).rstrip("\n")
    + ("\n\nThe program refuses to train when the kind is not the promised one. Most other gates are then incomplete."),
    why="DDP in place of FSDP has the same loss and the same exit code, and saves no memory.",
    usually_means=(
        "`ddp` in place of `fsdp`: accelerate dropped its FSDP plugin without a message (see [why](#why)), or a "
        "drill is still set in the environment. `single`: the program was not started by torchrun. `unknown`: some "
        "parameters were left out of the sharding. Incomplete: the run ended before it had built the model."
    ),
    next=(_REFUSED, OBSERVED, _ENVIRONMENT),
)

VARIANT = Guide(
    title="Variant",
    page=FSDP,
    action=Action.CONFIGURE,
    observes=(
        "How many settings of the variant differ from the resolved arguments; the verdict names them. Structure is "
        "read from the model, behaviour from the first optimizer step.\n"
        "\n"
        "| requested by | observed as |\n"
        "| --- | --- |\n"
        "| `--no-reshard-after-forward` | what the FSDP group of every decoder layer keeps (embedding and head "
        "follow another rule) |\n"
        "| `--reduce-dtype`, `--bf16` | the groups' policy; the data type that comes out of the first matrix product "
        "of a decoder layer; the loss, which is always float32 |\n"
        "| `--cpu-offload` | the groups' policy, and every parameter between steps in host memory |\n"
        "| `--shard-size` | the length of the rows of the mesh |\n"
        "| `--sync-each-batch` | after the first backward pass of several, whether a shard has a gradient (DDP: "
        "whether the wrapper's reducer was on in this pass) |\n"
        "| `--activation-checkpointing` | decoder layers that ran a second time in the first backward pass: all, or "
        "none |\n"
        "\n"
        "The program refuses before the first step, or right after it."
    ),
    why=(
        "A run with another precision or without recomputation is not the run that was requested, and its numbers "
        "mislead."
    ),
    usually_means=(
        "The installed torch, transformers and accelerate ignore the option together (an unknown key of "
        "`fsdp_config` is not an error), or an environment variable of `accelerate launch` overrides it. "
        "Incomplete: `train.strategy` did not pass, or the run ended before its first step was done."
    ),
    next=(_REFUSED, OBSERVED, _ENVIRONMENT),
)

SHARD = Guide(
    title="Shard size",
    page=FSDP,
    action=Action.CONFIGURE,
    observes=(
        "Elements on the rank that holds most × ranks per shard group ÷ elements of the whole model. 1 is perfect; "
        "the profile allows 1.1."
    ),
    why="A parameter that is not sharded takes the memory that sharding should save.",
    usually_means=(
        "Near the number of ranks: nothing was sharded, even if the name says so. A little above 1: the first "
        "dimension of some parameters is not a multiple of the ranks, so one rank holds more rows. That is normal "
        "for tiny models on many ranks. Raise the limit in the profile. Incomplete: `train.strategy` did not pass, "
        "or the run ended early."
    ),
    next=("grep -E '\"parameters(_local_max)?\"|placements' {run}/metrics.json",),
)

INSIDE = Guide(
    title="Shard groups inside a node",
    page=_ACROSS,
    action=Action.CONFIGURE,
    observes=(
        "The rows of the mesh whose ranks are on more hosts than the shard group needs, by the names that they gave "
        "inside the communicator. A group needs one host, or with `--shard-size` as many as it fills. Expected: 0. "
        "The program checks the same before its first step, and refuses. `train.variant` sees a row of another size "
        "than requested."
    ),
    why=(
        "HSDP keeps the heavy traffic on NVLink. A shard group over two nodes sends it over the network, and still "
        "trains rightly."
    ),
    usually_means=(
        "Ranks are not consecutive per node: a launcher that places ranks round robin, a c10d rendezvous that "
        "numbers nodes as they arrive, or different numbers of ranks per node. Incomplete: `train.strategy` did not "
        "pass, or the run ended early."
    ),
    next=(
        "grep -A25 '\"observed\"' {run}/metrics.json | grep -A12 -E 'mesh|hosts'",
        _REFUSED,
        "scontrol show job {job} | grep -E 'NodeList|NumNodes|TRES'",
    ),
)
