"""The evidence that the benchmark makes up has a fact for every gate: its page shows a fleet, and no gap."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from bringup.judge import judge_folder
from bringup.records import Outcome
from bringup.results import REPOSITORY


def test_all_that_a_discovery_plans_is_judged_and_one_sick_gpu_fails(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("fleet", REPOSITORY / "validation/benchmarks/judge_and_report.py")
    assert spec is not None and spec.loader is not None
    fleet = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fleet)
    run, _ = fleet.made_up_run(4, tmp_path)
    verdicts = judge_folder(run).verdicts.verdicts
    bad = [(verdict.gate, verdict.subject, verdict.outcome) for verdict in verdicts if verdict.outcome != Outcome.PASS]
    assert bad == [("discovery.gpu.ecc", "gpu-00-02", Outcome.FAIL)]
