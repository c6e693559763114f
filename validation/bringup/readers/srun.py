"""What srun prints of any step: which nodes and tasks failed, and why Slurm did not start it, or ended it."""

import re
from collections.abc import Sequence

from bringup.kernel.facts.hostlist import named
from bringup.kernel.facts.parser_result import Parsed, each_line

_OF_SRUN = (
    re.compile(r"Task launch for (?:StepId=)?\S+ failed on node (?P<node>[^\s:]+): (?P<why>.*)"),
    re.compile(r"srun: error: (?P<node>[^\s:]+): (?P<task>tasks? [\d,-]+): (?P<why>.*)"),
    re.compile(r"Node failure on (?P<node>[^\s:]+)(?P<why>.*)"),
)
# srun numbers the nodes of its step, from 0 and in the order of Slurm's node table
_BY_NUMBER = re.compile(
    r"(?P<why>[Aa]borting, [^,]*\bio error\b.*|\bio error with slurmstepd) on node (?P<number>\d{1,6})\b"
)
# without a reason, or for TASK FAILURE, --kill-on-bad-exit cancelled the step after a rank failed: that is the cause
CANCELLED = re.compile(
    r"\*\*\* (?:JOB|STEP) \S+ (?:ON (?P<node>\S+) )?CANCELLED AT \S+ DUE TO (?!TASK FAILURE)"
    r"(?P<why>[A-Z ]+?)(?:,[A-Z ]*)? \*\*\*"
)
_SLURM_REFUSED = re.compile(
    r"(?:srun|salloc|sbatch): error: (?P<why>\w+Limit|Unable to allocate resources: .+|Unable to create step .+"
    r"|Batch job submission failed: .+)"
)
_SRUN_SPEAKS = re.compile(r"(?=srun: error: )")  # two srun that print at once may share a line
_LABELLED = re.compile(r" *(?P<task>\d+): (?P<message>.*)")
_NOT_STARTED = re.compile(
    r"(?P<what>\bexecve\(\): .+|^no Python environment at [^,;]+"
    r"|^\S+: (?:line \d+: )?(?:exec: )?\S+: (?:command )?not found$|^.*\bbad interpreter: .+|^.*\bcan't open file .+"
    r"|^.+: cannot execute.*"
    r"|^.*\berror while loading shared libraries: .+|^(?:ModuleNotFoundError|ImportError): .+"
    r"|^\S*python\S*: No module named .+"
    r"|^(?:\S+: )?(?:line \d+: (?:exec: )?|(?:exec: )?/)\S+: "
    r"(?:No such file or directory|Permission denied|Exec format error)$)"
)
"""A program that could not start: messages of slurmstepd, a shell, the loader or Python."""
_RAISED = re.compile(r"(?P<what>(?:\w+\.)*\w*(?:Error|Exception): \S.*)$")
NODE_FAILURE = "node failure"  # also Slurm's own words, in small letters


def node_by_number(line: str, nodes: Sequence[str]) -> tuple[str, str] | None:
    """Return (node, message) of a line in which srun gives a node's number. nodes: of the step, in order."""
    match = _BY_NUMBER.search(line)
    if match is None or int(match["number"]) >= len(nodes):
        return None
    return nodes[int(match["number"])], f"{match['why']} (srun calls it node {match['number']})"


def launch_errors(text: str, where: str, nodes: Sequence[str] = ()) -> Parsed:
    """Read errors about nodes that srun printed, with the reason in the task's own words. An empty file has none.

    slurm.launch.error: each; slurm.launch.lost: the node failed; slurm.launch.not_started: what could not start there;
    slurm.launch.refused, .ended: why Slurm did not start the step or job, or ended it, for example preemption.
    """
    parsed, own_words = Parsed(), None
    for number, line in enumerate(each_line(text), start=1):
        if ended := CANCELLED.search(line):  # srun may label it, as a line of a task
            parsed.saw("slurm.launch.ended", "job", ended["why"].lower(), "text", f"{where}:{number}")
        if refused := _SLURM_REFUSED.fullmatch(line.strip()):
            parsed.saw("slurm.launch.refused", "job", refused["why"], "text", f"{where}:{number}")
        if _LABELLED.match(line):  # of a task, which may print whatever it wants: srun's own lines have no label
            continue
        evidence = f"{where}:{number}"
        if (lost := node_by_number(line, nodes)) is not None:
            parsed.saw("slurm.launch.error", lost[0], lost[1], "text", evidence)
            continue
        for message in _SRUN_SPEAKS.split(line):
            match = next((match for pattern in _OF_SRUN if (match := pattern.search(message))), None)
            if match is None:
                continue
            task, why = match.groupdict().get("task"), match["why"].strip()
            exited = task is not None and why.startswith("Exited with exit code")
            if exited and own_words is None:
                own_words = _own_words(text)
            first = re.search(r"\d+", task or "")  # `task 1`, `tasks 0,2-3`
            not_started, own = (own_words or {}).get(first[0], (None, "")) if exited and first else (None, "")
            for node in named(match["node"]):
                parsed.saw("slurm.launch.error", node, f"{why}{own}" or NODE_FAILURE, "text", evidence, task)
                if not why:
                    parsed.saw("slurm.launch.lost", node, NODE_FAILURE, "text", evidence)
                if not_started is not None:  # other gates of this node lack evidence and cannot tell why
                    parsed.saw("slurm.launch.not_started", node, not_started, "text", evidence)
                    parsed.note(f"{evidence}: {node}, {task}: {why}{own}")
    return parsed


def _own_words(text: str) -> dict[str, tuple[str | None, str]]:
    """Task -> what it could not start, and the reason that it printed: the line, by srun's label, that says so, or else
    its last exception. All tasks in one pass: thousands of them may end."""
    own: dict[str, tuple[str | None, str]] = {}
    for line in each_line(text):
        labelled = _LABELLED.match(line)
        if labelled is None or own.get(labelled["task"], (None, ""))[0] is not None:
            continue
        if match := _NOT_STARTED.search(labelled["message"]):
            own[labelled["task"]] = match["what"], f"; could not start: {match['what']}"
        elif match := _RAISED.match(labelled["message"]):
            own[labelled["task"]] = None, f"; {match['what']}"
    return own
