"""What a person has to know about the gates of collectives and of pairs of nodes. Data only."""

from __future__ import annotations

from bringup.plan.guide import Guide
from bringup.records import Action

_PAGE = "03-collectives"
_ALONE = "bash infrastructure-validation/scripts/nccl_scaling.sh --nodelist {node}"

STEP = Guide(
    title="The step of the collectives",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "The exit code of the step at this number of nodes, as `srun` gave it. The verdict also names the task that "
        "`srun` reported first. The first step has one task and one GPU (`1-gpu`): the library loads, a "
        "communicator of one rank is made, and all_reduce, all_gather, reduce_scatter, all_to_all and broadcast "
        "return correct values, at a small and at a large size. Where a node has one GPU, `1-node` is that step."
    ),
    why=("A program that failed leaves only part of its numbers. Read nothing else at this scale before this passes."),
    usually_means=(
        "Not 0: a rank raised an error, was killed, did not start within `BRINGUP_START_S` (600 s; the ranks that "
        "waited name it), or waited longer for the others than `BRINGUP_HANG_S` (120 s; `nccl.rank.finished` names "
        "the one that they waited for). It already fails on one GPU: NCCL does not fit the driver, or the GPU does "
        "not work; links are not involved. It passes on one GPU and fails on one node: the path between the GPUs "
        "(NVLink, PCIe, shared memory). Incomplete: the allocation was not granted, so the step never started."
    ),
    next=(
        "tail -n 50 {run}/raw/collectives-*.err",
        "grep -rhE 'WARN|NET/' {run}/raw --include='*.log' | sort | uniq -c",
    ),
)

RANK = Guide(
    title="A rank that hangs",
    page=_PAGE,
    action=Action.RESET,
    observes=(
        "How each rank ended. Rank 0 reports `finished` for all ranks when all have taken part in the last "
        "collective. A collective may wait `BRINGUP_HANG_S` (120 s), not counting `BRINGUP_START_S`, the wait at "
        "the start. After half of it without progress, a rank says how many collectives it has entered and left, in "
        "which one it is (`in all_to_all@8KiB`) and in which line. The stacks of all its threads are in "
        "`raw/collectives-*.err`, behind the number of the rank. The last collectives that torch's flight recorder "
        "kept are in `raw/nccl-*/flight.rank*.json`; a note compares them, and no gate judges them. NCCL's RAS "
        "service (2.24 and newer) is asked on the first and on the last node, and a note repeats what it said "
        "(`raw/nccl-*/ras.rank*.txt`). RAS alone proves nothing: it has reported hung jobs as healthy. The rank "
        "that has entered fewer than the others is `hung`: the others wait for it. A rank that reported nothing "
        "while most others did is `silent`: it is stopped, or its node is frozen or lost. The ranks that waited are "
        "incomplete, and their verdict names the culprit."
    ),
    why=(
        "When one rank hangs, all others wait and then fail. The exit code and the launcher name those that waited, "
        "and not the cause."
    ),
    usually_means=(
        "`hung`: the verdict names the line where it is: a driver call, a page of memory on a dead filesystem. "
        "`silent`: the process was stopped, or the node froze. Incomplete on all ranks with `no rank was behind the "
        "others`: all had entered the same collective, as when a link, a switch or a GPU is dead. Incomplete with an "
        "exit code: a rank ended in the middle; `nccl.step` names it."
    ),
    next=(
        "grep -hE 'nccl.rank.(entered|left)' {run}/raw/collectives-*.jsonl",
        "grep -hE -A6 'most recent call first' {run}/raw/collectives-*.err",
        "srun --nodes=1 --nodelist={node} bash -c 'dmesg -T | tail -n 40; ps -eo pid,stat,wchan:30,args | grep python'",
    ),
    by_hand="A process in state T is stopped; one in state D waits in the kernel.",
)

COMMUNICATOR = Guide(
    title="One communicator over all ranks",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "What the members of the communicator exchanged. `nccl.ranks` counts the different (host, process, device). "
        "`nccl.hosts` counts the hosts among them. `nccl.devices` counts the different GPUs, by UUID; on "
        "placeholders, the device that the rank would take. Where nccl-tests run as well, all three are also counted "
        "from the list that the binary prints."
    ),
    why=(
        "Tasks that did not find each other form several small communicators. Each of them works, and is fast "
        "because it is small. So speed is not judged then."
    ),
    usually_means=(
        "Fewer ranks or hosts: several communicators instead of one, or tasks that were placed on fewer nodes. With "
        "nccl-tests: the binary was built without MPI, so every rank is its own communicator. Fewer GPUs than ranks: "
        "a node shows fewer GPUs than were requested and two ranks take the same one, or a wrapper sets "
        "`CUDA_VISIBLE_DEVICES` to the same value for all ranks. The verdict names GPU and host."
    ),
    next=(
        "grep -hE 'nccl.(ranks|hosts|devices|members|backend)' {run}/raw/collectives-*.jsonl",
        "srun --label --nodes={node_count} --nodelist={nodes} --ntasks-per-node={gpus} hostname",
        "srun --label --nodes={node_count} --nodelist={nodes} --ntasks-per-node=1 bash -c 'ls /dev/nvidia[0-9]*'",
    ),
)

WRONG_VALUES = Guide(
    title="Wrong values",
    page=_PAGE,
    action=Action.REPLACE,
    observes=(
        "Elements that differ from the known result, over all ranks, sizes and collectives. The test values are "
        "small whole numbers. Sums of them are exact, so any difference is an error. `nccl.rank.wrong_values` counts "
        "them for each rank: in all_gather, all_to_all, broadcast and sendrecv each part of a result comes from one "
        "rank. A rank is named when its values are wrong on all other ranks, or when it gets wrong values from all "
        "of them. When only sums are wrong, and on every rank, no rank can be named, and that gate is incomplete. "
        "Results of nccl-tests that were not checked (`-c 0`) leave the gate incomplete."
    ),
    why=(
        "Wrong values train a wrong model, and no loss curve shows when that started. So values are judged before "
        "speed."
    ),
    usually_means=(
        "Memory or a link that corrupts data, or a broken NCCL or network plugin. Two ranks that are named "
        "together share the link or the switch between them."
    ),
    next=(
        _ALONE,
        "NCCL_ALGO=Ring NCCL_PROTO=Simple bash infrastructure-validation/scripts/nccl_scaling.sh --nodelist {nodes}",
        "srun --nodes=1 --nodelist={node} nvidia-smi -q -d ECC",
    ),
)

SLOW_RANK = Guide(
    title="A slow rank",
    page=_PAGE,
    action=Action.REBOOT,
    observes=(
        "The shortest of 9 copies of the largest buffer inside the own memory of each rank, as a multiple of the "
        "median rank's. It waits for no other rank."
    ),
    why=(
        "A collective is as fast as its slowest rank, and its time does not say which rank that was. This copy "
        "does. It is a fault of the GPU or of the host, not of the network."
    ),
    usually_means="A throttled or power-capped GPU, another process on it, or ECC errors.",
    next=(
        "grep -h local_time {run}/raw/collectives-*.jsonl",
        "srun --nodes=1 --nodelist={node} nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,POWER",
    ),
)

STALL = Guide(
    title="Stall of a collective",
    page=_PAGE,
    action=Action.REPLACE,
    observes=(
        "`nccl.stall`: the seconds that the longest of 7 repetitions took beyond the median of its size, with the "
        "wait for the other ranks before it. Less than twice the median counts as 0. The verdict names collective, "
        "size and repetition. `nccl.rank.stall`: the longest time that the process of the rank itself stood still in "
        "a repetition. A thread of each rank beats four times a second. A rank that waits for another one keeps "
        "beating, because torch releases the interpreter lock while it waits. So a gap between two beats belongs to "
        "the rank itself."
    ),
    why=(
        "Bandwidth is that of the median repetition, which hides a pause. In a training all ranks wait for the one "
        "that pauses."
    ),
    usually_means=(
        "A rank fails and used no CPU: the process was stopped, its node froze or swapped, or it got no core. It "
        "used CPU: one call held the interpreter lock. Only the number of nodes fails: no rank stood still itself, "
        "so it was the network or a device: a link that went down and came back, a switch that was rebooted, a GPU "
        "that was reset. Ranks that only waited pass."
    ),
    next=(
        "grep -hE 'nccl.(rank.)?stall' {run}/raw/collectives-*.jsonl",
        "srun --nodes=1 --nodelist={node} dmesg -T | tail -n 40",
        _ALONE,
    ),
)

TRANSPORT = Guide(
    title="What carries the bytes between nodes",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "With NCCL: its own log, all ranks together. `nccl.transport` is what it names as its network (`Using "
        "network`) and what its channels between hosts go over, as one of the "
        "[classes](../validation/README.md#transports) that a profile names (`rdma-verbs`, `efa`, `slingshot`, "
        "`gcp`, `nvlink`, `sockets`). For libfabric the provider decides the class. `nccl.gdr` is the share of "
        "channels between hosts that end in `GDRDMA`. `nccl.nics` counts the NICs of the host with the fewest. "
        "`nccl.nvls` says whether reductions ran inside the NVLink switches. With gloo: `nccl.transport` is the "
        "interface that carried at least the bytes that had to leave each host. `nccl.rdma.bypassed` needs no "
        "profile. It fails when a socket carried bytes between hosts and one of them has an RDMA device with an "
        "active port (`/sys/class/infiniband`)."
    ),
    why=(
        "When a NIC, a driver or a plugin is missing, NCCL uses TCP sockets without an error. All results are right, "
        "and training across nodes is 10 to 100 times slower."
    ),
    usually_means=(
        "`sockets` on a cluster with RDMA NICs: the NICs are down; the driver, `libibverbs` or the network plugin is "
        "missing on a node; or `NCCL_IB_DISABLE` or a wrong `NCCL_IB_HCA` is set somewhere. With `Libfabric` in the "
        "log, libfabric took its provider `tcp`, because it did not find the devices of the right provider. "
        "`nccl.gdr` below 1: `nvidia_peermem` is not loaded, or a GPU and its NIC are too far apart. Fewer NICs: a "
        "port is down, or `NCCL_IB_HCA` names fewer. Incomplete: the profile declares no value, the log has no such "
        "line, the log of a rank is missing, or the network is a plugin that is not known (`unknown:NAME`). "
        "`NCCL_DEBUG=WARN` in the environment silences the log. Where there is no RDMA NIC (`nccl.gdr`, `nccl.nics`) "
        "or no NVSwitch (`nccl.nvls`), declare the gate `not_applicable`."
    ),
    next=(
        "grep -rhE 'NET/|Using network|GDRDMA' {run}/raw --include='*.log' | sort | uniq -c | sort -rn | head",
        "srun --label --nodes={node_count} --nodelist={nodes} --ntasks-per-node=1 "
        "bash -c 'grep -H . /sys/class/infiniband/*/ports/*/state'",
        "env | grep NCCL_",
    ),
)

BANDWIDTH = Guide(
    title="Bandwidth of collectives",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "The bus bandwidth of all_reduce, all_gather, reduce_scatter and all_to_all, a gate for each, at the one "
        "size that the profile names (`at: 8GiB`). It is the median of 7 repetitions after 2 for warm-up, each "
        "timed by the slowest rank. Broadcast and sendrecv are measured and have no such gate. The definition is "
        "in [reading the numbers](reading-the-numbers.md). Measured sizes: 8KiB, 1MiB, 16MiB, 64MiB, 256MiB, 1GiB "
        "and 8GiB on GPUs; 8KiB, 1MiB, 4MiB and 16MiB on CPUs. More than 2,048 ranks cannot share 8 KiB; each of "
        "them moves one element then, and the size is named after the bytes that were moved.\n"
        "\n"
        "With `NCCL_TESTS_BIN=FOLDER` the binaries of nccl-tests (built with MPI) run as well, from 8 KiB to 8 "
        "GiB. The same gates judge their numbers, and the worse of the two counts. On one GPU they run at 8 KiB "
        "and 1 GiB, and only their results are read: the bandwidth that they print there is 0.00, or that of a "
        "copy. Their average over sizes is never used. Their JSON holds the whole environment with its tokens; it "
        "is taken out of the file as soon as the binary has ended."
    ),
    why=(
        "Gradients and parameters cross the links in every step. A cluster that reaches a third of its bandwidth "
        "trains at a fraction of its speed, and nothing else fails."
    ),
    usually_means=(
        "Too low on one node: NVLink or NVSwitch trouble, a throttled GPU, or `NCCL_*` left in the environment. "
        "Too low only across nodes: some NICs are down, no GPUDirect RDMA, congestion, or a wrong topology. Only "
        "all_to_all too low: it uses all paths between the nodes at once, so a fabric with too few uplinks shows "
        "there first. Incomplete: the profile declares no number for this collective or names a size that was not "
        "measured, or rank count, hosts or values did not pass."
    ),
    next=(
        "grep -hE 'busbw|time_spread' {run}/raw/collectives-*.jsonl",
        "srun --label --nodes={node_count} --nodelist={nodes} --ntasks-per-node=1 nvidia-smi topo -m",
        "sbatch --nodes={node_count} --nodelist={nodes} infrastructure-validation/scripts/nccl_pairwise.sbatch",
    ),
    by_hand="The last command names the slow node or the slow link.",
)

CURVE = Guide(
    title="Latency, and the shape of the curve",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "The curve of bus bandwidth over size, for each collective at each number of nodes; the worst collective "
        "is named. `nccl.curve.dip` is the lowest ratio of a size to the slower of its two neighbours. "
        "`nccl.curve.plateau` is the largest size against the fastest. `nccl.all_reduce.latency` is the time of an "
        "all_reduce at the small size that the profile names. No average over sizes is taken: it depends on which "
        "sizes were measured."
    ),
    why=(
        "A profile has a number for one size. A training uses many sizes, and a curve with a hole is slow at one "
        "of them. Latency decides how small a message may be before the links idle."
    ),
    usually_means=(
        "A dip: NCCL changes its algorithm or protocol at a wrong size (`NCCL_ALGO`, `NCCL_PROTO` or a tuner plugin "
        "left in the environment), or a rail that comes into use there. A curve that falls at the end: buffers or "
        "the host's memory are too small, congestion, thermal throttling. High latency at a small size: a slow path "
        "through the CPU, power saving, or an overcommitted core. Incomplete: the profile declares no number, or "
        "fewer than two sizes were measured."
    ),
    next=(
        "grep -hE 'busbw|time@' {run}/raw/collectives-*.jsonl",
        "env | grep NCCL_",
    ),
)

PAIRS = Guide(
    title="Nodes and links, by pairs",
    page=_PAGE,
    action=Action.REPLACE,
    observes=(
        "Pairs of nodes, in rounds. In a round every node has one partner, and all pairs run at the same time. Per "
        "pair: the round-trip time, and the bandwidth in both directions, over one TCP connection. Where the nodes "
        "have a GPU driver the pair runs all_reduce over all its GPUs instead: the time at 8 KiB and the bus "
        "bandwidth at 1 GiB. That is one number for both directions, so it does not say which of them is slow. "
        "`BRINGUP_PAIR_ENGINE=tcp` or `collectives` chooses.\n\n"
        "Up to 8 nodes every pair is measured. Above that the rounds follow from what was measured. Round 1: "
        "neighbours in the list of nodes. Round 2: the nodes of slow pairs meet nodes of the fastest pairs, all "
        "others meet the node half a list away. A node that is slow with both of its partners is named after these "
        "two rounds, at any number of nodes. While a node or a link is in doubt, further rounds follow, at most "
        "log2 of the number of nodes. A slow link between two nodes that are fast elsewhere is measured again. A "
        "slow node gets another good partner. The distance in the list from which all pairs of a round are slower "
        "is searched too. With an odd number of nodes one rests in each round and is measured in the next one, so "
        "there are three rounds. What is slow is decided by the noise of the same run (median and median deviation "
        "of its speeds); the notes of the report name it, with the smallest slowdown that this run could detect. "
        "`BRINGUP_PAIR_ROUNDS=all` measures every pair; a number measures as many rounds, which are fixed in "
        "advance.\n\n"
        "Each round is played twice (`BRINGUP_PAIR_REPEATS`), each time over new connections. At the end, what "
        "looks slow or unsteady is measured again; slow nodes also meet a good partner that they have not met yet. "
        "Pairs that never met, and nodes without a partner, are listed in the notes of the report. A pair's "
        "bandwidth is its best measurement, because other traffic can only lower it. The verdict lists all of them. "
        "Over TCP, no answer within 8 s is a bandwidth of 0. A pair whose all_reduce failed each time is "
        "incomplete, with the reason in its `.err`. Every link of a planned round is judged: `raw/rounds.txt` is "
        "written before the round is played.\n\n"
        "A link is one of three things here. A *path*: two nodes that are slow with each other and fast with "
        "others. The *way out of a block*: at least 4 nodes that follow each other in the list, fast among "
        "themselves and slow with all others, as behind a bad uplink. A *distance*: all pairs that leave blocks of "
        "2, 4, 8, ... nodes are slower; that is a slow trunk, or the design of the network. A slow path between two "
        "nodes that never met is not found: two rounds measure 2 of N - 1 partners of a node. One bad uplink of "
        "several that share the traffic looks like several slow paths. Blocks and distances are those of the list "
        "of nodes: they are found only where the list follows the switches, as Slurm's order usually does.\n\n"
        "- `nccl.pair.node`: what the node reaches with the *middle* one of its partners, as a share of a healthy "
        "direction (the middle of the faster half of all). So one bad link does not fail a node.\n"
        "- `nccl.pair.link`: what the link reaches, as a share of what its two nodes reach elsewhere. So a bad node "
        "does not fail its links.\n"
        "- `nccl.pair.link.steady`: the worst measurement of the link as a share of its best, in the less steady "
        "direction. It shows a link that is slow at times, which the best measurement hides. It only warns: a busy "
        "node looks the same. A link that was measured once is incomplete.\n"
        "- `nccl.pair.node.latency`, `nccl.pair.link.latency`: the same for the 95th percentile of round trips. A "
        "lost packet shows there as 200 ms. With all_reduce, for its time at 8 KiB.\n"
        "- `nccl.pair.slowest`: a plain number. It finds a fleet that is slow as a whole, and the only pair of two "
        "nodes."
    ),
    why=(
        "A collective over all nodes is as slow as the worst node or link, and does not say which one that is. The "
        "pairs name it, so one node can be drained and the rest can train."
    ),
    usually_means=(
        "A node: its NIC, its cable or its switch port. The remark says which direction. A link: routing, a bad "
        "spine port or lane that only this pair uses, or a firewall rule. An unsteady link: one of several equal "
        "paths (ECMP, adaptive routing) is bad and some connections take it, a cable retrains, or another job uses "
        "the link. With 2 nodes there is one link, and it is not known which node is slow. With 3 nodes each has two "
        "partners, and two bad links look like a bad node; the verdict says so. Several nodes in a row that are slow "
        "with most partners, and a note that names the way out of their block: their switch or its uplink, and not "
        "the nodes."
    ),
    next=(
        "grep -h pair. {run}/raw/pairs*.jsonl",
        "cat {run}/raw/rounds.txt {run}/raw/rounds-again.txt",
        "srun --label --nodes={node_count} --nodelist={nodes} --ntasks-per-node=1 ip -s link",
        "BRINGUP_PAIR_ROUNDS=all sbatch --nodes={node_count} --nodelist={nodes} "
        "infrastructure-validation/scripts/nccl_pairwise.sbatch",
    ),
    by_hand=(
        "On the node, `ethtool -S INTERFACE` shows errors and drops, and `tc -s qdisc show` shows a limit that was "
        "left there."
    ),
)

MONITOR = Guide(
    title="The sampler beside a run",
    page=_PAGE,
    action=Action.WATCH,
    observes=(
        "`nccl.monitor.coverage`: samples / (seconds of the watched step − 1). One second is subtracted because the "
        "sampler starts after the step. Required: 0.8 at one sample a second. A slow sample does not delay the next "
        "one. `nccl.monitor.overhead`: the CPU time that the sampler itself took up to its last sample, as a share "
        "of one core.\n"
        "\n"
        "The samples carry the node's own time. Before they begin, all clocks are compared with the first node's, "
        "and the answers stay in `raw/clock.jsonl`. The picture shows all samples on the clock of the fleet's "
        "median. `nccl.monitor.clock` says by how much the node's samples were moved, and how sure that is: to half "
        "a second at least. A wrong clock is judged in [phase 1](01-environment.md#discovery.clock.offset). Here it "
        "is only corrected.\n"
        "\n"
        "Columns of `raw/monitor.csv`: node, unix time, CPU %, memory used (GiB), bytes sent, bytes received, "
        "busiest GPU %, power of all GPUs (W), hottest GPU (°C), share of one core that the sampler itself has used "
        "(%), bytes sent and received over all active RDMA ports. GPU columns are empty where NVML does not answer. "
        "RDMA columns are empty where no RDMA port is active, or where one of them counts no bytes. Empty means that "
        "it was not measured, not 0. What a node sent is in `observations.json`: `monitor.sent` over network "
        "interfaces, `monitor.rdma_sent` over RDMA ports. The bytes over RDMA are not among the former. On "
        "InfiniBand and RoCE they are `port_xmit_data` of the ports (words of 4 bytes; TCP over InfiniBand is in "
        "both), on EFA `hw_counters/tx_bytes`. No gate judges them.\n"
        "\n"
        "A line that begins with `#gpu` describes one GPU: node, unix time, UUID, busy %, power (W), heat (°C), SM "
        "clock (MHz), and what its hardware does to protect itself. `nccl.monitor.slowdown` is the last one over all "
        "samples: heat (`hardware thermal`) and the power brake slow a GPU down in the middle of a run, which a look "
        "before the run does not see. Slower clocks because of the driver's power cap are normal and do not count."
    ),
    why=(
        "When a collective is slow, the samples show which node was busy, hot or idle. A gap in them hides exactly "
        "that moment."
    ),
    usually_means=(
        "Fewer samples: the sampler started late or ended early, or the node was too loaded to run it. Too much "
        "overhead: asking the GPUs costs CPU time here, and the figures of this run were disturbed by the sampler. A "
        "slowdown: cooling, a fan, or the power supply of that node; its GPUs are late in every collective. "
        "Incomplete: the node sent no sample; or its clock could not be compared (a firewall), and its line in the "
        "picture uses its own time."
    ),
    next=("cat {run}/raw/monitor.err", "head {run}/raw/monitor.csv", "cat {run}/raw/clock.jsonl"),
)
