"""The evidence that the benchmark makes up has a fact for every gate: its page shows a fleet, and no gap."""

import importlib.util
from pathlib import Path
from types import ModuleType

from bringup.judge import judge_folder
from bringup.records import Outcome
from bringup.report import document
from bringup.results import REPOSITORY

LINES_OF_A_SCREEN = 50


def fleet_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fleet", REPOSITORY / "validation/benchmarks/judge_and_report.py")
    assert spec is not None and spec.loader is not None
    fleet = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fleet)
    return fleet


def test_all_that_a_discovery_plans_is_judged_and_one_sick_gpu_fails(tmp_path: Path) -> None:
    run, _ = fleet_module().made_up_run(4, tmp_path)
    verdicts = judge_folder(run).verdicts.verdicts
    bad = [(verdict.gate, verdict.subject, verdict.outcome) for verdict in verdicts if verdict.outcome != Outcome.PASS]
    assert bad == [("discovery.gpu.ecc", "gpu-00-02", Outcome.FAIL)]


def test_the_report_of_a_fleet_fits_two_screens_and_begins_with_what_failed_and_what_the_nodes_are(
    tmp_path: Path,
) -> None:
    """It had a row for each node and gate: 1,138 lines for 16 nodes, of which one mattered."""
    judged = judge_folder(fleet_module().made_up_run(16, tmp_path)[0])
    text = document.run(judged)
    assert len(text.splitlines()) <= 2 * LINES_OF_A_SCREEN
    bad, inventory, good = map(text.index, ("- **FAIL** gpu-00-08: ", "| GPU: NVIDIA H100", "## What passed"))
    assert bad < inventory < good < 3000
    assert "GPU: NVIDIA H100 80GB HBM3; GPUs of a node: 8; MIG: off; memory of a GPU: 80 GiB;" in text
    assert "holds memory for which no process is there: 0.5 GiB (≤ 2 GiB)\n" in text
    assert "rdma.active, rdma.same, rdma.flaps, rdma.errors, rdma.messages" in text
    assert text.count("FAIL") == 3, "the title, the answer and the one that failed"
