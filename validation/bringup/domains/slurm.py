"""Slurm: its configuration, and what it does with jobs."""

import re
from contextlib import suppress
from datetime import datetime

from bringup.kernel.facts.fold import by_node
from bringup.kernel.facts.parser_result import Parsed, Seen, is_number, numbers
from bringup.kernel.plan.gate import Gate
from bringup.kernel.records import Run, Value
from bringup.readers.slurm import PROMISED

_UNSET = ("(null)", "none", "")  # Slurm 23.11 and later print (null) where earlier versions print none


def setting(derived: Parsed, gate: Gate, observed: Seen) -> None:
    """Give what lines of a configuration say: of a flag, whether it lists the word behind `has`, or is set; else the
    number. Some versions print no line for what is not set: the line behind `of` shows that they were asked."""
    name, beside = (each.rpartition(".")[2] for each in (gate.fold.facts[0], gate.fold.of or ""))
    lines = observed.of(gate.fold.facts[0])
    for line in lines:  # two files may both have it, and both must be right
        why = f"{name} = {line.value}"
        derived.saw(gate.id, line.subject, _setting(gate, str(line.value)), gate.unit, line.evidence, why)
    for other in observed.of(gate.fold.of)[-1:] if gate.fold.of and not lines else ():
        why = f"no line {name} beside {beside}"
        derived.saw(gate.id, other.subject, _setting(gate, ""), gate.unit, other.evidence, why)


def _setting(gate: Gate, text: str) -> Value | None:
    if gate.unit != "flag":
        number = re.match(r"(\d{1,9})(?: sec)?$", text)
        return int(number[1]) if number else None
    return text.lower() not in _UNSET if gate.fold.has is None else gate.fold.has in text.lower().split(",")


def mpi(derived: Parsed, observed: Seen, run: Run) -> None:
    """Check that the default plugin is installed, because a job without --mpi uses it."""
    defaults, several = observed.of("slurm.config.MpiDefault"), observed.of("slurm.mpi.plugins")
    if not defaults or not several or not isinstance(several[0].value, list):
        return
    default, plugins, names = defaults[-1], several[0], several[0].value
    available = f"there are {', '.join(names)}"
    is_there = str(default.value).lower() in _UNSET or str(default.value) in names
    why = f"MpiDefault = {default.value}; {available}"
    derived.saw("discovery.slurm.mpi_default", "job", is_there, "flag", plugins.evidence, why)
    has_pmix = any(plugin.startswith("pmix") for plugin in names)
    derived.saw("discovery.slurm.pmix", "job", has_pmix, "flag", plugins.evidence, available)


def devices_behind_gres(derived: Parsed, observed: Seen, run: Run) -> None:
    """Count GPUs that slurm.conf lists and the node does not have."""
    present = numbers(observed.of("discovery.gpu.count"))
    for gres in {gpus.subject: gpus for gpus in observed.of("slurm.node.gpus")}.values():
        if (devices := present.get(gres.subject)) is not None and is_number(gres.value):
            why = f"Gres says {gres.value}, {devices:.0f} devices were found"
            derived.saw("discovery.slurm.gres", gres.subject, int(gres.value - devices), "count", gres.evidence, why)


def hardware(derived: Parsed, observed: Seen, run: Run) -> None:
    """Count of CPUs and MiB of memory those of which slurm.conf promises more than the node has. CPUs that Slurm was
    told to believe in (config_overrides) do not count."""
    overrides = any("config_overrides" in str(line.value) for line in observed.of("slurm.config.SlurmdParameters"))
    memory = {node: gib * 1024 + 1 for node, gib in numbers(observed.of("inventory.memory")).items()}  # it is rounded
    has = {"CPUTot": numbers(observed.of("discovery.cpu.count")), "RealMemory": memory}
    for node, promised in by_node(observed.under(PROMISED)).items():
        configured = {fact.quantity.removeprefix(PROMISED): fact.value for fact in promised}
        pairs = ((name, configured.get(name), there.get(node)) for name, there in has.items())
        both = {name: (most, there) for name, most, there in pairs if is_number(most) and there is not None}
        short = [name for name, (most, there) in both.items() if most > there and not (overrides and name == "CPUTot")]
        shown = [f"{name} {most} of {there:.0f}" for name, (most, there) in both.items() if name in short or not short]
        value = len(short) if short or len(both) == len(has) else None
        why = "; ".join(shown) if value is not None else "the node did not say its CPUs, or its memory"
        derived.saw("discovery.slurm.hardware", node, value, "count", promised[0].evidence, why)


def warned_before_it_began(derived: Parsed, observed: Seen, run: Run) -> None:
    """Allow that Slurm sends the signal a minute early. Then it kills a script that had not begun: signal 10 (USR1)."""
    exit_codes = observed.of("smoke.warning.ExitCode")
    was_warned = any(warned.value is not None for warned in observed.of("smoke.time_limit.warned"))
    if exit_codes and exit_codes[0].value == "0:10" and not was_warned:
        why = "the signal came before the script had begun"
        derived.saw("smoke.time_limit.warned", "job", True, "flag", exit_codes[0].evidence, why)


def array_indices(derived: Parsed, observed: Seen, run: Run) -> None:
    if reported := observed.of("smoke.array.index"):
        indices, where = sorted(str(index.value) for index in reported), reported[0].evidence
        derived.saw("smoke.array", "job", " ".join(indices), "text", f"{where} to {reported[-1].evidence}")


def waiting(derived: Parsed, observed: Seen, run: Run) -> None:
    _seconds_between(derived, observed, "smoke.before.EndTime", "smoke.after.StartTime", "smoke.dependency.waits")
    submitted, started = "smoke.exit_code.SubmitTime", "smoke.exit_code.StartTime"
    _seconds_between(derived, observed, submitted, started, "smoke.queue.latency")


def _seconds_between(derived: Parsed, observed: Seen, earlier: str, later: str, gate: str) -> None:
    first, second = next(iter(observed.of(earlier)), None), next(iter(observed.of(later)), None)
    if first is None or second is None:
        return
    seconds: float | None = None
    why: str | None = f"{first.value} and {second.value} are not two times"
    with suppress(ValueError, TypeError):  # Unknown: the job never started
        begin, end = (datetime.fromisoformat(str(fact.value)) for fact in (first, second))
        seconds, why = (end - begin).total_seconds(), None
    derived.saw(gate, "job", seconds, "s", f"{first.evidence}, {second.evidence}", why)
