"""`bringup doctor`: checks before anything is queued, a function for each: a line with a cure where something is to be
done. Nothing is submitted."""

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from bringup.domains import cuda
from bringup.kernel.characters import many
from bringup.kernel.errors import BringupError, CannotStart, FileError
from bringup.kernel.facts.names import the_first
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.phases import PHASES
from bringup.readers.known import vendors
from bringup.readers.node_states import Node
from bringup.run import auto_profile, partitions, slurm
from bringup.run import site as at_site
from bringup.run.auto_profile import Driver
from bringup.run.before import cluster as of_slurm
from bringup.run.before import host as of_host
from bringup.run.before.cluster import AT_ONCE, GPUS, NODES, SUBMITTED, Cluster
from bringup.run.nodes import MIG, most_common
from bringup.run.site_file import Site

SHARED = re.compile(
    r"nfs4?|lustre|gpfs|beegfs|ceph|fuse\.\S+|wekafs|panfs|cifs|smb3|afs|glusterfs|orangefs|9p|virtiofs"
)
LEAST_GIB = 10  # logs and records of all phases, and the files of storage; checkpoints come on top
T = TypeVar("T")
MOST_SMOKE_JOBS = 11  # that smoke has in the queue at once
NO_SITE = Site(schema_version=1, name="none")  # what holds where no site file says otherwise


@dataclass(frozen=True)
class Facts:
    """What the checks look at."""

    host: of_host.Host
    cluster: Cluster | BringupError  # the error: Slurm does not answer
    partition: str | None  # names, with commas between them; None: the default one
    site: at_site.AtSite | BringupError | None
    profile: profiles.Profile | BringupError
    driver: Driver | None

    @property
    def declared(self) -> Site:
        return self.site.site if isinstance(self.site, at_site.AtSite) else NO_SITE

    @property
    def nodes(self) -> dict[str, Node]:
        """Return those of the partition, as far as Slurm answers."""
        if isinstance(self.cluster, BringupError):
            return {}
        return self.cluster.nodes_of(self.cluster.named(self.partition))


class Finding(NamedTuple):
    """FAIL: a run will fail for it. INCOMPLETE: it could not be found out here. NOT ASKED: only a job can tell."""

    mark: Literal["PASS", "WARN", "FAIL", "INCOMPLETE", "NOT ASKED"]
    says: str
    cure: str = ""


def _python(facts: Facts) -> Finding:
    host = facts.host
    if host.interpreter is None:
        cure = "make venv; or name it: export BRINGUP_VENV=FOLDER"
        return Finding("FAIL", f"no Python environment at {host.venv}", cure)
    needed = f"nodes need {host.interpreter} too (discovery says whether they have it)"
    return Finding("PASS", f"{host.python} in {host.venv}; {needed}")


def _torch(facts: Facts) -> Finding:
    torch, driver = facts.host.torch, facts.driver
    if torch is None:
        if facts.declared.container is not None:
            return Finding("PASS", "not installed here: the site's container brings it")
        says = "not installed: discovery runs, and smoke without its matrix products"
        return Finding("WARN", says, "make venv, for all phases")
    if torch.cuda is None:
        says, cure = f"{torch.version}, a build for CPUs", "make venv without TORCH_INDEX: this build uses no GPU"
        if driver is not None:
            return Finding("WARN", f"{says}; the nodes have driver {driver.version} ({driver.run})", cure)
        # not where the profile says that programs compute on the CPU
        device = facts.profile.expect.get("train.device") if isinstance(facts.profile, profiles.Profile) else None
        if most_common(facts.nodes) is not None and (device is None or device.one_of != ["cpu"]):
            return Finding("WARN", f"{says}, and Slurm hands out GPUs", cure)
        return Finding("PASS", f"{says}; no run has seen a GPU driver")
    if driver is None:
        least = cuda.LEAST_DRIVER.get(int(torch.cuda.split(".")[0]))
        says = f"{torch.version} for CUDA {torch.cuda} needs driver {least}; no discovery has asked the nodes yet"
        return Finding("NOT ASKED", says, "bringup run discovery --nodes 1, then bringup doctor again")
    says = f"{torch.version} for CUDA {torch.cuda}; driver {driver.version} on {driver.gpu} ({driver.run})"
    if (old := cuda.too_old(driver.version, torch.cuda)) is None:
        return Finding("INCOMPLETE", says, "not known which driver this CUDA needs")
    if old:
        return Finding("FAIL", f"{says} is too old", cuda.way_out(driver.version, driver.gpu))
    return Finding("PASS", says)


def _folder(facts: Facts) -> Finding:
    folder = facts.host.folder
    if folder.kind is None or folder.writes != "works":
        says = f"{folder.path}: {folder.writes}"
        return Finding("FAIL" if folder.kind else "INCOMPLETE", says, "put the checkout where you may write")
    says = f"{folder.path} is on {folder.kind}"
    if SHARED.fullmatch(folder.kind):
        return Finding("PASS", f"{says}, a type that hosts share")
    if folder.is_exported:
        return Finding("PASS", f"{says}, and this host exports it (/etc/exports)")
    says += ", a local filesystem: nodes see it only if this host exports it"
    return Finding("WARN", says, "clone into a folder that all nodes see; smoke proves it")


def _room(facts: Facts) -> Finding:
    folder = facts.host.folder
    if folder.space_gib is None:
        return Finding("INCOMPLETE", f"free space is not known: {folder.of_space}", "df and quota in that folder")
    says = f"{folder.space_gib:.0f} GiB free ({folder.of_space}); a checkpoint of 3 B parameters takes 37 GB"
    if folder.space_gib < LEAST_GIB:
        return Finding("WARN", says, "scratch and checkpoints in the site file, in a folder with more room")
    return Finding("PASS", says)


def _site_file(facts: Facts) -> Finding:
    if isinstance(facts.site, BringupError):
        return Finding("FAIL", str(facts.site), "bringup site reads it back once it is right")
    if facts.site is None:
        says = "no site file: jobs go to the default partition, with Slurm's own settings"
        return Finding("WARN", says, "bringup site --init; export BRINGUP_SITE=NAME")
    for phase in PHASES.values():
        try:
            at_site.refuse_missing(facts.site.site, phase)
        except FileError as error:
            return Finding("FAIL", str(error), "make it, or change the site file")
    return Finding("PASS", f"{facts.site.site.name}, {facts.site.file}")


def _profile(facts: Facts) -> Finding:
    profile, cure = facts.profile, "unset BRINGUP_PROFILE: then discovery chooses the numbers"
    if isinstance(profile, BringupError):
        return Finding("FAIL", str(profile), cure)
    usual, number = most_common(facts.nodes), profile.machine.gpus_per_node
    if usual and number is not None and number.value != usual.gpus:
        return Finding("WARN", f"{profile.name} is for {number.value:g} GPUs a node, and Slurm says {usual.gpus}", cure)
    if profile.is_open:
        return Finding("PASS", f"{profile.name}: its numbers are those of what discovery will see; there is none yet")
    if usual and profile.name == "generic":
        return Finding("WARN", "generic: bandwidth and speed are measured, and judged by no number", cure)
    return Finding("PASS", f"{profile.name}: {profile.description}")


def _tools(facts: Facts) -> Finding:
    """Of this host: only a job sees those of the nodes."""
    missing = [tool for tool in of_host.TOOLS if tool.program not in facts.host.tools]
    if not missing:
        return Finding("PASS", f"{', '.join(tool.brings for tool in of_host.TOOLS)} are here; nodes need them too")
    costs = []
    for tool in missing:
        gates = [gate for gate in GATES.values() if tool.gates and gate.id.startswith(tool.gates)]
        claims = {claim for gate in gates for claim in (*gate.claims, *gate.bears_on)}
        questions = sorted({str(claim.question) for claim in CLAIMS if claim.id in claims})
        cost = f"{len(gates)} gates of question {', '.join(questions)} stay open"
        costs.append(f"{tool.brings} ({cost if gates else f'nothing: {tool.instead} instead'})")
    says = f"not on this host, and only a job sees the nodes'. What it costs to lack them: {', '.join(costs)}"
    cure = "install them on the nodes, or declare these gates not_applicable in a profile of yours"
    return Finding("NOT ASKED", says, cure)


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
        return Finding("PASS", "it holds no options of Slurm's commands")
    cure = "nothing for `bringup run`, which unsets them; for sbatch by hand: unset"
    return Finding("WARN", f"it holds {', '.join(held)}", cure)


def _variables(facts: Facts) -> Finding:
    """Look at variables that reach the jobs, from the site file and this shell."""
    pinned = vendors.pinned({**os.environ, **facts.declared.environment})
    if not pinned:
        return Finding("PASS", "none pins a choice of NCCL, or changes what is computed")
    cure = "unset it, or write it as NCCL reads it; in the site file too. Keep what this cluster was measured to need"
    return Finding("WARN", "; ".join(pinned), cure)


OF_THE_HOST = (_python, _torch, _folder, _room, _site_file, _profile, _tools, _kernel_log, _shell, _variables)


def _slurm(facts: Facts, cluster: Cluster) -> Finding:
    known = ("Prolog", "Epilog", "PrologSlurmctld")
    hooks = [name for name in known if cluster.settings.get(name, "(null)") != "(null)"]
    with_hooks = f"; {', '.join(hooks)} run with every job, and take their time each" if hooks else ""
    return Finding("PASS", f"{cluster.version} answers; cluster {cluster.name or 'without a name'}{with_hooks}")


def _partition(facts: Facts, cluster: Cluster) -> Finding:
    chosen, known = cluster.named(facts.partition), ", ".join(partition.name for partition in cluster.partitions)
    if not chosen:
        what = "there is no " + ("default partition" if facts.partition is None else f"partition {facts.partition}")
        return Finding("FAIL", f"{what}; there are {known}", "partition: NAME in the site file (bringup site --init)")
    nodes, name = facts.nodes, ",".join(partition.name for partition in chosen)
    usual = most_common(nodes)
    if not nodes:
        return Finding("FAIL", f"{name} {slurm.NO_NODE}", "PrivateData=cloud in slurm.conf: the administrator")
    if usual is None:
        with_gpus = [p.name for p in cluster.partitions if most_common(cluster.nodes_of([p])) is not None]
        cure = "Gres=gpu:N in slurm.conf: the administrator"
        cure = f"partition: {with_gpus[0]} in the site file" if with_gpus else cure
        return Finding("FAIL", f"{name}: Slurm has no GPU on any of its {many(len(nodes), 'node')}", cure)
    usable = [each for each, node in nodes.items() if node.is_usable]
    sharing = ", ".join(dict.fromkeys(partition.sharing for partition in chosen))
    says = f"{name}: {len(usable)} of {many(len(nodes), 'node')} usable, {usual.gpus} GPUs each ({usual.gres})"
    says += f"; OverSubscribe={sharing}"
    if not usable:
        return Finding("INCOMPLETE", says, "sinfo -N -l says why no node is usable")
    if others := [each for each, node in nodes.items() if node.gres != usual.gres]:
        cure = f"nothing, if these may be left aside: a run takes those with {usual.gres}; --nodelist names others"
        return Finding("WARN", f"{says}; others have another Gres: {the_first(others)}", cure)
    return Finding("PASS", says)


def _phases(facts: Facts, cluster: Cluster) -> Finding:
    """Whether each phase's partition takes its job: the same look as `bringup run` has before it submits."""
    at, nodes = facts.site if isinstance(facts.site, at_site.AtSite) else None, list(facts.nodes)
    if not nodes:
        return Finding("NOT ASKED", "there is no partition with nodes to ask about", "first the partition")
    refused = []
    for stem, phase in PHASES.items():
        try:
            partitions.refuse(phase, nodes, at_site.for_submission(at, stem, os.environ), cluster.partitions)
        except CannotStart as error:
            refused.append(str(error))
    if refused:
        says = f"{len(refused)} of {len(PHASES)} steps would be refused: {refused[0]}"
        return Finding("FAIL", says, "as the line says")
    return Finding("PASS", f"the partition takes the jobs of all {len(PHASES)} steps on {many(len(nodes), 'node')}")


def _request(facts: Facts, cluster: Cluster) -> Finding:
    plugins = cluster.settings.get("JobSubmitPlugins", "(null)")
    requested = facts.declared.gpu_request
    sliced = [name for name, node in facts.nodes.items() if any(MIG.search(kind) for kind in node.types)]
    if sliced:
        says = f"GPUs are divided (MIG) on {the_first(sliced)}: a slice counts as a GPU"
        return Finding("WARN", says, "leave these nodes out with --nodelist, or ask for MIG to be switched off")
    if requested == "none" and plugins != "(null)":
        says = f"JobSubmitPlugins={plugins} may refuse jobs without a GPU request, and none is declared"
        return Finding("WARN", says, "gpu_request in the site file (bringup site --init writes it)")
    return Finding("PASS", f"gpu_request {requested}; JobSubmitPlugins={plugins}")


def _account(facts: Facts, cluster: Cluster) -> Finding:
    enforced = cluster.settings.get("AccountingStorageEnforce", "none").lower()
    account = facts.declared.submitted("account", None) or os.environ.get("SBATCH_ACCOUNT") or cluster.default_account
    if cluster.accounts is None:
        if "associations" in enforced or "limits" in enforced:
            says = "accounts are enforced, and sacctmgr gave no answer"
            return Finding("INCOMPLETE", says, "ask for your account's name")
        return Finding("PASS", f"no account is needed (AccountingStorageEnforce={enforced})")
    mine = sorted({each.name for each in cluster.accounts})
    if not mine or account not in mine:
        says = f"account {account} is not one of yours" if account else "no account is chosen"
        says, cure = f"{says}; yours: {', '.join(mine)}", f"account: {mine[0] if mine else ''} in the site file"
        if not mine:
            says, cure = "you have no account in this cluster", "ask the administrator for one"
        return Finding("FAIL" if "associations" in enforced else "WARN", says, cure)
    chosen = cluster.named(facts.partition)
    closed = [partition.name for partition in chosen if partition.accounts and account not in partition.accounts]
    if closed:
        others = sorted({name for partition in chosen for name in cluster.accounts_for(partition)})
        cure = f"account: {others[0]} in the site file" if others else "another partition, or ask for an account"
        return Finding("FAIL", f"partition {closed[0]} takes no job of account {account} (AllowAccounts)", cure)
    usual = most_common(facts.nodes)
    gpus = [node.gpus for node in facts.nodes.values() if usual is not None and node.gres == usual.gres]
    asked = {SUBMITTED: MOST_SMOKE_JOBS, AT_ONCE: 2, GPUS: sum(gpus), NODES: len(gpus)}
    limits = cluster.limits(account, facts.declared.submitted("qos", None) or os.environ.get("SBATCH_QOS"), chosen)
    narrow = [f"{limit}, and a run here asks for {asked[what]}" for limit, what, most in limits if most < asked[what]]
    if narrow:
        cure = "another QOS (qos: NAME in the site file), or fewer nodes (--nodelist)"
        return Finding("WARN", "; ".join(narrow), f"{cure}; smoke waits where it has few jobs")
    return Finding("PASS", f"account {account}")


def _limits(facts: Facts, cluster: Cluster) -> Finding:
    (soft, hard), memory = facts.host.nofile, facts.host.memlock[0]
    shown = ["unlimited" if number == of_host.UNLIMITED else str(number) for number in (soft, hard)]
    locked_mib = "unlimited" if memory == of_host.UNLIMITED else f"{memory / 2**20:g} MiB"
    says = f"open files {shown[0]} (hard {shown[1]}), locked memory {locked_mib}; "
    files, locked = cluster.propagated("NOFILE"), cluster.propagated("MEMLOCK")
    says += {True: "jobs get these", False: "jobs get those of slurmd instead", None: "perhaps jobs get these"}[files]
    says += f" (PropagateResourceLimits={cluster.settings.get('PropagateResourceLimits', 'not said')})"
    profile = None if isinstance(facts.profile, BringupError) else facts.profile
    floor = None if profile is None else profile.limit("discovery.nofile", 1).value
    needs_locks = profile is None or profile.reason_not_applicable("discovery.memlock") is None
    cures = []
    # as discovery judges: a program may raise its own soft limit, and ours do
    if files is not False and isinstance(floor, int | float) and hard != of_host.UNLIMITED and hard < floor:
        cures.append(f"hard nofile {floor:g} in /etc/security/limits.conf, then log in again")
    if locked is not False and memory != of_host.UNLIMITED and needs_locks:
        cures.append("where RDMA is used: memlock unlimited in /etc/security/limits.conf, then log in again")
    return Finding("WARN", says, "; ".join(cures)) if cures else Finding("PASS", says)


def _architecture(facts: Facts, cluster: Cluster) -> Finding:
    arches, here = Counter(node.arch for node in facts.nodes.values() if node.arch), facts.host.arch
    if not arches:
        says = f"{here} here; no node has told Slurm its own"
        return Finding("INCOMPLETE", says, "sinfo -N -l: are nodes registered?")
    for arch in arches:
        if arch != here and not facts.host.venv.with_name(f"{facts.host.venv.name}-{arch}").exists():
            says = f"{here} here, {arch} on {many(arches[arch], 'node')}, and no Python environment for {arch}"
            return Finding("FAIL", says, "on such a node, in this folder: make venv (it makes one per architecture)")
    return Finding("PASS", f"{here} here, {', '.join(arches)} on the nodes")


def _containers(facts: Facts, cluster: Cluster) -> Finding:
    has_pyxis, tools = facts.host.has_pyxis, facts.host.tools
    there = [name for name, is_there in (("pyxis", has_pyxis), ("apptainer", "apptainer" in tools)) if is_there]
    has = " and ".join(there) or "neither pyxis nor apptainer"
    if (wanted := facts.declared.container) is None:
        return Finding("PASS", f"no container is declared; {has} here")
    if wanted.runtime == "pyxis" and has_pyxis is False:
        says = "the site file says pyxis, and srun has no --container-image"
        return Finding("FAIL", says, "runtime: apptainer, or ask for pyxis")
    if wanted.runtime not in there:
        says = f"the site file says {wanted.runtime}; {has} here, nodes may differ"
        return Finding("NOT ASKED", says, "bringup run nccl_scaling")
    return Finding("PASS", f"{wanted.runtime}, {wanted.image}")


OF_SLURM = (_slurm, _partition, _phases, _request, _account, _limits, _architecture, _containers)


def title(look: Callable[..., Finding]) -> str:
    """Name a check as the screen does."""
    return look.__name__[1:].replace("_", " ")


def findings(facts: Facts) -> dict[str, Finding]:
    """Find by title. What needs Slurm is not asked while Slurm does not answer: one line says so for all of it."""
    shown = {title(look): look(facts) for look in OF_THE_HOST}
    if isinstance(facts.cluster, BringupError):
        cure = f"without it this is not known: {', '.join(map(title, OF_SLURM))}"
        return {"slurm": Finding("INCOMPLETE", str(facts.cluster), cure)} | shown
    return {title(look): look(facts, facts.cluster) for look in OF_SLURM} | shown


def exit_code(shown: Mapping[str, Finding]) -> int:
    marks = {finding.mark for finding in shown.values()}
    return 1 if "FAIL" in marks else 2 if "INCOMPLETE" in marks else 0


def look(profile_name: str) -> dict[str, Finding]:
    """Gather the facts, and find."""
    site = _or_why_not(at_site.entered)  # its partition and account hold for all questions below
    discovery = auto_profile.newest([])
    profile = _or_why_not(lambda: auto_profile.profile(profiles.load(profile_name), [], discovery))
    cluster = _or_why_not(of_slurm.read)
    driver = None if discovery is None else auto_profile.driver(discovery)
    return findings(Facts(of_host.read(), cluster, slurm.chosen_partition(), site, profile, driver))


def _or_why_not(ask: Callable[[], T]) -> T | BringupError:
    try:
        return ask()
    except BringupError as error:
        return error
