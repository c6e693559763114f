"""What `bringup why JOB --on-nodes` runs on a node: the user's own processes in the job, and the kernel's messages."""

import os
import subprocess
import sys
import time

import job_processes
import kernel_log
import pytest
from probing import told_by
from programs import program

DUMP = """\
Process 7: python3 train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 7 (idle): "MainThread"
    read_shard (data.py:12)
    main (train.py:9)
Thread 8 (idle): "watcher"
    wait (threading.py:1)
"""


@pytest.fixture
def rank():
    """A process of job 4711."""
    environment = {**os.environ, "SLURM_JOB_ID": "4711", "RANK": "3"}
    waits = [sys.executable, "-c", "print(flush=True); input()"]
    process = subprocess.Popen(waits, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()  # it runs
    yield process
    process.kill()
    process.communicate()


def facts_of(question) -> dict[tuple[str, str], tuple]:
    return {(fact.quantity, fact.subject): (fact.value, fact.why) for fact in told_by(question).observations}


def test_a_rank_of_the_job_is_shown_with_its_stack_and_no_other_process(rank, tmp_path, monkeypatch):
    program(tmp_path / "py-spy", f"cat <<'END'\n{DUMP}END")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(job_processes, "BETWEEN_S", 0.1)
    facts = facts_of(lambda probe: job_processes.processes(probe, "4711"))
    words, _ = facts["job.process", "n0/rank3"]
    assert words.startswith("python")
    assert "% of a core" in words
    assert facts["job.stack", "n0/rank3"][0] == "read_shard (data.py:12), called by main (train.py:9)"
    assert len([fact for fact in facts if fact[0] == "job.process"]) == 1
    program(tmp_path / "py-spy", "echo 'Error: Permission Denied'; exit 1")
    value, why = facts_of(lambda probe: job_processes.processes(probe, "4711"))["job.stack", "n0/rank3"]
    assert value is None and "Permission Denied" in why


def test_messages_of_the_kernel_count_from_the_start_of_the_job_on(monkeypatch):
    def at(seconds: float, text: str) -> str:
        return f"3,{int(seconds)},{int(seconds * 1e6)},-;{text}"

    uptime = float((job_processes.PROC / "uptime").read_text().split()[0])
    kill = "Memory cgroup out of memory: Killed process 4711 (python3) total-vm:8kB"
    xid = "NVRM: Xid (PCI:0000:c1:00): 79, pid=1, name=x, GPU has fallen off"
    log = [at(1, kill), at(uptime, kill), at(uptime, xid)]
    monkeypatch.setattr(kernel_log, "read_log", lambda: (kernel_log.of_kmsg("\n".join(log)), "all"))
    facts = told_by(lambda probe: job_processes.kernel(probe, time.time() - 60)).observations
    values = [(fact.quantity, fact.subject, fact.value) for fact in facts]
    assert ("job.kernel.xid_79", "n0/PCI:0000:c1:00", 1) in values
    assert values.count(("job.kernel", "n0", kill)) == 1  # the other one is from before
    assert ("job.kernel.records", "n0", 2) in values
    earlier = told_by(lambda probe: job_processes.kernel(probe, time.time() - 60, time.time() - 30)).observations
    assert [(fact.quantity, fact.value) for fact in earlier if fact.value is not True] == [("job.kernel.records", 0)]
