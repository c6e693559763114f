"""What a person has to know about the gates of speed and memory of trainings."""

from __future__ import annotations

from bringup.checks.training.guides import DDP, FSDP, OBSERVED, ONE
from bringup.plan.guide import Guide
from bringup.records import Action

STALL = Guide(
    title="Stall",
    page=ONE,
    action=Action.CONFIGURE,
    observes=(
        "`train.stall`: the seconds that the longest step took beyond the median step, of the steps after the "
        "warm-up. A step of less than twice the median counts as 0. A checkpoint is between two steps and does not "
        "count. `train.rank.stall`: the longest time that the rank itself stood still in one of these steps. There "
        "are two kinds of evidence. A thread of each rank beats four times a second. A rank that waits for another "
        "one keeps beating, because torch gives the interpreter lock back while it waits. So a gap between two beats "
        "belongs to the rank itself. And the rank times its own work (see the straggler): a part of it that takes "
        "seconds longer than its median counts too."
    ),
    why=(
        "In a synchronous training all ranks wait for the one that stands still, and the median step hides it. A "
        "node that stands still for seconds now and then costs hours in a long training."
    ),
    usually_means=(
        "A rank fails: the verdict names the step and what stood still. The process used no CPU: somebody stopped it "
        "(a debugger, a checkpointing tool, a frozen cgroup), the node froze or swapped, or it got no core. It used "
        "CPU: one call kept the interpreter for itself. `fetch`: storage. `forward` or `optimizer`: the device. Only "
        "the job fails: no rank stood still in what it does itself. Then it was the network, a device in the "
        "backward pass, or a virtual machine whose clock stood still too. Ranks that only waited pass. Incomplete: "
        "the run did not end, or fewer than 3 steps are left after the warm-up."
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
        "Per rank: the time of its own work in a step, over the median of all ranks; of two ranks, over the "
        "other's. Own work is where a rank waits for nobody: it gets its rows, computes the forward pass inside "
        "four blocks of the model, and updates the parameters. Less than a millisecond more is not a slowdown. The "
        "profile gives the limit; `generic` allows 1.25."
    ),
    why=(
        "A synchronous step takes all ranks equally long, whoever is late. So step times name nobody, and one slow "
        "GPU costs the whole job."
    ),
    usually_means=(
        "The verdict names the part. `forward` or `optimizer`: a slow device (clocks, power cap, heat, another job "
        "on the GPU); on a CPU, a core that is shared. `fetch`: storage, or too few data-loader workers, on that "
        "node. The backward pass is not timed apart: it is computed by the same device. Incomplete: no own work "
        "was timed, or the run ended early."
    ),
    next=(
        "grep -A12 rank_times_s {run}/metrics.json",
        "srun --nodes=1 --nodelist={node} nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE",
        "bash infrastructure-validation/scripts/smoke_test.sh --nodelist {nodes}",
    ),
    by_hand="In `rank_times_s` the index is the rank. The last command compares the matrix products of all GPUs.",
)

MFU = Guide(
    title="MFU of one GPU",
    page="03-training-single-node",
    action=Action.WATCH,
    observes=(
        "FLOPs of the model per token, times tokens/s, as a share of the GPU's dense bfloat16 peak, in the steady "
        "window of the one-GPU run. The profile gives the floor. Steps below 100 ms are too little work to tell, and "
        "the gate is incomplete; so it is where no peak of the GPU or no formula for the model is known. It stops no "
        "later phase."
    ),
    why="A GPU that is slow alone is slow in every strategy, and `train.scaling` compares with it.",
    usually_means=(
        "A power cap, heat, or another program on the GPU; rows that arrive late; recomputation where memory does "
        "not need it; a peak that is another card's. [What to do, in order](reading-the-numbers.md#mfu)."
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
        "Tokens/s per rank in the steady window, over those of the one-GPU run. The profile gives the floor; "
        "`generic` requires 0.9. Where a perfect division of the one-GPU step would take less than 100 ms, as with "
        "the default model on GPUs, there is too little work to tell, and the gate is incomplete. It stops no "
        "later phase."
    ),
    why="It is what more GPUs are bought for.",
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
        "its gradients are dropped. They are counted from the tensors (a view counts the buffer that it keeps "
        "alive), on a CPU as on a GPU. The rank that holds most, divided by the prediction for this strategy: 16 "
        "bytes per parameter / ranks per shard group, padding included. Expected: 0.85 to 1.15; healthy runs give "
        "1.000."
    ),
    why="It is the part of the memory that a strategy divides, and it decides which models fit.",
    usually_means=(
        "More: something is held whole although the parameters are sharded: an optimizer that was made before the "
        "parameters were cut, a copy of the weights, or a model that only looks sharded. A ratio of the ranks per "
        "shard group: nothing was sharded. Less: gradients or moments of another type than float32, frozen "
        "parameters, an optimizer with less state. Incomplete: there is no formula for this model, and the verdict "
        "names its type."
    ),
    next=("grep -A8 '\"memory_check\"' {run}/metrics.json", OBSERVED),
    by_hand="`bringup advise --model MODEL --nodes N --gpus-per-node G` shows what the prediction consists of.",
)

PEAK = Guide(
    title="Memory peak",
    page=FSDP,
    action=Action.CONFIGURE,
    observes=(
        "PyTorch's `max_memory_allocated` of the rank with the highest, over the predicted peak: states, gathered "
        "copies, gradients on their way, activations, logits. It is judged on GPUs only. Below 1 GiB no peak is "
        "told from another. With `--recipe fast` fused kernels keep less than the plain operations that are "
        "predicted, so that only more counts. Expected: 0.85 to 1.15. The prediction is compared with torch's own "
        "accounting on fake tensors in the tests; on a GPU it was not tried."
    ),
    why=(
        "A peak that was not predicted is the model that does not fit next time. It does not make this run wrong, "
        "so it only warns."
    ),
    usually_means=(
        "More: an attention that keeps its scores, a mask where none is needed, activations that are not "
        "recomputed, a copy of the logits; or fragmentation, when `device_reserved_gib` is much larger than "
        "`device_allocated_gib`. Less: fused kernels. When `train.memory.states` passes, sharding is not the "
        "reason. Incomplete: there is no GPU, or no formula for this model."
    ),
    next=("grep -A8 -E '\"memory(_check)?\"' {run}/metrics.json",),
    by_hand=(
        "`python training/src/predict.py --help` predicts the peak of a model, a strategy and a sequence length, "
        "tensor by tensor."
    ),
)
