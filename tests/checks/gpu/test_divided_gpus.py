"""A node whose GPUs are divided (MIG), where Slurm counts the parts: one cause, and no GPU is missing."""

from bringup import judge
from bringup.derive.blame import blame
from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Action, Outcome, Verdict
from runs_for_tests import gpu_run


def judged(parts: int, devices: int = 1) -> dict[str, Verdict]:
    """Slurm says 2. devices: of GPUs, each divided into so many parts."""
    parsed, (run, profile) = Parsed(), gpu_run()
    parsed.saw("discovery.gpu.count", "n0", devices, "count", "f:1")
    parsed.saw("discovery.gpu.answering", "n0", devices, "count", "f:2", "NVML")
    for index in range(devices):
        parsed.saw("inventory.gpu.mig_devices", f"n0/GPU-{index}", parts, "count", "f:3")
    parsed.saw("discovery.gpu.mig", "n0", "on", "text", "f:4", "GPU-0")
    seen = Seen(parsed.observations)
    return {v.gate: v for v in blame(judge.judge(run, profile, parsed), seen, run).verdicts}


def test_what_slurm_counts_are_parts_and_no_reboot_is_proposed() -> None:
    verdicts = judged(parts=2)
    for gate in ("discovery.gpu.count", "discovery.gpu.answering"):
        assert verdicts[gate].outcome is Outcome.FAIL
        assert verdicts[gate].cause == "its GPUs are divided: discovery.gpu.mig"
        assert verdicts[gate].action is Action.CONFIGURE
    cause = "Slurm counts 2 parts as GPUs; ranks on them have neither NVLink nor NCCL between them"
    assert verdicts["discovery.gpu.mig"].cause == cause


def test_a_gpu_that_is_missing_beside_a_divided_one_is_missing() -> None:
    """The parts are not as many as what Slurm says: they do not explain the count."""
    verdict = judged(parts=3)["discovery.gpu.count"]
    assert (verdict.outcome, verdict.cause, verdict.action) == (Outcome.FAIL, None, Action.REBOOT)


def test_a_count_that_is_right_is_not_touched() -> None:
    verdicts = judged(parts=1, devices=2)
    assert verdicts["discovery.gpu.count"].outcome is Outcome.PASS
    assert verdicts["discovery.gpu.count"].cause is None
