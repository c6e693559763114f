"""Runs in which all that was planned passed, on a cluster with GPUs and on the local one."""

from bringup.judge import Judged
from bringup.plan import planned
from bringup.plan import profile as profiles
from bringup.plan.phases import PHASES
from bringup.records import Observation, Outcome
from factory import a_run, a_verdict, judged_of

GPU_CLUSTER = {  # quantity -> value: what a run shows of real GPUs, NCCL and a fabric
    "discovery": {"discovery.gpu.driver": "580.95"},
    "smoke": {"smoke.binding.gpu": "GPU-1234"},
    "node_sweep": {"sweep.device": "cuda", "sweep.backend": "nccl"},
    "nccl": {"nccl.backend": "nccl", "nccl.transport": "rdma-verbs"},
    "run_": {"train.device": "cuda", "train.transport": "rdma-verbs"},
}
LOCAL_CLUSTER = {
    "smoke": {"smoke.binding.gpu": "nvidia0"},
    "node_sweep": {"sweep.device": "cpu", "sweep.backend": "gloo"},
    "nccl": {"nccl.backend": "gloo", "nccl.transport": "tcp:eth0"},
    "run_": {"train.device": "cpu", "train.transport": "tcp:eth0"},
}


def healthy(phase: str, nodes: int, shows: dict[str, dict[str, str]], profile: str = "generic") -> Judged:
    """A run of this phase in which all that was planned passed."""
    names = [f"n{number}" for number in range(nodes)]
    used = profiles.load(profile)
    excluded = planned.excluded_here(phase, used.not_applicable)
    plan = planned.plan(phase, names, 2, {entry.gate for entry in excluded})
    facts = next((facts for prefix, facts in shows.items() if phase.startswith(prefix)), {})
    return judged_of(
        *(
            a_verdict(gate, subject, Outcome.PASS, "1", value=392.0 if gate.endswith("busbw") else 1)
            for gate, subjects in plan.items()
            for subject in subjects
        ),
        run=a_run(phase, names, plan=plan),
        observations=tuple(
            Observation(
                quantity=quantity,
                subject="job",
                value=value,
                unit="text",
                evidence="e",
                why=None if value else "not seen",
            )
            for quantity, value in facts.items()
        ),
        not_applicable=tuple(excluded),
        profile=profile,
    )


def playbook(nodes: int, shows: dict[str, dict[str, str]], profile: str = "generic") -> list[Judged]:
    return [healthy(stem, nodes, shows, profile) for stem, phase in PHASES.items() if phase.min_nodes <= nodes]
