"""Paths of a run: its files, its attempts, the runs of a playbook. One attempt writes one folder."""

import glob
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bringup.kernel.errors import FileError, NotComparable, RecordError, RunError
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.phases import NODES, PHASES, Phase
from bringup.kernel.records import Closed, LeftOut, Observations, Playbook, Run, Step, Sweep, Verdicts, files
from bringup.kernel.records.base import parse_record, read_record, read_record_text, write_record, write_text

REPOSITORY = Path(__file__).resolve().parents[3]

RUN, CLOSED, PROFILE = "run.json", "closed.json", "profile.yaml"
SIGNATURE = ".sig"  # what the name of a signature adds to that of its file: closed.json.sig
SITE = "site.yaml"  # only where a site file was used
OWN_CHECKS = "own_checks.json"  # only where it names checks of its own: as they were planned
OBSERVATIONS, VERDICTS, REPORT = "observations.json", "verdicts.json", "report.md"
RUN_ARGS, METRICS = "run_args.json", "metrics.json"
CONTINUED = "continued.json"
PRIVATE = "private"  # for the owner alone, until the run is closed; neither evidence nor ever packed
SECRET = f"{PRIVATE}/secret"  # what its ranks know each other by (probes/arrival.py)
JOB_AFTER = "raw/scontrol-job.txt"  # only of a run that was not closed
BATCH_LOG = "raw/batch.log"  # the screen of the job or script that wrote the run
NOT_OPENED = "raw/not-opened.txt"  # only of a run that its script did not open: why, in one line
PLAYBOOK, SWEEP, DRILLS, PREFLIGHT = "playbook.json", "sweep.json", "drill.json", "preflight.json"
PACKED = "evidence"  # in a zip of `bringup report`: the folder of the runs, evidence/NUMBER-PHASE, beside playbook/NAME
_RESULTS = Path("validation/results")  # from the root of a tree
PLAYBOOKS, SWEEPS, PREFLIGHTS = _RESULTS / "playbook", _RESULTS / "sweep", _RESULTS / "preflight"
UNREADABLE = "cannot be read: "  # stands instead of a checksum; the reason follows
_ATTEMPT = re.compile(r"(?:-s(?P<submission>\d+))?(?:-r(?P<restarts>\d+))?")


def folder_of(phase: Phase, name: str, tree: Path | None = None) -> Path:
    """Return the folder of the run called `name` of this phase."""
    return (tree or REPOSITORY) / phase.results / (f"{phase.stem}-{name}" if phase.is_training else name)


def attempt_name(name: str, number: int = 1, restarts: int = 0) -> str:
    """Name the run of a phase's `number`-th job (-s2, …), after that many requeues (-r1, …)."""
    return name + (f"-s{number}" if number > 1 else "") + (f"-r{restarts}" if restarts else "")


def is_there(folder: Path, name: str) -> bool:
    """Say whether a file that another host writes exists: `closed.json`, `raw/moment`. The folder is listed for this:
    an NFS client caches a missing name for half a minute, but reads a folder again when it is opened."""
    for part in Path(name).parts:
        try:
            if folder / part not in folder.iterdir():
                return False
        except (FileNotFoundError, NotADirectoryError):
            return False
        folder /= part
    return True


def attempts(phase: Phase, name: str) -> list[Path]:
    """Find the folders of this run, in order: each submission (-s2, …) followed by its requeues (-r1, … -r10)."""
    first = folder_of(phase, name)
    numbered: list[tuple[int, int, Path]] = []
    for path in first.parent.glob(f"{glob.escape(first.name)}*"):
        mark = _ATTEMPT.fullmatch(path.name.removeprefix(first.name))
        if mark is not None and path.is_dir():
            numbered.append((int(mark["submission"] or 1), int(mark["restarts"] or 0), path))
    return [path for _, _, path in sorted(numbered)]


@dataclass(frozen=True)
class Seal:
    """The content of closed.json, read once: the signature is verified for the bytes that were judged."""

    content: str = ""
    closed: Closed | None = None
    why: str | None = None  # closed.json is there and cannot be read


def read_seal(folder: Path) -> Seal | None:
    """Read closed.json; None: there is none."""
    path = folder / CLOSED
    if not os.path.lexists(path):
        return None
    try:
        content = read_record_text(path, Closed)
        return Seal(content, parse_record(path, content, Closed))
    except RecordError as error:
        return Seal(why=str(error).replace(f"{folder}/", ""))


def checksums(folder: Path) -> dict[str, str]:
    """Return checksums of all evidence: the plan, the site and its checks, raw/, and training's records. The profile's
    checksum is in the plan; closed.json holds the checksums, and its signature comes after it. For a file that cannot
    be read: UNREADABLE and the reason.

    They show a change to who does not expect one. Who may write to the folder can make them anew: only a signature
    shows that (run/signature.py)."""
    records = [folder / name for name in (RUN, SITE, OWN_CHECKS, RUN_ARGS, METRICS)]
    paths, _ = files.below(folder / "raw")
    digests = {path.relative_to(folder).as_posix(): _digest(path, folder) for path in (*records, *paths)}
    return {name: digest for name, digest in digests.items() if digest is not None}


def _digest(path: Path, folder: Path) -> str | None:
    """Return the digest of a file. None: not a regular file."""
    try:
        return files.checksum(path, folder)
    except (FileNotFoundError, files.NotAFile):
        return None
    except OSError as error:
        return f"{UNREADABLE}{error.strerror}"


def load(folder: Path) -> Run:
    """Load a run from its folder. Raises RunError when the folder is not a run's."""
    try:
        (folder / RUN).lstat()
        run = read_record(folder / RUN, Run)
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"{folder}: not a results folder (no {RUN}); `bringup runs` lists what there is") from None
    except OSError as error:
        raise RunError(f"{folder}: cannot be read ({error.strerror}); read it as its owner") from error
    except RecordError as error:
        raise RunError(str(error)) from error
    if run.phase not in PHASES:
        raise RunError(f"{folder / RUN}: phase {run.phase!r} is unknown to this version; it knows {', '.join(PHASES)}")
    return run


def load_profile(folder: Path, run: Run | None = None) -> profiles.Profile:
    """Load the expectations the run was opened with. Raises FileError."""
    path = folder / PROFILE
    try:
        text = files.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot be read ({error}); judge it with --profile NAME") from error
    try:
        if sha256(text) != (load(folder) if run is None else run).profile_sha256:
            raise FileError(f"{path}: changed since the run was opened")
        return profiles.parse(text, str(path), strict=False)
    except FileError as error:
        raise FileError(f"{error}; judge it with --profile NAME") from error


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- a playbook's runs


@dataclass(frozen=True)
class Absent:
    """A planned phase without a run to judge."""

    phase: str
    why: str


@dataclass(frozen=True)
class RunFolders:
    """Runs named by folders. A run's folder names itself; the folder of a playbook or sweep names its runs."""

    folders: list[Path] = field(default_factory=list)  # may hold one run several times
    absent: list[Absent] = field(default_factory=list)
    # phases that could not be requested for a playbook's nodes, with the reason
    left_out: list[str] = field(default_factory=list)
    unhealthy_nodes: list[str] = field(default_factory=list)  # left out by later phases
    set_aside: list[str] = field(default_factory=list)  # nodes that no phase took, and why
    playbooks: list[Path] = field(default_factory=list)
    steps: dict[Path, Step] = field(default_factory=dict)  # of the playbooks' runs
    varied: list[str] = field(default_factory=list)  # arguments in which the runs of a sweep differ

    @property
    def once(self) -> list[Path]:
        return list({folder.resolve(): folder for folder in reversed(self.folders)}.values())[::-1]


def every_run(tree: Path = REPOSITORY) -> list[Path]:
    """Find all runs of a checkout that were closed, of all phases, but not the short ones of a preflight: a load of 10
    s is no number to compare with one of 60 s."""
    folders = {phase.results for phase in PHASES.values()}
    runs = {path.parent for folder in sorted(folders) for path in (tree / folder).glob(f"*/{RUN}")}
    looks = {path.name for path in (tree / PREFLIGHTS).glob("*")}
    return sorted(run for run in runs if (run / CLOSED).is_file() and run.name.rpartition("-")[0] not in looks)


def refuse_other_clusters(runs: Iterable[tuple[Path, Run]]) -> None:
    """Refuse runs of two clusters, whose nodes may have the same names. Raises NotComparable."""
    known: list[tuple[Path, Run]] = []
    for folder, run in runs:
        if other := next((pair for pair in known if run.of_cluster.is_another(pair[1].of_cluster)), None):
            there = f"{other[0]} of {other[1].of_cluster}"
            raise NotComparable(f"{folder} is of cluster {run.of_cluster}, {there}: give runs of one")
        known.append((folder, run))


def unhealthy_node(entry: LeftOut) -> str:
    return f"{entry.node}: excluded after {entry.phase}: {entry.why}"


def find(folders: Sequence[Path]) -> RunFolders:
    """Resolve folders of runs, playbooks and sweeps. A missing run of a playbook or sweep is reported as absent. Raises
    RecordError for a playbook or sweep that cannot be read, RunError for a playbook that was copied without any of its
    runs."""
    resolved = RunFolders()
    for folder in folders:
        if is_of(folder, SWEEP):
            sweep = read_record(folder / SWEEP, Sweep)
            resolved.varied.extend(name for name in {**sweep.vary, **sweep.variants[-1]} if name != NODES)
            for run in sweep.runs:
                try:
                    resolved.folders.append(folder_in_tree(folder, run.folder, SWEEPS, sweep.phase))
                except RunError as error:
                    resolved.absent.append(Absent(sweep.phase, str(error)))
            continue
        if not is_of(folder, PLAYBOOK):
            resolved.folders.append(folder)
            continue
        playbook = read_record(folder / PLAYBOOK, Playbook)
        resolved.playbooks.append(folder)
        resolved.left_out.extend([*playbook.left_out, *map(unhealthy_node, playbook.unhealthy_nodes)])
        resolved.unhealthy_nodes.extend(entry.node for entry in playbook.unhealthy_nodes)
        resolved.set_aside.extend(playbook.set_aside)
        unreached = dict.fromkeys(playbook.planned, "the playbook was interrupted before it")
        of_steps: dict[Path, Step] = {}
        for step in playbook.steps:
            unreached.pop(step.phase, None)
            try:
                of_steps[step_folder(folder, step)] = step
            except RunError as error:
                resolved.absent.append(Absent(step.phase, str(error)))
        resolved.absent.extend(Absent(stem, why) for stem, why in unreached.items())
        resolved.folders.extend(of_steps)
        resolved.steps.update(of_steps)
        ran = [step for step in playbook.steps if step.folder is not None]
        if ran and tree_of(folder) is None and not of_steps:  # one line for all runs
            raise RunError(
                f"{folder}: none of its {len(ran)} runs was copied with it: expected {ran[0].folder}, or the end of "
                f"that path, in this folder or beside it; copy them, or name the playbook where it was written, "
                f"TREE/{PLAYBOOKS}"
            )
    return resolved


def is_of(folder: Path, record: str) -> bool:
    """Say whether the folder is a playbook's, or a sweep's: its record is PLAYBOOK or SWEEP."""
    return holds(folder, record) and not holds(folder, RUN)


def holds(folder: Path, record: str) -> bool:
    """Say whether it holds the record: no, too, where we may not look; who reads it as a run's next says why."""
    try:
        return (folder / record).is_file()
    except OSError:
        return False


def step_folder(playbook: Path, step: Step) -> Path:
    """Find the run folder of a step: in the same tree as the playbook (the repository or a copy of it), or near a
    playbook that is in no tree. Raises RunError when it does not exist."""
    if step.folder is None:
        raise RunError(step.why_not_run or "did not run")
    return folder_in_tree(playbook, step.folder, PLAYBOOKS, step.phase)


def folder_in_tree(holder: Path, shown: str, place: Path, phase: str) -> Path:
    """Find a run's folder, as the record in `holder` names it. place: where such records lie in a tree; where this one
    does not, the run may lie near it. Raises RunError."""
    tree = tree_of(holder, place)
    if tree is None:
        return _near(holder, shown, place.name, phase)
    try:
        path = Path(os.path.normpath(tree / shown))
        if not path.is_relative_to(tree):
            raise RunError(f"{shown[:60]!r} lies outside of {tree}, in which its {place.name} lies; name it")
        there = path.is_dir()
    except (OSError, ValueError) as error:  # too long a name, or a NUL in it
        raise RunError(f"{shown[:60]!r} is not a folder: {error.args[-1]}") from error
    if not there:
        raise RunError(f"{shown} is not in {tree}; it was removed, or not copied with the {place.name}")
    return path


def _is_named(folder: Path, name: str) -> bool:
    """Say whether it is the run of this name. One that cannot be read is not."""
    try:
        return holds(folder, RUN) and read_record(folder / RUN, Run).name == name
    except RecordError:
        return False


def _near(holder: Path, shown: str, kind: str, phase: str) -> Path:
    """Find the run's folder inside of `holder` or beside it, by an end of its path: validation/results/smoke/NAME,
    results/smoke/NAME or smoke/NAME; NAME alone only where it names the phase. Or the run of that name in a zip of
    `bringup report`, unpacked. Raises RunError."""
    parts = Path(shown).parts
    ends = [parts[first:] for first in range(len(parts)) if first < len(parts) - 1 or parts[-1].startswith(f"{phase}-")]
    if ".." not in parts and not Path(shown).is_absolute():
        for path in (base.joinpath(*end) for base in (holder, holder.absolute().parent) for end in ends):
            if holds(path, RUN):
                return path
        for path in sorted((holder.absolute().parent.parent / PACKED).glob("*")):
            if path.name.endswith(f"-{phase}") and _is_named(path, parts[-1]):
                return path
    raise RunError(f"{shown[:60]!r} is neither in {holder} nor beside it: copy it with its {kind}, or name it")


def tree_of(holder: Path, place: Path = PLAYBOOKS) -> Path | None:
    """Return the repository, or the copy of it, that a playbook's or a sweep's folder lies in. None: neither. Links may
    lead to either."""
    for path in (Path(os.path.normpath(holder.absolute())), holder.resolve()):
        if path.parent.parts[-len(place.parts) :] == place.parts:
            return path.parents[len(place.parts)]
    return None


def save_judgement(folder: Path, observations: Observations, verdicts: Verdicts, report: str) -> None:
    """Write the derived files; every judgement rebuilds them."""
    write_record(folder / OBSERVATIONS, observations, replace=True)
    write_record(folder / VERDICTS, verdicts, replace=True)
    write_text(folder / REPORT, report, replace=True)
