"""A contract to begin with: lines made of what a discovery saw, and of the numbers of the runs' profile.

What a discovery saw is not what was sold: who takes it as it is accepts what is there.
"""

from collections.abc import Sequence

from bringup.kernel.errors import RunError
from bringup.kernel.facts import hostlist
from bringup.kernel.judge import Judged
from bringup.kernel.plan import profile_text
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.expectation import SPEEDS
from bringup.kernel.records import known
from bringup.report.collection import Collection

_FACTS = known("contract_facts", dict[str, str])
_SERIALS = "inventory.gpu.serial"
HEAD = """\
# A contract, line by line: put in place of each value what was sold, and take out what was not.
# bringup accept RUN --contract THIS says of each line: proven, refuted, not proven, or not asked. docs/acceptance.md
"""


def text(runs: Collection) -> str:
    """Return a contract in YAML. Raises RunError without a discovery."""
    discovery = next((run for run in reversed(runs.judged) if run.run.phase == "discovery"), None)
    if discovery is None:
        raise RunError("no run of discovery is among these: name one, or a playbook, and a contract is made of it")
    lines = {**_seen(discovery), **_numbers(runs.judged)}
    lines |= {claim.id: {"says": claim.says, "statements": [claim.id]} for claim in CLAIMS if not claim.optional}
    lines["power"] = {"says": "two feeds of power for each rack", "shown_by": "a visit"}
    data = {
        "schema_version": 1,
        "contract": "order-1",
        "vendor": "who sold it",
        "customer": "who bought it",
        "nodes": hostlist.shortened(discovery.run.nodes),
        "lines": lines,
        "exceptions": [],
    }
    return HEAD + profile_text.dump(data)


def _seen(discovery: Judged) -> dict[str, dict[str, object]]:
    """Return a line for each fact that all nodes, or all devices, have alike, and one of serial numbers."""
    lines: dict[str, dict[str, object]] = {}
    for fact, says in _FACTS.items():
        seen = [each for each in discovery.observations if each.quantity == fact and each.value is not None]
        values = list({str(each.value): each.value for each in seen}.values())
        if len(values) == 1:
            lines[fact] = {"says": says, "fact": fact, "unit": seen[0].unit, "equals": values[0]}
            per_node = {len([s for s in seen if s.subject.startswith(f"{node}/")]) for node in discovery.run.nodes}
            if len(per_node) == 1 and (count := per_node.pop()):
                lines[fact]["devices"] = count
    serials: dict[str, list[str]] = {}
    for each in discovery.observations:
        if each.quantity == _SERIALS and each.value is not None:
            serials.setdefault(each.subject.partition("/")[0], []).append(str(each.value))
    if serials:
        lines["gpu-serials"] = {"says": "the GPUs by serial number", "fact": _SERIALS, "on_nodes": serials}
    return lines


def _numbers(judged: Sequence[Judged]) -> dict[str, dict[str, object]]:
    """Return a line for each speed that the profile has a number for, at the size and with the unit of the profile."""
    lines: dict[str, dict[str, object]] = {}
    for run in judged:
        for gate, entry in run.profile.expect.items():
            if entry.at_least is None or entry.unit not in SPEEDS or run.run.phase not in GATES[gate].phases:
                continue
            floor = run.profile.limit(gate, len(run.run.nodes), run.run.ranks_per_node).value
            line: dict[str, object] = {
                "says": GATES[gate].proves,
                "fact": gate,
                "phase": run.run.phase,
                "unit": entry.unit,
                "at_least": floor,
            }
            if floor is not None:
                lines.setdefault(gate, line | ({"at": entry.at} if entry.at else {}))
    return lines
