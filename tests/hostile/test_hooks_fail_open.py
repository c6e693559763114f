"""Hooks that do not work take no node out of service: Slurm hears "healthy", and somebody is told why."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hooks_for_tests import BREAKS, GPUS, NODE, Installed, a_baseline, install
from loops import for_each

HOOKS = ("health-check", "prolog", "epilog")


def made(tmp_path: Path, *options: str, gpus: int = 7) -> Installed:
    health = install(tmp_path / "node", a_baseline(GPUS), *options)
    health.gpus(gpus)
    return health


@for_each("name", BREAKS)
def test_a_hook_that_breaks_in_shadow_mode_drains_nothing(tmp_path: Path, name: str):
    health = made(tmp_path / name.replace(" ", "-"))
    BREAKS[name](health.folder)
    for hook in HOOKS:
        assert health.run(hook).returncode == 0
    assert health.calls() == []


@for_each("name", BREAKS)
def test_a_hook_that_breaks_in_drain_mode_drains_nothing_and_says_why(tmp_path: Path, name: str):
    health = made(tmp_path / name.replace(" ", "-"), "--drain", gpus=8)
    BREAKS[name](health.folder)
    for hook in HOOKS:
        done = health.run(hook)
        assert done.returncode == 0
        # without hook.sh only syslog hears it
        assert name == "hook.sh is missing" or "could not tell" in done.stderr or "settings.json" in done.stderr
    assert health.calls() == []


@pytest.mark.parametrize("name", ["settings.json", "baseline.json"])
def test_a_hook_that_hangs_is_ended_and_drains_nothing(tmp_path: Path, name: str):
    health = made(tmp_path, "--drain")
    rules = health.folder / "hook.sh"
    rules.write_text(rules.read_text().replace("seconds=9", "seconds=2"))
    (health.folder / name).unlink()
    os.mkfifo(health.folder / name)
    begun = time.monotonic()
    done = health.run("prolog")
    assert done.returncode == 0
    assert "no end within 2 s" in done.stderr
    assert time.monotonic() - begun < 5
    assert health.calls() == []


@pytest.mark.parametrize(
    "records",
    [
        {"hanging": {"gpus": 5}},
        {"hanging": {"gpus": {"pid": "x"}}},
        {"told": {"at": "yesterday", "key": 5}},
        {"claim": {"reason": 7}},
        {"said": {"prolog": []}},
    ],
)
def test_what_another_version_has_kept_changes_no_answer(tmp_path: Path, records: dict[str, object]):
    health = made(tmp_path, "--drain", gpus=8)
    health.state.mkdir(exist_ok=True)
    for name, record in records.items():
        (health.state / f"{NODE}.{name}.json").write_text(json.dumps(record))
    for hook in HOOKS:
        assert health.run(hook).returncode == 0
    health.gpus(7)
    assert health.run("prolog").returncode == 1


def test_a_state_folder_that_takes_nothing_drains_nothing(tmp_path: Path):
    """A full or read-only folder: the claim of a hook that is killed could not be settled later."""
    health = made(tmp_path, "--drain")
    health.state.write_text("no folder")
    for hook in HOOKS:
        assert health.run(hook).returncode == 0
    assert health.calls() == []


def test_a_slurm_that_is_away_drains_nothing_and_refuses_no_job(tmp_path: Path):
    health = made(tmp_path, "--drain")
    (health.slurm / "away").touch()
    for hook in HOOKS:
        assert health.run(hook).returncode == 0
    assert "Slurm gave no answer" in health.log()


def test_one_file_switches_all_hooks_off_before_python_starts(tmp_path: Path):
    health = made(tmp_path, "--drain")
    (health.folder / "off").touch()
    (health.folder / "hook.py").write_text("raise SystemExit(3)\n")
    for hook in HOOKS:
        assert (health.run(hook).returncode, health.run(hook).stderr) == (0, "")
    assert health.calls() == []


@pytest.mark.parametrize("code", [1, 2, 3, 4, 120])
def test_only_the_exit_code_of_a_finding_becomes_a_refusal(tmp_path: Path, code: int):
    health = made(tmp_path, "--drain")
    (health.folder / "hook.py").write_text(f"raise SystemExit({code})\n")
    assert health.run("prolog").returncode == (1 if code == 3 else 0)


def test_people_keep_their_exit_codes(tmp_path: Path):
    health = made(tmp_path, "--drain", gpus=8)
    assert health.run("health-check", "--show").returncode == 0
    health.gpus(7)
    assert health.run("health-check", "--show").returncode == 1
    (health.folder / "baseline.json").write_text("[]")
    assert health.run("health-check", "--show").returncode == 2


def test_a_check_that_writes_what_nobody_can_read_hides_no_fault(tmp_path: Path):
    health = made(tmp_path, "--drain")
    health.check("60-site", "printf '[%.0s' {1..100000}; exit 0")
    assert health.run("prolog").returncode == 1


@pytest.mark.parametrize("break_name", ["a limit that is none", "a gate that is a number", "an owner that is a number"])
def test_a_baseline_of_a_wrong_kind_finds_no_fault(tmp_path: Path, break_name: str):
    health = made(tmp_path, "--drain")
    BREAKS[break_name](health.folder)
    for hook in HOOKS:
        assert health.run(hook).returncode == 0
    assert health.calls() == []


def test_a_check_whose_action_is_not_known_is_not_run_and_hides_no_fault(tmp_path: Path):
    health = made(tmp_path, "--drain", gpus=8)
    health.check("60-site", "echo sick; exit 1", header="# action: unknown")
    done = health.run("prolog")
    assert done.returncode == 0
    assert "60-site was not run: its action is 'unknown'" in done.stderr
    health.gpus(7)
    assert health.run("prolog").returncode == 1


def ten_minutes_pass(health: Installed) -> None:
    file = health.state / f"{NODE}.told.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps(record | {"at": record["at"] - 601}))


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_a_hook_that_is_killed_leaves_nothing_that_changes_a_later_answer(
    tmp_path: Path, hook: str, sent: signal.Signals
):
    """At 6 points of its life, some after its claim, while another node drains first: it must not stay drained beyond
    the limit."""
    health = made(tmp_path, "--drain")
    rules = health.folder / "brake.py"
    rules.write_text(rules.read_text().replace("SETTLE_S = 0.01", "SETTLE_S = 0.3"))
    health.node_is("drained", "bringup: x; reboot (2026-11-23T02:00Z, health-check)", node="n0")
    (health.slurm / "nodes/n0").rename(health.slurm / "rival")  # it is drained with our claim, and was first
    health.node_is("idle", since="Unknown", node="n0")
    begun = time.monotonic()
    health.run(hook)
    life = time.monotonic() - begun
    claims = 0
    for point in (life * (number + 0.5) / 6 for number in range(6)):
        health.node_is("idle", since="Unknown", node="n0")
        health.node_is("idle", since="Unknown")
        for kept in health.state.glob(f"{NODE}.*.json"):
            kept.unlink()
        process = subprocess.Popen(
            [str(health.folder / hook)],
            env={"SLURMD_NODENAME": NODE},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(point)
        os.killpg(process.pid, sent)  # as slurmd does
        assert process.wait(10) in ((0,) if sent is signal.SIGTERM else (0, -signal.SIGKILL)), point
        claims += (health.state / f"{NODE}.claim.json").exists()
        assert health.run().returncode == 0
        assert (health.slurm / "nodes" / NODE).read_text().startswith("idle"), point
        assert not list(health.state.glob("*.claim.json")), point
    assert claims > 0
    health.node_is("idle", since="Unknown", node="n0")  # there is room
    (health.slurm / "rival").unlink()
    ten_minutes_pass(health)
    health.run()
    assert (health.slurm / "nodes" / NODE).read_text().startswith("drained")
