"""Samples of output in docs, made from the recorded run of docs/results/local (docs/results/keep-records makes those).

<!-- recorded: passes smoke node_sweep -->       the lines of phases that passed
<!-- recorded: compare -->                       the trainings side by side
<!-- recorded: trained run_1gpu -->              the last line that a training prints
<!-- recorded: fields run_hsdp_2node mesh -->    fields of metrics.json
<!-- recorded: collectives 16MiB all_reduce -->  rows of the table of the collectives
<!-- end recorded -->
"""

from __future__ import annotations

import json
import re
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from bringup.accept.contract import parse
from bringup.accept.lines import of_contract
from bringup.accept.records import State
from bringup.kernel.judge import Judged
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Run, Verdicts, grouped, read_record
from bringup.kernel.results import REPOSITORY
from bringup.kernel.run_folder import RunFolder
from bringup.report import collection, document, figures, text, view
from bringup.report.campaigns import Playbook
from bringup.training.comparison import sidebyside
from bringup.training.comparison.entries import Entry
from bringup.training.records import RunArgs, TrainMetrics

RECORDED = REPOSITORY / "docs/results/local"
LIST = REPOSITORY / "validation/contracts/slurm-expectations.yaml"
_MARKED = re.compile(r"<!-- recorded: (?P<what>[^\n]+?) -->\n.*?<!-- end recorded -->", re.DOTALL)


def with_samples(page: str, recorded: Path = RECORDED) -> str:
    """The page with all its samples as the records are now. KeyError for a kind that is none of the above."""

    def block(match: re.Match[str]) -> str:
        kind, *words = match["what"].split()
        lines = "\n".join(_KINDS[kind](recorded, words))
        return f"<!-- recorded: {match['what']} -->\n\n```\n{lines}\n```\n\n<!-- end recorded -->"

    return _MARKED.sub(block, page)


@cache
def of_the_whole_run(recorded: Path = RECORDED) -> dict[Path, str]:
    """Return place -> text: its document, its figure, and the page that compares it with a public list."""
    curves = recorded / "curves.svg"
    with judged(recorded) as gathered:
        [scaling] = [run.folder for run in gathered.judged if run.run.phase == "nccl_scaling"]
        text = document.playbook(
            gathered, lambda path: curves.name if path == scaling / figures.NAMES["Bus bandwidth over size"] else None
        )
        drawn = (scaling / curves.name).read_text(encoding="utf-8")
        return {
            recorded / "report.md": text,
            curves: drawn,
            recorded.parent / "expectations.md": _expectations(gathered),
        }


@contextmanager
def judged(recorded: Path) -> Iterator[collection.Collection]:
    """The recorded run, judged again from its evidence, with its figures drawn."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(recorded / "evidence.tar.xz") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 has none
            archive.extractall(folder)  # noqa: S202  # our own record, whose sums are checked
        gathered = collection.gather(sorted(Path(folder).glob("validation/results/playbook/*")))
        for run in gathered.judged:
            figures.draw(run)
        yield gathered


def _expectations(gathered: collection.Collection) -> str:
    words = LIST.read_text(encoding="utf-8")
    [source] = re.findall(r"^# After (.+)$", words, re.MULTILINE)
    results = of_contract(parse(words, LIST.name), gathered)
    states = [result.state for result in results]
    counted = ", ".join(f"{states.count(state)} {state}" for state in State)
    whys = [(each.why or each.seen * (each.state is State.NOT_ASKED)).partition("; not asked")[0] for each in results]
    reasons = grouped(((state, why), each.line) for state, why, each in zip(states, whys, results, strict=True))
    rows = [(state, ", ".join(lines), why) for state in State for (at, why), lines in reasons.items() if at is state]
    of_run = f"Of {len(results)} lines the [recorded run](local/report.md), of placeholder GPUs, shows: {counted}."
    head = [
        "# A public list of expectations",
        "",
        f"[The list](../../{LIST.relative_to(REPOSITORY)}), after {source}",
        of_run,
        "",
    ]
    return "\n".join([*head, *text.table(("state", "lines", "the first reason"), rows), ""])


def _collectives(recorded: Path, words: list[str]) -> list[str]:
    size, *names = words
    text = of_the_whole_run(recorded)[recorded / "report.md"]
    head, line, *rows = text[text.index("| collective ") :].partition("\n\n")[0].splitlines()
    return [head, line, *(row for row in rows if f"| {size} " in row and row.split()[1] in names)]


def _passes(recorded: Path, phases: list[str]) -> list[str]:
    seconds = {step.phase: step.seconds for step in read_record(recorded / "playbook.json", Playbook).steps}
    lines = []
    for phase in phases:
        files = RunFolder(recorded / phase)
        verdicts, profile = files.record("verdicts.json", Verdicts), profiles.load(files.run.profile)
        first = view.screen(Judged(files, files.run, profile, [], [], verdicts)).split("\n")[0]
        lines.append(f"{first}  ({seconds[phase]:.0f} s)")
    return lines


def _compared(recorded: Path, words: list[str]) -> list[str]:
    entries = []
    for phase in (phase.stem for phase in PHASES.values() if phase.is_training):
        folder = recorded / phase
        run = read_record(folder / "run.json", Run)
        args, metrics = read_record(folder / "run_args.json", RunArgs), _metrics(folder)
        outcome = read_record(folder / "verdicts.json", Verdicts).outcome
        entries.append(Entry(Path(run.name), run, outcome, args, metrics))
    compared = sidebyside.compare(entries)
    head, lines = compared.columns
    return [*text.columns(head, lines).splitlines(), "", *compared.unlike, *compared.reasons, compared.note]


def _trained(recorded: Path, phases: list[str]) -> list[str]:
    lines = []
    for phase in phases:
        made = _metrics(recorded / phase)
        lines.append(
            f"[{made.observed.hosts[0]} rank0] {made.tokens_per_s:.0f} tokens/s over all ranks, step p50 "
            f"{1e3 * made.step_time_s.p50:.1f} ms, loss {made.loss[0]:.4f} -> {made.loss[-1]:.4f} in "
            f"{len(made.loss)} steps"
        )
    return lines


def _fields(recorded: Path, words: list[str]) -> list[str]:
    phase, *names = words
    whole = json.loads((recorded / phase / "metrics.json").read_text())
    known = {**whole["observed"], **whole}
    return [f'"{name}": {json.dumps(known[name])},' for name in names]


def _metrics(folder: Path) -> TrainMetrics:
    return read_record(folder / "metrics.json", TrainMetrics)


_KINDS = {"passes": _passes, "compare": _compared, "trained": _trained, "fields": _fields, "collectives": _collectives}
