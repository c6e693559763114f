"""What a person has to know about the gates of speed and memory of trainings."""

from __future__ import annotations

from bringup.checks.training.guides import DDP, FSDP, OBSERVED, SINGLE_GPU
from bringup.plan.guide import Guide
from bringup.records import Action

STALL = Guide(
    title="Stall",
    page=SINGLE_GPU,
    action=Action.CONFIGURE,
    observes=(
        "`train.stall`: the seconds that the longest step took beyond the median step, of the steps after the "
        "warm-up. A step of less than twice the median counts as 0. A checkpoint is between two steps and does not "
        "count. `train.rank.stall`: the longest time that the rank itself stopped in one of these steps. There are "
        "two kinds of evidence. A thread of each rank beats four times a second. A rank that waits for another one "
        "keeps beating, because torch releases the interpreter lock while it waits. So a gap between two beats "
        "belongs to the rank itself. And the rank times its own work (see the straggler): a part of it that takes "
        "seconds longer than its median counts too."
    ),
    why=(
        "In a synchronous training all ranks wait for the one that stops, and the median step hides it. A node that "
        "sometimes stops for seconds costs hours in a long training."
    ),
    usually_means=(
        "A rank fails: the verdict names the step and what stood still. The process used no CPU: it was stopped (a "
        "debugger, a checkpointing tool, a frozen cgroup), the node froze or swapped, or it got no core. It used "
        "CPU: one call held the interpreter lock. `fetch`: storage. `forward` or `optimizer`: the device. Only the "
        "job fails: no rank stopped in its own work. The cause is the network, a device in the backward pass, or a "
        "virtual machine whose clock stopped too. Ranks that only waited pass. Incomplete: the run did not end, or "
        "fewer than 3 steps are left after the warm-up."
    ),
    next=(
        "grep -A30 standstills {run}/metrics.json",
        "srun --nodes=1 --nodelist={node} dmesg -T | tail -n 40",
        "bash infrastructure-validation/scripts/nccl_run_with_monitoring.sh --nodelist {nodes}",
    ),
    by_hand="In `standstills` the index is the rank.",
)

STRAGGLER = Guide(
    title="Straggler",
    page=DDP,
    action=Action.REBOOT,
    observes=(
        "Per rank: the time of its own work in a step, over the median of all ranks; of two ranks, over the other's. "
        "Own work is where a rank does not wait for others: it gets its rows, computes the forward pass inside four "
        "blocks of the model, and updates the parameters. A difference of less than a millisecond does not count. "
        "The profile gives the limit; `generic` allows 1.25."
    ),
    why=(
        "A synchronous step takes equally long on all ranks, whichever rank is late. So step times name no rank, and "
        "one slow GPU slows the whole job."
    ),
    usually_means=(
        "The verdict names the part. `forward` or `optimizer`: a slow device (clocks, power cap, heat, another job "
        "on the GPU); on a CPU, a core that is shared. `fetch`: storage, or too few data-loader workers, on that "
        "node. The backward pass is not timed: it contains communication, and the same device computes it. "
        "Incomplete: no own work was timed, or the run ended early."
    ),
    next=(
        "grep -A12 rank_times_s {run}/metrics.json",
        "srun --nodes=1 --nodelist={node} nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE",
        "bash infrastructure-validation/scripts/smoke_test.sh --nodelist {nodes}",
    ),
    by_hand="In `rank_times_s` the index is the rank. The last command compares the matrix products of all GPUs.",
)

MONITOR = Guide(
    title="The sampler beside a training",
    page=SINGLE_GPU,
    action=Action.WATCH,
    observes=(
        "A sampler on each node reads CPU, memory, network, RDMA ports and GPUs while the training runs: once a second "
        "up to 64 nodes, less often on more. `raw/monitor.csv` holds the samples; "
        "[its columns](03-collectives.md#nccl.monitor.coverage) are those of the collectives. "
        "`train.monitor.coverage`: the samples of the node against the seconds that the step took, at least 0.8. "
        "`train.monitor.overhead`: CPU time of the sampler as a share of one core. `train.monitor.slowdown`: what the "
        "hardware of the node's GPUs did to protect itself (heat, power brake), over all samples. A lower clock "
        "because of the power cap does not count.\n"
        "\n"
        "`steps_unix_s` in `metrics.json` says when each step ended, and `window_unix_s` when the measured steps began "
        "and ended on each node, by the node's own clock. So samples can be joined with steps. `observations.json` has "
        "for each GPU, in the measured steps: mean utilisation and power, highest memory and temperature, median and "
        "lowest clock, bytes over NVLink and PCIe (`monitor.gpu.…`). They are not judged."
    ),
    why="A GPU that slows down in the middle of a training is late in every step, and all others wait for it.",
    usually_means=(
        "A slowdown: cooling, a fan, or the power supply of that node. Fewer samples: the sampler started late or "
        "ended early, or the node was too loaded to run it. Too much overhead: asking the GPUs costs CPU time here. "
        "Incomplete: the node sent no sample, or NVML does not say what its GPUs do."
    ),
    next=(
        "cat {run}/raw/monitor.err",
        "grep '#gpu' {run}/raw/monitor.csv | tail",
        "srun --nodes=1 --nodelist={node} nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
    ),
)

CLOCK = Guide(
    title="Clocks of the GPUs while they train",
    page=DDP,
    action=Action.WATCH,
    observes=(
        "The median clock of each GPU over the samples of the measured steps in which it was at least half busy. The "
        "slowest GPU of the node, over the median of all GPUs of the run. The profile gives the limit; `generic` "
        "allows 0.85. It warns only: whether a rank was late is judged by `train.straggler`."
    ),
    why="GPUs of one model differ by a few per cent under load. One that runs far lower has a cap or a fault.",
    usually_means=(
        "A lower power cap or a clock that was locked (`nvidia-smi -q -d CLOCK,POWER`), heat, or a weak power supply. "
        "`reasons` in the samples is NVML's own bit mask: 0x4 is the power cap. Incomplete: a GPU was busy in fewer "
        "than 3 samples of the measured steps. Steps of the default model are too short on a GPU; give "
        "[a real workload](../training/README.md#run)."
    ),
    next=(
        "grep '#gpu' {run}/raw/monitor.csv | grep {node} | tail -n 16",
        "srun --nodes=1 --nodelist={node} nvidia-smi -q -d CLOCK,POWER,PERFORMANCE",
        "sbatch --nodes={node_count} --nodelist={nodes} infrastructure-validation/scripts/node_sweep.sbatch",
    ),
)

NEAR_GPU = Guide(
    title="CPUs of a rank near its GPU",
    page=SINGLE_GPU,
    action=Action.CONFIGURE,
    observes=(
        "When it starts, each rank compares the CPUs that it may run on with the CPUs of the NUMA node of its GPU. The "
        "value is the share that belongs there. Before that, a rank whose CPUs lie at several nodes binds itself to "
        "those at the node of its GPU (`--numa-binding auto`, the default). The facts `train.rank.cpus`, "
        "`train.rank.gpu_node` and `train.rank.numa_bound` have the numbers, and why a rank did not bind itself. "
        "A miss is a warning. `smoke.cpu.near_gpu` judges tasks that request one GPU each."
    ),
    why=(
        "From the wrong socket, every launch of a kernel and every copy between host and GPU crosses the link between "
        "the sockets."
    ),
    usually_means=(
        "0: Slurm gave the job no CPU at the node of this GPU. Between 0 and 1: `--numa-binding off`, or the kernel "
        "refused the binding. *Incomplete*: the firmware does not report the NUMA node of the GPU, or it is not known "
        "which GPU the rank computes on."
    ),
    next=(
        "grep -hE 'train.cpu.near_gpu|train.rank.(cpus|gpu_node|numa_bound)' {run}/raw/rank*.jsonl",
        "srun --nodes=1 --nodelist={node} nvidia-smi topo -m",
    ),
    by_hand="Request all CPUs of the node (`--exclusive`), and leave `--numa-binding` at its default.",
)

MFU = Guide(
    title="MFU of one GPU",
    page="04-training-single-gpu",
    action=Action.WATCH,
    observes=(
        "FLOPs of the model per token, times tokens/s, as a share of the GPU's dense bfloat16 peak, in the steady "
        "window of the one-GPU run. The profile gives the floor. The gate is incomplete when steps are shorter than "
        "100 ms (too little work to judge) or when the peak of the GPU is not known. It is incomplete for a model that "
        "is not covered, such as a mixture of experts. It stops no later phase."
    ),
    why="A GPU that is slow alone is slow in every strategy, and `train.scaling` compares with it.",
    usually_means=(
        "A power cap, heat, or another program on the GPU; rows that arrive late; recomputation that memory does not "
        "need; the peak of another card. [What to do, in order](reading-the-numbers.md#mfu)."
    ),
    next=(
        "grep -hE 'mfu|peak_source|tokens_per_s' {run}/metrics.json",
        "grep -h sweep.gpu.load.tflops -r validation/results/node_sweep/",
        "srun --nodes=1 --nodelist={node} --gpus-per-node={gpus} nvidia-smi -q -d PERFORMANCE,POWER,CLOCK",
    ),
)

SCALING = Guide(
    title="Scaling",
    page=DDP,
    action=Action.CONFIGURE,
    observes=(
        "Tokens/s per rank in the steady window, divided by those of the one-GPU run. The profile gives the floor; "
        "`generic` requires 0.9. If the one-GPU step divided by the ranks is shorter than 100 ms, as with the tiny "
        "model on GPUs, there is too little work to judge, and the gate is incomplete. It stops no later phase."
    ),
    why="Scaling is the reason to buy more GPUs.",
    usually_means=(
        "Low on one node: data loading, too few CPU cores per rank, a slow GPU (`step_time_s.slowest_rank`), or "
        "too little work per rank. Low only across nodes: the fabric; check that phase 3 passed on these nodes "
        "first. Incomplete: no comparable reference, too little work, or no step after the warm-up. Give all "
        "phases [a real workload](../training/README.md#run)."
    ),
    next=(
        "grep -A8 step_time_s {run}/metrics.json",
        "bash infrastructure-validation/scripts/nccl_scaling.sh --nodelist {nodes}",
        (
            "sbatch --nodes={node_count} --nodelist={nodes} training/slurm/run_ddp_2node.sbatch --global-batch 256 "
            "--dataloader-workers 4"
        ),
    ),
    by_hand=(
        "Compare `p50` with `p95`. The last command is for two nodes or more, and its reference needs the same options."
    ),
)

STATES = Guide(
    title="Memory states",
    page=FSDP,
    action=Action.CONFIGURE,
    observes=(
        "The bytes of parameters, gradients and optimizer tensors on a rank after the first optimizer step, before "
        "its gradients are freed. They are counted from the tensors (a view counts the buffer that it keeps alive), "
        "on a CPU as on a GPU. The rank that holds most, divided by the prediction for this strategy: 16 bytes per "
        "parameter / ranks per shard group, padding included. Expected: 0.85 to 1.15; healthy runs give 1.000."
    ),
    why="A strategy divides this part of the memory. It decides which models fit.",
    usually_means=(
        "More: something is not sharded although the parameters are: an optimizer that was made before the sharding, "
        "a copy of the weights, or a model that only looks sharded. A ratio of the ranks per shard group: nothing "
        "was sharded. Less: gradients or moments of another type than float32, frozen parameters, an optimizer with "
        "less state. Incomplete: the run is older than the prediction."
    ),
    next=("grep -A8 '\"memory_check\"' {run}/metrics.json", OBSERVED),
    by_hand="`bringup advise --model MODEL --nodes N --gpus-per-node G` shows what the prediction consists of.",
)

PEAK = Guide(
    title="Memory peak",
    page=FSDP,
    action=Action.CONFIGURE,
    observes=(
        "PyTorch's `max_memory_allocated` on the rank where it is highest, divided by the predicted peak: states, "
        "gathered copies, gradients that are being reduced, activations, logits. It follows from the model that was "
        "built: from the shapes of its parameters, and from what its blocks keep for the backward pass, which is "
        "counted before the training. It is judged on GPUs only. Below 1 GiB peaks cannot be compared, and the gate is "
        "incomplete. A counter of 0, or below what is held at once in every step (`peak_least_bytes`: the states), did "
        "not count this run, and the gate is incomplete. "
        "With `--recipe fast` the peak is normally lower than predicted, so only a "
        "higher one warns. The first step, which is not compiled, is included. Expected: 0.85 to 1.15. The tests "
        "compare the prediction with torch's own accounting on fake tensors. It was not tried on a GPU."
    ),
    why=(
        "When the prediction is wrong here, it is wrong for the next model too, which may not fit. This run is "
        "correct, so it only warns."
    ),
    usually_means=(
        "More: an attention kernel that stores its scores, a mask where none is needed, activations that are not "
        "recomputed, a copy of the logits; or fragmentation, when `device_reserved_gib` is much larger than "
        "`device_allocated_gib`. Less: fused kernels. When `train.memory.states` passes, sharding is not the reason. "
        "Incomplete: there is no GPU, the counter cannot be right, both numbers are below 1 GiB, or the activations of "
        "this model are not covered (a mixture of experts, say): the verdict says which."
    ),
    next=("grep -A8 -E '\"memory(_check)?\"' {run}/metrics.json",),
    by_hand=(
        "`python training/src/predict.py --help` predicts the peak of a model, a strategy and a sequence length, "
        "tensor by tensor."
    ),
)

HEADROOM = Guide(
    title="Room on the card",
    page=SINGLE_GPU,
    action=Action.CONFIGURE,
    observes=(
        "`train.memory.headroom`: what torch had not reserved of the smallest card at the peak, as a share of its "
        "memory. CUDA's context and NCCL's buffers, 1 to 3 GiB, are not reserved by torch and need that room. "
        "`train.memory.retries`: allocations, over all ranks, that found the card full, so that torch gave its cache "
        "back and tried again (`num_alloc_retries` of `torch.cuda.memory_stats`). Both are judged on GPUs only."
    ),
    why="A training that fills the card fails on a later step, and each retry waits for the device.",
    usually_means=(
        "The workload is too large for the card, or memory is fragmented: compare `device_reserved_gib` with "
        "`device_allocated_gib`. Another process on the card shows as retries with room left. Incomplete: no GPU was "
        "used, or the profile gives no number."
    ),
    next=("grep -A9 '\"memory\"' {run}/metrics.json",),
    by_hand="`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` reduces fragmentation.",
)

TAIL = Guide(
    title="Slow steps",
    page=SINGLE_GPU,
    action=Action.WATCH,
    observes=(
        "`step_time_s`: the 95th percentile over the median, over all ranks and steps after the warm-up. Fewer than 20 "
        "steps, or a median below 100 ms, is too little to tell, and the gate is incomplete. Steps that take seconds "
        "longer are judged by `train.stall`."
    ),
    why="A few late steps cost a large run more than its median shows: in each step all ranks wait for the slowest.",
    usually_means=(
        "Rows that arrive late, other jobs on the same storage or fabric, a GPU that is throttled now and then, or "
        "daemons on the node."
    ),
    next=(
        "grep -A8 step_time_s {run}/metrics.json",
        "grep -A30 standstills {run}/metrics.json",
    ),
)

TOKENS = Guide(
    title="Tokens per second",
    page=SINGLE_GPU,
    action=Action.WATCH,
    observes=(
        "Tokens/s of one rank in the steady window, without padding. It is judged only where a profile or the site "
        "declares a floor for its own workload, because it depends on the model, the batch and the options."
    ),
    why="It is the number that a training is planned with.",
    usually_means="On one GPU, the causes of `train.mfu`; on several, those of `train.scaling`.",
    next=(
        "grep -hE 'tokens_per_s|step_time_s' {run}/metrics.json",
        "bringup compare {run}",
    ),
)
