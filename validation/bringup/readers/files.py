"""Which file of raw/ is read by what: one table, and the logs of NCCL, whose files are read together."""

import re
from collections.abc import Mapping
from typing import cast

from bringup import registry
from bringup.kernel.facts import facts, speakers
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.facts.reading import File, Reader, read_text
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.subjects import ONE_GPU, rank_subjects, scale_of_file, scale_ranks
from bringup.kernel.plan.variants import COLLECTIVE, VARIANTS
from bringup.kernel.records import Run
from bringup.kernel.results import RAW
from bringup.kernel.run_folder import RunFolder

_SCALE = r"(?P<scale>1gpu|[1-9]\d{0,5})"  # as the phase scripts name it; see scale_of_file
_RANK = r"rank(?P<rank>\d{1,9})"
_VARIANT = rf"variant_(?P<variant>{'|'.join(variant.name for variant in VARIANTS)})-{_SCALE}"


def _read(reader: str, *given: object, **named: object) -> Parsed:
    """Call a function of a reader, `slurm:config`. A run loads the readers of its own files."""
    return cast(Parsed, registry.called(f"bringup.readers.{reader}")(*given, **named))


def _alone(reader: str) -> Reader:
    """For a file whose name says nothing that its reader has to know."""
    return lambda file: _read(reader, file.text, file.where)


def _reserved(run: Run) -> list[str]:
    """Return the nodes that the run has through a reservation: its site file names one, or its own job runs there."""
    named = run.site is not None and {"reservation"} & {*run.site.says, *run.site.otherwise}
    return run.nodes if named else run.ran_on if run.slurm_job_id else []


def _of_node(reader: str) -> Reader:
    return lambda file: _read(reader, file.text, file.where, file.name["node"])


def _of_rank(reader: str) -> Reader:
    """Nothing of a rank that the run does not have."""

    def read(file: File) -> Parsed:
        places, rank = rank_subjects(file.run.nodes, file.run.ranks_per_node), int(file.name["rank"])
        return _read(reader, file.text, file.where, places[rank]) if rank < len(places) else Parsed()

    return read


def _facts(file: File) -> Parsed:
    return facts.parse(file.text, file.where, file.speakers)


def _collectives(file: File) -> Parsed:
    """Read the facts of the collectives; of a single rank without those that compare it with peers: it has none."""
    parsed = _facts(file)
    if file.scale != ONE_GPU:
        return parsed
    own = [seen for seen in parsed.observations if not seen.quantity.startswith("nccl.rank.")]
    return Parsed(own, parsed.problems)


def _launch_errors(file: File) -> Parsed:
    return _read("srun:launch_errors", file.text, file.where, file.speakers.nodes)


def _launch_log(file: File) -> Parsed:
    return _read("launcher:log", file.text, file.where, file.run, file.speakers).add(_launch_errors(file))


def _believed(file: File, reader: str) -> tuple[str, Parsed]:
    """Return the lines that a node wrote of itself, as the reader tells, and the others as problems."""
    node_of = registry.called(f"bringup.readers.{reader}:node_of")
    return speakers.believed(file.text, file.where, file.speakers, node_of)


def _bad_exit(file: File) -> Parsed:
    text, refused = _believed(file, "smoke_jobs")
    return _read("smoke_jobs:bad_exit", text, file.where).add(refused)


def _samples(file: File) -> Parsed:
    """Read the samples of the monitor. In a training, GPUs under load count in the measured steps of their node."""
    text, refused = _believed(file, "monitor")
    is_training, seconds = PHASES[file.run.phase].is_training, _step_seconds(file.folder)
    steps = (file.steps or {}) if is_training else None
    return _read("monitor:parse", text, file.where, seconds, "train" if is_training else "nccl", steps).add(refused)


def _step_seconds(folder: RunFolder) -> float | None:
    """Duration of the watched step in s, written by the phase script."""
    for name in folder.raw.files:
        is_it = re.fullmatch(rf"{RAW}/[^/]+\.seconds", name) is not None
        text = ((read_text(Parsed(), folder, name) if is_it else None) or "").strip()
        if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
            return float(text)
    return None


def _nccl_tests(file: File) -> Parsed:
    binary = file.name["binary"] if "binary" in file.name.re.groupindex else f"{COLLECTIVE}_perf"
    return _read("nccl_tests:parse", file.text, file.where, binary, file.scale)


def _of_variant(reader: Reader) -> Reader:
    """Read what nccl-tests or our probe measured with a variant of NCCL."""

    def read(file: File) -> Parsed:
        ranks = scale_ranks(file.scale, file.run.ranks_per_node)
        return _read("nccl_variant:numbers", reader(file), file.name["variant"], ranks)

    return read


def _exit_code(file: File) -> Parsed:
    if re.fullmatch(r"[0-9]{1,9}\s*", file.text):
        return Parsed().saw("nccl.step.exit_code", file.scale, int(file.text), "count", file.where)
    return Parsed().note(f"{file.where}: not an exit code: {file.text[:40]!r}")


def _step(file: File) -> Parsed:
    """Report a damaged list of the tasks of a step. Good ones are read with the files of their step."""
    if speakers.step(file.text, file.run.ran_on) is not None:
        return Parsed()
    return Parsed().note(f"{file.where}: not TASKS NODE,NODE… of this run: nothing of {file.name['step']} counts")


FILES: Mapping[str, Reader] = {  # the name of a file below raw/ -> its reader. No two patterns match the same name
    r"scontrol-node(-after)?\.txt": lambda file: _read("slurm:nodes", file.text, file.where, _reserved(file.run)),
    r"scontrol-config\.txt": _alone("slurm:config"),
    r"scontrol-partition\.txt": _alone("slurm:partitions"),
    r"scontrol-topology\.txt": lambda file: _read("slurm:topology", file.text, file.where, file.run.nodes),
    r"cgroup\.conf": _alone("slurm:cgroup_conf"),
    r"mpi-list\.txt": _alone("slurm:mpi_list"),
    r"ping\.txt": _alone("smoke_jobs:ping"),
    r"not-opened\.txt": _alone("scripts:not_opened"),
    r"parts-left-out\.txt": _alone("scripts:parts_left_out"),
    r"job-(?P<job>exit-code|memory|before|after|never|requeue|warning)\.txt": lambda file: _read(
        "smoke_jobs:ended_job", file.text, file.where, name=file.name["job"].replace("-", "_")
    ),
    r"requeue\.txt": _alone("smoke_jobs:requeue"),
    r"segment\.txt": lambda file: _read("smoke_jobs:segment", file.text, file.where, file.run.nodes),
    r"bad-exit\.txt": _bad_exit,
    r"(?P<step>[^/]+)\.step": _step,
    r"(?P<step>[^/]+)\.err": _launch_errors,
    r"(?!(collectives|pairs|variant_\w+)-|progress\.)[^/]+\.jsonl": _facts,
    rf"(?P<step>collectives-{_SCALE})\.jsonl": _collectives,
    r"(?P<step>pairs-(\d{1,9}-(?P<round>\d{1,9})|[a-z]+-\d{1,9})(-[^/]+)?)\.jsonl": _facts,
    rf"(?P<step>(?P<binary>[a-z_]+_perf)-{_SCALE})\.txt": _nccl_tests,
    rf"(?P<step>[a-z_]+-{_SCALE})\.rc": _exit_code,
    rf"{_VARIANT}\.jsonl": _of_variant(_facts),
    rf"{_VARIANT}\.txt": _of_variant(_nccl_tests),
    r"rounds\.txt": _alone("scripts:rounds_of_pairs"),
    r"starts\.txt": _alone("scripts:starts"),
    r"launches\.txt": _alone("scripts:launches"),
    r"monitor\.csv": _samples,
    r"dcgm-(?P<node>.+)\.json": _of_node("dcgm:parse"),
    r"nvidia-smi-topo-(?P<node>.+)\.txt": _of_node("topology:parse"),
    rf"nccl-{_SCALE}/ras\.{_RANK}\.txt": _alone("ras:parse"),
    r"(?P<step>launch)\.log": _launch_log,
    r"sigterm\.txt": _alone("launcher:sigterm"),
    rf"stacks/{_RANK}\.txt": _of_rank("launcher:stack"),
    rf"stacks/{_RANK}\.json": _of_rank("launcher:progress"),
    r"torchrun/.+/error\.json": _alone("launcher:error_file"),
}


# --- files that are read together


def _nccl_logs(parsed: Parsed, folder: RunFolder) -> None:
    """NCCL's own log files, a folder per scale; gloo writes none."""
    folders = _folders(folder, rf"nccl-{_SCALE}")
    observed = Seen(parsed.observations if folders else ())
    for where, match in folders.items():
        scale = scale_of_file(match["scale"])
        reported = {  # nccl-tests count their ranks as well, and write no log here
            quantity: seen.value
            for quantity in ("nccl.backend", "nccl.debug", "nccl.ranks")
            for seen in observed.of(quantity)
            if seen.subject == scale and seen.step in ("", f"collectives-{match['scale']}")
        }
        if reported.get("nccl.backend") == "nccl":
            texts = _logs(parsed, folder, where)
            # nccl.HOST.PID.log: two processes of one node are one node
            hosts = {name.rsplit("/", 1)[-1].rsplit(".", 2)[0] for name, text in texts.items() if "NCCL INFO" in text}
            parsed.saw("nccl.log.hosts", scale, len(hosts), "count", where)
            debug, ranks = reported.get("nccl.debug"), reported.get("nccl.ranks")
            ranks = ranks if isinstance(ranks, int) else None
            parsed.add(_read("nccl_log:parse", texts, where, scale, None if debug is None else str(debug), ranks))


def _variants(parsed: Parsed, folder: RunFolder) -> None:
    """Read a folder of logs per variant of NCCL and scale."""
    for where, match in _folders(folder, _VARIANT).items():
        scale, texts = scale_of_file(match["scale"]), _logs(parsed, folder, where)
        ranks = scale_ranks(scale, folder.run.ranks_per_node)
        parsed.add(_read("nccl_variant:parse", texts, where, scale, match["variant"], ranks))


def _folders(folder: RunFolder, pattern: str) -> dict[str, re.Match[str]]:
    """Return the folders of raw/ with such a name."""
    known = {where: re.fullmatch(f"{RAW}/{pattern}", where) for where in sorted(folder.raw.folders)}
    return {where: match for where, match in known.items() if match is not None}


def _logs(parsed: Parsed, folder: RunFolder, where: str) -> dict[str, str]:
    """Read the logs of a folder, and of its folders of one node each: name below it -> text. A folder in the place of
    a log is a problem, and not nothing."""
    is_log = re.compile(rf"{re.escape(where)}/(([^/]+/)?[^/]*\.log)")
    names = {match[1]: name for name in (*folder.raw.files, *folder.raw.folders) if (match := is_log.fullmatch(name))}
    texts = {below: read_text(parsed, folder, name) for below, name in names.items()}
    return {below: text for below, text in texts.items() if text is not None}


def _inspector(parsed: Parsed, folder: RunFolder) -> None:
    if any(name.startswith(f"{RAW}/inspector/") for name in folder.raw.files):
        registry.called("bringup.readers.nccl_inspector:of_job")(parsed, folder)


TOGETHER = (_nccl_logs, _variants, _inspector)
