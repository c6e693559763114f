"""Phases on the live cluster, through the commands a user types; what they leave is removed afterwards."""

import contextlib
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from bringup.kernel import judge
from bringup.kernel import results as runs
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Verdicts
from harness import CHECKOUT, Cluster, Completed

BRINGUP = ".venv/bin/bringup"


class Playbook:
    """One `bringup run` under a name of its own."""

    def __init__(self, cluster: Cluster, name: str, checkout: Path = CHECKOUT) -> None:
        self.cluster, self.name, self.checkout = cluster, name, checkout

    def run(self, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 240) -> Completed:
        named = {"BRINGUP_RUN_NAME": self.name, **(env or {})}
        return self.cluster.sh(BRINGUP, "run", *arguments, env=named, timeout=timeout)

    def folder(self, phase: str) -> Path:
        return self.checkout / runs.folder_of(PHASES[phase], self.name).relative_to(runs.REPOSITORY)

    @property
    def own_folder(self) -> Path:
        return self.checkout / runs.PLAYBOOKS / self.name

    def verdicts(self, phase: str) -> Verdicts:
        return judge.judge_folder(self.folder(phase)).verdicts


@contextlib.contextmanager
def playbook(cluster: Cluster) -> Iterator[Playbook]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    try:
        yield Playbook(cluster, name)
    finally:
        for results in ("validation/results", "training/results"):
            for folder in (CHECKOUT / results).rglob(f"*{name}*"):
                if folder.is_dir():
                    shutil.rmtree(folder)
