"""`run`, `drill` and `sweep` on a terminal: verdicts stay on it, and nothing of the line that says what is going on."""

import re
import uuid

import pytest
from harness import CHECKOUT, Cluster
from playbook import BRINGUP, playbook
from pty_screen import Drawn, drawn

pytestmark = pytest.mark.cluster
GOING_ON = re.compile(r"^ *[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]|: (running|waiting|pending)")


def nothing_of_the_wait_stays(screen: Drawn, most: int) -> None:
    assert screen.raw.count(b"\x1b[2K") > 5, "a line was drawn again in its place"
    assert [line for line in screen.lines if GOING_ON.search(line)] == []
    assert len(screen.lines) <= most, "\n".join(screen.lines)


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (160, 50)])
def test_a_run_leaves_its_verdicts(cluster: Cluster, columns: int, rows: int):
    with playbook(cluster) as book:
        command = cluster.command("sh", BRINGUP, "run", "discovery")
        environment = {"BRINGUP_CLUSTER": str(cluster.folder), "BRINGUP_RUN_NAME": book.name}
        screen = drawn(command, columns, rows, CHECKOUT, environment)
    assert any(line.startswith("PASS       Discovery: what is there on 2 nodes") for line in screen.lines)
    assert sum("report: " in line for line in screen.lines) >= 1
    nothing_of_the_wait_stays(screen, 60 if columns == 80 else 40)


@pytest.mark.in_test_all
def test_a_drill_leaves_a_line_for_each_fault_and_the_count():
    name = f"test-{uuid.uuid4().hex[:8]}"
    command = [BRINGUP, "drill", "--only", "shm-small", "gpu-missing"]
    screen = drawn(command, 80, 24, CHECKOUT, {"BRINGUP_RUN_NAME": name}, timeout=240)
    assert screen.returncode == 0, screen.lines
    assert sum(line.startswith("FOUND") for line in screen.lines) == 2
    nothing_of_the_wait_stays(screen, 30)


@pytest.mark.in_test_all
@pytest.mark.timeout(620)
def test_a_sweep_leaves_a_line_for_each_point_and_the_table(cluster: Cluster):
    with playbook(cluster) as book:
        command = cluster.command("sh", BRINGUP, "sweep", "run_1gpu", "--vary", "global_batch=8,16")
        environment = {"BRINGUP_CLUSTER": str(cluster.folder), "BRINGUP_RUN_NAME": book.name}
        screen = drawn(command, 160, 50, CHECKOUT, environment, timeout=560)
    assert screen.returncode == 0, screen.lines
    nothing_of_the_wait_stays(screen, 60)
