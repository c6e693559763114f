"""The state file of a simulated node: read, looked up and changed. healthy.conf says what its keys mean.

Whatever stands in for something on a simulated node reads this file, for every answer anew.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILE = Path(os.environ.get("BRINGUP_SIMULATED_STATE") or "/run/bringup-simulated/state.conf")
STAND_IN = "GPU-00000000-0000-"
"""Begins the UUID of every simulated GPU, and of no other: kernel/plan/stand_ins.py knows them by it."""

OF_PROGRAMS = ("dcgm.", "rail.", "loopback.", "nccl.", "imex.", "manager.")
_OF_NODE = ("gpu.uuid", "gpu.serial", "gpu.bus", "driver", "cuda", "ports", "port.rate", "port.layer")
_ERROR = re.compile(r"error:(\d+)")


class StateError(Exception):
    """What was asked of the state cannot be; one line for the user."""


class State:
    """The lines of one file. Of several with one key the last one counts."""

    def __init__(self, text: str) -> None:
        lines = (line for line in text.splitlines() if "=" in line and not line.startswith("#"))
        self.values = dict(line.split("=", 1) for line in lines)

    @classmethod
    def read(cls, file: Path = FILE) -> State:
        """Raises FileNotFoundError where there is no simulated node."""
        return cls(file.read_text())

    def first(self, *keys: str) -> str:
        for key in keys:
            if key in self.values:
                return self.values[key]
        raise StateError(f"the state file has none of {', '.join(keys)}; healthy.conf lists the keys")

    def gpu(self, index: int, key: str) -> str:
        return self.first(f"gpu{index}.{key}", f"gpu.{key}")

    def link(self, index: int, link: int, field: str = "") -> str:
        return self.first(f"gpu{index}.nvlink{link}{field}", f"gpu{index}.nvlink{field}", f"gpu.nvlink{field}")

    def port(self, name: str, key: str = "") -> str:
        tail = f".{key}" if key else ""
        return self.first(f"port.{name}{tail}", f"port{tail}")

    def drive(self, index: int, key: str) -> str:
        return self.first(f"drive{index}.{key}", f"drive.{key}")

    @property
    def drives(self) -> range:
        return range(int(self.first("drives")))

    @property
    def ports(self) -> list[str]:
        return self.first("ports").split()

    @property
    def driver_lists(self) -> range:
        """Indices of the GPUs that the driver lists, whatever this process may open."""
        return range(int(self.first("gpus")))

    @property
    def gpus(self) -> list[int]:
        """... and that this process may open."""
        return [index for index in self.driver_lists if self.first("devices") != "check" or _may_open(index)]


def error_in(value: str) -> int | None:
    """The number of the NVML error that stands in place of an answer."""
    match = _ERROR.fullmatch(value)
    return int(match[1]) if match else None


def _may_open(minor: int) -> bool:
    try:
        os.close(os.open(f"/dev/nvidia{minor}", os.O_RDWR | os.O_NONBLOCK))
    except OSError as error:
        return error.errno == errno.ENXIO  # the kernel let us through to no driver
    return True


# --- making and changing one


def models() -> list[str]:
    return sorted(file.stem for file in (HERE / "models").glob("*.conf"))


def traits() -> list[str]:
    return sorted(file.stem for file in (HERE / "traits").glob("*.conf"))


def _added(trait: str, state: State) -> str:
    """`ports+=bnxt_re0` is a further word of what the state says of ports."""
    return re.sub(r"^(\w+)\+=", lambda match: f"{match[1]}={state.first(match[1])} ", trait, flags=re.MULTILINE)


def healthy(shape: str, host: str, gpus: int) -> str:
    """The text of a node that has just booted. shape: a model, and what it has besides: h100+management-nic+virtual."""
    model, *with_traits = shape.split("+")
    if model not in models():
        raise StateError(f"no GPU model is called {model!r}; there are {', '.join(models())}")
    parts = [(HERE / name).read_text() for name in ("healthy.conf", f"models/{model}.conf")]
    for trait in with_traits:
        if trait not in traits():
            raise StateError(f"no trait of a node is called {trait!r}; there are {', '.join(traits())}")
        parts.append(_added((HERE / f"traits/{trait}.conf").read_text(), State("\n".join(parts))))
    state = State("\n".join(parts))
    identity = [f"gpus={gpus}"]
    for index in range(gpus):
        identity.append(f"gpu{index}.uuid={_uuid(host, index)}")
        identity.append(f"gpu{index}.serial={_serial(host, index)}")
        if f"gpu{index}.bus" not in state.values:
            raise StateError(f"a node of {model} has {index} GPUs at most, asked for were {gpus}")
    return "\n".join([*parts, f"# --- of {host}", *identity, "# --- what was changed", ""])


def _uuid(host: str, index: int) -> str:
    digits = hashlib.sha256(f"{host} {index}".encode()).hexdigest()
    return f"{STAND_IN}{digits[:4]}-{digits[4:8]}-{digits[8:20]}"


def _serial(host: str, index: int) -> str:
    """13 digits, as a serial number has."""
    return f"165{int(hashlib.sha256(f'{host} {index}'.encode()).hexdigest(), 16) % 10**10:010}"


def changed(text: str, changes: Iterable[str]) -> str:
    """The text with further `key=value` lines. Raises StateError for a key that nobody would read."""
    known = State(text)
    for change in changes:
        key, equals, _ = change.partition("=")
        if not equals or "\n" in change:
            raise StateError(f"{change!r} is not KEY=VALUE")
        if not _is_key(key, known):
            raise StateError(f"no key {key!r}; {HERE / 'healthy.conf'} lists them")
        text += f"{change}\n"
    return text


def _is_key(key: str, state: State) -> bool:
    """A key of all GPUs or ports is also one of each that is there. Those of programs stand in the programs' heads."""
    if key.startswith(OF_PROGRAMS):
        return True
    gpu = re.fullmatch(r"gpu(\d+)\.(nvlink)?(\d+)?(.*)", key)
    if gpu:
        index, nvlink, link, rest = gpu.groups()
        if int(index) not in state.driver_lists or (bool(link) and not nvlink):
            return False
        return not (link and int(link) >= int(state.gpu(int(index), "nvlinks"))) and _is_known(
            f"gpu.{nvlink or ''}{rest}", state
        )
    drive = re.fullmatch(r"drive(\d+)\.(.+)", key)
    if drive:
        return int(drive[1]) in state.drives and _is_known(f"drive.{drive[2]}", state)
    port = re.fullmatch(r"port\.([^.]+)(\..+)?", key)
    if port and port[1] in state.ports:
        return _is_known(f"port{port[2] or ''}", state)
    return _is_known(key, state)


def _is_known(key: str, state: State) -> bool:
    return key in state.values or key in _OF_NODE
