"""A training job that Slurm warns before its time limit resumes by itself, with the losses of an unstopped one."""

import pytest
from harness import Cluster
from playbook import playbook
from requeued import goes_on_where_it_was

pytestmark = pytest.mark.cluster


def test_a_job_that_slurm_warns_is_requeued_and_goes_on_where_it_was(cluster: Cluster):
    with playbook(cluster) as book:
        goes_on_where_it_was(cluster, book, "run_fsdp_1node")
