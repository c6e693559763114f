"""A contract to begin with: lines made of what a discovery saw, and of the numbers of the runs' profile.

What a discovery saw is not what was sold: who takes it as it is accepts what is there.
"""

from collections.abc import Iterator, Sequence

from bringup.kernel.errors import RunError
from bringup.kernel.facts import hostlist
from bringup.kernel.judge import Judged
from bringup.kernel.plan import profile_text
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.expectation import SPEEDS
from bringup.kernel.records import grouped, known

_FACTS = known("contract_facts", dict[str, str])
_SERIALS = "inventory.gpu.serial"
HEAD = """\
# A contract, line by line: put in place of each value what was sold, and take out what was not.
# bringup accept RUN --contract THIS says of each line: proven, refuted, not proven, or not asked. docs/acceptance.md
"""
_Lines = Iterator[tuple[str, dict[str, object]]]


def text(judged: Sequence[Judged]) -> str:
    """Return a contract in YAML. Raises RunError without a discovery."""
    discovery = next((run for run in reversed(judged) if run.run.phase == "discovery"), None)
    if discovery is None:
        raise RunError("no run of discovery is among these: name one, or a playbook, and a contract is made of it")
    parties = {"contract": "order-1", "vendor": "who sold it", "customer": "who bought it"}
    sold = {"nodes": hostlist.shortened(discovery.run.nodes), "gpus_per_node": discovery.run.gpus_per_node}
    lines = {**dict(_seen(discovery)), **dict(_numbers(judged))}
    lines |= {claim.id: {"says": claim.says, "statements": [claim.id]} for claim in CLAIMS if not claim.optional}
    lines["power"] = {"says": "two feeds of power for each rack", "shown_by": "a visit"}
    return HEAD + profile_text.dump({"schema_version": 1, **parties, **sold, "lines": lines})


def _seen(discovery: Judged) -> _Lines:
    """Yield a line for each fact that all nodes, or all devices, have alike, and one of serial numbers."""
    for fact, says in _FACTS.items():
        seen = [each for each in discovery.seen.of(fact) if each.value is not None]
        if len({str(each.value) for each in seen}) == 1:
            yield fact, {"says": says, "fact": fact, "unit": seen[0].unit, "equals": seen[0].value}
    serials = (each for each in discovery.seen.of(_SERIALS) if each.value is not None)
    if on_nodes := grouped((each.subject.partition("/")[0], str(each.value)) for each in serials):
        yield "gpu-serials", {"says": "the GPUs by serial number", "fact": _SERIALS, "on_nodes": on_nodes}


def _numbers(judged: Sequence[Judged]) -> _Lines:
    """Yield a line for each speed that the profile has a number for, at the size and with the unit of the profile."""
    for of, (gate, entry) in ((run, each) for run in judged for each in run.profile.expect.items()):
        if entry.at_least is None or entry.unit not in SPEEDS or of.run.phase not in GATES[gate].phases:
            continue
        fact = f"{gate}@{entry.at}" if entry.at else gate
        floor = of.profile.limit(gate, len(of.run.nodes), of.run.ranks_per_node).value
        if floor is not None:
            line = {"says": GATES[gate].proves, "fact": fact, "phase": of.run.phase}
            yield gate, {**line, "unit": entry.unit, "at_least": floor}
