"""All evidence of one run folder as observations: the reader of each file, then what is derived from the facts."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from bringup.checks.fabric import derive as fabric
from bringup.checks.filesystem import derive as filesystem
from bringup.checks.gpu import derive as gpu
from bringup.checks.load import derive as load
from bringup.checks.nccl import derive as nccl
from bringup.checks.node import derive as node
from bringup.checks.run import provenance
from bringup.checks.slurm import derive as slurm_checks
from bringup.checks.sweep import derive as sweep
from bringup.checks.training import derive as training
from bringup.checks.training import measured
from bringup.errors import RecordError
from bringup.evidence import (
    dcgm,
    facts,
    flight,
    jobs,
    launcher,
    monitor,
    nccl_inspector,
    nccl_log,
    nccl_tests,
    nccl_variant,
    pair_rounds,
    ras,
    slurm,
    speakers,
    stacks,
    topology,
)
from bringup.evidence.parsed import Parsed, Seen, shortened
from bringup.evidence.speakers import Speakers
from bringup.known_faults.signatures import EXIT_CODES
from bringup.plan.phases import PHASES
from bringup.plan.subjects import ONE_GPU, rank_subjects, scale_of_file, scale_ranks
from bringup.plan.variants import COLLECTIVE
from bringup.plan.variants import VARIANTS as NCCL_VARIANTS
from bringup.records import Closed, Continued, Run, RunArgs, Versioned, files, read_record
from bringup.results import CLOSED, CONTINUED, JOB_AFTER, REFERENCE_ARGS, RUN, TrainingRecords

R = TypeVar("R", bound=Versioned)
Reader = Callable[[str, str], Parsed]
Derivation = Callable[[Seen, Run], Parsed]


def _not_opened(text: str, where: str) -> Parsed:
    """The reason why the script did not open its run, recorded by `bringup run`."""
    parsed = Parsed()
    parsed.saw("run.closed", "job", None, "flag", f"{where}:1", text.strip() or "its script did not open it")
    return parsed


VARIANTS = {variant.name for variant in NCCL_VARIANTS}
READERS: dict[str, Reader] = {  # by the name of the file
    "scontrol-node.txt": slurm.nodes,
    "scontrol-node-after.txt": slurm.nodes,
    "scontrol-config.txt": slurm.config,
    "cgroup.conf": slurm.cgroup_conf,
    "mpi-list.txt": slurm.mpi_list,
    "ping.txt": slurm.ping,
    "rounds.txt": pair_rounds.parse,
    **{
        f"job-{name}.txt": partial(jobs.ended_job, name=name.replace("-", "_"))
        for name in ("exit-code", "memory", "before", "after", "never", "requeue", "warning")
    },
    "requeue.txt": jobs.requeue,
    "not-opened.txt": _not_opened,
    "error.json": launcher.error_file,
}
DERIVATIONS: tuple[Derivation, ...] = (  # each gets the facts that were read, not the results of the others
    node.derive,
    gpu.derive,
    fabric.derive,
    slurm_checks.derive,
    filesystem.derive,
    sweep.derive,
    load.derive,
    nccl.derive,
    training.derive,
)
SAMPLES = "monitor.csv"
_LOGS = {".err", ".log"}  # in which anybody writes; tables and facts have lines that must be whole
_SCALE = r"(?P<scale>1gpu|[1-9]\d{0,5})"  # as the phase scripts name it; see plan.scale_of_file
_NCCL_TESTS = re.compile(rf"(?P<binary>[a-z_]+_perf)-{_SCALE}\.(?P<kind>json|txt)")
_COLLECTIVES = re.compile(rf"collectives-{_SCALE}\.jsonl")
_VARIANT = re.compile(rf"variant_(?P<variant>[a-z_]+)-{_SCALE}")
_NCCL_LOGS = re.compile(rf"nccl-{_SCALE}")
_STACKS = re.compile(r"raw/stacks/rank(?P<rank>\d{1,9})\.(?P<kind>txt|json)")
_FLIGHT = re.compile(r"raw/nccl-[1-9]\d{0,5}/flight\.rank(?P<rank>\d{1,9})\.json")
_RAS = re.compile(r"raw/nccl-[1-9]\d{0,5}/ras\.rank\d{1,9}\.txt")
_DCGM = re.compile(r"dcgm-(?P<node>.+)\.json")
_TOPOLOGY = re.compile(r"nvidia-smi-topo-(?P<node>.+)\.txt")
_JOB_STATE = re.compile(r"\bJobState=(?P<state>[^\s=]+) Reason=(?P<reason>\S+)")
_STEP_OF_SCALE = re.compile(rf"[a-z_]+-{_SCALE}")
_STEP = re.compile(rf"(?P<what>[a-z_]+)-{_SCALE}\.rc")
_RANK = re.compile(r"rank(?P<rank>\d{1,9})")
_BAD_EXIT = "bad-exit.txt"
NO_STEP = {  # files of facts that no step wrote -> the probe that did: on the batch host, or as a job of its own
    "names-table": "names_table",
    "fs-reference": "shared_fs_reference",
    "fs-check": "shared_fs_check",
    "array": "scheduler_array",
    "warning": "scheduler_warning",
}


def read_run(folder: Path, run: Run, records: TrainingRecords) -> Parsed:
    """Read everything in raw/, the closing record and the training records, and derive the rest. Bad evidence is
    reported as a problem; it never raises."""
    parsed = _raw(folder, run, records)
    _closed(parsed, folder, run)
    parsed.saw("run.restarts", "job", run.slurm_restart_count, "count", f"{RUN}:slurm_restart_count")
    _attempts(parsed, folder, run)
    if PHASES[run.phase].is_training:
        _training_records(parsed, folder, run, records)
    _nccl_logs(parsed, folder)
    _inspector(parsed, folder)
    _variants(parsed, folder, run)
    observed = Seen(parsed.observations)
    for derive in DERIVATIONS:
        parsed.add(derive(observed, run))
    _note_what_could_not_start(parsed)
    return parsed


def _speakers(parsed: Parsed, path: Path, run: Run) -> Speakers:
    """The tasks that wrote this file: as its `.step` says, else one on each node of the job, or a rank for each GPU."""
    nodes, rank = run.nodes if run.allocated is None else run.allocated, None
    placed, stem = path.with_suffix(".step"), path.stem
    tasks = {"binding": run.gpus_per_node, "sweep": run.gpus_per_node, "bad-exit": 2}.get(stem, 1)
    if match := _RANK.fullmatch(stem):
        tasks, rank = run.ranks_per_node, match["rank"]
    elif os.path.lexists(placed):
        step = speakers.step(_text(Parsed(), placed, "") or "", nodes)
        if step is None:
            parsed.problems.append(
                f"raw/{placed.name}: not TASKS NODE,NODE… of this run: nothing of {path.name} counts"
            )
        nodes, tasks = step or ([], 1)
    elif match := _STEP_OF_SCALE.fullmatch(stem):
        alone = match["scale"] == "1gpu"
        nodes, tasks = nodes[: 1 if alone else int(match["scale"])], 1 if alone else run.gpus_per_node
    elif stem.startswith("inventory-"):
        nodes = [stem.removeprefix("inventory-")]
    probe = NO_STEP.get(re.sub(r"-\d{1,9}$", "", stem))
    return Speakers(nodes, tasks, {*run.nodes, *(run.allocated or ())}, rank, probe)


def _raw(folder: Path, run: Run, records: TrainingRecords) -> Parsed:
    """Files in raw/, by name."""
    parsed = Parsed()
    paths, others = files.below(folder / "raw")
    parsed.problems += [
        f"{path.relative_to(folder).as_posix()}: {why}" + ("" if why.startswith("cannot") else "; it was not read")
        for path, why in sorted(others.items())
    ]
    places = rank_subjects(run.nodes, run.ranks_per_node)
    for path in paths:
        where = path.relative_to(folder).as_posix()
        if path.name in READERS:
            _read(parsed, path, where, READERS[path.name])
        elif _VARIANT.fullmatch(path.stem) and path.suffix != ".err":
            continue  # read by _variants
        elif (match := _COLLECTIVES.fullmatch(path.name)) and scale_of_file(match["scale"]) == ONE_GPU:
            _read(parsed, path, where, partial(_facts_of_one_rank, speakers=_speakers(parsed, path, run)))
        elif where.startswith(f"{nccl_inspector.FOLDER}/"):
            continue  # read together by _inspector
        elif path.name == "progress.jsonl":
            continue  # what was shown while it trained; facts are in rank<R>.jsonl
        elif path.suffix == ".jsonl":
            _read(parsed, path, where, partial(facts.parse, speakers=_speakers(parsed, path, run)))
        elif path.suffix == ".err":
            _read(parsed, path, where, partial(slurm.launch_errors, nodes=_speakers(Parsed(), path, run).nodes))
        elif path.name == "launch.log":
            who = _speakers(parsed, path, run)
            _read(parsed, path, where, partial(_launch_log, run=run, speakers=who))
            _read(parsed, path, where, partial(slurm.launch_errors, nodes=who.nodes))
        elif path.name == SAMPLES:
            samples = _reader_of_samples(run, records, _step_seconds(parsed, folder))
            _read(parsed, path, where, _of_own_node(samples, _speakers(parsed, path, run), monitor.node_of))
        elif path.name == _BAD_EXIT:
            _read(parsed, path, where, _of_own_node(jobs.bad_exit, _speakers(parsed, path, run), jobs.node_of))
        elif (match := _STACKS.fullmatch(where)) and int(match["rank"]) < len(places):
            reader = stacks.stack if match["kind"] == "txt" else stacks.progress
            _read(parsed, path, where, partial(reader, subject=places[int(match["rank"])]))
        elif (match := _FLIGHT.fullmatch(where)) and int(match["rank"]) < len(places):
            _read(parsed, path, where, partial(flight.parse, subject=places[int(match["rank"])]))
        elif _RAS.fullmatch(where):
            _read(parsed, path, where, ras.parse)
        elif match := _DCGM.fullmatch(path.name):
            _read(parsed, path, where, partial(dcgm.parse, node=match["node"]))
        elif match := _TOPOLOGY.fullmatch(path.name):
            _read(parsed, path, where, partial(topology.parse, node=match["node"]))
        elif match := _NCCL_TESTS.fullmatch(path.name):
            # the same table; the text counts only where a build too old for -J left no JSON
            if match["kind"] == "json" or path.with_suffix(".json") not in paths:
                _read(
                    parsed,
                    path,
                    where,
                    partial(nccl_tests.parse, binary=match["binary"], subject=scale_of_file(match["scale"])),
                )
        elif match := _STEP.fullmatch(path.name):
            _read(parsed, path, where, partial(_exit_code, subject=scale_of_file(match["scale"])))
    return parsed


def _read(parsed: Parsed, path: Path, where: str, reader: Reader) -> None:
    text = _text(parsed, path, where)
    if text is not None:
        parsed.add(reader(text, where))


def _text(parsed: Parsed, path: Path, where: str) -> str | None:
    """The text with its carriage returns, so that lines are numbered as by grep -n. A file that cannot be read is a
    problem; so is the end of one that is too long."""
    try:
        most = files.MOST_OF_A_LOG if path.suffix in _LOGS else files.MOST_BYTES
        content = files.read(path, _above_raw(path), most)
    except OSError as error:
        parsed.problems.append(f"{where}: cannot be read: {error.strerror}")
        return None
    if content.left_out:
        parsed.problems.append(f"{where}: its last {content.left_out} bytes were not read: it is longer than others")
        if path.name == SAMPLES:  # half of the samples would be a sampler that stopped
            return None
    if path.suffix in _LOGS:
        return shortened(content.text)
    return content.text


def _above_raw(path: Path) -> Path:
    """The run's folder: no part of what is in raw/ may be a link, raw/ neither."""
    return next(folder.parent for folder in path.parents if folder.name == "raw")


def _inspector(parsed: Parsed, folder: Path) -> None:
    """Some of the processes' files, evenly chosen, and the beginning of each: a long training writes gigabytes."""
    paths, _ = files.below(folder / nccl_inspector.FOLDER)  # what else stands there _raw has reported
    texts = []
    for path in paths[:: max(1, math.ceil(len(paths) / nccl_inspector.MOST_FILES))]:
        try:
            content = files.read(path, folder, nccl_inspector.MOST_BYTES)
            texts.append((path.relative_to(folder).as_posix(), content.text))
        except OSError as error:
            parsed.problems.append(f"{path.relative_to(folder)}: cannot be read: {error.strerror}")
    parsed.add(nccl_inspector.parse(texts))


def _of_own_node(reader: Reader, who: Speakers, node_of: Callable[[str], str | None]) -> Reader:
    """The reader of lines that each name a node, which has to be the one that srun's label says."""

    def read(text: str, where: str) -> Parsed:
        believed, refused = speakers.believed(text, where, who, node_of)
        parsed = reader(believed, where)
        parsed.add(refused)
        return parsed

    return read


def _launch_log(text: str, where: str, *, run: Run, speakers: Speakers) -> Parsed:
    return speakers.own(launcher.log(text, where, run), text, where, also="launcher.late")


def _facts_of_one_rank(text: str, where: str, *, speakers: Speakers) -> Parsed:
    """Facts without those that compare the rank with its peers: a single rank has no peers."""
    parsed = facts.parse(text, where, speakers)
    facts_of_rank = [
        observation for observation in parsed.observations if not observation.quantity.startswith("nccl.rank.")
    ]
    return Parsed(observations=facts_of_rank, problems=parsed.problems)


def _exit_code(text: str, where: str, *, subject: str) -> Parsed:
    parsed = Parsed()
    if re.fullmatch(r"[0-9]{1,9}\s*", text):
        parsed.saw("nccl.step.exit_code", subject, int(text), "count", where)
    else:
        parsed.problems.append(f"{where}: not an exit code: {text[:40]!r}")
    return parsed


def _nccl_logs(parsed: Parsed, folder: Path) -> None:
    """NCCL's own log files, a folder per scale; gloo writes none."""
    reported = {
        (observation.quantity, observation.subject): str(observation.value)
        for observation in parsed.observations
        if observation.quantity in ("nccl.backend", "nccl.debug")
    }
    # nccl-tests count their ranks as well, and write no log here
    ranks = {
        counted.subject: counted.value
        for counted in parsed.observations
        if counted.quantity == "nccl.ranks" and counted.why is None and isinstance(counted.value, int)
    }
    for logs in sorted((folder / "raw").glob("nccl-*")):
        match = _NCCL_LOGS.fullmatch(logs.name)
        scale = scale_of_file(match["scale"]) if match is not None else ""
        if reported.get(("nccl.backend", scale)) == "nccl":
            texts = _logs(parsed, logs)
            # nccl.HOST.PID.log: two processes of one node are one node
            hosts = {name.rsplit(".", 2)[0] for name, text in texts.items() if "NCCL INFO" in text}
            parsed.saw("nccl.log.hosts", scale, len(hosts), "count", f"raw/{logs.name}")
            parsed.add(
                nccl_log.parse(texts, f"raw/{logs.name}", scale, reported.get(("nccl.debug", scale)), ranks.get(scale))
            )


def _logs(parsed: Parsed, folder: Path) -> dict[str, str]:
    """Name -> text."""
    texts = {path.name: _text(parsed, path, f"raw/{folder.name}/{path.name}") for path in sorted(folder.glob("*.log"))}
    return {name: text for name, text in texts.items() if text is not None}


def _variants(parsed: Parsed, folder: Path, run: Run) -> None:
    """A folder of logs per variant of NCCL and scale, and beside it the measurements of nccl-tests or of our probe."""
    for logs in sorted((folder / "raw").glob("variant_*")):
        match = _VARIANT.fullmatch(logs.name)
        if match is None or match["variant"] not in VARIANTS or not logs.is_dir():
            continue
        variant, scale, where = match["variant"], scale_of_file(match["scale"]), f"raw/{logs.name}"
        ranks = scale_ranks(scale, run.ranks_per_node)
        parsed.add(nccl_variant.parse(_logs(parsed, logs), where, scale, variant, ranks))
        json, table, jsonl = (logs.with_name(f"{logs.name}{suffix}") for suffix in (".json", ".txt", ".jsonl"))
        measured = Parsed()
        reader: Reader = partial(facts.parse, speakers=_speakers(parsed, jsonl, run))
        if not jsonl.exists():
            reader = partial(nccl_tests.parse, binary=f"{COLLECTIVE}_perf", subject=scale)
        for path in [jsonl] if jsonl.exists() else [json] if json.exists() else [table] if table.exists() else []:
            _read(measured, path, f"raw/{path.name}", reader)
        parsed.add(nccl_variant.numbers(measured, variant, ranks))


def _reader_of_samples(run: Run, records: TrainingRecords, duration_s: float | None) -> Reader:
    """Of a training: what GPUs do under load counts in the measured steps of their node."""
    if not PHASES[run.phase].is_training:
        return partial(monitor.parse, duration_s=duration_s)
    windows = records.metrics.window_unix_s if records.are_whole else None
    steps = {node: (begin, end) for node, (begin, end) in (windows or {}).items()}
    return partial(monitor.parse, duration_s=duration_s, room="train", steps=steps)


def _step_seconds(parsed: Parsed, folder: Path) -> float | None:
    """Duration of the watched step in s, written by the phase script."""
    for path in sorted((folder / "raw").glob("*.seconds")):
        text = (_text(parsed, path, f"raw/{path.name}") or "").strip()
        if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
            return float(text)
    return None


def _attempts(parsed: Parsed, folder: Path, run: Run) -> None:
    """Note the previous and the next attempt of a job that Slurm requeued."""
    if run.continues is not None:
        parsed.problems.append(f"{RUN}:continues: Slurm requeued the job; its previous attempt is {run.continues}")
    if (folder / CONTINUED).is_file():
        later = _record(parsed, folder, CONTINUED, Continued)
        if later is not None:
            parsed.problems.append(f"{CONTINUED}: Slurm requeued the job; it went on in {later.run}")


def _training_records(parsed: Parsed, folder: Path, run: Run, records: TrainingRecords) -> None:
    parsed.problems += [str(error).replace(f"{folder}/", "") for error in records.errors]
    if records.are_whole:
        reference = None if PHASES[run.phase].strategy == "single" else _reference(parsed, folder, records)
        parsed.add(measured.of_records(run, records.args, records.metrics, reference))


def _reference(parsed: Parsed, folder: Path, records: TrainingRecords) -> measured.Reference | str:
    """The one-GPU run's records, copied when this run was opened; or the reason why there are none."""
    metrics = records.reference_metrics
    if metrics is None:
        return (
            "no finished one-GPU run was there to compare with; sbatch training/slurm/run_1gpu.sbatch, then this again"
        )
    args = _record(parsed, folder, REFERENCE_ARGS, RunArgs)
    if isinstance(metrics, RecordError):
        parsed.problems.append(str(metrics).replace(f"{folder}/", ""))
    if args is None or isinstance(metrics, RecordError):
        return "the records of the one-GPU run cannot be read"
    return measured.Reference(args, metrics)


def _record(parsed: Parsed, folder: Path, name: str, kind: type[R]) -> R | None:
    """The record. If it cannot be read: None, and a problem."""
    try:
        return read_record(folder / name, kind)
    except RecordError as error:
        parsed.problems.append(str(error).replace(f"{folder}/", ""))
        return None


def _closed(parsed: Parsed, folder: Path, run: Run) -> None:
    if not os.path.lexists(folder / CLOSED):
        _ended_by_slurm(parsed, folder / JOB_AFTER)
        return
    try:
        closed = read_record(folder / CLOSED, Closed)
    except RecordError as error:
        why = str(error).replace(f"{folder}/", "")
        parsed.problems.append(why)
        parsed.saw("run.closed", "job", None, "flag", CLOSED, why)
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
    text = _text(parsed, path, f"raw/{path.name}") if files.is_file(path) else None
    match = _JOB_STATE.search(text or "")
    if match is not None:
        parsed.saw("run.job_state", "job", match["state"], "text", f"raw/{path.name}")
        parsed.saw(
            "run.closed",
            "job",
            None,
            "flag",
            f"raw/{path.name}",
            f"Slurm says that the job ended {match['state']}, reason {match['reason']}",
        )


def _note_what_could_not_start(parsed: Parsed) -> None:
    """Add a problem with node, program and reason: other gates of this node lack evidence and cannot tell why."""
    for observation in parsed.observations:
        if observation.quantity == "slurm.launch.error" and slurm.NOT_STARTED in str(observation.value):
            parsed.problems.append(
                f"{observation.evidence}: {observation.subject}, {observation.why}: {observation.value}"
            )
