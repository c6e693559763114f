"""All evidence of one run folder, as observations: what each file is, and what follows from what was read."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bringup.checks.fabric import derive as fabric
from bringup.checks.filesystem import derive as filesystem
from bringup.checks.gpu import derive as gpu
from bringup.checks.nccl import derive as nccl
from bringup.checks.node import derive as node
from bringup.checks.run import provenance
from bringup.checks.slurm import derive as slurm_checks
from bringup.checks.training import attempts, failures
from bringup.checks.training import derive as training
from bringup.errors import RecordError
from bringup.evidence import facts, jobs, monitor, nccl_log, nccl_tests, slurm, topology
from bringup.evidence.parsed import Parsed, Seen
from bringup.known_faults.signatures import EXIT_CODES
from bringup.plan.phases import PHASES
from bringup.plan.subjects import ONE_GPU, scale_of_file
from bringup.records import Closed, Run, read_record
from bringup.results import CLOSED, JOB_AFTER, RUN

Reader = Callable[[str, str], Parsed]
Derivation = Callable[[Seen, Run], Parsed]


def _not_opened(text: str, where: str) -> Parsed:
    """Why the script of this run never came to open it, as `bringup run` kept it."""
    parsed = Parsed()
    parsed.saw("run.closed", "job", None, "flag", f"{where}:1", text.strip() or "its script did not open it")
    return parsed


READERS: dict[str, Reader] = {  # by the name of the file
    "scontrol-node.txt": slurm.nodes,
    "scontrol-node-after.txt": slurm.nodes,
    "scontrol-config.txt": slurm.config,
    "cgroup.conf": slurm.cgroup_conf,
    "mpi-list.txt": slurm.mpi_list,
    "ping.txt": slurm.ping,
    **{
        f"job-{name}.txt": partial(jobs.ended_job, name=name.replace("-", "_"))
        for name in ("exit-code", "memory", "before", "after", "never", "requeue", "warning")
    },
    "bad-exit.txt": jobs.bad_exit,
    "requeue.txt": jobs.requeue,
    "not-opened.txt": _not_opened,
}
DERIVATIONS: tuple[Derivation, ...] = (  # each sees what was read, and nothing that another one derived
    node.derive,
    gpu.derive,
    fabric.derive,
    slurm_checks.derive,
    filesystem.derive,
    nccl.derive,
    training.derive,
)
_SCALE = r"(?P<scale>1gpu|[1-9]\d{0,5})"  # as the phase scripts name it; see plan.scale_of_file
_NCCL_TESTS = re.compile(rf"(?P<binary>[a-z_]+_perf)-{_SCALE}\.(?P<kind>json|txt)")
_COLLECTIVES = re.compile(rf"collectives-{_SCALE}\.jsonl")
_NCCL_LOGS = re.compile(rf"nccl-{_SCALE}")
_TOPOLOGY = re.compile(r"nvidia-smi-topo-(?P<node>.+)\.txt")
_JOB_STATE = re.compile(r"\bJobState=(?P<state>\S+) Reason=(?P<reason>\S+)")
_STEP = re.compile(rf"(?P<what>[a-z_]+)-{_SCALE}\.rc")


def read_run(folder: Path, run: Run) -> Parsed:
    """Everything in raw/, the closing record, the training records, and what follows. Never raises for bad evidence: it says so."""
    parsed = _raw(folder, run)
    _closed(parsed, folder, run)
    parsed.saw("run.restarts", "job", run.slurm_restart_count, "count", f"{RUN}:slurm_restart_count")
    phase = PHASES[run.phase]
    if phase.is_training:
        parsed.add(training.metrics(folder, run, single=phase.strategy == "single"))
    _nccl_logs(parsed, folder)
    if phase.is_training:
        training.transport(parsed, folder, run)
        failures.excuse_victims(parsed)
        failures.say_who_was_killed(parsed)
        failures.name_the_hung(parsed, folder, run)
    seen = Seen(parsed.observations)
    for derive in DERIVATIONS:
        parsed.add(derive(seen, run))
    if phase.is_training:
        attempts.derive(parsed, folder, run)
        failures.say_who_was_first(parsed, folder)
    _say_who_ended_a_step(parsed)
    _note_what_could_not_start(parsed)
    return parsed


def _raw(folder: Path, run: Run) -> Parsed:
    """Files in raw/, by name."""
    parsed = Parsed()
    parsed.problems += _unreadable_folders(folder)
    for path in sorted((folder / "raw").rglob("*")):
        where = path.relative_to(folder).as_posix()
        if path.name in READERS:
            _read(parsed, path, where, READERS[path.name])
        elif (match := _COLLECTIVES.fullmatch(path.name)) and scale_of_file(match["scale"]) == ONE_GPU:
            _read(parsed, path, where, _facts_of_one_rank)
        elif path.suffix == ".jsonl":
            _read(parsed, path, where, facts.parse)
        elif path.suffix == ".err":
            _read(parsed, path, where, slurm.launch_errors)
        elif path.name == "launch.log":
            _read(parsed, path, where, partial(failures.launcher_log, run=run))
            _read(parsed, path, where, slurm.launch_errors)
        elif path.name == "monitor.csv":
            _read(parsed, path, where, partial(monitor.parse, duration_s=_step_seconds(folder)))
        elif match := _TOPOLOGY.fullmatch(path.name):
            _read(parsed, path, where, partial(topology.parse, node=match["node"]))
        elif match := _NCCL_TESTS.fullmatch(path.name):
            # the same table; the text counts only where a build too old for -J left no JSON
            if match["kind"] == "json" or not path.with_suffix(".json").exists():
                _read(
                    parsed,
                    path,
                    where,
                    partial(nccl_tests.parse, binary=match["binary"], subject=scale_of_file(match["scale"])),
                )
        elif match := _STEP.fullmatch(path.name):
            _read(parsed, path, where, partial(_exit_code, subject=scale_of_file(match["scale"])))
    return parsed


def _unreadable_folders(folder: Path) -> list[str]:
    """rglob passes over them without a word."""
    found: list[str] = []
    for _ in os.walk(
        folder / "raw",
        onerror=lambda error: (
            found.append(f"{Path(error.filename).relative_to(folder).as_posix()}: cannot be read: {error.strerror}")
            if error.errno != errno.ENOENT
            else None
        ),
    ):
        pass
    return found


def _read(parsed: Parsed, path: Path, where: str, reader: Reader) -> None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        parsed.problems.append(f"{where}: cannot be read: {error.strerror}")
        return
    parsed.add(reader(text, where))


def _facts_of_one_rank(text: str, where: str) -> Parsed:
    """Without what is said of the rank among its peers: alone it is never slower than the others, and nobody sends to it."""
    parsed = facts.parse(text, where)
    kept = [one for one in parsed.observations if not one.quantity.startswith("nccl.rank.")]
    return Parsed(observations=kept, problems=parsed.problems)


def _exit_code(text: str, where: str, *, subject: str) -> Parsed:
    parsed = Parsed()
    if re.fullmatch(r"\d+\s*", text):
        parsed.saw("nccl.step.exit_code", subject, int(text), "count", where)
    else:
        parsed.problems.append(f"{where}: not an exit code: {text[:40]!r}")
    return parsed


def _nccl_logs(parsed: Parsed, folder: Path) -> None:
    """NCCL's own log files, a folder per scale; gloo writes none."""
    said = {
        (one.quantity, one.subject): str(one.value)
        for one in parsed.observations
        if one.quantity in ("nccl.backend", "nccl.debug")
    }
    # nccl-tests count their ranks as well, and write no log here
    ranks = {
        one.subject: one.value
        for one in parsed.observations
        if one.quantity == "nccl.ranks" and one.why is None and isinstance(one.value, int)
    }
    for logs in sorted((folder / "raw").glob("nccl-*")):
        match = _NCCL_LOGS.fullmatch(logs.name)
        scale = scale_of_file(match["scale"]) if match is not None else ""
        if said.get(("nccl.backend", scale)) == "nccl":
            files = {
                path.name: path.read_text(encoding="utf-8", errors="replace") for path in sorted(logs.glob("*.log"))
            }
            parsed.add(
                nccl_log.parse(files, f"raw/{logs.name}", scale, said.get(("nccl.debug", scale)), ranks.get(scale))
            )


def _step_seconds(folder: Path) -> float | None:
    """How long the watched step took, written by the phase script."""
    for path in sorted((folder / "raw").glob("*.seconds")):
        text = path.read_text(encoding="utf-8", errors="replace").strip()
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return float(text)
    return None


def _closed(parsed: Parsed, folder: Path, run: Run) -> None:
    if not (folder / CLOSED).exists():
        _ended_by_slurm(parsed, folder / JOB_AFTER)
        return
    try:
        closed = read_record(folder / CLOSED, Closed)
    except RecordError as error:
        parsed.problems.append(str(error).replace(f"{folder}/", ""))
        return
    parsed.saw("run.closed", "job", True, "flag", CLOSED)
    parsed.saw("run.exit_code", "job", closed.exit_code, "count", f"{CLOSED}:exit_code")
    parsed.add(provenance.observe(Seen(parsed.observations), folder, run, closed))
    if closed.exit_code != 0:
        known = EXIT_CODES.get(closed.exit_code)
        meaning = f" ({known})" if known is not None else ""
        parsed.problems.append(
            f"{CLOSED}: a step of the phase script ended with exit code {closed.exit_code}{meaning}; see raw/*.err"
        )


def _ended_by_slurm(parsed: Parsed, path: Path) -> None:
    """What Slurm says about a job whose script did not come to its end, kept by `bringup run`."""
    match = _JOB_STATE.search(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else None
    if match is not None:
        parsed.saw(
            "run.closed",
            "job",
            None,
            "flag",
            f"raw/{path.name}",
            f"Slurm says that the job ended {match['state']}, reason {match['reason']}",
        )


def _note_what_could_not_start(parsed: Parsed) -> None:
    """Node, program and reason: what such a node did not do is missing in other gates, which cannot say why."""
    for one in parsed.observations:
        if one.quantity == "slurm.launch.error" and slurm.NOT_STARTED in str(one.value):
            parsed.problems.append(f"{one.evidence}: {one.subject}, {one.why}: {one.value}")


def _say_who_ended_a_step(parsed: Parsed) -> None:
    """The exit code of a step is that of its victims, too: beside it, the task that srun named first, unless a rank is known."""
    for place, one in enumerate(parsed.observations):
        if one.quantity not in ("nccl.step.exit_code", "run.exit_code") or one.value == 0 or one.why:
            continue
        job = one.quantity == "run.exit_code"  # of a training: one step, with a log of its own
        errors = "raw/launch.log:" if job else one.evidence.removesuffix(".rc") + ".err:"
        first = next(
            (
                said
                for said in parsed.observations
                if said.quantity == "slurm.launch.error" and said.evidence.startswith(errors)
            ),
            None,
        )
        if first is not None:
            who = f"{first.subject}: {first.why}" if first.why else first.subject
            parsed.observations[place] = one.model_copy(update={"why": f"first {who}: {first.value}"})
