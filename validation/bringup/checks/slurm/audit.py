"""Slurm's configuration as answers to questions that matter for GPU jobs. From observations slurm.config.*, one per line read."""

from __future__ import annotations

import re
from collections.abc import Callable

from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Observation, Value

_UNSET = ("(null)", "none", "")  # Slurm 23.11 and later print (null) where earlier versions print none


def _set(value: str) -> bool:
    return value.lower() not in _UNSET


def _lists(item: str) -> Callable[[str], bool]:
    return lambda value: item in value.lower().split(",")


def _seconds(value: str) -> int | None:
    match = re.match(r"(\d{1,9})(?: sec)?$", value)
    return int(match[1]) if match else None


_AUDIT: dict[str, tuple[str, str, Callable[[str], Value | None]]] = {  # key -> quantity, unit, reading
    "TaskPlugin": ("slurm.audit.task_cgroup", "flag", _lists("task/cgroup")),
    "GresTypes": ("slurm.audit.gres_gpu", "flag", _lists("gpu")),
    "KillOnBadExit": ("slurm.audit.kill_on_bad_exit", "flag", lambda value: value == "1"),
    "HealthCheckProgram": ("slurm.audit.health_check", "flag", _set),
    "Prolog": ("slurm.audit.prolog", "flag", _set),
    "Epilog": ("slurm.audit.epilog", "flag", _set),
    "SlurmdTimeout": ("slurm.audit.slurmd_timeout", "s", _seconds),
}
# Versions that number prologs (Prolog[0] = ...) print no line for none. The line that every answer has close to it shows that
# this part of the answer was read.
_UNPRINTED = {"Prolog": "PrologFlags", "Epilog": "EpilogMsgTime"}


def derive(seen: Seen) -> Parsed:
    """slurm.audit.*"""
    found = Parsed()
    config = {
        quantity.removeprefix("slurm.config."): lines[-1]
        for quantity, lines in seen.starting_with("slurm.config.").items()
    }
    for key, (quantity, unit, reading) in _AUDIT.items():
        if key in config:
            one = config[key]
            found.saw(quantity, "job", reading(str(one.value)), unit, one.evidence, f"{key} = {one.value}")
        elif (beside := config.get(_UNPRINTED.get(key, ""))) is not None:
            found.saw(quantity, "job", reading(""), unit, beside.evidence, f"no line {key} beside {_UNPRINTED[key]}")
    _mpi(found, config.get("MpiDefault"), next(iter(seen.of("slurm.mpi.plugins")), None))
    return found


def _mpi(found: Parsed, default: Observation | None, there: Observation | None) -> None:
    """The default plugin must be among those that are there: a job that says nothing gets it."""
    if default is None or there is None or not isinstance(there.value, list):
        return
    found.saw(
        "slurm.audit.mpi_default_there",
        "job",
        not _set(str(default.value)) or str(default.value) in there.value,
        "flag",
        there.evidence,
        f"MpiDefault = {default.value}; there are {', '.join(there.value)}",
    )
    found.saw(
        "slurm.audit.pmix",
        "job",
        any(plugin.startswith("pmix") for plugin in there.value),
        "flag",
        there.evidence,
        f"there are {', '.join(there.value)}",
    )
