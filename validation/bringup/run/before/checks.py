"""The checks of `bringup doctor`, a function for each: a line with a cure where something is to be done."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from bringup.characters import many
from bringup.errors import BringupError, CannotStart, FileError
from bringup.evidence.names import the_first
from bringup.plan import auto, cuda
from bringup.plan import profile as profiles
from bringup.plan.catalogue import GATES
from bringup.plan.claims import CLAIMS
from bringup.plan.phases import PHASES
from bringup.run import partitions, slurm
from bringup.run import site as at_site
from bringup.run.before.cluster import Cluster, most_common
from bringup.run.before.facts import Facts, Finding, Line, Mark
from bringup.run.before.host import UNLIMITED
from bringup.run.nodes import MIG
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
        if driver is None and _slurm_has_gpus(facts):
            says = f"{torch.version}, a build for CPUs, and Slurm hands out GPUs"
            return Finding("WARN", says, "make venv without TORCH_INDEX: this build uses no GPU")
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


def _slurm_has_gpus(facts: Facts) -> bool:
    """Whether programs should find GPUs: not where the profile says that they compute on the CPU."""
    device = None if isinstance(facts.profile, FileError) else facts.profile.expect.get("train.device")
    if isinstance(facts.cluster, BringupError) or (device is not None and device.one_of == ["cpu"]):
        return False
    return most_common(facts.cluster.nodes_of(facts.cluster.named(facts.partition))) is not None


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
    if isinstance(facts.site, FileError):
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
        except FileError as error:
            return Finding("FAIL", str(error), "make it, or change the site file")
    return Finding("PASS", f"{facts.site.site.name}, {facts.site.file}")


def _profile(facts: Facts) -> Finding:
    if isinstance(facts.profile, FileError):
        return Finding("FAIL", str(facts.profile), "unset BRINGUP_PROFILE")
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
    if auto.is_open(profile):
        return Finding("PASS", f"{profile.name}: its numbers are those of what discovery will see; there is none yet")
    if fit and profile.name == "generic":
        return Finding("WARN", "generic: bandwidth and speed are measured, and judged by no number", _choose(fit))
    return Finding("PASS", f"{profile.name}: {profile.description}")


@cache
def fitting(model: str, gpus: int) -> dict[str, str]:
    """Find profiles of real clusters for this model of GPU: name -> description."""
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


def _kernel_log(facts: Facts) -> Finding:
    """Of this host: nodes are usually set up alike."""
    if not facts.host.kernel_log_is_closed:
        return Finding("PASS", "this account may read it here")
    says = "closed to this account here, as the journal is; if the nodes are alike, their Xids are not seen"
    cure = "the group systemd-journal on the nodes; without it the decision is at best: accept, except"
    return Finding("NOT ASKED", says, cure)


def _shell(facts: Facts) -> Finding:
    """Options of Slurm's commands that the shell holds."""
    held = sorted(at_site.CLEARED & os.environ.keys())
    if not held:
        return Finding("PASS", "it holds no variable that changes the phases' jobs")
    return Finding(
        "WARN", f"it holds {', '.join(held)}", "nothing for `bringup run`, which unsets them; for sbatch by hand: unset"
    )


OF_THE_HOST: tuple[tuple[str, Callable[[Facts], Finding]], ...] = (
    ("python", _python),
    ("torch", _torch),
    ("folder", _folder),
    ("room", _room),
    ("site file", _site),
    ("profile", _profile),
    ("tools", _tools),
    ("kernel log", _kernel_log),
    ("shell", _shell),
)


MOST_SMOKE_JOBS = 11  # that smoke has in the queue at once


def _slurm(facts: Facts, cluster: Cluster) -> Finding:
    hooks = [
        name for name in ("Prolog", "Epilog", "PrologSlurmctld") if cluster.settings.get(name, "(null)") != "(null)"
    ]
    with_hooks = f"; {', '.join(hooks)} run with every job, and take their time each" if hooks else ""
    return Finding("PASS", f"{cluster.version} answers; cluster {cluster.name or 'without a name'}{with_hooks}")


def _partition(facts: Facts, cluster: Cluster) -> Finding:
    chosen, known = cluster.named(facts.partition), ", ".join(partition.name for partition in cluster.partitions)
    if not chosen:
        what = (
            "there is no default partition" if facts.partition is None else f"there is no partition {facts.partition}"
        )
        return Finding("FAIL", f"{what}; there are {known}", "partition: NAME in the site file (bringup site --init)")
    nodes, name = cluster.nodes_of(chosen), ",".join(partition.name for partition in chosen)
    usual = most_common(nodes)
    if not nodes:
        return Finding("FAIL", f"{name} {slurm.NO_NODE}", "PrivateData=cloud in slurm.conf: the administrator")
    if usual is None:
        with_gpus = [p.name for p in cluster.partitions if most_common(cluster.nodes_of([p])) is not None]
        cure = (
            f"partition: {with_gpus[0]} in the site file"
            if with_gpus
            else "Gres=gpu:N in slurm.conf: the administrator"
        )
        return Finding("FAIL", f"{name}: Slurm has no GPU on any of its {many(len(nodes), 'node')}", cure)
    usable = [each for each, node in nodes.items() if node.is_usable]
    sharing = ", ".join(dict.fromkeys(partition.sharing for partition in chosen))
    says = f"{name}: {len(usable)} of {many(len(nodes), 'node')} usable, {usual.gpus} GPUs each ({usual.gres})"
    says += f"; OverSubscribe={sharing}"
    if not usable:
        return Finding("INCOMPLETE", says, "sinfo -N -l says why no node is usable")
    others = [each for each, node in nodes.items() if node.gres != usual.gres]
    if others:
        cure = f"nothing, if these may be left aside: a run takes those with {usual.gres}; --nodelist names others"
        return Finding("WARN", f"{says}; others have another Gres: {the_first(others)}", cure)
    return Finding("PASS", says)


def _phases(facts: Facts, cluster: Cluster) -> Finding:
    """Whether each phase's partition takes its job: the same look as `bringup run` has before it submits."""
    at = facts.site if isinstance(facts.site, AtSite) else None
    nodes = list(cluster.nodes_of(cluster.named(facts.partition)))
    if not nodes:
        return Finding("NOT ASKED", "there is no partition with nodes to ask about", "first the partition")
    refused = {}
    for stem, phase in PHASES.items():
        try:
            partitions.refuse(phase, nodes, at_site.for_submission(at, stem, os.environ), cluster.partitions)
        except CannotStart as error:
            refused[stem] = str(error)
    if refused:
        first = next(iter(refused.values()))
        return Finding("FAIL", f"{len(refused)} of {len(PHASES)} steps would be refused: {first}", "as the line says")
    return Finding("PASS", f"the partition takes the jobs of all {len(PHASES)} steps on {many(len(nodes), 'node')}")


def _request(facts: Facts, cluster: Cluster) -> Finding:
    plugins = cluster.settings.get("JobSubmitPlugins", "(null)")
    requested = facts.site.site.gpu_request if isinstance(facts.site, AtSite) else "none"
    nodes = cluster.nodes_of(cluster.named(facts.partition))
    sliced = [name for name, node in nodes.items() if any(MIG.search(kind) for kind in node.types)]
    if sliced:
        says = f"GPUs are divided (MIG) on {the_first(sliced)}: a slice counts as a GPU"
        return Finding("WARN", says, "leave these nodes out with --nodelist, or ask for MIG to be switched off")
    if requested == "none" and plugins != "(null)":
        says = f"JobSubmitPlugins={plugins} may refuse jobs without a GPU request, and none is declared"
        return Finding("WARN", says, "gpu_request in the site file (bringup site --init writes it)")
    return Finding("PASS", f"gpu_request {requested}; JobSubmitPlugins={plugins}")


def _account(facts: Facts, cluster: Cluster) -> Finding:
    enforced = cluster.settings.get("AccountingStorageEnforce", "none").lower()
    named = facts.site.site.submitted("account", None) if isinstance(facts.site, AtSite) else None
    account = named or os.environ.get("SBATCH_ACCOUNT") or cluster.default_account
    if cluster.accounts is None:
        if "associations" in enforced or "limits" in enforced:
            return Finding(
                "INCOMPLETE", "accounts are enforced, and sacctmgr gave no answer", "ask for your account's name"
            )
        return Finding("PASS", f"no account is needed (AccountingStorageEnforce={enforced})")
    mine = sorted({each.name for each in cluster.accounts})
    mark: Mark = "FAIL" if "associations" in enforced else "WARN"
    if not mine:
        return Finding(mark, "you have no account in this cluster", "ask the administrator for one")
    if account not in mine:
        what = f"account {account} is not one of yours" if account else "no account is chosen"
        return Finding(mark, f"{what}; yours: {', '.join(mine)}", f"account: {mine[0]} in the site file")
    closed = [p.name for p in cluster.named(facts.partition) if p.accounts and account not in p.accounts]
    if closed:
        others = sorted({name for p in cluster.named(facts.partition) for name in cluster.accounts_for(p)})
        cure = f"account: {others[0]} in the site file" if others else "another partition, or ask for an account"
        return Finding("FAIL", f"partition {closed[0]} takes no job of account {account} (AllowAccounts)", cure)
    limits = [each.most_jobs for each in cluster.accounts if each.name == account and each.most_jobs is not None]
    if limits and min(limits) < MOST_SMOKE_JOBS:
        says = f"account {account} may have {min(limits)} jobs at once, and smoke has up to {MOST_SMOKE_JOBS}"
        return Finding("WARN", says, "nothing: it submits them one after the other, and takes longer")
    return Finding("PASS", f"account {account}")


def _limits(facts: Facts, cluster: Cluster) -> Finding:
    (soft, hard), memory = facts.host.nofile, facts.host.memlock[0]
    shown = "unlimited" if memory == UNLIMITED else f"{memory / 2**20:g} MiB"
    says = f"open files {_limit(soft)} (hard {_limit(hard)}), locked memory {shown}; "
    files, locked = cluster.propagated("NOFILE"), cluster.propagated("MEMLOCK")
    says += {True: "jobs get these", False: "jobs get those of slurmd instead", None: "perhaps jobs get these"}[files]
    says += f" (PropagateResourceLimits={cluster.settings.get('PropagateResourceLimits', 'not said')})"
    profile = None if isinstance(facts.profile, FileError) else facts.profile
    floor = None if profile is None else profile.limit("discovery.nofile", 1).value
    needs_locks = profile is None or profile.reason_not_applicable("discovery.memlock") is None
    cures = []
    # as discovery judges: a program may raise its own soft limit, and ours do
    if files is not False and isinstance(floor, int | float) and hard != UNLIMITED and hard < floor:
        cures.append(f"hard nofile {floor:g} in /etc/security/limits.conf, then log in again")
    if locked is not False and memory != UNLIMITED and needs_locks:
        cures.append("where RDMA is used: memlock unlimited in /etc/security/limits.conf, then log in again")
    return Finding("WARN", says, "; ".join(cures)) if cures else Finding("PASS", says)


def _limit(number: int) -> str:
    return "unlimited" if number == UNLIMITED else str(number)


def _architecture(facts: Facts, cluster: Cluster) -> Finding:
    nodes = cluster.nodes_of(cluster.named(facts.partition))
    arches = Counter(node.arch for node in nodes.values() if node.arch)
    here = facts.host.arch
    if not arches:
        return Finding(
            "INCOMPLETE", f"{here} here; no node has told Slurm its own", "sinfo -N -l: are nodes registered?"
        )
    others = [arch for arch in arches if arch != here]
    for arch in others:
        if not facts.host.venv.with_name(f"{facts.host.venv.name}-{arch}").exists():
            says = f"{here} here, {arch} on {many(arches[arch], 'node')}, and no Python environment for {arch}"
            return Finding("FAIL", says, "on such a node, in this folder: make venv (it makes one per architecture)")
    return Finding("PASS", f"{here} here, {', '.join(arches)} on the nodes")


def _containers(facts: Facts, cluster: Cluster) -> Finding:
    there = ["pyxis"] if facts.host.has_pyxis else []
    there += [tool for tool in ("apptainer",) if tool in facts.host.tools]
    has = " and ".join(there) or "neither pyxis nor apptainer"
    wanted = facts.site.site.container if isinstance(facts.site, AtSite) else None
    if wanted is None:
        return Finding("PASS", f"no container is declared; {has} here")
    if wanted.runtime == "pyxis" and facts.host.has_pyxis is False:
        return Finding(
            "FAIL",
            "the site file says pyxis, and srun has no --container-image",
            "runtime: apptainer, or ask for pyxis",
        )
    if wanted.runtime not in there:
        return Finding(
            "NOT ASKED",
            f"the site file says {wanted.runtime}; {has} here, nodes may differ",
            "bringup run nccl_scaling",
        )
    return Finding("PASS", f"{wanted.runtime}, {wanted.image}")


OF_SLURM: tuple[tuple[str, Callable[[Facts, Cluster], Finding]], ...] = (
    ("slurm", _slurm),
    ("partition", _partition),
    ("phases", _phases),
    ("GPU request", _request),
    ("account", _account),
    ("limits", _limits),
    ("architecture", _architecture),
    ("containers", _containers),
)


def lines(facts: Facts) -> list[Line]:
    """Write lines. What needs Slurm is not asked while Slurm does not answer: one line says so for all of it."""
    shown = [Line(title, look(facts)) for title, look in OF_THE_HOST]
    if isinstance(facts.cluster, BringupError):
        unasked = ", ".join(title for title, _ in OF_SLURM)
        cure = f"without it this is not known: {unasked}"
        return [Line("slurm", Finding("INCOMPLETE", str(facts.cluster), cure)), *shown]
    cluster = facts.cluster
    return [*(Line(title, look(facts, cluster)) for title, look in OF_SLURM), *shown]


def exit_code(shown: Sequence[Line]) -> int:
    marks = {line.finding.mark for line in shown}
    return 1 if "FAIL" in marks else 2 if "INCOMPLETE" in marks else 0
