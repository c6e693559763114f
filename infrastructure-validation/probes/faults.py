"""Faults that a probe inflicts on itself when BRINGUP_DRILL asks for one, so that a gate can be seen to fail.

BRINGUP_DRILL=separate-communicators  the ranks of each node form a group of their own, as a wrong launcher makes them
BRINGUP_DRILL=wrong-value:RANK        this rank contributes wrong values to every collective
BRINGUP_DRILL=slow-rank:RANK          this rank's own work takes 1 s longer
BRINGUP_DRILL=slow-size:NAME@PLACE    this collective (all_reduce@middle) takes 2 s longer at one size: smallest, middle
                                      or largest
BRINGUP_DRILL=exit-rank:RANK          this rank ends in the middle, without a message
BRINGUP_DRILL=stop-rank:RANK          this rank is stopped for 20 s in the middle (SIGSTOP, SIGCONT)
BRINGUP_DRILL=freeze-rank:RANK        this rank is stopped in the middle, and stays so
BRINGUP_DRILL=hang-rank:RANK          this rank takes part in no collective from the middle on
BRINGUP_DRILL=stop-monitor:NODE       the monitor of this node ends after its first sample
BRINGUP_DRILL=clock-deaf:NODE         this node asks for the time at a port where nobody answers
BRINGUP_DRILL=busy-monitor:NODE       the monitor of this node keeps a core busy for half of the time
BRINGUP_DRILL=wrong-matmul:NODE       one element of a product has the wrong sign on each GPU of this node
BRINGUP_DRILL=slow-matmul:NODE        every product takes SIZE (3) seconds longer on this node
BRINGUP_DRILL=flipped-bit:NODE        one bit of a gradient is another one in the last repetition of the seeded step
BRINGUP_DRILL=slow-load:NODE          this node pauses SIZE (3) seconds after every product of the sustained load
BRINGUP_DRILL=drifting-load:NODE      ... in the second half of the load
BRINGUP_DRILL=wrong-load:NODE         one element of a product under load has the wrong sign on each GPU of this node
BRINGUP_DRILL=slow-inside:NODE        the largest all_reduce inside this node takes 2 s longer
BRINGUP_DRILL=exit-sweep:NODE         a rank of this node ends after the load, without a message
BRINGUP_DRILL=slow-storage:NODE       this node waits SIZE (0.2) s for a block that it writes or reads, half for a file
BRINGUP_DRILL=no-room:NODE            this node cannot write a byte to a file (RLIMIT_FSIZE), as under a used up quota

SIZE: BRINGUP_DRILL_SIZE, where it is set.
Unset, this module does nothing. It never touches another process. Faults of trainings: training/injected.
"""

import os
import resource
import signal
import subprocess
import time

SLOW_RANK_S = 1.0
SLOW_SIZE_S = 2.0
STOPPED_S = 20


def argument_of(kind):
    """The text behind `kind:` in BRINGUP_DRILL, empty when there is none. None when this fault is not requested."""
    name, _, argument = os.environ.get("BRINGUP_DRILL", "").partition(":")
    return argument if name == kind else None


def hits(kind, who):
    """Whether this fault is requested on `who`: a rank, a node, a size; `*`: on all."""
    return argument_of(kind) in (str(who), "*")


def size(own):
    """How large the fault is: as requested, otherwise its own."""
    return float(os.environ.get("BRINGUP_DRILL_SIZE") or own)


def take_room(node):
    """Before the probe of `node` writes. Python ignores SIGXFSZ, so that a write raises `File too large`."""
    if hits("no-room", node):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def stop_here():
    """This process is stopped as by SIGSTOP from outside, and goes on after STOPPED_S."""
    subprocess.Popen(["sh", "-c", 'sleep "$1"; kill -CONT "$2"', "sh", str(STOPPED_S), str(os.getpid())])
    os.kill(os.getpid(), signal.SIGSTOP)


def in_the_middle(rank):
    """Called by every rank in the middle of its collectives."""
    if hits("exit-rank", rank):
        os._exit(3)
    elif hits("stop-rank", rank):
        stop_here()
    elif hits("freeze-rank", rank):
        os.kill(os.getpid(), signal.SIGSTOP)
    elif hits("hang-rank", rank):
        while True:
            time.sleep(60)
