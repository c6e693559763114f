"""The checks of `bringup doctor` that ask Slurm: a table, and a function for each."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

from bringup.errors import CannotStart, ProfileError
from bringup.plan.phases import PHASES
from bringup.run import kinds, partitions
from bringup.run import site as at_site
from bringup.run.before.cluster import Cluster, most_common, shown_nodes
from bringup.run.before.facts import Facts, Finding, Mark
from bringup.run.before.host import UNLIMITED
from bringup.run.site import AtSite

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
    if usual is None:
        with_gpus = [p.name for p in cluster.partitions if most_common(cluster.nodes_of([p])) is not None]
        cure = (
            f"partition: {with_gpus[0]} in the site file"
            if with_gpus
            else "Gres=gpu:N in slurm.conf: the administrator"
        )
        return Finding("FAIL", f"{name}: Slurm has no GPU on any of its {len(nodes)} node(s)", cure)
    usable = [each for each, node in nodes.items() if node.is_usable]
    sharing = ", ".join(dict.fromkeys(cluster.oversubscribe.get(partition.name, "unknown") for partition in chosen))
    says = f"{name}: {len(usable)} of {len(nodes)} node(s) usable, {usual.gpus} GPUs each ({usual.gres})"
    says += f"; OverSubscribe={sharing}"
    if not usable:
        return Finding("INCOMPLETE", says, "sinfo -N -l says why no node is usable")
    others = [each for each, node in nodes.items() if node.gres != usual.gres]
    if others:
        cure = f"nothing, if these may be left aside: a run takes those with {usual.gres}; --nodelist names others"
        return Finding("WARN", f"{says}; others have another Gres: {shown_nodes(others)}", cure)
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
    return Finding("PASS", f"the partition takes the jobs of all {len(PHASES)} steps on {len(nodes)} node(s)")


def _request(facts: Facts, cluster: Cluster) -> Finding:
    plugins = cluster.settings.get("JobSubmitPlugins", "(null)")
    requested = facts.site.site.gpu_request if isinstance(facts.site, AtSite) else "none"
    nodes = cluster.nodes_of(cluster.named(facts.partition))
    sliced = [name for name, node in nodes.items() if any(kinds.MIG.search(kind) for kind in node.types)]
    if sliced:
        says = f"GPUs are divided (MIG) on {shown_nodes(sliced)}: a slice counts as a GPU"
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
    profile = None if isinstance(facts.profile, ProfileError) else facts.profile
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
            says = f"{here} here, {arch} on {arches[arch]} node(s), and no Python environment for {arch}"
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
