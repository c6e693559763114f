"""Counters of errors before and after the load: how much each rose, and what that says."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from bringup.evidence.parsed import Parsed, Seen, is_number
from bringup.known_faults import xid
from bringup.records import Observation

_BEFORE, _AFTER = "sweep.counter.before.", "sweep.counter.after."


class Group(NamedTuple):
    """The counters that one gate adds up."""

    gate: str
    rising: tuple[str, ...]  # counters of which every rise counts
    falling: tuple[str, ...] = ()  # ... of which every fall does: a GPU or a link is gone
    read: str = ""  # a counter without which nothing of this group was looked at


GROUPS = (
    Group(
        "sweep.gpu_faults",
        ("ecc_uncorrected", "rows_remapped_uncorrectable", "remap_failed", "nvlink_recoveries"),
        ("gpus", "nvlinks"),
        "gpus",
    ),
    Group(
        "sweep.gpu_corrected",
        ("ecc_corrected", "rows_remapped_correctable", "pcie_replays", "nvlink_replays", "nvlink_crc_errors"),
        read="gpus",
    ),
    Group("sweep.node_faults", ("link_downed", "ue_count")),
    Group(
        "sweep.node_corrected",
        (
            "symbol_error",
            "link_error_recovery",
            "port_rcv_errors",
            "local_link_integrity_errors",
            "rx_errors",
            "tx_errors",
            "rx_crc_errors",
            "ce_count",
            "package_throttle_count",
        ),
    ),
)


class _Change(NamedTuple):
    name: str
    device: str
    before: Observation | None
    after: Observation | None

    @property
    def where(self) -> str:
        return f" on {self.device}" if self.device else ""


def derive(seen: Seen) -> Parsed:
    """A gate per group and node, and sweep.kernel_log. Unknown where a counter was read only once."""
    found = Parsed()
    looked = [fact.subject for fact in seen.of("probe.counters.finished")]
    changes: dict[str, list[_Change]] = defaultdict(list)
    before, after = _read(seen, _BEFORE), _read(seen, _AFTER)
    for name, subject in sorted(before.keys() | after.keys()):
        node, _, device = subject.partition("/")
        changes[node].append(_Change(name, device, before.get((name, subject)), after.get((name, subject))))
    for node in dict.fromkeys([*looked, *changes]):
        for group in GROUPS:
            _group(found, node, group, changes[node])
        _kernel_log(found, node, changes[node])
    return found


def _read(seen: Seen, prefix: str) -> dict[tuple[str, str], Observation]:
    return {
        (quantity.removeprefix(prefix), fact.subject): fact
        for quantity, facts in seen.starting_with(prefix).items()
        for fact in facts
    }


def _group(found: Parsed, node: str, group: Group, changes: list[_Change]) -> None:
    mine = [change for change in changes if change.name in (*group.rising, *group.falling, group.read)]
    evidence = next((fact.evidence for change in mine for fact in (change.after, change.before) if fact), "raw/")
    counted, words, unknown = 0, [], None
    for change in mine:
        if change.before is None or change.after is None:
            when = "after" if change.before is not None else "before"
            unknown = unknown or f"{change.name}{change.where} was not read {when} the load"
            continue
        if not is_number(change.before.value) or not is_number(change.after.value):
            unknown = unknown or f"{change.name}{change.where}: {change.after.why or change.before.why}"
            continue
        rise = int(change.after.value - change.before.value)
        if change.name in group.falling and rise < 0:
            counted += -rise
            words.append(f"{change.name}{change.where} fell from {change.before.value} to {change.after.value}")
        elif change.name in group.rising and rise != 0:
            counted += max(rise, 1)  # one that fell was set back in the middle of the load
            words.append(f"{change.name}{change.where} went from {change.before.value} to {change.after.value}")
    if not any(change.name in group.rising for change in mine):
        unknown = unknown or "this node lists no such counter"
    value = counted if words or unknown is None else None
    found.saw(group.gate, node, value, "count", evidence, "; ".join(words) or unknown or f"{len(mine)} counters")


def _kernel_log(found: Parsed, node: str, changes: list[_Change]) -> None:
    """sweep.kernel_log: messages that ask for action and came under load. An old one may leave the ring buffer."""
    total = next((change for change in changes if change.name == "xid"), None)
    if total is None:
        return
    facts = [fact for fact in (total.before, total.after) if fact is not None]
    whole = len(facts) == 2 and all(is_number(fact.value) for fact in facts)
    count, words = 0, []
    for change in changes:
        event = xid.event(change.name)
        if event is None or event.action is None or change.after is None or not is_number(change.after.value):
            continue
        earlier = change.before.value if change.before is not None and is_number(change.before.value) else 0
        if change.after.value > earlier:
            count += int(change.after.value - earlier)
            words.append(f"{event.words}{change.where}: {event.action}")
    why = next((fact.why for fact in facts if fact.value is None), None) or "it was read only once"
    remark = "; ".join(words) or (None if whole else why)
    found.saw("sweep.kernel_log", node, count if whole else None, "count", facts[-1].evidence, remark)
