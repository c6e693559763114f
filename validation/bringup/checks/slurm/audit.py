"""Slurm's configuration (observations slurm.config.*) as answers to questions that matter for GPU jobs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Observation, Value

_UNSET = ("(null)", "none", "")  # Slurm 23.11 and later print (null) where earlier versions print none


class _Question(NamedTuple):
    gate: str
    unit: str
    reading: Callable[[str], Value | None]  # of the text behind the key


def _is_set(value: str) -> bool:
    return value.lower() not in _UNSET


def _lists(item: str) -> Callable[[str], bool]:
    return lambda value: item in value.lower().split(",")


def _seconds(value: str) -> int | None:
    match = re.match(r"(\d{1,9})(?: sec)?$", value)
    return int(match[1]) if match else None


_AUDIT = {
    "ConstrainDevices": _Question("discovery.slurm.confines_devices", "text", str),
    "ConstrainCores": _Question("discovery.slurm.confines_cores", "text", str),
    "ConstrainRAMSpace": _Question("discovery.slurm.confines_memory", "text", str),
    "TaskPlugin": _Question("discovery.slurm.task_plugin", "flag", _lists("task/cgroup")),
    "ProctrackType": _Question("discovery.slurm.proctrack", "text", str),
    "GresTypes": _Question("discovery.slurm.gres_types", "flag", _lists("gpu")),
    "KillOnBadExit": _Question("discovery.slurm.kill_on_bad_exit", "flag", lambda value: value == "1"),
    "HealthCheckProgram": _Question("discovery.slurm.health_check", "flag", _is_set),
    "Prolog": _Question("discovery.slurm.prolog", "flag", _is_set),
    "Epilog": _Question("discovery.slurm.epilog", "flag", _is_set),
    "SlurmdTimeout": _Question("discovery.slurm.slurmd_timeout", "s", _seconds),
    "ReturnToService": _Question("discovery.slurm.return_to_service", "text", str),
}
# Versions that number prologs (Prolog[0] = ...) print no line if there is none. A nearby line that every answer has
# proves that this part of the answer was read.
_UNPRINTED = {"Prolog": "PrologFlags", "Epilog": "EpilogMsgTime"}


def derive(observed: Seen) -> Parsed:
    derived = Parsed()
    for key, (gate, unit, reading) in _AUDIT.items():
        lines = observed.of(f"slurm.config.{key}")
        for line in lines:  # cgroup.conf and scontrol may both have it, and both must be right
            remark = None if unit == "text" else f"{key} = {line.value}"
            derived.saw(gate, "job", reading(str(line.value)), unit, line.evidence, remark)
        beside = observed.of(f"slurm.config.{_UNPRINTED.get(key)}")
        if not lines and beside:
            derived.saw(gate, "job", reading(""), unit, beside[-1].evidence, f"no line {key} beside {_UNPRINTED[key]}")
    defaults, plugins = observed.of("slurm.config.MpiDefault"), observed.of("slurm.mpi.plugins")
    if defaults and plugins:
        _mpi(derived, defaults[-1], plugins[0])
    return derived


def _mpi(derived: Parsed, default: Observation, plugins: Observation) -> None:
    """The default plugin must be installed, because a job without --mpi uses it."""
    if not isinstance(plugins.value, list):
        return
    available = f"there are {', '.join(plugins.value)}"
    derived.saw(
        "discovery.slurm.mpi_default",
        "job",
        not _is_set(str(default.value)) or str(default.value) in plugins.value,
        "flag",
        plugins.evidence,
        f"MpiDefault = {default.value}; {available}",
    )
    has_pmix = any(plugin.startswith("pmix") for plugin in plugins.value)
    derived.saw("discovery.slurm.pmix", "job", has_pmix, "flag", plugins.evidence, available)
