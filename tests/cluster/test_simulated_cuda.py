"""A cluster whose programs compute on the simulated GPUs, through CUDA."""

from collections.abc import Iterator

import pytest
from bringup.records import Mark, Playbook, read_record
from bringup.results import PLAYBOOK
from harness import CHECKOUT, Cluster, running_cluster
from playbook import playbook

pytestmark = pytest.mark.cluster
PYTHON = CHECKOUT / ".venv/bin/python"
SEES = "import torch; print(*(torch.cuda.get_device_properties(i).uuid for i in range(torch.cuda.device_count())))"


@pytest.fixture(scope="module")
def with_cuda() -> Iterator[Cluster]:
    with running_cluster("--nodes", "1", "--simulate", "h100", "--cuda") as running:
        yield running


def seen(running: Cluster, *options: str) -> list[str]:
    """UUIDs of the devices that each task has, a line for each task."""
    done = running.sh("srun", *options, PYTHON, "-c", SEES, timeout=120)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_a_task_computes_on_the_gpu_that_it_was_granted(with_cuda: Cluster):
    driver = with_cuda.on("n0", "nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader").stdout.split()
    uuids = sorted(line.removeprefix("GPU-") for line in driver)
    assert len(uuids) == 2 and all(uuid.startswith("00000000-0000-") for uuid in uuids)
    assert seen(with_cuda, "--ntasks=2", "--gpus-per-task=1") == uuids
    assert [sorted(task.split()) for task in seen(with_cuda, "--ntasks=1", "--gpus=2")] == [uuids]
    assert seen(with_cuda, "--ntasks=1") == [""]


def test_the_environment_itself_is_untouched(with_cuda: Cluster):
    has = "import sys; print('cuda_stand_in' in sys.modules)"
    assert with_cuda.sh(PYTHON, "-c", has).stdout == "False\n"
    assert with_cuda.on("n0", PYTHON, "-c", has).stdout == "True\n"
    for file in (CHECKOUT / ".venv").glob("lib/python3*/site-packages/*.pth"):
        assert "cuda_stand_in" not in file.read_text(), file


@pytest.mark.timeout(620)
def test_one_node_passes_on_cuda_and_is_rehearsed(with_cuda: Cluster):
    with playbook(with_cuda) as book:
        phases = ("smoke", "node_sweep", "run_1gpu", "run_ddp_1node")
        done = book.run(*phases, env={"BRINGUP_LOAD_S": "3"}, timeout=560)
        assert done.returncode == 0, done.stdout
        devices = {v.gate: v.observed for phase in ("smoke", "node_sweep") for v in book.verdicts(phase).verdicts}
        marks = {answer.question: answer for answer in read_record(book.own_folder / PLAYBOOK, Playbook).answers}
    assert devices["smoke.compute.device"] == "cuda" and devices["sweep.device"].startswith("cuda (GPU-00000000-0000-")
    assert marks[1].mark is Mark.REHEARSED and "their UUIDs say so" in marks[1].reservations[0]
