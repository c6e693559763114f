"""The heartbeat of a process, and when a rank of a training itself stood still."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROBES = ROOT / "infrastructure-validation" / "probes"
sys.path.append(str(ROOT / "training" / "src"))
sys.path.append(str(PROBES))

import pulse  # noqa: E402
from pulse import Gap  # noqa: E402
from recipe import meter  # noqa: E402

STEPS = [(10.0, 11.0), (11.0, 12.0), (20.0, 21.0), (21.0, 42.0), (42.0, 43.0)]  # a checkpoint from 12 to 20
WORK = {"fetch": [0.1] * 5, "forward": [0.2] * 5, "optimizer": [0.1] * 5}


def test_a_process_that_was_stopped_has_a_gap_as_long_as_the_stop() -> None:
    program = "import pulse, sys; p = pulse.Pulse(); print(flush=True); input(); print([g[1] - g[0] for g in p.gaps()])"
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=PROBES, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        time.sleep(2)
        stopped_s = time.monotonic() - begun
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate("\n")
    assert max(eval(output)) >= stopped_s - pulse.EVERY_S  # a list of numbers


def test_a_pause_counts_with_its_part_inside_a_step_and_names_the_step() -> None:
    assert pulse.longest([Gap(21.5, 41.5, 0.0)], STEPS) == (20.0, 3, 0.0)
    assert pulse.longest([Gap(11.5, 19.0, 0.1)], STEPS) == (0.5, 1, 0.1)


def test_what_lies_between_steps_is_a_known_pause() -> None:
    assert pulse.longest([Gap(12.5, 19.5, 0.0)], STEPS) == (0.0, None, None)
    assert pulse.longest([], STEPS) == (0.0, None, None)


def test_a_rank_whose_heart_stopped_says_in_which_step() -> None:
    standstill_found = meter.standstill([Gap(21.5, 41.5, 0.0)], STEPS, WORK, first=7, warmup=1)
    assert (standstill_found.seconds, standstill_found.step, standstill_found.part, standstill_found.cpu_s) == (
        20.0,
        10,
        "process",
        0.0,
    )


def test_the_first_steps_do_not_count() -> None:
    work = {**WORK, "fetch": [30.0, 0.1, 0.1, 0.1, 0.1]}
    standstill_found = meter.standstill([Gap(10.0, 11.0, 0.9)], STEPS, work, first=1, warmup=1)
    assert (standstill_found.seconds, standstill_found.step, standstill_found.part) == (0.0, None, None)


@pytest.mark.parametrize("part", ["fetch", "forward", "optimizer"])
def test_own_work_that_takes_seconds_longer_is_a_standstill_though_the_heart_beats(part: str) -> None:
    work = {**WORK, part: [0.5, 0.5, 0.5, 20.5, 0.5]}
    standstill_found = meter.standstill([], STEPS, work, first=1, warmup=1)
    assert (standstill_found.seconds, standstill_found.step, standstill_found.part, standstill_found.cpu_s) == (
        20.0,
        4,
        part,
        None,
    )


def test_a_rank_that_waits_for_others_did_not_stand_still() -> None:
    assert meter.standstill([], STEPS, WORK, first=1, warmup=1).seconds == 0.0
