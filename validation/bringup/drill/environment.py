"""Where drills are performed: a local cluster that is started for them, or the cluster that the user is on.

The local cluster is a program of its own, called by its verbs; nothing of it is imported.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from bringup.drill.catalogue import Command, Shape
from bringup.kernel import results as runs
from bringup.kernel.errors import DrillError
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.results import REPOSITORY

CLUSTER = REPOSITORY / "infrastructure-validation/local-cluster/cluster"
RESULTS = REPOSITORY / "validation/results"

VERB_LIMIT_S = 120
PHASE_LIMIT_S = 420
RECOVERY_S = 20  # a cluster that a drill left broken for longer is replaced: a new one takes a second or two
POLL_S = 0.1

INTERRUPTED = threading.Event()
_PHASES: set[subprocess.Popen[str]] = set()

Ended = subprocess.CompletedProcess[str]


def last_word(done: Ended) -> str:
    return ((done.stderr or done.stdout).strip().splitlines() or ["it said nothing"])[-1]


class Environment(ABC):
    """What performing a drill needs."""

    is_spoiled: bool  # a fault of ours could not be undone
    is_well: bool  # without a fault of ours everything passes; otherwise that is looked at first
    names: tuple[str, ...]  # nodes that may be used; empty: all, because the shape was chosen for the drill
    PATIENCE: ClassVar[int] = 1  # how much longer a phase may take than on a cluster of ours

    @abstractmethod
    def make(self, commands: tuple[Command, ...]) -> None:
        """Run the commands. Raises DrillError with the words of the one that failed."""

    @abstractmethod
    def wait_for(self, node: str, state: str) -> None: ...

    @abstractmethod
    def execute(self, *words: str, limit_s: float = VERB_LIMIT_S, **how: Any) -> Ended:
        """Execute a command of the login host. how: as of `execute`."""

    def bringup(self, *arguments: str, phases: int = 1, **how: Any) -> Ended:
        words, limit_s = (sys.executable, "-m", "bringup", *arguments), self.PATIENCE * phases * PHASE_LIMIT_S
        return self.execute(*words, limit_s=limit_s, phase=True, **how)


def execute(
    command: list[str],
    *,
    environment: Mapping[str, str] | None = None,
    limit_s: float,
    folder: Path = REPOSITORY,
    meanwhile: Callable[[], None] | None = None,
    phase: bool = False,
) -> Ended:
    """Run to the end. In a session of its own, so that Ctrl-C reaches us first; then the command is ended."""
    child = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    if phase:
        _PHASES.add(child)
    try:
        if meanwhile is not None:
            meanwhile()
        out, err = child.communicate(timeout=limit_s)
    except BaseException as reason:
        _end(child)
        if isinstance(reason, subprocess.TimeoutExpired):
            raise DrillError(f"no end after {limit_s:.0f} s: {' '.join(command[-4:])}") from reason
        raise
    finally:
        _PHASES.discard(child)
    return Ended(command, child.returncode, out, err)


def interrupt() -> None:
    """End phases and every wait, from another thread. Faults are still undone."""
    INTERRUPTED.set()
    for child in list(_PHASES):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)


def pause() -> None:
    """Wait between two looks at something. Raises DrillError once all is interrupted."""
    if INTERRUPTED.wait(POLL_S):
        raise DrillError("interrupted")


def _end(child: subprocess.Popen[str]) -> None:
    """TERM first: `bringup run` cancels its job. What stays is killed."""
    for number, patience_s in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
        try:
            os.killpg(child.pid, number)
            child.communicate(timeout=patience_s)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


@dataclass
class LocalCluster(Environment):
    """A cluster of one shape, in a state folder of its own. Up when first needed, replaced if a drill broke it."""

    state: Path
    shape: Shape
    like: str | None = None  # it has the settings of this site
    up: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    is_well: bool = True
    is_spoiled: bool = False
    names: tuple[str, ...] = ()

    def verb(
        self, *words: str, environment: Mapping[str, str] | None = None, limit_s: float = VERB_LIMIT_S, **how: Any
    ) -> Ended:
        variables = {"BRINGUP_CLUSTER": str(self.state), **self.environment, **(environment or {})}
        return execute([str(CLUSTER), *words], environment=variables, limit_s=limit_s, **how)

    def execute(self, *words: str, limit_s: float = VERB_LIMIT_S, **how: Any) -> Ended:
        return self.verb("sh", *words, limit_s=limit_s, **how)

    def start(self) -> None:
        """Start the cluster, and end before what an earlier attempt left in this folder. Raises DrillError."""
        if self.up:
            return
        self.end()
        size = ("--nodes", str(self.shape.nodes), "--gpus", str(self.shape.gpus_per_node))
        options: tuple[str, ...] = ("--unconfined",) if self.shape.unconfined else ()
        options += ("--simulate", self.shape.simulate) if self.shape.simulate else ()
        options += ("--like", self.like) if self.like else ()
        self._must("up", *size, *options)
        self.up, self.is_spoiled = True, False

    def end(self) -> None:
        self.up = False
        self._must("down")

    def heal(self) -> str | None:
        """Wait until the cluster is idle and whole. If it stays broken, replace it and return what was wrong."""
        deadline = time.monotonic() + (0 if self.is_spoiled else RECOVERY_S)
        while (broken := self._what_is_wrong()) is not None and time.monotonic() < deadline:
            pause()
        if broken is None:
            return None
        self.end()
        self.start()
        return broken

    def _what_is_wrong(self) -> str | None:
        """None: every node is there and idle, nothing is queued, and every fault was undone."""
        if self.is_spoiled:
            return "a fault that was made could not be undone"
        lines = self.execute("sinfo", "-h", "-N", "-o", "%N %T").stdout.splitlines()
        if not lines:
            return "the controller did not answer"
        states = dict(line.split(maxsplit=1) for line in lines if " " in line)
        queued = self.execute("squeue", "-h", "-o", "%j %T").stdout.splitlines()
        bad = [f"{name} {states.get(name, 'is not there')}" for name in self.shape.names if states.get(name) != "idle"]
        return ", ".join([*bad, *(f"job {job} is left" for job in queued)]) or None

    def make(self, commands: tuple[Command, ...]) -> None:
        for command in commands:
            filled = (word.replace("{results}", str(RESULTS)) for word in command)
            self._must(*(word.replace("{checkout}", str(REPOSITORY)) for word in filled))

    def wait_for(self, node: str, state: str) -> None:
        deadline = time.monotonic() + 90
        while (observed_state := self.execute("sinfo", "-h", "-N", "-n", node, "-o", "%T").stdout.strip()) != state:
            if time.monotonic() > deadline:
                raise DrillError(f"{node} is {observed_state or 'in an unknown state'}; expected {state} within 90 s")
            pause()

    def _must(self, *words: str) -> None:
        done = self.verb(*words)
        if done.returncode != 0:
            raise DrillError(f"'cluster {' '.join(words)[:80]}' ended with {done.returncode}: {last_word(done)}")


@dataclass
class Here(Environment):
    """The cluster that the user is on, from its login host. No fault but those that a job of one's own can make."""

    names: tuple[str, ...]
    PATIENCE = 10
    is_well: bool = False
    is_spoiled: bool = False

    def make(self, commands: tuple[Command, ...]) -> None:
        for command in commands:
            if command[0] != "sh":
                raise DrillError("it changes the cluster itself, which is done on a local one only")
            done = self.execute(*command[1:])
            if done.returncode != 0:
                raise DrillError(f"ended with {done.returncode}: {last_word(done)[:200]}")

    def wait_for(self, node: str, state: str) -> None:
        raise DrillError("it waits for a state of a node, which nobody brings about here")

    def execute(self, *words: str, limit_s: float = VERB_LIMIT_S, **how: Any) -> Ended:
        return execute(list(words), limit_s=limit_s, **how)


def keep(name: str, stems: tuple[str, ...], place: Path) -> None:
    """Move what a run left among the results to the drill's own folder: nobody takes it for a run of the cluster."""
    kept = {REPOSITORY / runs.PLAYBOOKS / name: place / "playbook"}
    kept |= {folder: place / folder.name for stem in stems for folder in runs.attempts(PHASES[stem], name)}
    for source, target in kept.items():
        if source.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(target, ignore_errors=True)  # of an attempt that was interrupted
            shutil.move(source, target)
