"""Applies a site file to scripts and to Slurm's commands. Variables that the user set override it.

Slurm's commands read SBATCH_*, SALLOC_* and SLURM_*. Options without such a variable become arrays, which the scripts
put into their command lines.
"""

import os
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bringup.kernel.errors import FileError
from bringup.kernel.plan.phases import Phase
from bringup.kernel.records import SiteUsed
from bringup.kernel.results import REPOSITORY
from bringup.run import hidden, site_file

_DISCOVERY, _SMOKE = "discovery", "smoke"
_EVERYWHERE = ("partition", "account", "qos", "reservation", "constraint")
_SHOWN_BY_SLURM = ("partition", "account", "qos", "reservation")  # SLURM_JOB_*: what a job really got

_LISTED = Path(__file__).resolve().parents[3] / "infrastructure-validation/scripts/cleared-variables"
CLEARED = frozenset(line for line in _LISTED.read_text().splitlines() if not line.startswith("#"))


class AtSite(NamedTuple):
    """A site file and its path."""

    site: site_file.Site
    file: Path


def from_environment() -> AtSite | None:
    """Load the site file of $BRINGUP_SITE; None: not set. Raises FileError."""
    named = os.environ.get("BRINGUP_SITE")
    file = site_file.find(named) if named else None
    return None if file is None else AtSite(site_file.load(file), file.resolve())


def _set_by_user() -> dict[str, str]:
    """Variables that the user set. job.sh records their names before it or env.sh sets any."""
    names = os.environ.get("BRINGUP_GIVEN")
    return {name: os.environ[name] for name in (os.environ if names is None else names.split()) if name in os.environ}


def slurm_variables(site: site_file.Site, phase: str | None) -> dict[str, str]:
    """Return variables for sbatch, salloc and srun. srun gets no time limit: in a job it would limit each step."""
    variables: dict[str, str] = {}
    for key in _EVERYWHERE:
        if (value := site.submitted(key, phase)) is not None:
            variables |= {f"{command}_{key.upper()}": value for command in ("SBATCH", "SALLOC", "SLURM")}
    if (limit := site.time_limit(phase)) is not None:
        variables |= {"SBATCH_TIMELIMIT": limit, "SALLOC_TIMELIMIT": limit}
    return variables if phase == _SMOKE else variables | _gpu_variables(site)


def _gpu_variables(site: site_file.Site) -> dict[str, str]:
    """Request all GPUs of each node. Not for smoke: its jobs are small, and a step without a request must get none."""
    if site.gpu_request == "none":
        return {}
    option, _, value = site.gpu_request.removeprefix("--").partition("=")
    return {f"{command}_{option.upper().replace('-', '_')}": value for command in ("SBATCH", "SALLOC")}


def one_gpu(site: site_file.Site) -> list[str]:
    """Return options with which a small job requests one GPU, if the site demands a request."""
    return [] if site.gpu_request == "none" else [site.gpu_request.rstrip("0123456789") + "1"]


def enter(at: AtSite | None, phase: str | None = None) -> None:
    """Set the site's variables for a phase in this process, for all Slurm commands that it starts."""
    if at is not None:
        os.environ["BRINGUP_SITE"] = str(at.file)
        of_all, own_variables = _gpu_variables(at.site), _own(at.site, os.environ)
        for name, value in slurm_variables(at.site, phase).items():
            if not name.endswith("_TIMELIMIT") and name not in of_all:
                os.environ[name] = own_variables.get(name, value)


def entered(phase: str | None = None) -> AtSite | None:
    """Enter the site of $BRINGUP_SITE: set its variables in this process. Raises FileError."""
    at = from_environment()
    enter(at, phase)
    return at


def _own(site: site_file.Site, set_by_user: Mapping[str, str]) -> dict[str, str]:
    """Variables that the user set, without the file's general ones, which `enter` and `site --export` set."""
    general = slurm_variables(site, None)
    return {name: value for name, value in set_by_user.items() if general.get(name) != value}


def _variables(site: site_file.Site, phase: str | None, own: Mapping[str, str]) -> dict[str, str]:
    """slurm_variables with the user's own values. Slurm 26.05 takes one GPU request: the user's, in whatever form."""
    variables = slurm_variables(site, phase)
    for command in ("SBATCH", "SALLOC"):
        forms = [f"{command}_{form}" for form in ("GPUS", "GPUS_PER_NODE", "GRES")]
        if any(name in own and ("gpu" in own[name] or not name.endswith("_GRES")) for name in forms):
            variables = {name: value for name, value in variables.items() if name not in forms}
    return {name: own.get(name, value) for name, value in variables.items()}


def for_submission(at: AtSite | None, phase: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which a phase is started."""
    environment = {name: value for name, value in environment.items() if name not in CLEARED}
    if at is None:
        return environment
    own_variables = _own(at.site, environment)
    return _variables(at.site, phase, own_variables) | own_variables


def used(site: site_file.Site, phase: str | None) -> SiteUsed:
    """Return the site as run.json has it. In a job Slurm's variables show its partition; else the environment does."""
    overridden: dict[str, str] = {}
    if "SLURM_JOB_ID" in os.environ:
        for key in _SHOWN_BY_SLURM:
            declared, granted = site.submitted(key, phase), os.environ.get(f"SLURM_JOB_{key.upper()}")
            if declared and granted and granted.lower() not in declared.lower().split(","):
                overridden[key] = granted
    else:
        overridden = _set_otherwise(slurm_variables(site, phase), _own(site, _set_by_user()))
    return SiteUsed(
        name=site.name,
        says=site.model_dump(exclude_none=True, exclude_defaults=True, exclude={"schema_version", "name"}),
        otherwise=overridden | _set_otherwise(site.environment, _set_by_user()),
    )


def _set_otherwise(variables: Mapping[str, str], set_by_user: Mapping[str, str]) -> dict[str, str]:
    other = {name: set_by_user[name] for name, value in variables.items() if set_by_user.get(name, value) != value}
    return {name: hidden.NOT_RECORDED if hidden.looks_secret(name, value) else value for name, value in other.items()}


def refuse_missing(site: site_file.Site, phase: Phase) -> None:
    """Check, before a run is opened, that the paths in the file exist. Raises FileError."""
    this_host = socket.gethostname()
    if phase.is_training and site.checkpoints is not None and not Path(site.checkpoints).is_dir():
        missing = f"site {site.name}: checkpoints: {site.checkpoints}: no such folder, seen from {this_host}"
        raise FileError(f"{missing}; make it on a filesystem that all nodes share")
    if site.setup is not None and not Path(site.setup).is_file():
        raise FileError(f"site {site.name}: setup: {site.setup}: no such file, seen from {this_host}")


def assignments(at: AtSite | None, phase: Phase, run: Path) -> list[str]:
    """Write lines for job.sh, quoted: arrays for command lines, then modules and the setup file, then variables."""
    if at is None:
        return []
    site = at.site
    arrays = {"SRUN_SITE": site.srun, "SALLOC_SITE": site.salloc, "SBATCH_SITE": site.sbatch}
    arrays |= {"ONE_GPU_SITE": one_gpu(site), "CONTAINER": container(site, run)}
    if phase.is_training and site.checkpoints is not None:
        arrays["CHECKPOINTS_SITE"] = ["--checkpoint-dir", site.checkpoints]
    if phase.stem == _DISCOVERY:
        named = {"scratch": site.scratch, "checkpoints": site.checkpoints}  # folders that jobs write to
        folders = [("--folder", f"{label}={path}") for label, path in named.items() if path is not None]
        arrays["FOLDERS_SITE"] = [word for option in folders for word in option]
    lines = [f"{name}=({shlex.join(words)})" for name, words in arrays.items()]
    if site.scratch is not None:
        lines.append(f"SCRATCH_SITE={shlex.quote(site.scratch)}")
    if site.modules:
        lines.append(f"load_modules {shlex.join(site.modules)}")
    if site.setup is not None:
        lines.append(f"source_setup {shlex.quote(site.setup)}")
    set_by_user = _set_by_user()
    variables = {name: set_by_user.get(name, value) for name, value in site.environment.items()}
    if site.container is not None:
        # the image has Python and torch, and this repository has the records
        paths = [str(REPOSITORY / "validation"), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
        variables |= {"CONTAINER_PYTHON": "python", "PYTHONPATH": ":".join(dict.fromkeys(paths))}
        if site.container.runtime == "apptainer":  # with this prefix a value wins over that of the image
            variables |= {f"APPTAINERENV_{name}": variables[name] for name in ("PYTHONPATH", *site.environment)}
    if "SLURM_JOB_ID" not in os.environ:
        variables |= _variables(site, phase.stem, _own(site, set_by_user))
        if phase.stem == _SMOKE:  # they are set in a shell that exported the site
            lines += [f"unset {name}" for name, value in _gpu_variables(site).items() if set_by_user.get(name) == value]
    return lines + [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def container(site: site_file.Site, run: Path) -> list[str]:
    """Return what stands between the options of srun and a torch program: options of pyxis, or Apptainer's command."""
    if site.container is None:
        return []
    results = run.resolve().parent  # they may lie elsewhere, and be linked from here
    own_folders = [str(REPOSITORY), *([] if results.is_relative_to(REPOSITORY) else [str(results)])]
    own_folders += filter(None, (site.scratch, site.checkpoints))
    for path in own_folders:
        if "," in path or ":" in path:
            raise FileError(f"{path}: cannot be mounted in a container: , and : separate mounts; use another folder")
    mounts = ",".join(dict.fromkeys([*own_folders, *site.container.mounts]))
    image = site.container.image
    if site.container.runtime == "apptainer":
        return ["apptainer", "exec", "--nv", "--bind", mounts, "--pwd", str(REPOSITORY), image]
    return [
        f"--container-image={image}",
        f"--container-name=bringup-{run.name}",  # unpacked once for all steps; job.sh removes it
        f"--container-mounts={mounts}",
        f"--container-workdir={REPOSITORY}",
        f"--container-env={','.join(['PYTHONPATH', *site.environment])}",  # otherwise the image's values win
    ]


def for_a_person(at: AtSite, phase: str | None) -> list[str]:
    """Write lines that a user sources before `sbatch`: what Slurm reads, and the options that it does not."""
    variables = {"BRINGUP_SITE": str(at.file)}
    variables |= _variables(at.site, phase, _own(at.site, os.environ))
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return [*exports, f"SBATCH_SITE=({shlex.join(at.site.sbatch)})"]
