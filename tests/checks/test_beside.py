"""Transfers start on the cores of their device, with memory of its NUMA node; what cannot be set is left."""

import os
import subprocess
import sys
from pathlib import Path

import beside
import perftest
import pytest
from simulated_tools import PROBES

SAYS = "import os; print(sorted(os.sched_getaffinity(0)), open('/proc/self/numa_maps').readline().split()[1])"


def device(root: Path, cpulist: str, node: str) -> Path:
    root.mkdir(parents=True)
    (root / "local_cpulist").write_text(f"{cpulist}\n")
    (root / "numa_node").write_text(f"{node}\n")
    return root


def started() -> str:
    return subprocess.run([sys.executable, "-c", SAYS], capture_output=True, text=True, check=True).stdout.strip()


def test_a_program_that_is_started_beside_a_device_has_its_cores_and_they_are_given_back(tmp_path: Path) -> None:
    allowed = os.sched_getaffinity(0)
    core = max(allowed)
    with beside.beside(device(tmp_path / "nic", str(core), "-1")):
        assert started().startswith(f"[{core}]")
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.skipif(not Path("/proc/self/numa_maps").exists(), reason="a kernel without NUMA")
def test_its_memory_is_of_the_node_of_the_device(tmp_path: Path) -> None:
    with beside.beside(device(tmp_path / "nic", "0", "0")):
        assert started().endswith("prefer:0") or started().endswith("default")  # default: a sandbox refuses the call
    assert started().endswith("default")


def test_cores_that_the_task_was_not_given_and_devices_that_say_nothing_change_nothing(tmp_path: Path) -> None:
    allowed = os.sched_getaffinity(0)
    for folder in (device(tmp_path / "far", str(max(allowed) + 1), "-1"), tmp_path / "nothing"):
        with beside.beside(folder):
            assert os.sched_getaffinity(0) == allowed


def test_both_sides_of_a_test_of_a_port_start_on_the_cores_of_its_nic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ran on one core of socket 0 for the NICs of socket 1, too."""
    core = max(os.sched_getaffinity(0))
    device(tmp_path / "mlx5_3/device", str(core), "-1")
    (tmp_path / "ib_write_lat").write_text(f"#!/usr/bin/env python3\nimport os\nprint('t_typical[usec]')\n{ROW}")
    (tmp_path / "ib_write_lat").chmod(0o755)
    monkeypatch.setattr(perftest, "HCAS", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert perftest.call(perftest.LATENCY, "mlx5_3:1", 1, "localhost") == core + 0.5


ROW = "cpus = sorted(os.sched_getaffinity(0))\nprint(8, 1000, 1.0, 2.0, cpus[0] + 0.5 if len(cpus) == 1 else 99.0)\n"


def test_the_steps_of_perftest_have_the_cores_of_all_sockets() -> None:
    scripts = PROBES.parent / "scripts"
    for script, probe in (("node_sweep.sbatch", "nic_loopback.py"), ("nccl_pairwise.sbatch", "rails.py")):
        line = next(line for line in (scripts / script).read_text().splitlines() if f"probes/{probe}" in line)
        assert '--cpu-bind=none --cpus-per-task="$(cpus_per_rank 1)"' in line
