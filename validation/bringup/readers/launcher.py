"""raw/launch.log, error files of torchrun, raw/stacks -> facts: how ranks ended, and what Slurm said about nodes.

launcher.exit_code [n1/rank3]   of a failed rank, from torchrun; negative: a signal
launcher.first_failed [n1/rank3]  the same, of the rank that failed first under one torchrun
launcher.lost_peers [n1/rank2]  message of a rank that lost its peer, for example from NCCL's watchdog
launcher.out_of_memory [n1]     a memory limit was reached on this node; [job]: the node was not named
launcher.node_lost [n1]         Slurm's words
launcher.late [n1]              the launcher of this node had not started when the others gave up
launcher.cannot_write [n1]      no rank of this node could write to the results folder
launcher.refused [job]          what a program said of its arguments, before a rank began
launcher.ended_by_slurm [n1]    the reason that Slurm gave: time limit
launcher.got_sigterm [job]      the node whose batch script got SIGTERM, which it hands on to the ranks
launcher.raised_at [job]        seconds since 1970 at which a rank raised; the evidence is its error file
train.rank.stack     the innermost frame of its main thread: `after_step (training/injected/rank_faults.py:96)`
train.rank.step      the last step that it finished
train.rank.entered   collectives that it had begun, on all groups
"""

import json
import re

from bringup.kernel.facts.hostlist import named
from bringup.kernel.facts.parser_result import Parsed, each_line, lines
from bringup.kernel.facts.speakers import LABEL, Refusals, Speakers
from bringup.kernel.plan.subjects import JOB, rank_subjects
from bringup.kernel.records import Run
from bringup.readers.srun import CANCELLED, node_by_number

FAILED_RANK = re.compile(r"\brank\s*:\s*(\d{1,9}) \(local_rank: (\d{1,9})\)")  # in torchrun's last list
FIRST = re.compile(r"Root Cause \(first observed failure\)")
_EXIT_CODE = re.compile(r"exitcode\s*:\s*(-?\d{1,9}) \(pid: \d+\)")
# torch 2.3 and later put the job's rank first. The second number is the rank in the process group: it may be smaller
_SAID_BY = (re.compile(r"\[rank(\d{1,9})\]:"), re.compile(r"[\[ ]Rank (\d{1,9})\]"))
LOST_PEERS = re.compile(
    r"Connection closed|Connection reset|Read error|Timed out waiting|wait timeout|Broken pipe|PeerFailedError"
    r"|caused pair closure|Watchdog caught collective operation timeout|NCCL communicator was aborted|ncclRemoteError"
    r"|Heartbeat monitor timed out|watchdog got stuck for|Timeout at NCCL work|dump signal due to a collective timeout"
    r"|[Ff]ailed to recv, got 0 bytes|failed to pass monitoredBarrier|errors while waiting for send/recv"
    r"|remote process exited|the loss of this rank was finite"  # training/src/recipe/trajectory.py
    r"|ranks did not arrive within|nobody answered within"  # infrastructure-validation/probes/arrival.py
)
"""Messages of a rank whose peer is lost or sent a NaN."""
SPEAKS = re.compile(r"(?=\[rank\d{1,9}\]:)|(?<!\]:)(?=\[[EF] ?ProcessGroupNCCL)")
"""Where a rank begins to speak. Ranks that print at once may share a line."""
_KILLED_FOR_MEMORY = re.compile(r"oom[-_]kill event|: Out Of Memory")
_OF_NODE = re.compile(r"slurmstepd-(\S+?): error: .*oom|error: (\S+): tasks? \S+: Out Of Memory")
_NODE_LOST = re.compile(r"[Nn]ode failure on (\S+)|NODE_FAIL.* on (\S+)")
_CANNOT_WRITE = re.compile(  # training: env.sh; src/recipe/rank.py and src/recipe/arguments.py
    r"(?P<what>raw/rank\d+\.jsonl cannot be written: [^;]+|run folder cannot be written|no such run folder)\b"
    r".*seen from (?P<node>[\w.-]+)"
)
_REFUSED = re.compile(r"(?:^|: )train_[a-z_0-9]+\.py: (?P<why>.+)")  # training/src/recipe/rank.py: complain()
_LATE = re.compile(r"launchers did not start in time: (?P<nodes>[\w.-]+(?:, [\w.-]+)*)")  # training/src/launcher.py
_LATEST = 2**37  # seconds, in the year 6325: a larger number is not a time


def log(text: str, where: str, run: Run, speakers: Speakers | None = None) -> Parsed:
    """Read a log. speakers: who wrote it. A labelled line is believed of its own node alone, and of late launchers."""
    parsed, refusals = Parsed(), Refusals(where)
    places = rank_subjects(run.nodes, run.ranks_per_node)
    ended = False
    listed: dict[str, int] = {}  # launcher -> the failed rank that its final list is at
    first: set[str] = set()  # launchers that have said that it is the first one
    for number, line in enumerate(each_line(text), start=1):
        evidence, before = f"{where}:{number}", len(parsed.observations)
        for message in SPEAKS.split(line) if LOST_PEERS.search(line) else ():
            speaker, match = printed_by(message), LOST_PEERS.search(message)
            if match is not None and speaker is not None and speaker < len(places):
                words = message[match.start() :].strip()[:200]
                parsed.saw("launcher.lost_peers", places[speaker], words, "text", evidence)
        if match := _OF_NODE.search(line):
            parsed.saw("launcher.out_of_memory", match[1] or match[2], line.strip()[:200], "text", evidence)
        elif _KILLED_FOR_MEMORY.search(line):
            parsed.saw("launcher.out_of_memory", JOB, line.strip()[:200], "text", evidence)
        if match := _CANNOT_WRITE.search(line):
            parsed.saw("launcher.cannot_write", match["node"], match["what"], "text", evidence)
        elif match := _REFUSED.search(line):
            parsed.saw("launcher.refused", JOB, match["why"][:200], "text", evidence)
        if match := _LATE.search(line):
            words = line[line.rfind(": ", 0, match.start()) + 1 :].strip()[:200]
            for node in match["nodes"].split(", "):
                parsed.saw("launcher.late", node, words, "text", evidence)
        if (match := CANCELLED.search(line)) and not ended:  # every node and step repeats it
            ended = True
            parsed.saw("launcher.ended_by_slurm", match["node"] or JOB, match["why"].lower(), "text", evidence)
        task = label[1] if (label := LABEL.match(line)) else ""  # launchers of several nodes print at once
        if FIRST.search(line):
            first.add(task)
        if match := FAILED_RANK.search(line):
            listed[task] = int(match[1])
        if match := _EXIT_CODE.search(line):  # a log service may join lines
            if (rank := listed.pop(task, len(places))) < len(places):
                for quantity in ("exit_code", "first_failed")[: 1 + (task in first)]:
                    parsed.saw(f"launcher.{quantity}", places[rank], int(match[1]), "count", evidence)
            first.discard(task)
        elif match := _NODE_LOST.search(line):
            for node in named((match[1] or match[2]).strip(",.;:")):
                parsed.saw("launcher.node_lost", node, line.strip()[:200], "text", evidence)
        elif lost := node_by_number(line, run.ran_on):
            parsed.saw("launcher.node_lost", lost[0], lost[1], "text", evidence)
        if speakers is not None and task and len(parsed.observations) > before:
            of_line, parsed.observations[before:] = parsed.observations[before:], []
            for seen in of_line:
                objection = None if seen.quantity == "launcher.late" else speakers.of_labelled(task, seen.subject)
                if objection is None:
                    parsed.observations.append(seen)
                else:
                    refusals.note(objection, number)
    parsed.problems += refusals.problems()
    return parsed


def printed_by(line: str) -> int | None:
    """Return the rank that printed the line; None if the line does not name it."""
    return next((int(match[1]) for pattern in _SAID_BY if (match := pattern.search(line))), None)


def sigterm(text: str, where: str) -> Parsed:
    """Read raw/sigterm.txt of training/slurm/attempt.sh."""
    return Parsed().saw("launcher.got_sigterm", JOB, text.strip()[:200], "text", where)


def error_file(text: str, where: str) -> Parsed:
    """Read torchelastic's error.json of one rank. A file that was cut off has no time."""
    try:
        second = int(json.loads(text)["message"]["extraInfo"]["timestamp"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return Parsed()
    return Parsed().saw("launcher.raised_at", JOB, second, "s", where) if 0 <= second < _LATEST else Parsed()


_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$')


def stack(text: str, where: str, subject: str) -> Parsed:
    """Read the main thread of the last dump, where faulthandler writes it last. No fact if there is no stack."""
    rows = lines(text)
    heads = [number for number, line in enumerate(rows) if line.startswith(("Thread 0x", "Current thread 0x"))]
    below = heads[-1] + 1 if heads else len(rows)
    match = _FRAME.match(rows[below]) if below < len(rows) else None
    if match is None:
        return Parsed()
    file = match[1].rpartition("site-packages/")[2]
    file = file[max(file.find("training/src/"), file.find("training/injected/"), 0) :]
    innermost = f"{match[3]} ({file}:{match[2]})"
    return Parsed().saw("train.rank.stack", subject, innermost, "text", f"{where}:{below + 1}")


def progress(text: str, where: str, subject: str) -> Parsed:
    parsed = Parsed()
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return parsed.note(f"{where}: not a record of progress: {text[:40]!r}")
    for key in ("step", "entered"):
        if isinstance(record, dict) and type(record.get(key)) is int:
            parsed.saw(f"train.rank.{key}", subject, record[key], "count", where)
    return parsed
