"""How many nodes bringup may keep out of service: one rule for every way to drain. Nothing else orders `State=DRAIN`
for a node that is in service.

It decides from what Slurm says now. In each partition of the node

- at most a share is kept out by bringup (10 %, and always one node);
- an idle node is not taken if no other one is idle, a busy one not if no other is in service.

A wrong baseline makes all nodes find a fault in the same second, and Slurm has no compare-and-set. So a node is drained
(this is its claim), everybody waits until no other claim can get the same second, and looks again. The claims are
ordered by time and name. One beyond the limit is taken back by who made it.

Standard library and Python 3.6: `install` copies this file beside the hooks of a node, which run it as root.
"""

import os
import re
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

MOST = "10%"
SETTLE_S = 1.1  # the time of a reason has a resolution of 1 s
SEPARATOR = "\x1f"  # a reason may hold every printable delimiter
LOOK = (
    *("sinfo", "--noheader", "--all", "--Node"),
    "--format=" + SEPARATOR.join(("%N", "%R", "%T", "%H", "%E")),
)
TIMES = {"SLURM_TIME_FORMAT": "%s"}  # seconds since 1970, whatever the time zone and the caller's environment
_MARKS = "*~#!%$@^+-"
_MOST = re.compile(r"([1-9][0-9]{0,5})(%?)")
_IN_SERVICE = ("idle", "planned", "reserved", "mixed", "allocated", "completing")
_BUSY = ("mixed", "allocated", "completing")


class SlurmAway(Exception):
    """Slurm gave no answer that can be used. The message is one line."""


class Node(NamedTuple):
    """What sinfo says of a node. state: without its marks."""

    state: str
    marks: str
    since: Optional[int]
    reason: str
    partitions: Tuple[str, ...]

    @property
    def is_out(self) -> bool:
        return self.state.startswith(("drain", "down", "fail"))

    @property
    def is_busy(self) -> bool:
        return self.state in _BUSY

    @property
    def is_in_service(self) -> bool:
        return self.state in _IN_SERVICE and not set(self.marks) & set("@^$")  # to be rebooted, in maintenance

    @property
    def is_idle(self) -> bool:
        """Also idle*: so sinfo calls a node for the first second after it was resumed; a dead one is down soon."""
        return self.state == "idle" and self.is_in_service


class Answer(NamedTuple):
    """is_drained: None where Slurm did not say whether it is. why: in words, where it is not."""

    node: str
    is_drained: Optional[bool]
    why: str


Nodes = Dict[str, Node]
Ask = Callable[[Sequence[str], Dict[str, str]], str]  # a command, and more environment. Raises SlurmAway


def checked(most: str) -> str:
    """`3` or `10%`. Raises ValueError."""
    match = _MOST.fullmatch(most)
    if match is None or (match.group(2) and int(match.group(1)) > 100):
        raise ValueError(f"{most!r} is neither a number of nodes nor a share: 3 or 10%")
    return most


def limit(most: str, nodes: int) -> int:
    """How many of so many nodes of a partition. Raises ValueError."""
    number = int(checked(most).rstrip("%"))
    return max(1, nodes * number // 100) if most.endswith("%") else number


def read(answer: str) -> Nodes:
    """Parse the answer to LOOK: a line per node and partition."""
    nodes = {}  # type: Nodes
    for line in answer.splitlines():
        fields = line.split(SEPARATOR, 4)
        if len(fields) != 5:
            continue
        name, partition, state, since, reason = (field.strip() for field in fields)
        before = nodes.get(name)
        bare = state.lower().rstrip(_MARKS)
        nodes[name] = Node(
            state=bare,
            marks=state[len(bare) :],
            since=int(since) if since.isdigit() else None,
            reason="" if reason in ("none", "N/A") else reason,
            partitions=(() if before is None else before.partitions) + (partition,),
        )
    return nodes


class Brake:
    def __init__(
        self, ask: Ask, most: str, owner: str, slurms_own: Sequence[str], wait: Callable[[float], None] = time.sleep
    ) -> None:
        """owner: what a reason of bringup begins with; slurms_own: reasons of Slurm that our hooks may have caused."""
        self._ask, self._most, self._owner, self._slurms_own = ask, most, owner, tuple(slurms_own)
        self._wait = wait

    def look(self, node: Optional[str] = None) -> Nodes:
        """All nodes, or this one. Raises SlurmAway."""
        only = [] if node is None else ["--nodes=" + node]
        nodes = read(self._ask([*LOOK, *only], TIMES))
        if not nodes:
            raise SlurmAway("sinfo names no node")
        return nodes

    def drain(self, wanted: Sequence[Tuple[str, str]], before: Optional[Nodes] = None) -> List[Answer]:
        """Drain these (node, reason), as far as the rule allows; an answer per node, in order. before: a look of just
        now. Raises SlurmAway: nothing was done."""
        before = self.look() if before is None else before
        answers = {}  # type: Dict[str, Answer]
        claims = {}  # type: Dict[str, str]
        planned = dict(before)
        for node, reason in wanted:
            why = self._objection(planned, node)
            if why is None:
                try:
                    self._ask(("scontrol", "update", "NodeName=" + node, "State=DRAIN", "Reason=" + reason), {})
                except SlurmAway as error:
                    answers[node] = Answer(node, None, str(error))
                claims[node] = reason
                planned[node] = planned[node]._replace(state="drained", reason=reason)
            else:
                answers[node] = Answer(node, False, why)
        if claims:
            self._wait(SETTLE_S)
            for answer in self.settle(claims, before):
                answers.setdefault(answer.node, answer)
        return [answers[node] for node, _ in wanted]

    def settle(self, claims: Dict[str, str], before: Nodes) -> List[Answer]:
        """Look at claims {node: reason} that were made a second ago or earlier, and take back what is beyond the limit.
        before: a look before the claims; empty: not known any more."""
        try:
            nodes = self.look()
        except SlurmAway as error:
            return [Answer(node, None, str(error)) for node in claims]
        return [self._settled(nodes, before, node, reason) for node, reason in claims.items()]

    def _settled(self, nodes: Nodes, before: Nodes, node: str, reason: str) -> Answer:
        now = nodes.get(node)
        if now is None or not now.is_out or now.reason != reason:
            return Answer(node, False, "its state or its reason was changed by somebody else meanwhile")
        why = "the time of its reason cannot be read" if now.since is None else None
        why = why or self._objection(self._as_claimed(nodes, before, node), node)
        if why is None:
            return Answer(node, True, "")
        try:
            # UNDRAIN and not RESUME: a node that is down meanwhile stays down
            self._ask(("scontrol", "update", "NodeName=" + node, "State=UNDRAIN"), {})
        except SlurmAway as error:
            return Answer(node, None, f"{why}, and its drain could not be taken back: {error}")
        return Answer(node, False, why)

    def _as_claimed(self, nodes: Nodes, before: Nodes, node: str) -> Nodes:
        """The nodes as they are for this claim: it is not made yet, and those after it are not made either.

        A node that was out before it is never after it, though a new reason has a new time."""
        own = nodes[node]
        mine = (own.since or 0, node)
        situation = {}
        for name, other in nodes.items():
            earlier = before.get(name)
            was_out = (
                earlier is not None and self._is_ours(earlier) and (earlier.since is None or earlier.since < mine[0])
            )
            is_later = self._is_ours(other) and other.since is not None and (other.since, name) > mine and not was_out
            situation[name] = _back(other) if is_later else other
        situation[node] = before[node] if node in before else _back(own)
        return situation

    def _is_ours(self, node: Node) -> bool:
        return node.is_out and (node.reason.startswith(self._owner) or node.reason in self._slurms_own)

    def _objection(self, nodes: Nodes, node: str) -> Optional[str]:
        """Why a node that is in service may not be drained; None: it may."""
        own = nodes.get(node)
        if own is None:
            return "Slurm knows no such node"
        if own.is_out:
            return f"it is out of service already ({own.state})"
        for partition in own.partitions:
            members = {name: other for name, other in nodes.items() if partition in other.partitions}
            out = sum(self._is_ours(other) for other in members.values())
            most = limit(self._most, len(members))
            if out >= most:
                return (
                    f"{out} of {len(members)} nodes of partition {partition} are drained by bringup already, "
                    f"at most {most} (--most-drained)"
                )
            others = [other for name, other in members.items() if name != node]
            if not any(other.is_in_service if own.is_busy else other.is_idle for other in others):
                needed = "in service" if own.is_busy else "idle"
                return f"no other node of partition {partition} is {needed}, of {len(members)}"
        return None


def _back(node: Node) -> Node:
    """A node as it is when its drain is taken back: a draining one has a job."""
    return node._replace(state="allocated" if node.state == "draining" else "idle", marks="", reason="")


def environment(more: Dict[str, str]) -> Dict[str, str]:
    """Ours, but for what sinfo would leave out of its answer (SINFO_PARTITION)."""
    return dict({name: value for name, value in os.environ.items() if not name.startswith("SINFO_")}, **more)
