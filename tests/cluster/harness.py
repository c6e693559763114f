"""A local cluster in the hands of a test."""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from programs import ran

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = Path("infrastructure-validation/local-cluster/cluster")

Completed = subprocess.CompletedProcess[str]


class ClusterError(AssertionError):
    """A verb that the test takes for granted has failed."""


def wait_until(condition: Callable[[], object], what: str, timeout: float = 60, poll: float = 0.1) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"not seen within {timeout:g} s: {what}")
        time.sleep(poll)


@dataclass(frozen=True)
class Cluster:
    folder: Path | None  # the state folder; None: the default one of the checkout and user
    checkout: Path = CHECKOUT
    prefix: tuple[str, ...] = ()  # goes before the command: how it is run as somebody else

    @property
    def state(self) -> Path:
        assert self.folder is not None, "the default state folder is the program's to choose"
        return self.folder

    @property
    def shared(self) -> Path:
        """A place for a job's files: every host sees it, which is not so for the machine's /tmp."""
        folder = self.state / "shared"
        folder.mkdir(exist_ok=True)
        return folder

    def command(self, *arguments: str | Path) -> list[str]:
        return [*self.prefix, str(self.checkout / PROGRAM), *map(str, arguments)]

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**os.environ, "BRINGUP_CLUSTER": str(self.folder) if self.folder else "", **(extra or {})}

    def run(
        self,
        *arguments: str | Path,
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
        cwd: Path | None = None,
        stdin: str = "",
    ) -> Completed:
        how = {"env": self.environment(env), "cwd": cwd or self.checkout, "input": stdin}
        return ran(self.command(*arguments), timeout=timeout, **how)

    def sh(self, *command: str | Path, **how: Any) -> Completed:
        """On the login host. how: of run."""
        return self.run("sh", *command, **how)

    def on(self, node: str, *command: str | Path, timeout: float = 60) -> Completed:
        """On a node, as its root, outside Slurm."""
        return self.run("on", node, *command, timeout=timeout)

    def up(self, *options: str, timeout: float = 120) -> Completed:
        return self._must(self.run("up", *options, timeout=timeout))

    def down(self) -> Completed:
        return self._must(self.run("down"))

    def off(self, node: str) -> None:
        self._must(self.run("off", node))

    def boot(self, node: str) -> None:
        self._must(self.run("boot", node))

    def slurmd(self, node: str, verb: str) -> None:
        self._must(self.run("slurmd", node, verb))

    def node_state(self, node: str) -> str:
        return self.sh("sinfo", "-h", "-N", "-n", node, "-o", "%T").stdout.strip()

    def wait_idle(self, timeout: float = 60) -> None:
        def all_idle() -> bool:
            states = self.sh("sinfo", "-h", "-N", "-o", "%T").stdout.split()
            return bool(states) and set(states) == {"idle"}

        wait_until(all_idle, "all nodes idle", timeout)

    @staticmethod
    def _must(done: Completed) -> Completed:
        if done.returncode != 0:
            raise ClusterError(f"'{done.args[-2]} {done.args[-1]}' ended with {done.returncode}: {done.stderr.strip()}")
        return done


@contextlib.contextmanager
def state_folder() -> Iterator[Path]:
    """The path of a state folder that is nobody else's; it does not exist yet."""
    # /tmp by name: a deeper folder would be too long for munge's socket
    with tempfile.TemporaryDirectory(prefix="bringup-test-", dir="/tmp") as folder:
        yield Path(folder) / "state"


@contextlib.contextmanager
def running_cluster(*options: str, checkout: Path = CHECKOUT) -> Iterator[Cluster]:
    """A cluster of its own, that disturbs none of the developer's."""
    with state_folder() as folder:
        cluster = Cluster(folder, checkout)
        try:
            cluster.up(*options)
            yield cluster
        finally:
            cluster.down()
