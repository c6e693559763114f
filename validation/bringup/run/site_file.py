"""A site file says once how jobs are submitted and started on one cluster. Expected numbers are in a profile."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, StringConstraints, Tag, ValidationError

from bringup.kernel.plan import profile_text
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.profile import PROFILES, SITE_SUFFIX
from bringup.kernel.records import Record, known
from bringup.run import hidden

ANY_PHASE, TRAINING = "default", "training"
"""Keys besides the phases' own: the default for all phases; for all training phases, before the default."""


class _Table(Record):
    """What a site file must not set, because something else does; and how its keys are written."""

    keys: dict[str, str]  # option of Slurm -> the key that says it
    scripts: frozenset[str]  # options of Slurm
    starts: frozenset[str]  # variables that a launcher sets for each rank
    forms: dict[str, str]  # key -> what its pattern means


_TABLE = known("site_file", _Table)


def _no_password(text: str) -> str:
    if hidden.holds_password(text):
        raise ValueError("holds a password; every report shows this file. Remove it, and log in by other means")
    return text


def _option(text: str) -> str:
    if (match := re.fullmatch(r"--([a-z][a-z0-9-]*)(=.+)?", text)) is None:
        raise ValueError(f"{text!r} is not an option; write each as one text: --name or --name=value")
    if match[1] in _TABLE.keys:
        raise ValueError(f"{text}: remove it here; the key {_TABLE.keys[match[1]]} says it")
    if match[1] in _TABLE.scripts:
        raise ValueError(f"{text}: remove it; the scripts set --{match[1]} themselves")
    return text


def _variable(name: str) -> str:
    if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is None:
        raise ValueError("is not the name of a variable: letters, digits and _ only")
    if hidden.is_secret_name(name):
        why = "looks like a secret, and every report shows this file"
        raise ValueError(f"{why}; remove it, and export it in your shell")
    if name.startswith(("SBATCH_", "SALLOC_", "SLURM_", "SRUN_")):
        instead = "say it with partition, account, …, or with an option in srun, salloc, sbatch"
        raise ValueError(f"is read by Slurm; {instead}")
    if name.startswith("BRINGUP_") or name in _TABLE.starts:
        raise ValueError("is set by the scripts, or by you when you start them; remove it here")
    return name


def _phase(name: str) -> str:
    if name not in (ANY_PHASE, TRAINING) and name not in PHASES:
        raise ValueError(f"there is no such phase{profile_text.meant(name, [ANY_PHASE, TRAINING, *PHASES])}")
    return name


_LINE = StringConstraints(min_length=1, pattern=r"^[^\x00-\x1f\x7f]*$")
Line = Annotated[str, _LINE, AfterValidator(_no_password)]
Word = Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f\x7f]+$")]
Option = Annotated[str, _LINE, AfterValidator(_no_password), AfterValidator(_option)]
Place = Annotated[str, StringConstraints(pattern=r"^/[^,:\x00-\x1f\x7f]*$")]  # a whole path; , and : separate mounts
Mount = Annotated[str, StringConstraints(pattern=r"^/[^,:\x00-\x1f\x7f]*(:/[^,:\x00-\x1f\x7f]*(:[a-z+]+)?)?$")]
TimeLimit = Annotated[str, StringConstraints(pattern=r"^(\d+|\d+:\d\d|\d+:\d\d:\d\d|\d+-\d+(:\d\d){0,2})$")]
GpuRequest = Annotated[
    str,
    StringConstraints(pattern=r"^(none|--gpus-per-node=([\w.-]+:)?[1-9]\d*|--gres=gpu(:[\w.-]*[A-Za-z][\w.-]*)?:[1-9]\d*)$"),
]  # fmt: skip
Variable = Annotated[str, AfterValidator(_variable)]
PhaseKey = Annotated[str, AfterValidator(_phase)]
# one word for all phases, or a word for each; profile_text leaves these tags out of its messages
Submitted = Annotated[
    Annotated[Word, Tag("[word]")] | Annotated[dict[PhaseKey, Word], Tag("[by phase]")],
    Discriminator(lambda value: "[by phase]" if isinstance(value, dict) else "[word]"),
]


class Container(Record):
    """The container of the torch programs (collectives and training). Everything else runs outside of it."""

    runtime: Literal["pyxis", "apptainer"]
    image: Annotated[str, StringConstraints(pattern=r"^[^-\s][^\s]*$"), AfterValidator(_no_password)]
    mounts: list[Mount] = Field(default_factory=list)  # the repository, scratch and checkpoints are always mounted


class Site(Record):
    """`validation/profiles/<name>.site.yaml`."""

    schema_version: Literal[1]
    name: Word
    description: Line | None = None
    partition: Submitted | None = None
    account: Submitted | None = None
    qos: Submitted | None = None
    reservation: Submitted | None = None
    constraint: Submitted | None = None
    time_limits: dict[PhaseKey, TimeLimit] = Field(default_factory=dict)
    gpu_request: GpuRequest = "none"
    jobs_share_nodes: bool = True  # false: each job takes whole nodes, so that nothing has to keep two jobs apart
    srun: list[Option] = Field(default_factory=list)  # further options of every srun
    salloc: list[Option] = Field(default_factory=list)
    sbatch: list[Option] = Field(default_factory=list)
    container: Container | None = None
    scratch: Place | None = None  # a fast folder, shared or of each node
    checkpoints: Place | None = None  # a folder that all nodes share; training writes its checkpoints there
    environment: dict[Variable, Line] = Field(default_factory=dict)
    venv: Place | None = None  # where `make venv` puts the Python environment; scripts/venv.sh reads it
    modules: list[Word] = Field(default_factory=list)
    setup: Place | None = None  # a file that scripts source before they start anything
    checks: Place | None = None  # a file of the site's own checks
    strict: bool = False  # true: a number that was measured and has no limit is incomplete
    signing_key: Place | None = None  # a private key of SSH, or a public one whose private half an agent holds
    allowed_signers: Place | None = None  # whose signatures count: ssh-keygen(1), ALLOWED SIGNERS

    def time_limit(self, phase: str | None) -> str | None:
        """Return the time limit of a phase; None: the script's own limit holds."""
        return _of_phase(self.time_limits, phase)

    def submitted(self, key: str, phase: str | None) -> str | None:
        """Return partition, account, … of a phase; without a phase, the default."""
        value: str | dict[str, str] | None = getattr(self, key)
        return _of_phase(value, phase) if isinstance(value, dict) else value


def _of_phase(by_phase: Mapping[str, str], phase: str | None) -> str | None:
    is_training = phase in PHASES and PHASES[phase].is_training
    keys = (*([phase] if phase else []), *([TRAINING] if is_training else []), ANY_PHASE)
    return next((by_phase[key] for key in keys if key in by_phase), None)


def find(name_or_path: str) -> Path:
    """Find the file of a site given by name (`example`) or by path. Raises FileError with the names there are."""
    there = {file.name.removesuffix(SITE_SUFFIX): file for file in sorted(PROFILES.glob(f"*{SITE_SUFFIX}"))}
    return profile_text.find(name_or_path, "site file", there, "BRINGUP_SITE: ")


def load(path: Path) -> Site:
    """Load a site's file. Raises FileError."""
    return parse(profile_text.text_of(path, "site file "), str(path))


def parse(text: str, where: str) -> Site:
    """Parse a site file. Raises FileError with one line that names the key and suggests what was meant."""
    try:
        return Site.model_validate(profile_text.read(text, where, "a site file", "schema_version and name"))
    except ValidationError as error:
        raise profile_text.refused(error, Site, text, where, forms=_TABLE.forms) from error


def dump(site: Site) -> str:
    """Return the site as YAML, without unset keys: it goes into the run's folder."""
    return profile_text.dump(site.model_dump(exclude_none=True, exclude_defaults=True))
