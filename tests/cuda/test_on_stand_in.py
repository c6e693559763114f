"""Programs run through CUDA, on the stand-in's devices, in what no CPU and no live phase of make test runs."""

import functools
import json
import subprocess
import sys
from collections.abc import Callable

import on_stand_in
import pytest
import warm_python
from cuda_statements import Known, everything
from loops import case_for_each
from on_stand_in import said_to_rank, together
from programs import ROOT, begun, free_port, ran
from tiers import in_test_all


@pytest.fixture(scope="module")
def with_gpus(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], tuple[str, dict[str, str]]]:
    """Gives (a Python that has torch, and torch that has so many GPUs; its environment)."""

    @functools.cache
    def started(gpus: int) -> tuple[str, dict[str, str]]:
        environment = on_stand_in.variables(tmp_path_factory.mktemp("gpus").resolve(), gpus)
        environment |= {"GLOO_SOCKET_IFNAME": "lo", "PYTHONDONTWRITEBYTECODE": "1"}
        return warm_python.start(environment), environment

    return started


SINGLE = ("training/src/train_single_gpu.py", "--run-dir", "RUN", "--steps", "22", "--profiled-steps", "0")
RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
DDP = (*("training/src/train_ddp_single_node.py", "--run-dir", "RUN", "--profiled-steps", "0", "--timeout", "20"),)


@in_test_all
@case_for_each(
    pytest.param(1, SINGLE, "metrics.json", id="single"),
    pytest.param(2, (*RANKS, *DDP), "metrics.json", id="ddp"),  # one that was stopped leaves none
    pytest.param(1, ("validation/benchmarks/no_waits.py", *SINGLE), "metrics.json", id="no-waits"),
    pytest.param(1, ("validation/benchmarks/peaks.py",), "raw", id="peaks"),
)
def test_a_program_ends_well_with_devices(with_gpus, tmp_path, gpus, words, leaves):
    python, environment = with_gpus(gpus)
    (tmp_path / "raw").mkdir()
    command = [python, *(word.replace("RUN", str(tmp_path)) for word in words)]
    done = ran(command, cwd=ROOT, env=environment | {"PYTHON_EXEC": python})  # torchrun starts ranks with it
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / leaves).exists(), done.stdout + done.stderr


@in_test_all
def test_a_command_is_started_for_each_rank_and_told_which_it_is():
    names = ("SLURMD_NODENAME", "RANK", "SLURM_LOCALID", "WORLD_SIZE")
    tells = f"import os; os.write(1, (' '.join(os.environ[name] for name in {names}) + '\\n').encode())"  # in one piece
    command = [sys.executable, on_stand_in.__file__, "--nodes", "2", "--ranks", "2", sys.executable, "-c", tells]
    done = ran(command, cwd=ROOT)
    assert sorted(done.stdout.splitlines()) == ["n0 0 0 4", "n0 1 1 4", "n1 2 0 4", "n1 3 1 4"], done.stderr
    assert done.returncode == 0


def test_a_rank_that_fails_ends_the_others(monkeypatch):
    monkeypatch.setattr(on_stand_in, "GRACE_S", 0.1)
    programs = ("import time; time.sleep(100)", "raise SystemExit(3)")
    ranks = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    assert together(ranks) == 3
    assert [rank.returncode for rank in ranks] == [-9, 3]


SHARED = "2 ranks, 1 different GPU(s): GPU-00000000-0000-"
TRAINING = ("training/src/train_ddp_single_node.py", "--run-dir")
COLLECTIVES = ("infrastructure-validation/probes/collectives.py", "1-node")


@in_test_all
@pytest.mark.parametrize(("program", "code"), [(TRAINING, 1), (COLLECTIVES, 1)])
def test_two_ranks_that_have_one_gpu_end_with_one_line(with_gpus, tmp_path, program, code):
    """As a launcher makes them that gives each rank a GPU of its own number 0."""
    python, environment = with_gpus(1)
    (tmp_path / "raw").mkdir()
    port = free_port()
    command, alike = [python, *program, tmp_path], {"LOCAL_RANK": "0", "SLURM_LOCALID": "0"}
    of_ranks = [environment | said_to_rank(0, rank, 1, 2, port) | alike for rank in (0, 1)]
    ranks = [begun(command, env=of_rank, cwd=ROOT, stderr=subprocess.STDOUT) for of_rank in of_ranks]
    assert together(ranks) == code
    lines = [line for rank in ranks for line in rank.communicate()[0].splitlines()]
    assert [rank.returncode for rank in ranks] == [code, code], lines
    assert [SHARED in line for line in lines if not line.startswith("{")] == [True], lines
    if program == COLLECTIVES:
        facts = [json.loads(line) for line in lines if line.startswith("{")]
        assert [fact["value"] for fact in facts if fact.get("quantity") == "nccl.devices"] == [1]


# ---- each statement about CUDA is on one page, with the run that executed it or why none did


def test_the_statements_of_the_project_are_seen():
    names = {(each.file, each.name) for each in everything(ROOT)}
    assert len(names) > 120
    silent = [name for name in {file for file, _ in names} if "cuda" not in (ROOT / name).read_text().lower()]
    assert silent == []  # lines.py would not look at them
    assert ("training/src/recipe/meter.py", "forget_peaks: torch.cuda.reset_peak_memory_stats()") in names
    assert ("infrastructure-validation/probes/bench.py", "Bench.synchronize: self.torch.cuda.synchronize()") in names


def test_the_page_is_what_the_records_say():
    assert Known().problems() == []
