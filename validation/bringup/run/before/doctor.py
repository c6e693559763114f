"""`bringup doctor`: gathers the facts and shows the checks on one screen. Nothing is submitted."""

from __future__ import annotations

import contextlib

from bringup import results
from bringup.errors import FileError, RecordError, RunError, SlurmError
from bringup.plan import catalogue
from bringup.plan.profile import Profile
from bringup.records import Observations, read_record
from bringup.report.render import render
from bringup.report.text import shown_path
from bringup.run import discovered, slurm
from bringup.run import site as at_site
from bringup.run.before import checks, cluster, host
from bringup.run.before.facts import Driver, Facts, Line


def look(profile_name: str) -> list[Line]:
    site: at_site.AtSite | FileError | None
    try:
        site = at_site.entered()  # its partition and account hold for all questions below
    except FileError as error:
        site = error
    try:
        profile = discovered.profile(catalogue.load_profile(profile_name), [])
    except FileError as wrong:
        return checks.lines(_facts(site, wrong))
    return checks.lines(_facts(site, profile))


def _facts(site: at_site.AtSite | FileError | None, profile: Profile | FileError) -> Facts:
    answer: cluster.Cluster | SlurmError
    try:
        answer = cluster.read()
    except SlurmError as error:
        answer = error
    return Facts(host.read(), answer, slurm.chosen_partition(), site, profile, newest_driver())


def newest_driver() -> Driver | None:
    """Return what the newest run of discovery saw of driver and GPU. None: none of them saw a driver."""
    runs = [run for run in results.every_run() if run.parent.name == "discovery"]
    for run in sorted(runs, key=lambda run: run.name, reverse=True):
        with contextlib.suppress(RecordError, RunError, FileNotFoundError):
            seen = read_record(run / results.OBSERVATIONS, Observations).observations
            values = {each.quantity: str(each.value) for each in reversed(seen) if each.value is not None}
            if "discovery.gpu.driver" in values:
                gpu = values.get("discovery.gpu.model", "a GPU of no known model")
                return Driver(values["discovery.gpu.driver"], gpu, shown_path(run))
    return None


def screen(lines: list[Line]) -> str:
    return render("doctor.txt.j2", lines=lines)
