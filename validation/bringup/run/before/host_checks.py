"""The checks of `bringup doctor` that need no Slurm: a table, and a function for each."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from bringup.errors import BringupError, ProfileError, SiteError
from bringup.plan import cuda
from bringup.plan import profile as profiles
from bringup.plan.catalogue import GATES
from bringup.plan.claims import CLAIMS
from bringup.plan.phases import PHASES
from bringup.run import site as at_site
from bringup.run.before.cluster import most_common
from bringup.run.before.facts import Facts, Finding
from bringup.run.site import AtSite

SHARED = re.compile(
    r"nfs4?|lustre|gpfs|beegfs|ceph|fuse\.\S+|wekafs|panfs|cifs|smb3|afs|glusterfs|orangefs|9p|virtiofs"
)
MODEL = re.compile(r"(?:gb|[abh])[0-9]{3}", re.IGNORECASE)  # of an NVIDIA GPU for data centres: h100, gb200
LEAST_GIB = 10  # logs and records of all phases, and the files of storage; checkpoints come on top


def _python(facts: Facts) -> Finding:
    host = facts.host
    if host.interpreter is None:
        return Finding(
            "FAIL", f"no Python environment at {host.venv}", "make venv; or name it: export BRINGUP_VENV=FOLDER"
        )
    return Finding(
        "PASS", f"{host.python} in {host.venv}; nodes need {host.interpreter} too (discovery says whether they have it)"
    )


def _torch(facts: Facts) -> Finding:
    torch, driver = facts.host.torch, facts.driver
    contained = isinstance(facts.site, AtSite) and facts.site.site.container is not None
    if torch is None:
        if contained:
            return Finding("PASS", "not installed here: the site's container brings it")
        return Finding(
            "WARN",
            "not installed: discovery runs, and smoke without its matrix products",
            "make venv, for all phases",
        )
    if torch.cuda is None:
        if driver is None:
            return Finding("PASS", f"{torch.version}, a build for CPUs; no run has seen a GPU driver")
        says = f"{torch.version}, a build for CPUs; the nodes have driver {driver.version} ({driver.run})"
        return Finding("WARN", says, "make venv without TORCH_INDEX: this build uses no GPU")
    if driver is None:
        least = cuda.LEAST_DRIVER.get(int(torch.cuda.split(".")[0]))
        says = f"{torch.version} for CUDA {torch.cuda} needs driver {least}; no discovery has asked the nodes yet"
        return Finding("NOT ASKED", says, "bringup run discovery --nodes 1, then bringup doctor again")
    says = f"{torch.version} for CUDA {torch.cuda}; driver {driver.version} on {driver.gpu} ({driver.run})"
    old = cuda.too_old(driver.version, torch.cuda)
    if old is None:
        return Finding("INCOMPLETE", says, "not known which driver this CUDA needs")
    return (
        Finding("FAIL", f"{says} is too old", cuda.way_out(driver.version, driver.gpu))
        if old
        else Finding("PASS", says)
    )


def _folder(facts: Facts) -> Finding:
    folder = facts.host.folder
    if folder.kind is None or folder.writes != "works":
        return Finding(
            "FAIL" if folder.kind else "INCOMPLETE",
            f"{folder.path}: {folder.writes}",
            "put the checkout where you may write",
        )
    says = f"{folder.path} is on {folder.kind}"
    if SHARED.fullmatch(folder.kind):
        return Finding("PASS", f"{says}, a type that hosts share")
    if folder.is_exported:
        return Finding("PASS", f"{says}, and this host exports it (/etc/exports)")
    return Finding(
        "WARN",
        f"{says}, a local filesystem: nodes see it only if this host exports it",
        "clone into a folder that all nodes see; smoke proves it",
    )


def _room(facts: Facts) -> Finding:
    folder = facts.host.folder
    if folder.space_gib is None:
        return Finding("INCOMPLETE", f"free space is not known: {folder.of_space}", "df and quota in that folder")
    says = f"{folder.space_gib:.0f} GiB free ({folder.of_space}); a checkpoint of 3 B parameters takes 37 GB"
    if folder.space_gib < LEAST_GIB:
        return Finding("WARN", says, "scratch and checkpoints in the site file, in a folder with more room")
    return Finding("PASS", says)


def _site(facts: Facts) -> Finding:
    if isinstance(facts.site, SiteError):
        return Finding("FAIL", str(facts.site), "bringup site reads it back once it is right")
    if facts.site is None:
        return Finding(
            "WARN",
            "no site file: jobs go to the default partition, with Slurm's own settings",
            "bringup site --init; export BRINGUP_SITE=NAME",
        )
    for phase in PHASES.values():
        try:
            at_site.refuse_missing(facts.site.site, phase)
        except SiteError as error:
            return Finding("FAIL", str(error), "make it, or change the site file")
    return Finding("PASS", f"{facts.site.site.name}, {facts.site.file}")


def _profile(facts: Facts) -> Finding:
    if isinstance(facts.profile, ProfileError):
        return Finding("FAIL", str(facts.profile), "export BRINGUP_PROFILE=generic")
    profile = facts.profile
    if isinstance(facts.cluster, BringupError):
        return Finding("PASS", f"{profile.name}: {profile.description}")
    usual = most_common(facts.cluster.nodes_of(facts.cluster.named(facts.partition)))
    model = MODEL.search(usual.gres) if usual else None
    fit = fitting(model[0], usual.gpus if usual else 0) if model else {}
    number = profile.machine.gpus_per_node
    if usual and number is not None and number.value != usual.gpus:
        return Finding(
            "WARN", f"{profile.name} is for {number.value:g} GPUs a node, and Slurm says {usual.gpus}", _choose(fit)
        )
    if fit and profile.name == profiles.DEFAULT:
        return Finding("WARN", "generic: bandwidth and speed are measured, and judged by no number", _choose(fit))
    return Finding("PASS", f"{profile.name}: {profile.description}")


@cache
def fitting(model: str, gpus: int) -> dict[str, str]:
    """Profiles of real clusters for this model of GPU: name -> description."""
    fit = {}
    for name in profiles.names():
        profile = profiles.load(name)
        number = profile.machine.gpus_per_node
        is_for = re.search(rf"\b{model}\b", f"{name} {profile.description}", re.IGNORECASE)
        if is_for and not name.startswith(("local-", "simulated-")) and (number is None or number.value == gpus):
            fit[name] = profile.description
    return fit


def _choose(fit: dict[str, str]) -> str:
    return (
        f"by its network: export BRINGUP_PROFILE={' | '.join(fit)}"
        if fit
        else "bringup profile --from makes one of your own"
    )


class Tool(NamedTuple):
    program: str
    brings: str
    gates: str  # the beginning of the names of gates that need it
    instead: str = ""  # what is used without it


TOOLS = (
    Tool("dcgmi", "DCGM", "sweep.dcgm."),
    Tool("ib_write_bw", "perftest", "fabric."),
    Tool("fio", "fio", "", "plain reads and writes"),
    Tool("all_reduce_perf", "nccl-tests", "", "torch's own collectives"),
)


def _claims(gate: str) -> tuple[str, ...]:
    return (*GATES[gate].claims, *GATES[gate].bears_on)


def _tools(facts: Facts) -> Finding:
    """Of this host: only a job sees those of the nodes."""
    missing = [tool for tool in TOOLS if tool.program not in facts.host.tools]
    if not missing:
        return Finding("PASS", f"{', '.join(tool.brings for tool in TOOLS)} are here; nodes need them too")
    costs = []
    for tool in missing:
        gates = [gate for gate in GATES if tool.gates and gate.startswith(tool.gates)]
        questions = sorted({claim.question for claim in CLAIMS for gate in gates if claim.id in _claims(gate)})
        cost = f"{len(gates)} gates of question {', '.join(map(str, questions))} stay open"
        costs.append(f"{tool.brings} ({cost if gates else f'nothing: {tool.instead} instead'})")
    says = f"not on this host, and only a job sees the nodes'. What it costs to lack them: {', '.join(costs)}"
    return Finding(
        "NOT ASKED", says, "install them on the nodes, or declare these gates not_applicable in a profile of yours"
    )


OF_THE_HOST: tuple[tuple[str, Callable[[Facts], Finding]], ...] = (
    ("python", _python),
    ("torch", _torch),
    ("folder", _folder),
    ("room", _room),
    ("site file", _site),
    ("profile", _profile),
    ("tools", _tools),
)
