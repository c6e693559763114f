"""A health check that does not work is no fault of the node: whatever breaks in it is "could not tell"."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from health_for_tests import BREAKS, GPUS, NODE, Installed, a_baseline, install
from loops import case_for_each, for_each


def made(tmp_path: Path, gpus: int = 8) -> Installed:
    health = install(tmp_path / "node", a_baseline(GPUS))
    health.gpus(gpus)
    return health


def broken(tmp_path: Path, name: str) -> Installed:
    """A copy of one that works: to install it anew for each would take longer."""
    works = tmp_path / "works"
    if not works.exists():
        made(works)
    copy = tmp_path / name.replace(" ", "-")
    shutil.copytree(works / "node", copy)
    BREAKS[name](copy / "opt health")
    return Installed(copy / "opt health", copy / "a state")


@for_each(*BREAKS)
def test_whatever_breaks_is_could_not_tell_and_never_a_fault(tmp_path: Path, name: str):
    done = broken(tmp_path, name).run("--exit-code")
    assert done.returncode == 2, done.stdout
    assert "FAULT" not in done.stdout
    assert "could not tell" in done.stderr or "UNKNOWN" in done.stdout


@for_each("no python3", "a module that is no Python", "a baseline that ends early", "a check that raises")
def test_without_a_word_about_exit_codes_it_ends_with_0_all_the_same(tmp_path: Path, name: str):
    assert broken(tmp_path, name).run().returncode == 0


def test_one_that_hangs_is_ended(tmp_path: Path):
    health = made(tmp_path, gpus=7)
    program = health.folder / "health-check"
    program.write_text(program.read_text().replace("seconds=9", "seconds=2"))
    (health.folder / "health.py").write_text("import time\ntime.sleep(60)\n")
    begun = time.monotonic()
    done = health.run("--exit-code")
    assert (done.returncode, time.monotonic() - begun < 9) == (2, True)
    assert "no end within 2 s" in done.stderr


@pytest.mark.parametrize("name", ["settings.json", "baseline.json"])
def test_a_fifo_in_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str):
    health = made(tmp_path, gpus=7)
    (health.folder / name).unlink()
    os.mkfifo(health.folder / name)
    health.ended(2, "cannot be read")


@case_for_each(
    ("hanging", {"gpus": 5}),
    ("hanging", {"gpus": {"pid": "x"}}),
    ("lines", {"discovery.gpu.count": []}),
    ("silent", {"discovery.gpu.count": 2}),
    ("driver-fault", {"boot": 7}),
    (None, "the state folder is a file"),
)
def test_what_another_version_has_kept_and_a_state_that_takes_nothing_change_no_answer(tmp_path, name, record):
    health = made(tmp_path)
    if name is None:
        health.state.write_text(record)
    else:
        health.state.mkdir(exist_ok=True)
        (health.state / f"{NODE}.{name}.json").write_text(json.dumps(record))
    assert health.code() == 0
    health.gpus(7)
    assert health.code() == 1


@pytest.mark.parametrize("code", [1, 2, 5, 120])
def test_no_exit_code_that_python_may_give_is_a_fault(tmp_path: Path, code: int):
    health = made(tmp_path, gpus=7)
    (health.folder / "health.py").write_text(f"print('FAULT')\nraise SystemExit({code})\n")
    assert (health.code(), health.run().returncode) == (2, 0)


def test_a_check_that_writes_what_nobody_can_read_hides_no_fault(tmp_path: Path):
    health = made(tmp_path, gpus=7)
    health.check("60-site", "printf '[%.0s' {1..100000}; exit 0")
    assert health.code() == 1


def test_a_check_whose_action_is_not_known_is_not_run_and_hides_no_fault(tmp_path: Path):
    health = made(tmp_path)
    health.check("60-site", "echo fault: sick", header="# action: unknown")
    health.ended(2, "60-site was not run: its action is 'unknown'")
    health.gpus(7)
    assert health.code() == 1


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_one_that_is_killed_leaves_no_process_and_nothing_that_changes_a_later_answer(tmp_path, sent: signal.Signals):
    """At 6 points of its life."""
    health = made(tmp_path)
    nowhere = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
    begun = time.monotonic()
    health.run()
    life = time.monotonic() - begun
    for point in (life * (number + 0.5) / 6 for number in range(6)):
        command = [str(health.folder / "health-check"), "--exit-code"]
        process = subprocess.Popen(command, env={"SLURMD_NODENAME": NODE}, start_new_session=True, **nowhere)
        time.sleep(point)
        os.killpg(process.pid, sent)  # as slurmd does
        assert process.wait(10) in ((0, 2) if sent is signal.SIGTERM else (0, -signal.SIGKILL)), point
        assert health.code() == 0, point
    health.gpus(7)
    assert health.code() == 1
