"""Who is in a communicator, as its members tell each other: the facts of probes/collectives.py and the gates that read them."""

import io
import sys
from pathlib import Path

import pytest
from bringup import judge, plan, profile
from bringup.parsers import facts
from bringup.parsers.result import Parsed
from bringup.records import Outcome, Run, Verdict

sys.path.append(str(Path(__file__).resolve().parents[1] / "infrastructure-validation/probes"))
import collectives
import gpus
from facts import Facts

# (host, rank, pid, device) of the four ranks of two nodes
GPUS = [("n0", 0, 429, "GPU-a"), ("n0", 1, 430, "GPU-b"), ("n1", 2, 376, "GPU-c"), ("n1", 3, 377, "GPU-d")]
# recorded on two nodes, of which one had lost a device file
RECORDED = """\
0: {"probe": "collectives", "at": "n0", "subject": "2-nodes", "quantity": "nccl.ranks", "value": 4, "unit": "count"}
0: {"probe": "collectives", "at": "n0", "subject": "2-nodes", "quantity": "nccl.hosts", "value": 2, "unit": "count"}
0: {"probe": "collectives", "at": "n0", "subject": "2-nodes", "quantity": "nccl.devices", "value": 3, "unit": "count", \
"why": "2 ranks have nvidia0 (char 195:0) of n1"}
0: {"probe": "collectives", "at": "n0", "end": 3}
"""


def told(members) -> Parsed:
    stream = io.StringIO()
    probe = Facts("collectives", stream)
    collectives.say_members(probe, "2-nodes", members, [])
    probe.finish()
    return facts.parse(stream.getvalue(), "raw/collectives-2.jsonl")


def verdict(parsed: Parsed, gate: str) -> Verdict:
    run = Run(phase="nccl_monitoring", name="x", profile_sha256="", nodes=["n0", "n1"], gpus_per_node=2, ranks_per_node=2,
              profile="generic", planned=plan.plan("nccl_monitoring", ["n0", "n1"], 2, set()), not_applicable=[], argv=[],
              git_commit=None, git_dirty=None, slurm_job_id=None, slurm_restart_count=0, opened_at="now")
    return next(v for v in judge.judge(run, profile.load("generic"), parsed).verdicts if v.gate == gate)


def test_four_ranks_on_four_gpus_pass():
    assert {verdict(told(GPUS), f"nccl.{what}").outcome for what in ("ranks", "hosts", "devices")} == {Outcome.PASS}


def test_two_ranks_on_one_gpu_fail_and_are_named_though_ranks_and_hosts_are_right():
    parsed = told([*GPUS[:3], ("n1", 3, 377, "GPU-c")])
    found = verdict(parsed, "nccl.devices")
    assert (found.outcome, found.observed, found.expected) == (Outcome.FAIL, "3 (2 ranks have GPU-c of n1)", "4")
    assert verdict(parsed, "nccl.ranks").outcome is verdict(parsed, "nccl.hosts").outcome is Outcome.PASS


def test_what_was_recorded_of_a_node_that_lost_a_device_fails():
    found = verdict(facts.parse(RECORDED, "raw/collectives-2.jsonl"), "nccl.devices")
    assert (found.outcome, found.evidence) == (Outcome.FAIL, "raw/collectives-2.jsonl:3")
    assert "nvidia0 (char 195:0) of n1" in found.observed


def test_the_same_device_file_on_two_hosts_is_two_devices():
    members = [(host, rank, pid, f"nvidia{rank % 2} (char 195:{rank % 2})") for host, rank, pid, _ in GPUS]
    assert verdict(told(members), "nccl.devices").outcome is Outcome.PASS


def test_a_rank_without_a_gpu_is_incomplete_and_no_device_of_its_own():
    assert verdict(told([*GPUS[:3], ("n1", 3, 377, None)]), "nccl.devices").outcome is Outcome.INCOMPLETE


@pytest.mark.parametrize(("allowed", "taken"), [(["a", "b"], ["a", "b"]), (["a"], ["a", "a"]), ([], [None, None])])
def test_ranks_take_devices_in_turn_and_wrap_around_where_there_are_fewer(monkeypatch, allowed, taken):
    monkeypatch.setattr(gpus, "openable", lambda: (allowed, []))
    assert [collectives.placeholder(local) for local in (0, 1)] == taken
