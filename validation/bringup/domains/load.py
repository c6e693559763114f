"""Counters before and after the load: how much each rose, and the gates' observations from that."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from weakref import WeakKeyDictionary

from bringup.domains.provenance import moment
from bringup.kernel.characters import many
from bringup.kernel.facts.fold import ABSENT, ALONE, by_node
from bringup.kernel.facts.names import first_few
from bringup.kernel.facts.parser_result import Parsed, Seen, is_number
from bringup.kernel.plan.gate import Gate
from bringup.kernel.records import Observation, Run, grouped
from bringup.readers.known import xid

_BEFORE, _AFTER = "load.counter.before.", "load.counter.after."
_EVENT = "load.event."
# of the watch over NVML's events (scripts/counters.sh): a load waits a minute for it at its begin, and it ends with the
# load, before counters that may take 70 s
_LATE_S, _EARLY_S = 60, 90
# the last value of a port's counter, at which it stands still (PortCounters of InfiniBand; PORT_PMA_ATTR of Linux)
_ENDS = {"link_downed": 255, "link_error_recovery": 255, "local_link_integrity_errors": 15}
_ENDS |= {"symbol_error": 65535, "port_rcv_errors": 65535}


class Share(NamedTuple):
    """Retransmissions of a device as a share of what it sent, or the like. The device with the largest share counts."""

    gate: str
    sent: str
    again: tuple[str, ...]
    arrived: str = ""  # of what was sent again, this much had arrived before: it was late or out of order, not lost
    devices: tuple[str, ...] = ()  # counters, one of which says 0 where there is no such device: nothing was sent again


_RDMA = "packet_seq_err local_ack_timeout_err implied_nak_seq_err roce_adp_retrans to_retransmits seq_err_naks_rcvd"
_RDMA += " completer_retry_err"  # of rxe
SHARES = (
    Share("load.tcp_sent_again", "tcp_segments", ("tcp_segments_again",), "tcp_segments_arrived_twice"),
    Share("load.rdma_sent_again", "port_xmit_packets", tuple(_RDMA.split()), devices=("rdma_ports",)),
)
LEAST_LOST = 0.0005  # of what is sent: below it nobody stands out; nodes of healthy clusters here have at most 0.00003
LEAST_SHARE = 0.00001  # what counts as none
LEAST_SEGMENTS = 100  # that were lost: an interface that carries little has a large share of a few
LEAST_SENT = 10_000  # below this number of packets, one or two retransmissions would be a large share


class _Change(NamedTuple):
    name: str
    device: str
    before: Observation | None
    after: Observation | None

    @property
    def where(self) -> str:
        return f" on {self.device}" if self.device else ""

    @property
    def is_absent(self) -> bool:
        """Say whether it was absent before and after the load: a virtual machine sees no memory controller."""
        return all(fact is not None and fact.value == ABSENT for fact in (self.before, self.after))

    @property
    def rise(self) -> int | None:
        """Return the change of the counter. None: it was not read both times, or could not rise."""
        before, after = (None if fact is None else fact.value for fact in (self.before, self.after))
        is_stuck = before == after == _ENDS.get(self.name)
        return int(after - before) if is_number(before) and is_number(after) and not is_stuck else None

    @property
    def why_unknown(self) -> str:
        if self.before is None or self.after is None:
            return f"{self.name}{self.where} was not read {'before' if self.before is None else 'after'} the load"
        if self.after.value is not None and self.before.value is not None:
            return f"{self.name}{self.where} stands at its end, {self.after.value}: perfquery -R as root clears it"
        return f"{self.name}{self.where}: {self.after.why or self.before.why}"


_KNOWN = WeakKeyDictionary[Seen, dict[str, list[_Change]]]()


def rises(derived: Parsed, gates: Iterable[Gate], observed: Seen) -> None:
    """Count how far the counters behind `rise` rose in all of a node's devices, and those behind `fall` fell: a GPU or
    link was lost. `of`: a counter without which none were read. Unknown if a counter was read only once. What is behind
    `share`, of RoCE ports, is judged as a share of how far the counter behind `of` rose."""
    changes = _changes(observed)
    for gate in gates:
        share = Share(gate.id, gate.fold.of or "", gate.fold.facts, devices=("rdma_ports", "roce_ports"))
        for node in changes:
            if gate.fold.how == "share":
                _share(derived, node, share, changes[node])
            else:
                _rise(derived, node, gate, changes[node])


def sent_again(derived: Parsed, observed: Seen, run: Run) -> None:
    for node, changes in _changes(observed).items():
        for share in SHARES:
            _share(derived, node, share, changes)
    of_tcp = [seen for seen in derived.observations if seen.quantity == SHARES[0].gate]
    shares = {seen.subject: _beyond_chance(seen, _changes(observed)[seen.subject]) for seen in of_tcp}
    known = sorted(share for share in shares.values() if share is not None)
    for seen in of_tcp:
        _uneven(derived, seen, shares[seen.subject], known)


def _beyond_chance(seen: Observation, changes: list[_Change]) -> float | None:
    """Return the share; 0 of fewer segments than chance and a busy moment lose; None: it is not known."""
    if not is_number(seen.value):
        return None
    sent = max(LEAST_SENT, *(change.rise or 0 for change in changes if change.name == SHARES[0].sent))
    return float(seen.value) if float(seen.value) * sent >= LEAST_SEGMENTS else 0.0


def _uneven(derived: Parsed, own: Observation, share: float | None, known: list[float]) -> None:
    """Compare with the median of the others, both ways: who sends to a node whose cable loses what arrives, sends that
    again, and the node itself does not. known: all shares, in order."""
    gate, others = f"{own.quantity}.uneven", len(known) - 1
    if share is None or others < 1:
        derived.saw(gate, own.subject, None, "ratio", own.evidence, own.why if share is None else ALONE)
        return
    place = bisect_left(known, share)
    usual = sum(known[middle + (middle >= place)] for middle in ((others - 1) // 2, others // 2)) / 2
    less, more = sorted((share, usual))
    ratio = round(more / max(less, LEAST_SHARE), 1) if more >= LEAST_LOST else 1.0
    words = f"it sends {share:.2%} again, and the others {usual:.2%}"
    if more >= LEAST_LOST:
        lost = "what leaves it, or what reaches a node to which it sends," if share > usual else "what reaches it"
        words += f": {lost} is lost"
    derived.saw(gate, own.subject, ratio, "ratio", own.evidence, words)


def kernel_log(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive load.kernel_log. Where the log was not read both times, NVML's events answer."""
    events, ended = by_node(observed.under(_EVENT)), _ended_at(observed)
    for node, changes in _changes(observed).items():
        total = next((change for change in changes if change.name == "xid"), None)
        facts = [fact for fact in (total.before, total.after) if fact is not None] if total is not None else []
        if not facts:
            continue
        if len(facts) == 2 and all(is_number(fact.value) for fact in facts):
            count, words = _new_messages(changes)
        else:
            why = next((fact.why for fact in facts if fact.value is None), None) or "the kernel log was read only once"
            count, words = _events(events.get(node, []), ended.get(node, {}))
            words = words if count else f"{why}; {words}"
        derived.saw("load.kernel_log", node, count, "count", facts[-1].evidence, words)


def _ended_at(observed: Seen) -> dict[str, dict[str, datetime]]:
    """Node -> file of evidence -> when the node's probe closed it, by the node's own clock."""
    ended: dict[str, dict[str, datetime]] = {}
    for fact in observed.of("probe.stamp"):
        at = moment(str(fact.value[1])) if isinstance(fact.value, list) else None
        if at is not None:
            ended.setdefault(fact.subject, {})[fact.evidence.rpartition(":")[0]] = at
    return ended


def _unwatched(ended: Mapping[str, datetime], seconds: float) -> str | None:
    """Return the part of the load that the watch over NVML's events left out; None: it covered the whole."""
    before, end, after = (ended.get(f"raw/{name}.jsonl") for name in ("counters-before", "xids", "counters-after"))
    if before is None or end is None or after is None:
        return "when NVML's events were watched is not known"
    late, early = (end - before).total_seconds() - seconds, (after - end).total_seconds()
    if late > _LATE_S:
        return f"NVML's events were watched from {late:.0f} s after the load could begin"
    return f"NVML's events were watched until {early:.0f} s before its end" if early > _EARLY_S else None


def _changes(observed: Seen) -> dict[str, list[_Change]]:
    """Node -> the change of each counter of each device; empty for a node that lists none."""
    if observed in _KNOWN:
        return _KNOWN[observed]
    changes: dict[str, list[_Change]] = {fact.subject: [] for fact in observed.of("probe.counters.finished")}
    before, after = _read(observed, _BEFORE), _read(observed, _AFTER)
    for name, subject in sorted(before.keys() | after.keys()):
        node, _, device = subject.partition("/")
        change = _Change(name, device, before.get((name, subject)), after.get((name, subject)))
        changes.setdefault(node, []).append(change)
    _KNOWN[observed] = changes
    return changes


def _read(observed: Seen, prefix: str) -> dict[tuple[str, str], Observation]:
    return {(fact.quantity.removeprefix(prefix), fact.subject): fact for fact in observed.under(prefix)}


def _rise(derived: Parsed, node: str, gate: Gate, changes: list[_Change]) -> None:
    rising, falling = (names.split() for names in " ".join(gate.fold.facts).partition(" fall ")[::2])
    of_group = [change for change in changes if change.name in (*rising, *falling, gate.fold.of)]
    evidence = _evidence(of_group)
    counted, words, absent, unknown = 0, list[str](), list[str](), None
    for change in of_group:
        rise = change.rise
        if change.is_absent and change.after is not None:
            absent.append(f"no {change.name}: {change.after.why}")
        elif rise is None or change.before is None or change.after is None:
            unknown = unknown or change.why_unknown
        elif change.name in falling and rise < 0:
            counted += -rise
            lost = _silent_after(changes) if change.name == gate.fold.of else []
            silent = f": no answer from {', '.join(lost)}" if lost else ""
            words.append(f"{change.name}{change.where} fell from {change.before.value} to {change.after.value}{silent}")
        elif change.name in rising and rise != 0:
            counted += max(rise, 1)  # one that fell was reset in the middle of the load
            words.append(f"{change.name}{change.where} went from {change.before.value} to {change.after.value}")
    unknown = unknown or _not_of_all(changes, rising, gate.fold.of)
    if not any(change.name in rising for change in of_group) or len(absent) == len(of_group):
        unknown = unknown or "this node lists no such counter"
    value, counters = counted if words or unknown is None else None, len(of_group) - len(absent)
    if lacked := sorted({*rising} - {change.name for change in changes}) if gate.fold.of == "gpus" else []:
        absent.append(f"no GPU of this node counts {', '.join(lacked)}")
    known = "; ".join([many(counters, "counter"), *absent])
    derived.saw(gate.id, node, value, "count", evidence, "; ".join(words) or unknown or known)


def _evidence(changes: list[_Change]) -> str:
    return next((fact.evidence for change in changes for fact in (change.after, change.before) if fact), "raw/")


def _not_of_all(changes: list[_Change], rising: Sequence[str], counted_by: str | None) -> str | None:
    """Say what one device of the node did not: it gave no answer, or lacks a counter that others of its kind have."""
    if counted_by is not None and (silent := [change for change in changes if change.name == "answers"]):
        facts = [fact for fact in (silent[0].before, silent[0].after) if fact is not None]
        return f"no answer from {silent[0].device}: {facts[0].why}"
    gpus = {change.device for change in changes if change.device.startswith("GPU-")}
    for name in rising:
        having = {change.device for change in changes if change.name == name} & gpus
        if having and (lacking := sorted(gpus - having)):
            return f"{name} was not read on {first_few(lacking)}"
    return None


def _silent_after(changes: list[_Change]) -> list[str]:
    """GPUs that answered before the load and not after it."""
    before = dict.fromkeys(change.device for change in changes if change.before and change.device.startswith("GPU-"))
    after = {change.device for change in changes if change.after}
    return [device for device in before if device not in after]


def _share(derived: Parsed, node: str, share: Share, changes: list[_Change]) -> None:
    names = (share.sent, *share.again, share.arrived, *share.devices)
    of_share, uncounted = _of_those_that_count([change for change in changes if change.name in names], share)
    evidence = _evidence(of_share)

    def summed(*names: str) -> dict[str, int]:
        of = grouped((change.device, change.rise or 0) for change in of_share if change.name in names)
        return {device: sum(rises) for device, rises in of.items()}

    sent, again, arrived = summed(share.sent), summed(*share.again), summed(share.arrived)
    value, why = None, _no_share(of_share, sent.keys(), again.keys())
    if not again and any(each.name in share.devices and each.after and each.after.value == 0 for each in of_share):
        value, why = 0.0, "it has no such device"
    elif why is None and sent:
        lost = {device: max(count - arrived.get(device, 0), 0) for device, count in again.items()}
        shares = {device: count / max(sent[device], LEAST_SENT) for device, count in lost.items()}
        worst = max(shares, key=lambda device: shares[device])
        value, why = round(shares[worst], 6), f"{again[worst]} of {sent[worst]}{f' on {worst}' if worst else ''}"
        if arrived.get(worst):
            why += f", of which {min(arrived[worst], again[worst])} had arrived before"
        if uncounted:
            why += f"; {', '.join(uncounted)} does not count it"
    derived.saw(share.gate, node, value, "ratio", evidence, why or "this node lists no such counter")


def _of_those_that_count(changes: list[_Change], share: Share) -> tuple[list[_Change], list[str]]:
    """Without devices that count only one half of the share, where others count both; and those that were left out."""
    sent = {change.device for change in changes if change.name == share.sent}
    again = {change.device for change in changes if change.name in share.again}
    left_out = sorted(sent ^ again) if sent & again else []
    return [change for change in changes if change.device not in left_out], left_out


def _no_share(changes: list[_Change], sent: Collection[str], again: Collection[str]) -> str | None:
    """Why the share is unknown: a counter was not read both times, or was reset, or is missing on a device."""
    for change in changes:
        if change.rise is None:
            return change.why_unknown
        if change.rise < 0:
            return f"{change.name}{change.where} was reset under load"
    for device in (*sent, *again):
        if device not in sent or device not in again:
            return f"{device or 'the node'} does not count what it sends{' again' if device in sent else ''}"
    return None


def _new_messages(changes: list[_Change]) -> tuple[int | None, str | None]:
    """Count messages that came under load and ask for action. An old message may leave the ring buffer."""
    count, words = 0, list[str]()
    for change in changes:
        event = xid.event(change.name)
        if event is None or not event.is_fault or change.after is None or not is_number(change.after.value):
            continue
        earlier = change.before.value if change.before is not None and is_number(change.before.value) else 0
        if change.after.value > earlier:
            count += int(change.after.value - earlier)
            words.append(f"{event.words}{change.where}: {event.action}")
    return count, "; ".join(words) or None


def _events(of_node: Iterable[Observation], ended: Mapping[str, datetime]) -> tuple[int | None, str]:
    """Count what asks for action in what NVML reported while it was watched (probes/xids.py), where the log was not
    read."""
    events = grouped((fact.quantity.removeprefix(_EVENT), fact) for fact in of_node)
    asking, unknown = list[str](), list[str]()
    for name, facts in events.items():
        event = xid.event(name)
        for fact in facts:
            where = fact.device
            if fact.value is None:
                unknown.append(f"{where}: {fact.why}" if where else fact.why or name)
            elif event is not None and name in xid.IN_WORDS:
                unknown.append(f"{event.words} on {where}: what it asks for stands in the log alone")
            elif event is not None and event.is_fault:
                asking.append(f"{event.words} on {where}: {event.action}")
    if asking:
        return len(asking), "; ".join(asking)
    gpus, seconds = (next((fact.value for fact in events.get(name, ())), None) for name in ("gpus", "seconds"))
    if is_number(seconds) and not unknown and (gap := _unwatched(ended, float(seconds))) is not None:
        unknown.append(gap)
    if seconds is None and not unknown:
        unknown.append(f"NVML's events were not watched{' to the end' if events else ''}")
    return (None, unknown[0]) if unknown else (0, f"NVML's events of {gpus} GPUs were watched for {seconds:.0f} s")
