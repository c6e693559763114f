"""Each phase script stands alone."""

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import CHECKOUT, Cluster, running_cluster
from playbook import playbook
from programs import ran

pytestmark = pytest.mark.cluster
DISCOVERY = CHECKOUT / "infrastructure-validation/scripts/discover-environment.sbatch"


def submit(cluster: Cluster, folder: Path, script: Path, **env: str) -> tuple[int, str]:
    """(exit code, what the job printed); the log is removed."""
    begun = time.time()
    done = cluster.sh("sbatch", "--wait", "--parsable", script, cwd=folder, env=env, timeout=120)
    # job numbers start again with every cluster: older logs of the checkout are not this job's
    logs = [*folder.glob(f"*-{done.stdout.strip()}.out"), *folder.glob(f"slurm-logs/*-{done.stdout.strip()}.out")]
    [log] = [path for path in logs if path.stat().st_mtime >= begun]
    text = log.read_text()
    log.unlink()
    return done.returncode, text


def test_discovery_can_be_submitted_by_itself(cluster: Cluster):
    with playbook(cluster) as book:
        code, text = submit(cluster, CHECKOUT, DISCOVERY, BRINGUP_RUN_NAME=book.name)
        assert code == 0, text
        assert "PASS" in text
        assert (book.folder("discovery") / "report.md").is_file()


@pytest.fixture
def whole_nodes(cluster: Cluster) -> Iterator[Cluster]:
    """Its partition gives whole nodes to every job, as training partitions often do."""
    try:
        assert cluster.sh("scontrol", "update", "PartitionName=main", "OverSubscribe=EXCLUSIVE").returncode == 0
        yield cluster
    finally:
        assert cluster.sh("scontrol", "update", "PartitionName=main", "OverSubscribe=NO").returncode == 0


def test_smoke_can_be_started_by_itself_on_a_partition_that_gives_whole_nodes_and_works_on_the_requested_node_alone(
    whole_nodes: Cluster,
):
    cluster = whole_nodes
    with playbook(cluster) as book:
        smoke = ("bash", "infrastructure-validation/scripts/smoke_test.sh", "--nodelist", "n1")
        done = cluster.sh(*smoke, env={"BRINGUP_RUN_NAME": book.name}, timeout=280)
        assert done.returncode == 0, done.stdout + done.stderr
        report = (book.folder("smoke") / "report.md").read_text()
        [row] = [line for line in report.splitlines() if line.startswith("- the partition gives whole nodes to a job")]
        assert "smoke.jobs.distinct_gpus" in row
        facts = [
            json.loads(line.partition(": ")[2] if line[0].isspace() or line[0].isdigit() else line)
            for path in (book.folder("smoke") / "raw").glob("*.jsonl")
            for line in path.read_text().splitlines()
        ]
        assert len(facts) > 50
        assert {fact["at"] for fact in facts} == {"n1", "ctl"}  # the login host looks at the folder too
        ended = {path.name: path.read_text() for path in (book.folder("smoke") / "raw").glob("job-*.txt")}
        assert len(ended) >= 6
        assert {name for name, text in ended.items() if not re.search(r" NodeList=(n1|\(null\)|) ", text)} == set()


@pytest.mark.parametrize("options", [("--nodes", "9"), ("--nodes", "x"), ("--nodelist", "n[0-9]"), ("--no-such-flag",)])
def test_a_script_with_bad_options_is_one_line_and_exit_code_2(cluster: Cluster, options):
    for script in ("smoke_test.sh", "nccl_scaling.sh", "nccl_run_with_monitoring.sh"):
        done = cluster.sh("bash", f"infrastructure-validation/scripts/{script}", *options)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.timeout(300)
def test_it_runs_in_a_path_with_spaces_and_quotes(tmp_path_factory, monkeypatch):
    """The checkout's files in such a path, with this venv; its own package, results and logs."""
    place = tmp_path_factory.mktemp('it\'s a "path"') / "bring up"
    git = ["git", "-C", CHECKOUT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, ran(git, check=True).stdout.split("\0")):
        if (CHECKOUT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, place / name)
    venv = Path(os.environ.get("BRINGUP_VENV", CHECKOUT / ".venv"))
    monkeypatch.setenv("BRINGUP_VENV", str(venv))  # so that the nodes see it, also where this checkout lies in /tmp
    with running_cluster("--nodes", "2", "--gpus", "2", checkout=place) as cluster:
        run = (venv / "bin/python", "-m", "bringup", "run", "discovery", "smoke", "run_ddp_1node")
        done = cluster.sh(*run, timeout=240, cwd=place, env={"PYTHONPATH": str(place / "validation")})
    assert done.stdout.count("report: ") == 2, done.stdout + done.stderr  # of what did not pass, and of all
    # no one-GPU run to compare with was made here: that is said, and nothing else is missing
    assert done.returncode == 2, done.stdout + done.stderr
    [bad] = [line for line in done.stdout.splitlines() if line.startswith(("  INCOMPLETE", "  FAIL"))]
    assert bad.endswith("(2 gates: train.loss.agrees, train.grad_norm.agrees)"), done.stdout
    assert len(list(place.glob("validation/results/*/*/verdicts.json"))) == 2


def test_doctor_submits_nothing_and_a_site_file_that_slurm_wrote_is_used(cluster: Cluster):
    bringup, queue = CHECKOUT / ".venv/bin/bringup", ("squeue", "--noheader", "--states=all", "--format=%i")
    before = cluster.sh(*queue).stdout
    asked = cluster.sh(bringup, "doctor")
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert "PASS       partition    main: 2 of 2 nodes usable, 2 GPUs each" in asked.stdout
    assert "WARN       site file" in asked.stdout and "bringup site --init" in asked.stdout
    file = cluster.shared / "made.yaml"
    made = cluster.sh(bringup, "site", "--init", file)
    assert made.returncode == 0, made.stderr
    assert cluster.sh(bringup, "site", "--init", file).returncode == 2
    again = cluster.sh(bringup, "doctor", env={"BRINGUP_SITE": str(file)})
    assert f"PASS       site file    made, {file}" in again.stdout
    assert "PASS       request      gpu_request --gpus-per-node=2" in again.stdout
    assert set(cluster.sh(*queue).stdout.split()) <= set(before.split())
