from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from harness import Cluster, running_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """2 nodes x 2 GPUs, shared by all tests: leave it idle. A test without its cluster fails; it is never skipped."""
    with running_cluster("--nodes", "2", "--gpus", "2") as running:
        yield running


@pytest.fixture(scope="session")
def four_nodes() -> Iterator[Cluster]:
    """4 nodes x 1 GPU, for faults that need more than one pair of nodes to locate. Started when first requested."""
    with running_cluster("--nodes", "4", "--gpus", "1") as running:
        yield running


@pytest.fixture(scope="session")
def simulated() -> Iterator[Cluster]:
    """3 nodes x 2 simulated H100, with RDMA ports. Started when first requested; leave it healthy."""
    with running_cluster("--nodes", "3", "--gpus", "2", "--simulate", "h100") as running:
        yield running


@pytest.fixture
def start_cluster() -> Iterator[Callable[..., Cluster]]:
    """A further cluster, of any shape, for this test alone: start_cluster("--nodes", "1")."""
    with ExitStack() as stack:
        yield lambda *options: stack.enter_context(running_cluster(*options))


@pytest.fixture(scope="module")
def unconfined() -> Iterator[Cluster]:
    """2 nodes x 2 GPUs on which the kernel keeps no job from anything."""
    with running_cluster("--nodes", "2", "--gpus", "2", "--unconfined") as running:
        yield running
