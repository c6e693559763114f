"""Verbs about several runs: side by side, over time, the profile that they make; and what a plan will take."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from bringup.compare import history, learn, newest, regression, sweep
from bringup.kernel import judge, results
from bringup.kernel.errors import BringupError, RunError, UsageError
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.phases import NODES, PHASES
from bringup.kernel.records import Outcome, as_json
from bringup.report import advice as advice_text
from bringup.report import known_runs, outputs, run_folders, terminal, text
from bringup.run import auto_profile
from bringup.run import site as at_site
from bringup.training import fields as sweeps
from bringup.training.advise import answer as advising
from bringup.training.advise import interval
from bringup.training.comparison import entries, recommend, sidebyside
from bringup.training.formulae import models, published
from bringup.verb import CANNOT_TELL, complain, named_profile, phase_called


def do_compare(arguments: argparse.Namespace) -> int:
    if arguments.baseline is not None:
        return _against_baseline(arguments)
    profile = named_profile(arguments.profile)
    folders = arguments.runs or newest.trainings()
    if not arguments.runs:
        complain(f"no RUN was named: the newest trainings are {', '.join(folder.name for folder in folders)}")
    runs, varied = _training_runs(folders, profile)
    if len(runs) < 2:
        alone = "of scripts run one by one: bringup compare training/results/run_*"
        raise UsageError(f"compare needs at least two training runs, or a playbook that has them; {alone}")
    compared = sidebyside.compare(runs, [*varied, *arguments.vary])
    if arguments.json:
        rows = [dict(zip(compared.header, row, strict=True)) for row in compared.cells]
        advice = recommend.recommend(compared)
        print(json.dumps({"runs": rows, "note": compared.note, "recommended": asdict(advice)}, indent=1))
    else:
        _show_table(compared)
        print(f"{text.wrapped(compared.note)}\n\n{text.wrapped(recommend.recommend(compared).paragraph)}")
        sentences = dict.fromkeys(filter(None, (published.beside(row.entry.metrics) for row in compared.rows)))
        print("".join(f"MFU, published: {sentence}\n" for sentence in sentences), end="")
    stream = sys.stderr if arguments.json else sys.stdout
    for line in compared.not_judged:
        print(text.wrapped(line), file=stream)
    return _exit_code(compared)


def _show_table(compared: sidebyside.SideBySide) -> None:
    """Print a column for each run, as many as fit; then the folders, and the arguments that differ."""
    head, lines = compared.columns
    width = text.terminal_width()
    widest = max(len(cell) for line in [head, *lines] for cell in line[1:]) + 2
    fit = len(head) if width is None else max(1, (width - max(len(line[0]) for line in lines)) // widest)
    for first in range(1, len(head), fit):
        part = slice(first, first + fit)
        print(text.columns([head[0], *head[part]], [[line[0], *line[part]] for line in lines]), end="\n\n")
    for column, row in zip(head[1:], compared.rows, strict=True):
        print(text.plain(f"{column:<12}  {row.entry.folder.name}"))
    print("".join(f"\n{text.wrapped(line)}" for line in [*compared.unlike, *compared.reasons]))


def _exit_code(compared: sidebyside.SideBySide) -> int:
    """Return 1: a run failed, or losses disagree, which is said; 2: a run was not judged, or is incomplete."""
    if compared.disagreeing:
        wrong = ", ".join(row.name for row in compared.disagreeing)
        complain(f"the losses of {wrong} do not agree with the base run's: their speed means nothing yet")
        return Outcome.FAIL.exit_code
    outcomes = {row.entry.outcome for row in compared.rows}
    if Outcome.FAIL in outcomes:
        unsound = next(row for row in compared.rows if row.entry.outcome is Outcome.FAIL)
        complain(f"{unsound.name} failed: bringup explain {text.quoted_path(unsound.entry.folder)}")
        return Outcome.FAIL.exit_code
    return CANNOT_TELL if compared.not_judged or Outcome.INCOMPLETE in outcomes else 0


def _training_runs(folders: list[Path], profile: profiles.Profile | None) -> tuple[list[entries.Entry], list[str]]:
    """Return the runs to compare: of a playbook those that trained, of a sweep those that finished; those that are
    missing are printed. And the fields that sweeps vary."""
    runs = run_folders.find(folders)
    for absent in runs.absent:
        if absent.phase in PHASES and PHASES[absent.phase].is_training:
            complain(f"left out: {absent.phase}: {absent.why}")
    chosen = [path for path in runs.folders if path not in runs.steps or PHASES[runs.steps[path].phase].is_training]
    sweeps = [folder for folder in folders if run_folders.is_of(folder, results.SWEEP)]
    swept = set(run_folders.find(sweeps).folders)
    unfinished = [folder for folder in chosen if folder in swept and not (folder / results.METRICS).is_file()]
    for folder in unfinished:
        complain(f"left out: {folder.name}: it did not finish; bringup explain says why")
    return entries.load_all([folder for folder in chosen if folder not in unfinished], profile), runs.varied


def _against_baseline(arguments: argparse.Namespace) -> int:
    if arguments.vary:
        raise UsageError("--vary and --baseline exclude each other: a regression is judged at the same arguments")
    profile = named_profile(arguments.profile)
    named = arguments.runs or [known_runs.called(known_runs.LAST)]
    (later, _), (earlier, _) = _training_runs(named, profile), _training_runs(arguments.baseline, profile)
    for entry in [*earlier, *later]:
        if entry.not_judged is not None:
            why = f"{entry.folder} is {entry.not_judged}, so it is not judged, and --baseline cannot say that it became"
            raise UsageError(f"{why} slower; without --baseline the runs are put side by side")
    compared = regression.check(later, earlier)
    outcome = regression.overall(compared)
    if arguments.json:
        changes = [
            {"runs": comparison.title, "compared": comparison.design} | dict(zip(header, row, strict=True))
            for comparison in compared
            for header, rows in [regression.table(comparison)]
            for row in rows
        ]
        print(json.dumps(changes, indent=1))
        return outcome.exit_code
    for entry in [*earlier, *later]:
        if entry.outcome not in (None, Outcome.PASS):
            print(f"{text.MARK[entry.outcome]}: {text.shown_path(entry.folder)} did not pass; bringup explain says why")
    for comparison in compared:
        print(comparison.title)
        print(comparison.design)
        for change in comparison.environment:
            print(f"differs: {text.plain(change)}")
        print(text.columns(*regression.table(comparison)), end="\n\n")
    print(f"{text.MARK[outcome]}: {regression.in_words(compared)}")
    return outcome.exit_code


def do_history(arguments: argparse.Namespace) -> int:
    """Exit code: 1 something became slower; 0 nothing; 2 low once, or too few days."""
    judged = []
    for folder in run_folders.find(arguments.runs).once if arguments.runs else run_folders.every_run():
        try:
            judged.append(judge.judge_folder(folder))
        except (BringupError, OSError) as error:
            complain(str(error))
    entries.refuse_copies((run.folder, run.run) for run in judged)
    findings = history.judge(history.series(judged))
    if arguments.json:
        print(history.as_json(findings))
    else:
        terminal.show("\n".join(filter(None, [history.screen(findings, len(judged)), history.compared(judged)])))
    return history.exit_code(findings)


def do_profile(arguments: argparse.Namespace) -> int:
    output = outputs.Output("-o", arguments.output or Path("-"), arguments.force)
    outputs.check([output])
    runs = run_folders.find(arguments.runs)
    if runs.absent:
        why = f"{runs.playbooks[0]}: {runs.absent[0].phase}: {runs.absent[0].why}"
        raise RunError(f"{why}; a profile is made of runs that passed: name those")
    profile = learn.measured([judge.judge_folder(folder) for folder in runs.folders], arguments.name)
    profiles.check(profile)
    outputs.write(output, profiles.dump(profile))
    if not output.is_standard_output:
        print(f"{arguments.output}: {len(profile.expect)} expectations; use it with --profile or BRINGUP_PROFILE")
    return 0


def do_advise(arguments: argparse.Namespace) -> int:
    if arguments.float32 and arguments.reduce_dtype == "bfloat16":
        raise UsageError("--reduce-dtype bfloat16 means something with bfloat16 compute only; leave out --float32")
    layout = models.Job(
        "fsdp",
        arguments.nodes,
        arguments.gpus_per_node,
        arguments.sequence_length,
        arguments.rows,
        compute_bytes=4 if arguments.float32 else 2,
        reduce_bytes=2 if arguments.reduce_dtype == "bfloat16" else 4,
        activation_checkpointing=arguments.activation_checkpointing,
        shard_size=arguments.shard_size,
        sync_each_batch=arguments.sync_each_batch,
        chunked_loss=arguments.fast,
    )
    batch = arguments.global_batch or layout.global_batch
    model = str(Path(arguments.model).resolve()) if Path(arguments.model).exists() else None
    question = advising.Question(models.load(arguments.model), layout, batch, model)
    runs = [judge.judge_folder(folder) for folder in arguments.runs]
    known = advising.known(auto_profile.profile(profiles.load(arguments.profile), []), runs, arguments.mfu)
    every = interval.best(arguments.failures_per_node_day, arguments.save_s, arguments.restart_s, arguments.nodes, runs)
    advice = advising.advise(question, known).model_copy(update={"checkpoints": every})
    if arguments.json:
        print(json.dumps(as_json(advice), indent=1))
        return 0
    for line in advice_text.screen(advice).split("\n"):  # a table and a command stay as they are
        print(line if "  " in line else text.wrapped(line))
    return 0


def do_sweep(arguments: argparse.Namespace) -> int:
    if arguments.resume is not None:
        if arguments.phase or arguments.vary or arguments.nodes or arguments.nodelist:
            raise UsageError("sweep --resume goes on with what it was: leave out the phase, --vary and the nodes")
        return sweep.run(arguments.resume, at_site.entered())
    if arguments.phase is None or not arguments.vary:
        raise UsageError("sweep needs a training and what to vary: bringup sweep run_fsdp_1node --vary compile=yes,no")
    phase = phase_called(arguments.phase)
    if not phase.is_training:
        trainings = ", ".join(stem for stem, known in PHASES.items() if known.is_training)
        raise UsageError(f"sweep {phase.stem}: not a training; there are {trainings}")
    vary = sweeps.read(arguments.vary, phase)
    if arguments.weak and NODES not in vary:
        raise UsageError("--weak is for --vary nodes=1,2,4")
    site = at_site.entered()
    options = {name: getattr(arguments, name) for name in ("nodes", "nodelist", "grid", "weak", "repeat")}
    return sweep.run(sweep.begin(phase, vary, arguments.profile, site, **options), site)
