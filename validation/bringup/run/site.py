"""What a site file means for scripts and for Slurm's commands. What the user set in the environment wins over it.

Slurm's commands read SBATCH_*, SALLOC_* and SLURM_* by themselves. Options without such a variable are arrays, which
the scripts name in their command lines.
"""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bringup.errors import SiteError
from bringup.plan import site as sites
from bringup.plan.phases import Phase
from bringup.plan.site import Site
from bringup.records import SiteUsed
from bringup.results import REPOSITORY

_DISCOVERY, _SMOKE = "discovery", "smoke"
_EVERYWHERE = ("partition", "account", "qos", "reservation", "constraint")
_TOLD = ("partition", "account", "qos", "reservation")  # SLURM_JOB_*: what a job really got


@dataclass(frozen=True)
class AtSite:
    """A site file, and where it lies."""

    site: Site
    file: Path


def from_environment() -> AtSite | None:
    """That of $BRINGUP_SITE. Raises SiteError."""
    file = sites.from_environment()
    return None if file is None else AtSite(sites.load(file), file.resolve())


def _given() -> dict[str, str]:
    """What the user has set. job.sh notes the names before it or env.sh set any."""
    names = os.environ.get("BRINGUP_GIVEN")
    return {name: os.environ[name] for name in (os.environ if names is None else names.split()) if name in os.environ}


def slurm_variables(site: Site, phase: str | None) -> dict[str, str]:
    """For sbatch, salloc and srun. srun gets no time limit: inside a job that would be the limit of each step."""
    found: dict[str, str] = {}
    for key in _EVERYWHERE:
        if (value := site.submitted(key, phase)) is not None:
            found |= {f"{command}_{key.upper()}": value for command in ("SBATCH", "SALLOC", "SLURM")}
    if (limit := site.time_limit(phase)) is not None:
        found |= {"SBATCH_TIMELIMIT": limit, "SALLOC_TIMELIMIT": limit}
    return found if phase == _SMOKE else found | _gpu_variables(site)


def _gpu_variables(site: Site) -> dict[str, str]:
    """All GPUs of each node. Not for smoke: its jobs are small, and a step that asks for no GPU must get none."""
    if site.gpu_request == "none":
        return {}
    option, _, value = site.gpu_request.removeprefix("--").partition("=")
    return {f"{command}_{option.upper().replace('-', '_')}": value for command in ("SBATCH", "SALLOC")}


def one_gpu(site: Site) -> list[str]:
    """How a small job asks for a GPU where each job has to."""
    return [] if site.gpu_request == "none" else [site.gpu_request.rstrip("0123456789") + "1"]


def enter(at: AtSite | None, phase: str | None = None) -> None:
    """From here on Slurm's commands that this process starts see the site, as it is for the phase."""
    if at is not None:
        os.environ["BRINGUP_SITE"] = str(at.file)
        of_all, own = _gpu_variables(at.site), _own(at.site, os.environ)
        for name, value in slurm_variables(at.site, phase).items():
            if not name.endswith("_TIMELIMIT") and name not in of_all:
                os.environ[name] = own.get(name, value)


def _own(site: Site, given: Mapping[str, str]) -> dict[str, str]:
    """What the user has set, without what the file says of phases in general: `enter` and `site --export` set that."""
    general = slurm_variables(site, None)
    return {name: value for name, value in given.items() if general.get(name) != value}


def for_submission(at: AtSite | None, phase: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment to start a phase with."""
    return dict(environment) if at is None else slurm_variables(at.site, phase) | _own(at.site, environment)


def used(site: Site, phase: str | None) -> SiteUsed:
    """For run.json. Inside a job, Slurm says which partition it has; elsewhere the environment decides."""
    told: dict[str, str] = {}
    if "SLURM_JOB_ID" in os.environ:
        for key in _TOLD:
            said, got = site.submitted(key, phase), os.environ.get(f"SLURM_JOB_{key.upper()}")
            if said and got and got.lower() not in said.lower().split(","):
                told[key] = got
    else:
        told = _set_otherwise(slurm_variables(site, phase), _own(site, _given()))
    return SiteUsed(
        name=site.name,
        says=site.model_dump(exclude_none=True, exclude_defaults=True, exclude={"schema_version", "name"}),
        otherwise=told | _set_otherwise(site.environment, _given()),
    )


def _set_otherwise(variables: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    return {name: given[name] for name, value in variables.items() if given.get(name, value) != value}


def refuse_missing(site: Site, phase: Phase) -> None:
    """What the file names has to be there, before a run is opened. Raises SiteError."""
    here = socket.gethostname()
    if phase.is_training and site.checkpoints is not None and not Path(site.checkpoints).is_dir():
        raise SiteError(
            f"site {site.name}: checkpoints: {site.checkpoints}: no such folder, seen from {here}; "
            "make it on a filesystem that all nodes share"
        )
    if site.setup is not None and not Path(site.setup).is_file():
        raise SiteError(f"site {site.name}: setup: {site.setup}: no such file, seen from {here}")


def assignments(at: AtSite | None, phase: Phase, run: Path) -> list[str]:
    """Lines for job.sh, quoted: arrays for command lines, then modules and the setup file, then variables."""
    if at is None:
        return []
    site = at.site
    lines = [
        _array("SRUN_SITE", site.srun),
        _array("SALLOC_SITE", site.salloc),
        _array("SBATCH_SITE", site.sbatch),
        _array("ONE_GPU_SITE", one_gpu(site)),
        _array("CONTAINER", container(site, run)),
    ]
    if phase.is_training and site.checkpoints is not None:
        lines.append(_array("CHECKPOINTS_SITE", ["--checkpoint-dir", site.checkpoints]))
    if phase.stem == _DISCOVERY:
        lines.append(_array("FOLDERS_SITE", _folders(site)))
    if site.scratch is not None:
        lines.append(f"SCRATCH_SITE={shlex.quote(site.scratch)}")
    if site.modules:
        lines.append(f"load_modules {shlex.join(site.modules)}")
    if site.setup is not None:
        lines.append(f"source_setup {shlex.quote(site.setup)}")
    given = _given()
    variables = {name: given.get(name, value) for name, value in site.environment.items()}
    if site.container is not None:
        variables |= {"CONTAINER_PYTHON": "python", "PYTHONPATH": _python_path()}
        if site.container.runtime == "apptainer":  # with this prefix a value wins over that of the image
            inside = ["PYTHONPATH", *site.environment]
            variables |= {f"APPTAINERENV_{name}": variables[name] for name in inside}
    if "SLURM_JOB_ID" not in os.environ:
        own = _own(site, given)
        variables |= {name: own.get(name, value) for name, value in slurm_variables(site, phase.stem).items()}
        if phase.stem == _SMOKE:  # a shell into which the site was exported has them
            lines += [f"unset {name}" for name, value in _gpu_variables(site).items() if given.get(name) == value]
    return lines + [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def _folders(site: Site) -> list[str]:
    """Those of the site that jobs write to, as the inventory of a node is asked about them."""
    named = {"scratch": site.scratch, "checkpoints": site.checkpoints}
    return [word for label, path in named.items() if path is not None for word in ("--folder", f"{label}={path}")]


def _array(name: str, words: Sequence[str]) -> str:
    return f"{name}=({shlex.join(words)})"


def _python_path() -> str:
    """The image holds Python and torch; the records come from this repository."""
    given = os.environ.get("PYTHONPATH", "")
    return ":".join(dict.fromkeys([str(REPOSITORY / "validation"), *filter(None, given.split(":"))]))


def container(site: Site, run: Path) -> list[str]:
    """What stands between the options of srun and a torch program: options of pyxis, or Apptainer's command."""
    if site.container is None:
        return []
    own = [str(REPOSITORY), *_outside([run.resolve().parent]), *filter(None, (site.scratch, site.checkpoints))]
    for path in own:
        if "," in path or ":" in path:
            raise SiteError(f"{path}: cannot be mounted in a container: , and : separate mounts; use another folder")
    mounts = ",".join(dict.fromkeys([*own, *site.container.mounts]))
    image = site.container.image
    if site.container.runtime == "apptainer":
        return ["apptainer", "exec", "--nv", "--bind", mounts, "--pwd", str(REPOSITORY), image]
    return [
        f"--container-image={image}",
        f"--container-mounts={mounts}",
        f"--container-workdir={REPOSITORY}",
        f"--container-env={','.join(['PYTHONPATH', *site.environment])}",  # otherwise the image's values win
    ]


def _outside(paths: Iterable[Path]) -> list[str]:
    """Results that lie elsewhere and are linked from here."""
    return [str(path) for path in paths if not path.is_relative_to(REPOSITORY)]


def for_a_person(at: AtSite, phase: str | None) -> list[str]:
    """Lines that a user sources before `sbatch`: what Slurm reads, and the options that it does not."""
    variables = {"BRINGUP_SITE": str(at.file)}
    own = _own(at.site, os.environ)
    variables |= {name: own.get(name, value) for name, value in slurm_variables(at.site, phase).items()}
    return [
        *(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
        _array("SBATCH_SITE", at.site.sbatch),
    ]
