"""Groups of ranks that all work at once: every rank with those at its place on the other nodes.

So trainings are placed that keep tensor parallelism inside a node: its replicas gather over these groups, and its
stages send to the same place on the next node. NCCL where every rank has a GPU, gloo where there is none.
Proves: right results, and the bandwidth of a rank while all groups share the fabric.
Does not prove: groups inside a node (node_sweep.py), or what experts send to all ranks (collectives.py: all_to_all).
"""

import copy
import datetime

import collectives
import progress
from bench import MIB, Bench, largest, slowed
from facts import Facts, cpu_s, node_name

ON_CPU = 16 * MIB


def measure_groups(torch, dist, device, scale):
    """Measure, among ranks that have joined and measured before. All of them call it; rank 0 reports."""
    before_s, begun_s = cpu_s(), collectives.age_s()
    world = Bench(torch, dist, device, dist.get_rank(), dist.get_world_size())
    cuda = device.type == "cuda"
    size = largest(world.gather(torch.cuda.mem_get_info(device)[0])) if cuda else ON_CPU
    bench = across_nodes(world, world.gather(node_name()))
    bench.slow = slowed((size,))
    facts, wrong = Facts("groups", before_s=before_s) if world.rank == 0 else None, 0
    for collective in (bench.all_gather, bench.sendrecv):
        results, _ = collectives.measure(bench, collective, size, facts, scale, f"groups.{collective.__name__}")
        wrong += sum(sum(origins.values()) for origins in results)
    if facts is not None:
        facts.saw("nccl.groups.wrong_values", wrong, "count", scale)
        facts.saw("nccl.time.measure", round(collectives.age_s() - begun_s, 2), "s", scale)
        facts.finish()
    world.close()


def across_nodes(world, hosts):
    """The bench of this rank's group; every rank makes all. hosts: index = rank, those of a node side by side."""
    places = len(hosts) // len(set(hosts))
    groups = [list(range(place, len(hosts), places)) for place in range(places)]
    patience = datetime.timedelta(seconds=progress.hang_s())  # else the backend's own: 10 or 30 minutes
    made = [world.dist.new_group(ranks, timeout=patience) for ranks in groups]
    bench, place = copy.copy(world), world.rank % places
    bench.ranks, bench.group = groups[place], made[place]
    bench.rank, bench.world = bench.ranks.index(world.rank), len(bench.ranks)
    return bench
