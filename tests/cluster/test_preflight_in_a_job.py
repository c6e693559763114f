"""`bringup preflight` in a live job: what its command sees, and who is exchanged. More cases: preflight_cases.py."""

import preflight_cases as cases
import pytest
from bringup.drill.environment import LocalCluster
from harness import Cluster
from playbook import BRINGUP

pytestmark = pytest.mark.cluster
NAMED = {case.name: case for case in cases.CASES}
SALLOC = ("salloc", "--quiet", "--nodes=3", "--exclusive", "--mem=0", "--no-kill")
SEEN = """
srun --ntasks-per-node=1 hostname | sort | paste -sd,
srun --nodes=1 --ntasks=1 hostname
srun --ntasks-per-node=1 bash -c 'echo "$SLURM_JOB_NODELIST $SLURM_NNODES"' | sort -u
scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,
paste -sd, "$BRINGUP_HOSTFILE"
echo "$BRINGUP_NODES $MASTER_ADDR $SLURM_NNODES $SLURM_NTASKS"
srun --nodelist=n2 --nodes=1 --ntasks=1 hostname
exit 23
"""


@pytest.fixture
def local(simulated: Cluster) -> LocalCluster:
    return LocalCluster(simulated.state, cases.SIMULATED, up=True)


@pytest.mark.parametrize("name", ["gpu-lost-during", "script-fails"])  # before the start: below
def test_a_culprit_is_left_out_or_exchanged_and_an_innocent_is_not(local: LocalCluster, name: str):
    score = cases.perform(NAMED[name], local)
    cases.forget(score.name)
    assert score.is_right, score


def test_the_command_sees_the_chosen_nodes_alone_and_its_code_is_passed_on(simulated: Cluster):
    run = "preflight-sees"
    verb = [BRINGUP, "preflight", "--nodes", "2", "--phases", "discovery", "--retries", "0", "--", "bash", "-c", SEEN]
    try:
        assert simulated.run("gpu", "n0", "1", "ecc", "2").returncode == 0
        done = simulated.sh(*SALLOC, *verb, env={"BRINGUP_RUN_NAME": run}, timeout=240)
    finally:
        simulated.run("gpu", "n0", "repair")
        cases.forget(run)
    assert done.returncode == 23, done.stderr
    assert done.stdout.splitlines() == ["n1,n2", "n1", "n1,n2 2", "n1,n2", "n1,n2", "n1,n2 n1 2 ", "n2"], done.stderr
    assert "left out   n0: discovery.gpu.ecc: " in done.stderr


def test_the_cases_have_innocents_and_ten_kinds_of_faults():
    assert sum(case.when == "innocent" for case in cases.CASES) >= 3
    assert len({case.fault for case in cases.CASES if case.when != "innocent" and case.shape.nodes == 5}) >= 10
