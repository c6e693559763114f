"""What `bringup soak` does."""

import argparse
import os
from functools import partial
from pathlib import Path

from bringup.kernel.characters import many
from bringup.kernel.errors import CannotStart, UsageError
from bringup.kernel.facts.names import listed
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import read_record
from bringup.kernel.results import REPOSITORY
from bringup.report import terminal
from bringup.run import open as opening
from bringup.run import partitions, playbook, slurm
from bringup.run import site as at_site
from bringup.run.nodes import known_partitions, requested_nodes
from bringup.soak import rotations
from bringup.soak.records import KINDS, Soak
from bringup.verb import phases_called, positive

LEFT_ASIDE = "nccl_monitoring"  # it measures what a sampler costs


def do_soak(arguments: argparse.Namespace) -> int:
    asked = [stem for name in arguments.phases for stem in phases_called(name)]  # before Slurm is asked anything
    until = dict(map(_bound, arguments.until))
    site = at_site.entered()
    if arguments.resume is None:
        if arguments.hours is None and not until:
            raise UsageError("soak: needs --hours H, --until KIND=HOURS, or both: when does it end?")
        soak = _begin(arguments, asked, site)
        folder = REPOSITORY / rotations.SOAKS / soak.name
        folder.mkdir(parents=True)
    else:
        folder = _earlier(arguments.resume)
        if asked or arguments.nodes or arguments.nodelist:
            raise UsageError("soak: --resume goes on with the phases and nodes of that soak; leave them out")
        soak = read_record(folder / rotations.RECORD, Soak)
    ends = {"hours": arguments.hours or soak.hours, "until": soak.until | until, "ended": None}
    soak, console = soak.model_copy(update=ends), terminal.console()
    request = playbook.Request(profiles.load(soak.profile), soak.profile, site=site)
    console.print(f"bringup: soak {soak.name} on {many(len(soak.healthy), 'node')}: {listed(soak.healthy)}")
    return rotations.Soaking(folder, soak, request, console).go()


def _bound(text: str) -> tuple[str, float]:
    """Read KIND=HOURS. Raises UsageError."""
    name, _, hours = text.partition("=")
    try:
        return {kind.lower(): kind for kind in KINDS}[name.strip().lower()], positive(hours)
    except (KeyError, argparse.ArgumentTypeError) as error:
        expected = f"expected KIND=HOURS, as GPU=1000; kinds are {', '.join(KINDS)}"
        raise UsageError(f"--until {text}: {expected}") from error


def _earlier(name: str) -> Path:
    """Find a soak by its name or folder; last: the newest one. Raises UsageError."""
    place = REPOSITORY / rotations.SOAKS
    known = sorted(path.parent for path in place.glob(f"*/{rotations.RECORD}"))
    if called := [folder for folder in known if name == "last" or Path(name).name == folder.name]:
        return called[-1]
    raise UsageError(f"--resume {name}: no soak is called so; there are {', '.join(map(str, known[-3:])) or 'none'}")


def _begin(arguments: argparse.Namespace, asked: list[str], site: at_site.AtSite | None) -> Soak:
    """Make the record of a new soak. Raises CannotStart, UsageError."""
    partition = partitions.partition_of(PHASES["discovery"], at_site.for_submission(site, "discovery", os.environ))
    chosen = partial(requested_nodes, arguments.nodes, arguments.nodelist, partition)
    nodes = slurm.patiently(chosen, lambda words: None)
    names, gpus = list(nodes), max(node.gpus for node in nodes.values())
    phases = asked or [stem for stem in PHASES if stem != LEFT_ASIDE]
    phases = [stem for stem in PHASES if stem in phases and PHASES[stem].lacks(len(names), gpus) is None]
    if not phases:
        raise CannotStart(f"soak: nothing of it can run on {many(len(names), 'node')} of {many(gpus, 'GPU')}")
    if known := known_partitions():
        for stem in phases:
            partitions.refuse(PHASES[stem], names, at_site.for_submission(site, stem, os.environ), known)
    return Soak(
        name=opening.default_name(),
        nodes=names,
        gpus_per_node=gpus,
        profile=profiles.portable(arguments.profile),
        site=None if site is None else site.site.name,
        phases=phases,
        began_at=opening.now(),
    )
