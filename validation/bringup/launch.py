"""Start one phase and wait for its end, saying meanwhile what is going on."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from bringup import report, slurm
from bringup.gates.discovery import USABLE_STATES
from bringup.phases import REPOSITORY, Phase

POLL_S = 0.5


class Tell:
    """What is going on now: a line that is rewritten on a terminal, a new line only when it changed elsewhere."""

    def __init__(self, console: Console, title: str) -> None:
        self._title, self._text, self._last, self._begun = title, "", "", time.monotonic()
        self._console = console
        self.status = console.status(self) if console.is_terminal else None

    def __rich__(self) -> Text:
        """Drawn again at every refresh, so that the seconds run. Text: a pending reason is Slurm's free text, no markup."""
        return Text(f"{self._title}: {report.plain(self._text)} ({time.monotonic() - self._begun:.0f} s)")

    def __call__(self, text: str) -> None:
        self._text = text
        if self.status is not None:
            return
        if text.split(":")[0] != self._last:
            self._last = text.split(":")[0]
            self._console.print(f"{'…':<10} {self._title}: {report.plain(text)}")
        sys.stdout.flush()


@contextmanager
def progress(console: Console, title: str) -> Iterator[Tell]:
    tell = Tell(console, title)
    if tell.status is None:
        yield tell
    else:
        with tell.status:
            yield tell


def bash_and_wait(phase: Phase, nodes: list[str], environment: dict[str, str], log: Path, tell: Tell) -> None:
    """A phase that is started on the login host; what it prints goes to `log`."""
    tell("running")
    command = ["bash", phase.script, "--nodelist", ",".join(nodes)]
    with log.open("wb") as stream:
        script = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=stream, stderr=subprocess.STDOUT,
                                  stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            script.wait()
        except BaseException:  # Ctrl-C: the script's own srun and salloc end with it, and their jobs with them
            os.killpg(script.pid, signal.SIGTERM)
            script.wait()
            raise


def submit_and_wait(phase: Phase, nodes: list[str], environment: dict[str, str], tell: Tell) -> None:
    """Submit on the nodes that are usable now; the plan still holds all of them. Raises SlurmError when none is."""
    waiting, name = list(nodes), environment["BRINGUP_RUN_NAME"]
    for attempt in itertools.count():
        # an attempt that Slurm ended before it was done may have opened its run: the next one writes a folder of its own
        own = environment | {"BRINGUP_NODES": ",".join(nodes), "BRINGUP_RUN_NAME": f"{name}-r{attempt}" if attempt else name}
        states, _ = slurm.node_facts()
        usable = [name for name in waiting if states.get(name) in USABLE_STATES]
        if len(usable) < len(nodes) and (phase.max_nodes is not None or phase.is_training or not usable):
            broken = ", ".join(f"{name} {states.get(name, 'unknown')}" for name in nodes if name not in usable)
            raise slurm.SlurmError(f"not submitted: {broken}; scontrol show node {nodes[0]}")
        job_id = slurm.submit(phase.script, usable, own)
        if _wait(job_id, usable, tell):
            return
        waiting = usable  # a node was lost while the job was pending: cancelled there, once more without it


def _wait(job_id: str, nodes: list[str], tell: Tell) -> bool:
    """True when the job has ended. False when it cannot start because one of its nodes became unusable; then it is cancelled."""
    try:
        while True:
            try:
                state = slurm.job(job_id)
                pending = state is not None and state.state == "PENDING"
                states = slurm.node_facts()[0] if pending else {}
            except slurm.SlurmError as error:
                tell(f"job {job_id}: no answer ({error}); still waiting")
                time.sleep(POLL_S)
                continue
            if state is None or state.state in slurm.ENDED:
                return True
            if pending:
                lost = [name for name in nodes if states.get(name) not in USABLE_STATES]
                if lost:
                    slurm.cancel(job_id)
                    return False
                why = slurm.in_words(state)
                tell(f"job {job_id} pending" + (f": {why}" if why else ""))
            else:
                tell(f"job {job_id} {state.state.lower()}")
            time.sleep(POLL_S)
    except BaseException:  # Ctrl-C too: no job of ours is left behind
        slurm.cancel(job_id)
        raise
