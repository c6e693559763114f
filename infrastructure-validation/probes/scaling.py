#!/usr/bin/env python3
"""Collectives at one scale after another, small before large, and groups across nodes: one start of all ranks.

A start costs the imports of torch, on 1,024 GPUs minutes of all of them. So the ranks that a scale does not have wait
for theirs. Each scale makes a communicator of its own ranks, no part of a larger one, and ends it before the next one.
Its ranks meet before, so that a rank that does not come, or hangs, costs none of the smaller scales.
What can differ from a start of its own: NCCL's plugin has been opened before; one rank on a node sees all its GPUs; and
what Slurm gives to a step between nodes (virtual networks of Slingshot), ranks on one node have as well.
Run: srun --label --ntasks=4 --ntasks-per-node=2 PYTHON scaling.py RAW [--only COLLECTIVE] [--groups] SCALE…
     (MASTER_ADDR, MASTER_PORT set; SCALE as parts.py reads it; facts go to standard output, NCCL's logs below RAW)
"""

import argparse
import datetime
import os
import sys
from pathlib import Path

import arrival
import collectives
import groups
import nccl_files
import parts
from facts import cpu_s, node_name

EVER = datetime.timedelta(days=7)  # the time limit of the job ends a rank that waits for its scale
BEGUN = "bringup/begun"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("raw")
    parser.add_argument("scales", nargs="+", type=parts.scale_of)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--groups", action="store_true")
    arguments = parser.parse_args()
    collectives.check_patience("scaling.py")
    node, local = int(os.environ["SLURM_NODEID"]), int(os.environ["SLURM_LOCALID"])
    own = [scale for scale in arguments.scales if scale.rank(node, local) is not None]
    log = nccl_files.Log()
    keep_logs(log, own[0], arguments)
    torch, dist = collectives.load()
    device = collectives.device_of(torch, local)
    store = connected(dist, arguments.scales.index(own[0]))
    for scale in own:
        rank = scale.rank(node, local)
        say(rank, "begin", scale.part)
        keep_logs(log, scale, arguments)
        here = collectives.place_of(rank, scale.ranks(), len(scale.nodes))
        of_scale = turn(dist, store, scale, here)
        how = {"only": arguments.only, "store": of_scale, "before_s": 0.0 if scale is own[0] else cpu_s()}
        how["is_first"] = scale is arguments.scales[0]
        bench = collectives.measure_scale(torch, dist, device, scale.name, here, folder_of(scale, arguments), **how)
        if arguments.groups and here.world > scale.per_node:
            bench.close()
            log.silence()  # that of NCCL speaks of all ranks
            say(rank, "end", scale.part)
            say(rank, "begin", scale.groups())
            groups.measure_groups(torch, dist, device.torch, scale.name)
            say(rank, "end", scale.groups())
            say(rank, "begin", scale.part)
        collectives.end(dist, bench)
        if device.torch.type == "cuda":
            torch.cuda.empty_cache()  # of the buffers of this scale: the next one has larger ones
        say(rank, "end", scale.part)


def folder_of(scale, arguments):
    return Path(arguments.raw, scale.logs())


def keep_logs(log, scale, arguments):
    folder = folder_of(scale, arguments)
    log.begin(folder if arguments.only else nccl_files.of_this_node(folder))
    collectives.keep_flights(folder)


def connected(dist, before):
    """The store of the step. before: scales that are measured without this rank: who cannot reach it is named by those
    that wait for it, and says less of itself."""
    task = int(os.environ["SLURM_PROCID"])
    try:
        return arrival.connected(dist, task == 0, arrival.patience_s() * (1 + before))
    except arrival.Late as error:
        sys.exit(f"{node_name()}: rank {task}: {error}")


def turn(dist, store, scale, here):
    """Wait until the first rank of the scale has come to it. The store in which its ranks meet."""
    store.set_timeout(datetime.timedelta(seconds=arrival.patience_s()))
    of_scale = dist.PrefixStore(scale.name, store)
    if here.task == 0:
        of_scale.set(BEGUN, scale.name)
    else:
        of_scale.wait([BEGUN], EVER)
    if here.world < scale.ranks():  # a drill: those of a node meet without the others
        return dist.PrefixStore(f"{here.node}", of_scale)
    return of_scale


def say(rank, verb, part):
    """On both streams, for parts.py."""
    if rank == 0:
        for stream in (sys.stdout, sys.stderr):
            print(verb, part, file=stream, flush=True)


if __name__ == "__main__":
    main()
