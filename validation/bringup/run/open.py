"""Opening and closing a run: the plan is written before anything runs, and the exit code at the end of the script."""

import contextlib
import glob
import importlib.util
import os
import re
import secrets
import shutil
import sys
from datetime import datetime, timezone
from pathlib import Path

from bringup.kernel import results as runs
from bringup.kernel.errors import RecordError, RunError, SlurmError
from bringup.kernel.plan import own, scope, subjects
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.phases import PHASES, Phase
from bringup.kernel.records import RUN_NAME, Closed, Continued, Run, files, read_record, write_record, write_text
from bringup.kernel.run_folder import RunFolder
from bringup.readers import slurm as answers
from bringup.run import auto_profile, programs, site_file, slurm
from bringup.run import site as at_site
from bringup.run.healthy_rest import VARIABLE, lacking
from bringup.training import records as trained

_DRIVER = Path("/proc/driver/nvidia/version")


def _leaves(nodes: list[str]) -> dict[str, str] | None:
    """Node -> its leaf switch or block, as Slurm places jobs. None: it does not say."""
    try:
        seen = answers.topology(slurm.ask("scontrol", "show", "topology"), "scontrol", nodes).observations
    except SlurmError:
        return None
    return {observation.subject: str(observation.value) for observation in seen if observation.quantity == answers.LEAF}


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _git(*arguments: str) -> str | None:
    done = programs.done(["git", "-C", str(runs.REPOSITORY), *arguments], timeout_s=10)
    return done.stdout.strip() if done is not None and done.returncode == 0 else None


def git_commit() -> str | None:
    return _git("rev-parse", "HEAD")


def default_name() -> str:
    """Time, job id (or chance), and the mark of a requeued job, which must not write into its first attempt's folder.

    Not the pid: in a namespace of its own it is small, and two clusters of one second would meet.
    """
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
    job = os.environ.get("SLURM_JOB_ID")
    name = os.environ.get("BRINGUP_RUN_NAME") or f"{stamp}-{f'job{job}' if job else secrets.token_hex(3)}"
    return runs.attempt_name(name, restarts=int(restarts) if restarts.isdecimal() else 0)


def lacks_torch(phase: Phase, site: at_site.AtSite | None) -> bool:
    """Say whether the phase needs torch and this environment has none. In a container torch is the image's. Without a
    GPU driver, pairs of nodes exchange over TCP (scripts/nccl_pairwise.sbatch)."""
    in_container = site is not None and site.site.container is not None
    engine = os.environ.get("BRINGUP_PAIR_ENGINE") or ("" if _DRIVER.exists() else "tcp")
    is_needed = phase.uses_torch and not (phase.stem == "nccl_pairwise" and engine == "tcp")
    return is_needed and not in_container and importlib.util.find_spec("torch") is None


def refuse_without_torch(phase: Phase, site: at_site.AtSite | None) -> None:
    """Raise RunError where torch is missing, before anything is opened."""
    if lacks_torch(phase, site):
        raise RunError(f"{phase.stem}: torch is not installed in {sys.prefix}: make venv")


def open_run(
    phase: Phase,
    *,
    nodes: list[str],
    gpus_per_node: int,
    profile: profiles.Profile,
    argv: list[str],
    ranks_per_node: int | None = None,
    results: Path | None = None,
    name: str | None = None,
    allocated: list[str] | None = None,
    whole_nodes: bool = False,
    site: at_site.AtSite | None = None,
) -> Path:
    """Create the run's folder and write its plan. Raises RunError.

    ranks_per_node: one per GPU, or one alone, if it is not said. allocated: of `nodes` those that it really has.
    whole_nodes: the partition lets no two jobs share a node.
    """
    ranks_per_node = ranks_per_node or (1 if phase.one_gpu else gpus_per_node)
    if (lack := phase.lacks(len(nodes), gpus_per_node)) is not None:
        submit = f"; sbatch --nodes={phase.min_nodes} {phase.script}" if len(nodes) < phase.min_nodes else ""
        raise RunError(f"{phase.stem} {lack}{submit}")
    if phase.max_nodes is not None and len(nodes) > phase.max_nodes:
        submit = f"sbatch --nodes={phase.max_nodes} {phase.script}"
        raise RunError(f"{phase.stem} runs on {phase.max_nodes} node, {len(nodes)} requested; {submit}")
    name = name or default_name()
    if re.fullmatch(RUN_NAME, name) is None:
        expected = "letters, digits, '.', '_' and '-', and first a letter or digit"
        raise RunError(f"BRINGUP_RUN_NAME={name}: expected {expected}")
    folder = runs.folder_of(phase, name)
    if results is not None:
        folder = results / folder.name
    cluster = slurm.this_cluster()
    lacks = os.environ.get(VARIABLE)
    if profile.is_open and phase.stem != "discovery":
        discovery = auto_profile.newest(nodes)
        profile = auto_profile.profile(profile, nodes, discovery)
        lacks = lacking([discovery] if discovery is not None else []) if lacks is None else lacks
    not_applicable = scope.excluded_here(phase.stem, profile.not_applicable)
    left_out = scope.left_out(phase.stem, whole_nodes, site is None or site.site.jobs_share_nodes)
    left_out += scope.without(phase.stem, (lacks or "").split(), profile)
    left_out += scope.without_switches(phase.stem, _leaves(nodes) if phase.stem == "nccl_pairwise" else None)
    own_checks = [] if site is None or site.site.checks is None else own.read(Path(site.site.checks))
    before = _attempt_before(folder.parent, phase)
    status = _git("status", "--porcelain")
    run = Run(
        phase=phase.stem,
        name=folder.name,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        ranks_per_node=ranks_per_node,
        profile=profile.name,
        profile_sha256=runs.sha256(profiles.dump(profile)),
        planned=scope.plan(
            phase.stem,
            nodes,
            ranks_per_node,
            {entry.gate for entry in [*not_applicable, *left_out]},
            subjects.pair_rounds(nodes, os.environ.get("BRINGUP_PAIR_ROUNDS", "")),
            {gate.id: gate for gate in own_checks},
        ),
        not_applicable=not_applicable,
        argv=argv,
        git_commit=git_commit(),
        git_dirty=None if status is None else bool(status),
        slurm_job_id=os.environ.get("SLURM_JOB_ID"),
        slurm_restart_count=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
        opened_at=now(),
        allocated=None if allocated == nodes else allocated,
        left_out=left_out,
        site=None if site is None else at_site.used(site.site, phase.stem),
        cluster=cluster.name,
        controller=cluster.controller,
        continues=None if before is None else before.name,
    )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
        (folder / "raw").mkdir()
        (folder / runs.PRIVATE).mkdir(0o700)
        for_owner = os.open(folder / runs.SECRET, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(for_owner, "w") as secret:
            secret.write(secrets.token_hex(32))
    except OSError as error:
        where = error.filename or folder
        raise RunError(f"{where}: cannot be created ({error.strerror}); a run has a folder of its own") from error
    write_text(folder / runs.PROFILE, profiles.dump(profile))
    if site is not None:
        write_text(folder / runs.SITE, site_file.dump(site.site))
    if own_checks:
        write_text(folder / runs.OWN_CHECKS, own.dump(own_checks))
    write_record(folder / runs.RUN, run)
    if before is not None and not (before / runs.CONTINUED).exists():
        # a link for readers; the attempt before may be read-only by now
        with contextlib.suppress(OSError, RecordError):
            write_record(before / runs.CONTINUED, Continued(run=folder.name))
    if phase.is_training and phase.strategy != "single":
        _keep_reference(folder)
    return folder


def _attempt_before(results: Path, phase: Phase) -> Path | None:
    """Find the newest folder that this Slurm job wrote before it was requeued. None: it is the first attempt."""
    job, restarts = os.environ.get("SLURM_JOB_ID"), int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    if job is None or restarts == 0:
        return None
    prefix = f"{phase.stem}-" if phase.is_training else ""
    earlier: list[tuple[str, int, Path]] = []
    for path in results.glob(f"{prefix}{glob.escape(os.environ.get('BRINGUP_RUN_NAME', ''))}*/{runs.RUN}"):
        with contextlib.suppress(RecordError):
            run = read_record(path, Run)
            if (run.phase, run.slurm_job_id) == (phase.stem, job) and run.slurm_restart_count < restarts:
                earlier.append((run.opened_at, run.slurm_restart_count, path.parent))
    return max(earlier)[2] if earlier else None


def _keep_reference(folder: Path) -> None:
    """Copy the newest one-GPU run's records into raw/, so that the copied folder can be judged anywhere."""
    chosen = os.environ.get("BRINGUP_REFERENCE")
    if chosen and not (Path(chosen) / runs.METRICS).is_file():
        raise RunError(f"BRINGUP_REFERENCE={chosen}: no metrics.json there; give the folder of a finished run_1gpu run")
    for path in [Path(chosen)] if chosen else _one_gpu_runs(folder)[:1]:
        _copy_reference(path, folder)


def _prefer_a_comparable_reference(folder: Path) -> None:
    """The arguments are known now: scaling is against the newest one-GPU run of the same recipe, if there is one."""
    known = (folder / trained.REFERENCE_ARGS).is_file() and (folder / runs.RUN_ARGS).is_file()
    if os.environ.get("BRINGUP_REFERENCE") or not known:
        return
    with contextlib.suppress(RecordError):
        args = read_record(folder / runs.RUN_ARGS, trained.RunArgs)
        if not trained.differing_fields(read_record(folder / trained.REFERENCE_ARGS, trained.RunArgs), args):
            return
        for path in _one_gpu_runs(folder):
            with contextlib.suppress(RecordError):
                if trained.differing_fields(reference := read_record(path / runs.RUN_ARGS, trained.RunArgs), args):
                    continue
                _copy_reference(path, folder)
                if files.is_file(folder / runs.METRICS):
                    metrics = read_record(folder / runs.METRICS, trained.TrainMetrics)
                    of_one_gpu = reference, read_record(folder / trained.REFERENCE_METRICS, trained.TrainMetrics)
                    summary = trained.summary_of(args, metrics, trained.scaling_against(args, metrics, of_one_gpu))
                    write_record(folder / runs.METRICS, metrics.model_copy(update={"summary": summary}), replace=True)
                return


def _one_gpu_runs(folder: Path) -> list[Path]:
    """Those that finished, beside this run and of its cluster, the newest first."""
    here, of_here = RunFolder(folder).run.of_cluster, []
    for path in folder.parent.glob("run_1gpu-*"):
        if all(files.is_file(path / name) for name in (runs.METRICS, runs.RUN_ARGS)):
            with contextlib.suppress(RunError):  # records alone do not say of which cluster they are
                if RunFolder(path).run.of_cluster.is_another(here):
                    continue
            of_here.append(path)
    return sorted(of_here, key=lambda path: path.stat().st_mtime, reverse=True)


def _copy_reference(source: Path, folder: Path) -> None:
    for name, copy in ((runs.METRICS, trained.REFERENCE_METRICS), (runs.RUN_ARGS, trained.REFERENCE_ARGS)):
        write_text(folder / copy, files.read_text(source / name), replace=True)


def close_run(folder: Path, exit_code: int) -> None:
    """Close a run. Raises RunError when it is not an open one."""
    run = RunFolder(folder).run
    if (folder / runs.CLOSED).exists():
        raise RunError(f"{folder}: already closed")
    shutil.rmtree(folder / runs.PRIVATE, ignore_errors=True)
    if PHASES[run.phase].is_training:
        _prefer_a_comparable_reference(folder)
    closed = Closed(exit_code=exit_code, closed_at=now(), files=RunFolder(folder).checksums())
    try:
        write_record(folder / runs.CLOSED, closed)
    except RecordError as error:
        raise RunError(f"{folder}: already closed") from error
