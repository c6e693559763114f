"""The chapters of the report: known/training_report.yaml says which line is read from where, conclusions.py what
follows from verdicts. Every line is read from records and evidence; what they do not hold has no line."""

from collections.abc import Sequence

from bringup.kernel.judge import Judged
from bringup.kernel.plan.phases import PHASES
from bringup.report.training import conclusions, lines
from bringup.report.training.conclusions import Compared
from bringup.report.training.training_run import Trained, trained, words
from bringup.report.trainings import Chapter, Report, layout
from bringup.training.comparison import sidebyside

NOT_RECORDED = "not recorded"
METRICS = "Metrics"


def _read(trained: Trained, source: str) -> str | None:
    """Read a source of a line, as known/training_report.yaml writes it. None: it was not recorded."""
    match source.split(" ", 1):
        case ["say", name]:
            line: str | None = getattr(lines, name)(trained)
            return line
        case ["fact", name]:
            return trained.facts.get(name)
        case ["nodes" | "gpus" as subjects, column]:
            return trained.sampled[subjects].get(column)
        case ["worst", quantity]:
            return trained.worst(quantity)
    path, _, unit = source.partition(", ")
    value: object = trained
    for name in path.split("."):
        value = getattr(value, name, None)
    return None if value is None or value == [] else f"{words(value)} {unit}".rstrip()


def _line(trained: Trained, name: str, sources: str | list[str]) -> str | None:
    """Return the first source that was recorded. None: none was, or the line is about GPUs and this ran on a CPU."""
    if trained.args.device == "cpu" and name in layout().not_on_a_cpu:
        return None
    every = [sources] if isinstance(sources, str) else sources
    return next((value for source in every if (value := _read(trained, source)) is not None), None)


def chapters(runs: Sequence[Trained], compared: Compared, with_others: Compared) -> list[Chapter]:
    """Return the chapters of a report. What no run recorded has no line. with_others: these runs beside others, too."""
    written = []
    for title, of_chapter in layout().chapters.items():
        read = [(name, [_line(run, name, sources) for run in runs]) for name, sources in of_chapter.items()]
        known = [(name, [value or NOT_RECORDED for value in values]) for name, values in read if any(values)]
        written.append(Chapter(title, known))
        if title == METRICS:
            written.append(Chapter("Interpretation", sentences=conclusions.interpretation(runs, compared)))
    when = [(situation, [strategy] * len(runs)) for situation, strategy in layout().when.items()]
    every = [
        Chapter("Overview", sentences=conclusions.overview(runs)),
        *written,
        Chapter("Takeaways", sentences=conclusions.takeaways(runs)),
        Chapter("DDP, FSDP and HSDP beside each other", sentences=conclusions.strategies(runs, with_others)),
        Chapter("When to use which", when, header=("situation", "strategy")),
        Chapter("Assessment", sentences=conclusions.assessment(runs)),
    ]
    return [chapter for chapter in every if chapter.lines or chapter.sentences]


def report(judged: Sequence[Judged], beside: Sequence[Judged] = (), varied: Sequence[str] = ()) -> Report:
    """Report on the trainings among `judged`. beside: other runs of the same playbook; the facts of the cluster are
    those of the discovery among all of them. varied: arguments in which runs may differ."""
    every = trained([*judged, *beside])
    runs = [run for run in every if run.judged in judged]
    names = sidebyside.short_names([run.judged.folder.name for run in runs])
    compared = conclusions.compared(judged, varied)
    left_out = [r.run.name for r in judged if PHASES[r.run.phase].is_training and conclusions.entry_of(r) is None]
    notes = [
        compared if isinstance(compared, str) else compared.note,
        f"not here, because it did not end or its evidence does not hold: {', '.join(left_out)}" if left_out else "",
    ]
    with_others = compared if len(runs) == len(every) else conclusions.compared([run.judged for run in every], varied)
    written = chapters(runs, compared, with_others) if runs else []
    return Report(names, written, None if isinstance(compared, str) else compared, "; ".join(filter(None, notes)))
