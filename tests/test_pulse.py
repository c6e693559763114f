"""The heartbeat of a process, and when a rank of a training itself stood still."""

import signal
import subprocess
import sys
import time

import pulse
from loops import for_each
from programs import PROBES, begun
from pulse import Gap
from recipe import meter

STEPS = [(10.0, 11.0), (11.0, 12.0), (20.0, 21.0), (21.0, 42.0), (42.0, 43.0)]  # a checkpoint from 12 to 20
WORK = {"fetch": [0.1] * 5, "forward": [0.2] * 5, "optimizer": [0.1] * 5}


def test_a_process_that_was_stopped_has_a_gap_as_long_as_the_stop():
    program = "import pulse, sys; p = pulse.Pulse(); print(flush=True); input(); print([g[1] - g[0] for g in p.gaps()])"
    with begun([sys.executable, "-c", program], cwd=PROBES, stdin=subprocess.PIPE) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        before = time.monotonic()
        time.sleep(2)
        stopped_s = time.monotonic() - before
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate("\n")
    assert max(eval(output)) >= stopped_s - pulse.EVERY_S  # a list of numbers


def test_a_pause_counts_with_its_part_inside_a_step_and_names_the_step():
    assert pulse.longest([Gap(21.5, 41.5, 0.0)], STEPS) == (20.0, 3, 0.0)
    assert pulse.longest([Gap(11.5, 19.0, 0.1)], STEPS) == (0.5, 1, 0.1)


def test_what_lies_between_steps_is_a_known_pause():
    assert pulse.longest([Gap(12.5, 19.5, 0.0)], STEPS) == (0.0, None, None)
    assert pulse.longest([], STEPS) == (0.0, None, None)


@for_each(
    ([Gap(21.5, 41.5, 0.0)], {}, 7, (20.0, 10, "process", 0.0)),
    ([Gap(10.0, 11.0, 0.9)], {"fetch": [30.0, 0.1, 0.1, 0.1, 0.1]}, 1, (0.0, None, None, None)),  # its first step
    *(([], {part: [0.5, 0.5, 0.5, 20.5, 0.5]}, 1, (20.0, 4, part, None)) for part in WORK),  # though the heart beats
    ([], {}, 1, (0.0, None, None, None)),  # it waits for others
)
def test_a_rank_that_stood_still_says_in_which_step_and_where(gaps, work, first, expected):
    seen = meter.standstill(gaps, STEPS, WORK | work, first=first, warmup=1)
    assert (seen.seconds, seen.step, seen.part, seen.cpu_s) == expected
