from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from harness import Cluster, ClusterError, running_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """2 nodes x 2 GPUs, shared by all tests: leave it idle. Without it nothing is proven, so it fails and never skips."""
    with ExitStack() as stack:
        try:
            running = stack.enter_context(running_cluster("--nodes", "2", "--gpus", "2"))
        except ClusterError as error:
            pytest.fail(f"no local cluster: {error}", pytrace=False)
        yield running


@pytest.fixture
def start_cluster() -> Iterator[Callable[..., Cluster]]:
    """A further cluster, of any shape, for this test alone: start_cluster("--nodes", "1")."""
    with ExitStack() as stack:
        yield lambda *options: stack.enter_context(running_cluster(*options))
