"""What the checks of `bringup doctor` look at, and what one of them finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from bringup.errors import BringupError, FileError
from bringup.plan.profile import Profile
from bringup.run.before.cluster import Cluster
from bringup.run.before.host import Host
from bringup.run.site import AtSite

Mark = Literal["PASS", "WARN", "FAIL", "INCOMPLETE", "NOT ASKED"]
"""FAIL: a run will fail for it. INCOMPLETE: it could not be found out here. NOT ASKED: only a job can tell."""


@dataclass(frozen=True)
class Driver:
    """From the newest run of discovery."""

    version: str
    gpu: str  # model
    run: str


@dataclass(frozen=True)
class Facts:
    host: Host
    cluster: Cluster | BringupError  # the error: Slurm does not answer
    partition: str | None  # names, with commas between them; None: the default one
    site: AtSite | FileError | None
    profile: Profile | FileError
    driver: Driver | None


class Finding(NamedTuple):
    mark: Mark
    says: str
    cure: str = ""


class Line(NamedTuple):
    title: str
    finding: Finding
