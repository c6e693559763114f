"""How the ranks of a training ended that did not finish, and who was the first: launcher's log, error files, stacks.

Many end, one is the culprit. A rank whose peers are gone, or whose collective waited too long, is a victim: it did not finish,
and it is not the fault, so it is incomplete, with its own words.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bringup.evidence.parsed import Parsed
from bringup.plan.subjects import rank_subjects
from bringup.records import Run

STATE = "train.rank.state"

_LOST_PEERS = re.compile(
    r"Connection closed|Connection reset|Read error|Timed out waiting|wait timeout|Broken pipe|PeerFailedError|caused pair closure"
    r"|Watchdog caught collective operation timeout|NCCL communicator was aborted|ncclRemoteError|remote process exited"
    r"|the loss of this rank was finite"
)  # training/src/finite.py
"""What is said on a rank whose peer is gone or brought in a NaN: a victim's words, not a culprit's."""


def excuse_victims(parsed: Parsed) -> None:
    """A rank that raised because it lost its peers did not finish, but it is not the fault: incomplete, with its own words."""
    errors = {one.subject: one for one in parsed.observations if one.quantity == "train.rank.error"}
    for index, one in enumerate(parsed.observations):
        error = errors.get(one.subject)
        if one.quantity == STATE and one.value in ("raised", "hung") and error is not None:
            lost = _LOST_PEERS.search(str(error.value)) is not None
            parsed.observations[index] = one.model_copy(
                update={
                    "value": None if lost else one.value,
                    "why": f"lost its peers: {error.value}" if lost else str(error.value),
                }
            )


_FAILED_RANK = re.compile(r"rank\s*:\s*(\d+) \(local_rank: \d+\)")
_EXIT_CODE = re.compile(r"exitcode\s*:\s*(-?\d+) \(pid: \d+\)")
_WATCHDOG = re.compile(r"\[Rank (\d+)\] (Watchdog caught collective operation timeout: .*?)(?:\.\s|$)")
_KILLED_FOR_MEMORY = re.compile(r"oom[-_]kill event|: Out Of Memory")
_OF_NODE = re.compile(r"slurmstepd-(\S+?): error: .*oom|error: (\S+): tasks? \S+: Out Of Memory")
_NODE_LOST = re.compile(r"[Nn]ode failure on (\S+)|NODE_FAIL.* on (\S+)")
_TERMINATED = -15  # torchrun ends the others so: a victim, not a culprit
_ABORTED = -6  # NCCL's watchdog ends its own rank so when a collective timed out


def launcher_log(text: str, where: str, run: Run) -> Parsed:
    """torchrun's failure summary: which rank ended by itself, and how; and Slurm's words about memory and lost nodes.

    Ranks that torchrun ended are not named, nor those that NCCL's watchdog ended because others did not come.
    """
    parsed = Parsed()
    places = rank_subjects(run.nodes, run.ranks_per_node)
    lines = text.splitlines()
    waited = {int(match[1]): match[2] for line in lines if (match := _WATCHDOG.search(line))}
    short_of_memory = {match[1] or match[2] for line in lines if (match := _OF_NODE.search(line))}
    somewhere = any(_KILLED_FOR_MEMORY.search(line) for line in lines)
    rank: int | None = None
    for number, line in enumerate(lines, start=1):
        if match := _FAILED_RANK.search(line):
            rank = int(match[1])
        elif (match := _EXIT_CODE.search(line)) and rank is not None:
            code, evidence = int(match[1]), f"{where}:{number}"
            if rank < len(places) and code == _ABORTED and rank in waited:
                parsed.saw(STATE, places[rank], None, "text", evidence, f"lost its peers: {waited[rank]}")
            elif rank < len(places) and code < 0 and code != _TERMINATED:
                node = places[rank].split("/")[0]
                out = code == -9 and (node in short_of_memory or (somewhere and not short_of_memory))
                parsed.saw(
                    "train.rank.killed",
                    places[rank],
                    f"killed by signal {-code}",
                    "text",
                    evidence,
                    f"out of memory on {node}: the limit of the job's cgroup was reached" if out else None,
                )
            rank = None
        elif match := _NODE_LOST.search(line):
            for place in places:
                if place.split("/")[0] == (match[1] or match[2]).strip(",.;:"):
                    parsed.saw(
                        "train.rank.killed",
                        place,
                        "lost with its node",
                        "text",
                        f"{where}:{number}",
                        line.strip()[:200],
                    )
    return parsed


def say_who_was_killed(parsed: Parsed) -> None:
    """A rank that was killed wrote no state: the launcher's word is its state."""
    known = {one.subject for one in parsed.observations if one.quantity == STATE}
    for one in list(parsed.observations):
        if one.quantity == "train.rank.killed" and one.subject not in known:
            parsed.saw(STATE, one.subject, one.value, "text", one.evidence, one.why)


@dataclass(frozen=True)
class Stall:
    """A rank without progress, as it said itself."""

    place: str  # of its stack: `after_step (training/src/drill.py:96)`
    evidence: str
    step: int | None
    entered: int | None  # collectives that it had begun


_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$')


def stalls(folder: Path, run: Run) -> dict[str, Stall]:
    """Subject -> what raw/stacks/ holds of it. An empty stack is none; progress that cannot be read is unknown."""
    places = rank_subjects(run.nodes, run.ranks_per_node)
    found = {}
    for path in sorted((folder / "raw/stacks").glob("rank*.txt")):
        number = path.stem.removeprefix("rank")
        if not number.isdigit() or int(number) >= len(places):
            continue
        stack = _innermost(path.read_text(encoding="utf-8", errors="replace"))
        if stack is not None:
            progress = _progress(path.with_suffix(".json"))
            found[places[int(number)]] = Stall(
                stack[0], f"raw/stacks/{path.name}:{stack[1]}", progress.get("step"), progress.get("entered")
            )
    return found


def _innermost(text: str) -> tuple[str, int] | None:
    """(innermost frame of the main thread, its line) of the last dump: faulthandler writes the main thread last."""
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith(("Thread 0x", "Current thread 0x"))]
    if not heads or heads[-1] + 1 >= len(lines):
        return None
    match = _FRAME.match(lines[heads[-1] + 1])
    if match is None:
        return None
    file = match[1].rpartition("site-packages/")[2]
    at = file.find("training/src/")
    return f"{match[3]} ({file[max(at, 0) :]}:{match[2]})", heads[-1] + 2


def _progress(path: Path) -> dict[str, int]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {
        key: record[key] for key in ("step", "entered") if isinstance(record, dict) and type(record.get(key)) is int
    }


def name_the_hung(parsed: Parsed, folder: Path, run: Run) -> None:
    """Who hung, among the ranks that left a stack and no other word: the one that had begun fewer collectives than the others.

    The others wait in a collective that it never came to. Where all had begun equally many, nobody is behind, and nobody is named.
    """
    stalled = stalls(folder, run)
    known = {one.subject for one in parsed.observations if one.quantity == STATE}
    counts = [one.entered for one in stalled.values() if one.entered is not None]
    for subject, one in stalled.items():
        parsed.saw("train.rank.stack", subject, one.place, "text", one.evidence)
        if subject in known:
            continue
        done = "" if one.step is None else f" after step {one.step}"
        if one.entered is None:
            parsed.saw(
                STATE,
                subject,
                None,
                "text",
                one.evidence,
                f"no progress{done} in {one.place}; how far it was is not known",
            )
        elif one.entered == min(counts) < max(counts):
            parsed.saw(
                STATE,
                subject,
                "hung",
                "text",
                one.evidence,
                f"hung{done} in {one.place}: it had begun {one.entered} collectives, others {max(counts)}",
            )
        else:
            parsed.saw(STATE, subject, None, "text", one.evidence, f"waited{done} in {one.place}, and was not behind")


_FINISHED = ("finished", "refused", None)


def say_who_was_first(parsed: Parsed, folder: Path) -> None:
    """The culprit, beside the exit code of the job: rank, node and cause; among several, those whose error file is oldest first."""
    raised_at = _error_times(parsed, folder)
    ends = {one.subject: one for one in parsed.observations if one.quantity == STATE and one.value not in _FINISHED}
    if not ends:
        return
    order = sorted(ends, key=lambda subject: (raised_at.get(subject, 0), subject))
    first = ends[order[0]]
    when = raised_at.get(first.subject)
    words = f"{first.subject} {first.value}" + (f" ({first.why})" if first.why else "")
    words += f" at {datetime.fromtimestamp(when, UTC):%H:%M:%S} UTC" if when else ""
    words += f"; and {len(order) - 1} more rank(s)" if len(order) > 1 else ""
    for index, one in enumerate(parsed.observations):
        if one.quantity == "run.exit_code" and one.value != 0:
            parsed.observations[index] = one.model_copy(update={"why": words})


def _error_times(parsed: Parsed, folder: Path) -> dict[str, int]:
    """Subject -> second at which it raised, by torchelastic's error file. Each rank says which file is its own."""
    times = {}
    for one in parsed.observations:
        if one.quantity != "train.rank.error_file":
            continue
        path = folder / str(one.value or (one.why or "").rpartition("it had said ")[2])
        try:  # a name may hold a NUL, be too long, or lead out of the folder; and the file is whatever a rank left
            if not path.resolve().is_relative_to((folder / "raw").resolve()):
                continue
            record = json.loads(path.read_text(encoding="utf-8"))
            second = int(record["message"]["extraInfo"]["timestamp"])
            datetime.fromtimestamp(second, UTC)  # refuses what is no date
            times[one.subject] = second
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue  # it did not raise, or was cut off: then there is no time, and its state says what is known
    return times
