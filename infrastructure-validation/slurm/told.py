"""What Slurm is told of a node, and asked before, when something is new."""

import os
import re
import subprocess
import time
from pathlib import Path

from brake import Brake, SlurmAway, environment

IN_SERVICE = ("idle", "planned", "allocated", "mixed")


class Slurm:
    def __init__(self, settings, baseline, node, deadline):
        self.folder, self.node, self.deadline = settings.slurm_folder, node, deadline
        self.slurm_conf = {"SLURM_CONF": settings.slurm_conf} if settings.slurm_conf else {}
        self.brake = Brake(self.ask, settings.most_drained, baseline["owner"], baseline["slurms_own"])
        self.is_in_service = False  # for everybody, as state() was answered

    def state(self, nodes=None):
        """(whether the node is kept out of service, the reason or ""). nodes: a look of now; else only it is asked for.
        Raises SlurmAway."""
        if nodes is None:
            if os.environ.get("SLURM_NODE_IS_HEALTHY") == "yes":  # Slurm 26.11: no question is needed
                return False, ""
            nodes = self.brake.look(self.node)
        if self.node not in nodes:
            raise SlurmAway(f"sinfo knows no node {self.node}")
        own = nodes[self.node]
        self.is_in_service = not own.marks and own.state in IN_SERVICE
        return own.is_out, own.reason

    def say(self, reason):
        """Another reason; the state stays."""
        self.ask(("scontrol", "update", "NodeName=" + self.node, "Reason=" + reason), {})

    def ask(self, command, more):
        """The output of a command. Raises SlurmAway."""
        program = command[0]
        left = max(0.2, self.deadline - time.monotonic())
        try:
            done = subprocess.run(
                [str(Path(self.folder) / program), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                universal_newlines=True,
                env=environment(dict(self.slurm_conf, **more)),
                timeout=left,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise SlurmAway(f"{program}: {error}") from error
        if done.returncode != 0:
            raise SlurmAway(
                "{} ended with {}: {}".format(program, done.returncode, " ".join(done.stderr.split())[:200])
            )
        return done.stdout


def reason_of(baseline, faults, by):
    """As validation/bringup/report/reason.py writes one; its template and its limits are in the baseline."""
    costs = baseline["actions"]
    action = max((each["action"] for each in faults), key=costs.index)
    more = sorted({each["gate"] for each in faults[1:]} - {faults[0]["gate"]})
    finding = "{} {}".format(faults[0]["gate"], faults[0]["words"])
    if more:
        finding = "{} and {}".format(" ".join(more), finding)
    parts = {"action": action, "date": time.strftime(baseline["date"], time.gmtime()), "by": by}
    bare = baseline["reason"].format(finding="", **parts)
    return in_reason(
        baseline, baseline["reason"].format(finding=finding[: max(0, baseline["most"] - len(bare))], **parts)
    )


def passes_again(baseline, reason):
    """The reason of a node that was drained with `reason` and has no fault now. None: it says so already."""
    return _now(baseline, baseline["passes"], reason)


def asks_for_a_load(baseline, reason):
    """The reason of a node whose driver's fault is in its log no more. None: it says so already, or the baseline is
    of a version that does not know this."""
    return _now(baseline, baseline["asks_for_a_load"], reason) if "asks_for_a_load" in baseline else None


def _now(baseline, template, reason):
    if reason.startswith(template.partition("{")[0]):
        return None
    for other in (baseline["passes"], baseline.get("asks_for_a_load", "")):  # of two, the last is true
        if other and reason.startswith(other.partition("{")[0]):
            reason = baseline["owner"] + reason.partition(", was ")[2]
    date = time.strftime(baseline["date"], time.gmtime())
    return in_reason(baseline, template.format(date=date) + reason[len(baseline["owner"]) :])


def is_of_a_run(baseline, reason):
    """Whether a run of bringup drained the node: its gates are another run's to ask."""
    return reason.startswith(baseline["owner"]) and not re.search(r", (health-check|prolog|epilog)\)$", reason)


def in_reason(baseline, text):
    return re.sub(baseline["not_allowed"], "_", text)
