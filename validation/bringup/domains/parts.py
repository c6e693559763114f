"""The parts that a profile is made of where nobody named one (profiles/parts): GPU models, node, fabrics."""

import re
from functools import cache

from pydantic import Field

from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan import profile_text
from bringup.kernel.records import Record

PARTS = profiles.PROFILES / "parts"


class Gpu(Record):
    """A model: `name` is a pattern in the driver's name of it."""

    name: str
    part: str  # gpus/PART.yaml
    joined: int | None = None  # GPUs of a node, joined by NVSwitch, that nodes/PART.yaml is of


class Fabric(Record):
    """By the link layer that the kernel says of a port."""

    words: str
    parts: list[str]  # fabrics/PART.yaml
    virtual: str | None = None  # the part that is added in virtual machines
    share: float = Field(gt=0, le=1)  # of the line rate, that one NIC reaches
    source: str = Field(min_length=3)
    rates: dict[int, int] = Field(default_factory=dict)  # ports of a node -> Gb/s, where the kernel's rate is not right


class Local(Record):
    """A local cluster of this project, by the name that it gives itself."""

    cluster: str
    gpu: str | None = None  # the part that its simulated GPUs are of; None: it has placeholders
    fabric: str | None = None  # in words; None: any
    profile: str


class Index(Record):
    """`parts/index.yaml`."""

    gpus: list[Gpu]
    fabrics: dict[str, Fabric]
    local: list[Local]


@cache
def index() -> Index:
    """Read once. Raises FileError."""
    path = PARTS / "index.yaml"
    return Index.model_validate(profile_text.read(path.read_text(encoding="utf-8"), str(path)))


def gpu_called(name: str) -> Gpu | None:
    """Find a GPU by the driver's name of it. None: unknown, or a part of one (MIG), which keeps the name."""
    if "MIG" in name:
        return None
    return next((gpu for gpu in index().gpus if re.search(rf"\b{gpu.name}(?!\d)", name)), None)


@cache
def of_gpu(part: str) -> profiles.Profile:
    """Load a GPU model's part. Raises FileError."""
    return profiles.load(str(PARTS / f"gpus/{part}.yaml"), strict=False)
