"""Nodes of one GPU: a strategy between the GPUs of a node cannot run there. That is no fault of the cluster."""

import io
from pathlib import Path

import pytest
from bringup import results
from bringup.errors import RunError
from bringup.plan import profile as profiles
from bringup.plan.phases import PHASES
from bringup.run import playbook
from rich.console import Console
from runs_for_tests import opened

INSIDE_A_NODE = {"run_ddp_1node", "run_fsdp_1node", "run_hsdp_2node"}


@pytest.mark.parametrize(("gpus", "left_out"), [(1, INSIDE_A_NODE), (2, set())])
def test_a_run_leaves_out_what_needs_two_gpus_in_a_node_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, left_out: set[str]
) -> None:
    monkeypatch.setattr(results, "PLAYBOOKS", tmp_path)
    monkeypatch.setattr(playbook, "known_partitions", dict)
    request = playbook.Request(profiles.load("local-cpu"), "local-cpu")
    planned, named, _ = playbook._plan(request, ["n0", "n1"], gpus, Console(file=io.StringIO()))
    assert set(PHASES) - set(planned) == left_out
    assert set(named) == {f"{stem}: needs at least 2 GPUs in a node, 1 there" for stem in left_out}


@pytest.mark.parametrize("stem", sorted(INSIDE_A_NODE))
def test_its_script_alone_is_refused_before_a_rank_starts(tmp_path: Path, stem: str) -> None:
    with pytest.raises(RunError, match=f"^{stem} needs at least 2 GPUs in a node, 1 there$"):
        opened(stem, tmp_path, nodes=["n0", "n1"][: PHASES[stem].max_nodes], gpus=1)
    assert list(tmp_path.iterdir()) == []
