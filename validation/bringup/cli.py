"""The `bringup` command. Exit codes everywhere: 0 pass, 1 the cluster failed a gate, 2 we could not tell (bad input
included)."""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib.metadata
import io
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from bringup.errors import BringupError, NotHealthy, SlurmError, UsageError
from bringup.plan import profile as profiles
from bringup.plan.phases import PHASES
from bringup.records import Outcome, as_json, worst
from bringup.run import for_scripts
from bringup.run.command_line import complain, natural, phase_called, share

# Each verb imports what it needs when it is called: the phase scripts start `bringup` some 30 times in a run, and the
# libraries of the report and of the drills would double the time of each start.
if TYPE_CHECKING:
    from bringup import results
    from bringup.compare import entries
    from bringup.report import drain

    Verbs = argparse._SubParsersAction["_Parser"]

CANNOT_TELL = 2
CLOSED_PIPE = 128 + signal.SIGPIPE


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:  # argparse prints the usage first: two lines where one is enough
        self.exit(CANNOT_TELL, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(argv: list[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a locale without ≥ shows ?, and the verdict stands
            stream.reconfigure(errors="replace")
    try:
        try:
            return _verb(argv)
        finally:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:  # None: it was closed before we were started
                    stream.flush()
    except BrokenPipeError:
        return _nobody_reads()


def _verb(argv: list[str] | None) -> int:
    arguments = parser().parse_args(argv)
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores one on purpose
                signal.signal(number, _stop)
    try:
        verb: Callable[[argparse.Namespace], int] = arguments.verb
        return verb(arguments)
    except BrokenPipeError:
        raise
    except BringupError as error:
        complain(str(error))
    except OSError as error:
        said = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            said += "; free some space there, then start it again"
            said += " (--resume keeps what had passed)" if hasattr(arguments, "resume") else ""
        complain(said)
    except KeyboardInterrupt:
        complain("interrupted")
    except Exception as error:  # a fault of ours must not read as exit code 1, "the cluster failed a gate"
        if os.environ.get("BRINGUP_TRACEBACK"):
            raise
        said = f"{type(error).__name__}: {error}"[:200]
        complain(f"a fault of bringup itself: {said}; BRINGUP_TRACEBACK=1 shows where")
    return CANNOT_TELL


def _nobody_reads() -> int:
    """`bringup … | head -1`: quiet, and as a program that SIGPIPE ended. Never 1, which says that the cluster
    failed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # what Python flushes at its end goes nowhere
            os.dup2(nowhere, stream.fileno())
    return CLOSED_PIPE


def _stop(number: int, frame: object) -> NoReturn:
    """A closed terminal and a TERM end a run as Ctrl-C does: jobs are cancelled, nothing is left behind."""
    raise KeyboardInterrupt


# --- what every verb takes


def parser() -> argparse.ArgumentParser:
    whole = _Parser(prog="bringup", description=__doc__)
    whole.add_argument("--version", action="version", version=f"bringup {importlib.metadata.version('bringup')}")
    verbs = whole.add_subparsers(required=True, metavar="VERB", parser_class=_Parser)
    for add in (_add_run, _add_reading, _add_training, _add_drill, _add_lists, for_scripts.add_verbs):
        add(verbs)
    return whole


def _add_run(verbs: Verbs) -> None:
    verb = verbs.add_parser("run", help="all phases, one after the other, with progress; or some of them")
    verb.add_argument("phases", nargs="*", metavar="PHASE", help=f"default: all ({', '.join(PHASES)})")
    verb.add_argument("--nodes", type=int, help="how many nodes (default: all nodes of the default partition)")
    verb.add_argument("--nodelist", help="which nodes: n[0-3]")
    _profile_of_the_environment(verb, "name or .yaml path")
    verb.add_argument(
        "--resume", type=Path, metavar="FOLDER", help="continue an earlier playbook run: what passed is not repeated"
    )
    verb.add_argument("--strict", action="store_true", help="stop at any fault; default: ill nodes are left out")
    verb.set_defaults(verb=_run)

    verb = verbs.add_parser(
        "site", help="what the site file of $BRINGUP_SITE says; --export: as lines to source before sbatch"
    )
    verb.add_argument("phase", nargs="?", metavar="PHASE", help="with its own time limit (default: that of any phase)")
    verb.add_argument("--export", action="store_true", help="source <(bringup site --export)")
    verb.set_defaults(verb=_site)

    verb = verbs.add_parser("why", help="why a job waits, or how it ended, in plain words")
    verb.add_argument("job", metavar="JOBID")
    verb.set_defaults(verb=_why)


def _add_reading(verbs: Verbs) -> None:
    verb = verbs.add_parser("judge", help="judge results folders again, here or on a copy; needs no Slurm and no torch")
    verb.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    verb.add_argument("--profile", help="judge against this profile instead of the one the run was opened with")
    verb.set_defaults(verb=_judge)

    verb = verbs.add_parser(
        "explain", help="what went wrong in a run: first causes, signs in the logs, what to run next"
    )
    verb.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="results folders, of a phase or of a whole playbook"
    )
    verb.set_defaults(verb=_explain)

    verb = verbs.add_parser("report", help="one HTML page of a playbook or of runs; JUnit, Prometheus, drain commands")
    verb.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a playbook's folder, or folders of runs")
    verb.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help=f"the page (default: {PAGE} in the folder, when it is one; -: standard output)",
    )
    verb.add_argument("--junit", type=Path, metavar="FILE", help="also JUnit XML, a test case per verdict")
    verb.add_argument(
        "--prometheus", type=Path, metavar="FILE", help="also gauges for node_exporter's textfile collector (.prom)"
    )
    verb.add_argument("--profile", help="judge against this profile instead of the one that each run was opened with")
    verb.add_argument(
        "--apply", action="store_true", help="run the printed scontrol commands: drain the nodes that failed"
    )
    verb.set_defaults(verb=_report)

    verb = verbs.add_parser("profile", help="write a profile from runs that passed: numbers with spread and source")
    verb.add_argument("--from", dest="runs", nargs="+", type=Path, required=True, metavar="RUN", help="folders of runs")
    verb.add_argument("--name", default="measured", help="of the profile (default: %(default)s)")
    verb.add_argument("-o", "--output", type=Path, metavar="FILE", help="a new .yaml file (default: standard output)")
    verb.set_defaults(verb=_profile_from)


def _add_training(verbs: Verbs) -> None:
    verb = verbs.add_parser(
        "compare", help="training runs side by side; refuses unlike ones; --baseline: is it slower than it was?"
    )
    verb.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    verb.add_argument(
        "--baseline",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="earlier runs with the same arguments, best 5 of each: regression (exit 1), none (0), cannot tell (2)",
    )
    verb.add_argument(
        "--plot", type=Path, metavar="PATH", help="draw: a new folder of pictures, or one sheet (.png, .svg, .pdf)"
    )
    verb.add_argument("--markdown", action="store_true", help="a Markdown table")
    verb.set_defaults(verb=_compare)

    verb = verbs.add_parser(
        "advise", help="does it fit, what does it send, how long does a step take: per strategy, computed"
    )
    verb.add_argument("--model", required=True, help="a name in training/models, or the path of a config.json")
    verb.add_argument("--nodes", type=natural, required=True)
    verb.add_argument("--gpus-per-node", type=natural, required=True)
    _profile_of_the_environment(verb, "of the cluster")
    verb.add_argument(
        "--from",
        dest="runs",
        nargs="+",
        type=Path,
        default=[],
        metavar="RUN",
        help="measured here: a run of nccl_scaling for the bandwidth, a training run for the MFU",
    )
    verb.add_argument("--sequence-length", type=natural, default=4096, help="tokens per row (default: %(default)s)")
    verb.add_argument("--rows", type=natural, default=1, help="per GPU and micro-step (default: %(default)s)")
    verb.add_argument("--global-batch", type=natural, help="rows per step over all GPUs (default: GPUs x --rows)")
    verb.add_argument(
        "--mfu", type=share, help="of the compute alone (default: the profile's, or that of a training run)"
    )
    verb.add_argument(
        "--float32", action="store_true", help="compute in float32 (default: bfloat16 over float32 weights)"
    )
    verb.add_argument(
        "--reduce-dtype", choices=("float32", "bfloat16"), default="float32", help="gradients between sharded ranks"
    )
    verb.add_argument("--activation-checkpointing", action="store_true", help="recompute activations")
    verb.add_argument("--json", action="store_true", help="the record instead of the screen")
    verb.set_defaults(verb=_advise)


def _add_drill(verbs: Verbs) -> None:
    verb = verbs.add_parser(
        "drill",
        help="make the declared faults, and see whether the declared gates say so on the declared subjects",
        description="The whole catalogue, on a local cluster that is started and ended for it. "
        "Exit code: 0 all found, 1 a fault was missed or something else accused, 2 we could not tell.",
    )
    verb.add_argument("--list", action="store_true", help="print the catalogue and make nothing")
    verb.add_argument("--only", nargs="+", metavar="ID", default=[], help="these drills")
    verb.add_argument(
        "--anywhere",
        action="store_true",
        help="on the cluster you are on: those that stay inside your own jobs, and no other",
    )
    verb.add_argument(
        "--healthy",
        type=natural,
        default=0,
        metavar="N",
        help="no fault: N rounds on a healthy local cluster of 4 nodes, in which everything has to pass",
    )
    verb.add_argument(
        "--phases",
        nargs="+",
        metavar="PHASE",
        choices=list(PHASES),
        default=list(PHASES),
        help="with --healthy: of each round (default: all)",
    )
    verb.add_argument("--resume", type=Path, metavar="FOLDER", help="continue an earlier drill run")
    _profile_of_the_environment(verb, "with --anywhere: of this cluster")
    verb.set_defaults(verb=_drill)


def _add_lists(verbs: Verbs) -> None:
    verb = verbs.add_parser("gates", help="list the gates, with what a pass says")
    verb.set_defaults(verb=_gates)

    verb = verbs.add_parser("schema", help="write the JSON Schema of every record, for other readers of results")
    verb.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="FOLDER",
        help="default: validation/schemas",
    )
    verb.set_defaults(verb=_schema)


def _profile_of_the_environment(verb: argparse.ArgumentParser, what: str) -> None:
    default = profiles.from_environment()
    verb.add_argument("--profile", default=default, help=f"{what} (default: $BRINGUP_PROFILE, here %(default)s)")


# --- what every verb does

PAGE = "report.html"


def _run(arguments: argparse.Namespace) -> int:
    from bringup.checks import catalogue
    from bringup.run import playbook
    from bringup.run import site as at_site

    for phase in arguments.phases:  # before the first request to Slurm
        phase_called(phase)
    site = at_site.from_environment()
    at_site.enter(site)
    return playbook.run(
        playbook.Request(
            nodes=arguments.nodes,
            nodelist=arguments.nodelist,
            profile=catalogue.load_profile(arguments.profile),
            profile_name=profiles.portable(arguments.profile),
            phases=arguments.phases,
            resume=arguments.resume,
            strict=arguments.strict,
            site=site,
        )
    )


def _site(arguments: argparse.Namespace) -> int:
    from bringup.report import text
    from bringup.run import site as at_site

    if arguments.phase is not None:
        phase_called(arguments.phase)
    at = at_site.from_environment()
    if at is None:
        raise UsageError("no site file is used; name one: export BRINGUP_SITE=NAME, or the path of a .yaml file")
    if arguments.export:
        print("\n".join(at_site.for_a_person(at, arguments.phase)))
        return 0
    rows = text.site_rows(at_site.used(at.site, arguments.phase))
    print(f"{text.shown_path(at.file)}\n" + text.columns(("key", "value", "here instead"), rows))
    return 0


def _why(arguments: argparse.Namespace) -> int:
    from bringup.report import text
    from bringup.run import slurm

    if not re.fullmatch(r"\d+([_+]\d+)?(\.\w+)?", arguments.job):
        raise UsageError(f"{arguments.job!r} is not a job number; squeue --me lists yours")
    print(text.plain(slurm.why(arguments.job)))
    return 0


def _judge(arguments: argparse.Namespace) -> int:
    from bringup import results
    from bringup.checks import catalogue
    from bringup.report import text, write

    profile = None if arguments.profile is None else catalogue.load_profile(arguments.profile)
    found = results.find(arguments.runs)
    outcomes = [Outcome.INCOMPLETE for _ in _said_absent(found)]
    for folder in found.once:
        try:
            outcomes.append(write.judge_and_show(folder, profile))
        except BringupError as error:  # the other folders are judged all the same
            complain(str(error))
            outcomes.append(Outcome.INCOMPLETE)
    if len(outcomes) > 1:
        counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in Outcome if outcome in outcomes)
        print(f"{text.MARK[worst(outcomes)]}: {len(outcomes)} runs: {counts}")
    return worst(outcomes).exit_code


def _said_absent(found: results.Found) -> list[results.Absent]:
    """What a playbook had planned and is not there is said, and counts."""
    from bringup.report import text

    for absent in found.absent:
        title = PHASES[absent.phase].title if absent.phase in PHASES else absent.phase
        print(f"{'NOT RUN':<10} {title}: {text.plain(absent.why)}; not proven")
    return found.absent


def _explain(arguments: argparse.Namespace) -> int:
    """The worst runs first."""
    from bringup import judge, results
    from bringup.report import explain

    found = results.find(arguments.runs)
    judged, unread = [], 0
    for folder in found.once:
        try:
            judged.append(judge.judge_folder(folder))
        except BringupError as error:
            complain(str(error))
            unread += 1
    for run in sorted(judged, key=lambda run: -run.verdicts.outcome.rank):
        print(explain.screen(run), end="\n\n")
    outcomes = [run.verdicts.outcome for run in judged] + [Outcome.INCOMPLETE] * (unread + len(_said_absent(found)))
    return worst(outcomes).exit_code


def _report(arguments: argparse.Namespace) -> int:
    from bringup.checks import catalogue
    from bringup.report import collection, drain, exports, outputs, page, text

    if arguments.output is None and len(arguments.runs) > 1:
        raise UsageError("report of several folders: say where to write the page, -o FILE.html")
    profile = None if arguments.profile is None else catalogue.load_profile(arguments.profile)
    renderers: list[tuple[outputs.Output, Callable[[collection.Collection], str]]] = [
        (outputs.Output("-o", arguments.output or arguments.runs[0] / PAGE, outputs.PAGE), page.render)
    ]
    if arguments.junit is not None:
        renderers.append((outputs.Output("--junit", arguments.junit, outputs.JUNIT), exports.junit))
    if arguments.prometheus is not None:
        renderers.append((outputs.Output("--prometheus", arguments.prometheus, outputs.PROMETHEUS), exports.prometheus))
    outputs.check([output for output, _ in renderers])
    # what is said about the files must not stand between the lines of one of them
    stream = sys.stderr if any(output.is_standard_output for output, _ in renderers) else sys.stdout
    gathered = collection.gather(arguments.runs, profile)
    for output, render in renderers:
        outputs.write(output, render(gathered))
        if not output.is_standard_output:
            print(f"written: {text.shown_path(output.path)}", file=stream)
    proposed = drain.proposals(gathered.judged)
    for proposal in proposed:
        print(proposal.line, file=stream)
    not_run = f"; not run: {', '.join(gone.phase for gone in gathered.absent)}" if gathered.absent else ""
    print(f"{text.MARK[gathered.outcome]}: {text.counted(gathered.verdicts)}{not_run}", file=stream)
    if arguments.apply and not _applied(proposed, stream):
        return CANNOT_TELL
    return gathered.outcome.exit_code


def _applied(proposed: list[drain.Proposal], stream: TextIO) -> bool:
    """Drain them; a node that Slurm keeps out by now keeps its reason. True when all that was to be done is done."""
    from bringup.run import slurm

    todo = [proposal for proposal in proposed if proposal.command is not None]
    if not todo:
        print("nothing to apply", file=stream)
        return True
    nodes = slurm.nodes()
    done = True
    for proposal in todo:
        state = nodes[proposal.node].state if proposal.node in nodes else None
        if state is None or "DRAIN" in state or "DOWN" in state:
            why = "Slurm knows no such node" if state is None else state
            print(f"left as it is: {proposal.node}: {why}", file=stream)
            done = done and state is not None
            continue
        try:
            slurm.ask(*(proposal.command or []))
            print(f"drained: {proposal.node}", file=stream)
        except SlurmError as error:
            complain(f"{proposal.node}: {error}")
            done = False
    return done


def _profile_from(arguments: argparse.Namespace) -> int:
    from bringup import judge, learn, results
    from bringup.checks import catalogue
    from bringup.report import outputs

    output = outputs.Output("-o", arguments.output or Path("-"), outputs.PROFILE)
    outputs.check([output])
    found = results.find(arguments.runs)
    if found.absent:
        raise NotHealthy(
            f"{found.playbooks[0]}: {found.absent[0].phase}: {found.absent[0].why}; "
            "a profile is made of runs that passed: name those"
        )
    profile = learn.measured([judge.judge_folder(folder) for folder in found.folders], arguments.name)
    catalogue.check(profile)
    outputs.write(output, profiles.dump(profile))
    if not output.is_standard_output:
        print(f"{arguments.output}: {len(profile.expect)} expectations; use it with --profile or BRINGUP_PROFILE")
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    from bringup.compare import sidebyside
    from bringup.report import text

    if arguments.baseline is not None:
        return _against_baseline(arguments)
    runs = _training_runs(arguments.runs)
    if len(runs) < 2:
        raise UsageError("compare needs at least two training runs (training/results/…), or a playbook that has them")
    compared = sidebyside.compare(runs)
    _show_table(arguments, sidebyside.HEADER, [row.cells for row in compared.rows])
    print(f"\n{text.plain(compared.note)}")
    _plot(arguments, runs)
    if compared.disagreeing:
        wrong = ", ".join(row.name for row in compared.disagreeing)
        complain(f"the losses of {wrong} do not agree with the base run's: their speed means nothing yet")
        return Outcome.FAIL.exit_code
    return 0


def _training_runs(folders: list[Path]) -> list[entries.Entry]:
    """Of a playbook those that trained; what is not there is said."""
    from bringup import results
    from bringup.compare import entries

    found = results.find(folders)
    for absent in found.absent:
        if absent.phase in PHASES and PHASES[absent.phase].is_training:
            complain(f"left out: {absent.phase}: {absent.why}")
    chosen = [
        folder for folder in found.folders if folder not in found.steps or PHASES[found.steps[folder].phase].is_training
    ]
    return entries.load_all(chosen)


def _against_baseline(arguments: argparse.Namespace) -> int:
    from bringup.compare import regression
    from bringup.report import text

    if not arguments.runs:
        raise UsageError("compare --baseline needs runs to hold against it: bringup compare RUN… --baseline RUN…")
    later, earlier = _training_runs(arguments.runs), _training_runs(arguments.baseline)
    compared = regression.check(later, earlier)
    for entry in [*earlier, *later]:
        if entry.outcome is not Outcome.PASS:
            print(f"{text.MARK[entry.outcome]}: {text.shown_path(entry.folder)} did not pass; bringup explain says why")
    for comparison in compared:
        print(comparison.title)
        for change in comparison.environment:
            print(f"differs: {text.plain(change)}")
        _show_table(arguments, *regression.table(comparison))
        print()
    _plot(arguments, [*earlier, *later])
    outcome = regression.overall(compared)
    print(f"{text.MARK[outcome]}: {regression.in_words(compared)}")
    return outcome.exit_code


def _show_table(arguments: argparse.Namespace, header: Sequence[str], rows: list[list[str]]) -> None:
    from bringup.report import text

    print("\n".join(text.table(header, rows)) if arguments.markdown else text.columns(header, rows))


def _plot(arguments: argparse.Namespace, runs: list[entries.Entry]) -> None:
    from bringup.report import text
    from bringup.report.figures import training as training_figures

    if arguments.plot is not None:
        for path in training_figures.draw(runs, arguments.plot):
            print(f"drawn: {text.shown_path(path)}")


def _advise(arguments: argparse.Namespace) -> int:
    from bringup import judge
    from bringup.advise import answer as advising
    from bringup.advise import text as advice_text
    from bringup.checks import catalogue
    from bringup.formulae import models

    if arguments.float32 and arguments.reduce_dtype == "bfloat16":
        raise UsageError("--reduce-dtype bfloat16 means something with bfloat16 compute only; leave out --float32")
    question = advising.Question(
        models.load(arguments.model),
        arguments.nodes,
        arguments.gpus_per_node,
        arguments.sequence_length,
        arguments.rows,
        arguments.global_batch or arguments.nodes * arguments.gpus_per_node * arguments.rows,
        arguments.float32,
        2 if arguments.reduce_dtype == "bfloat16" else 4,
        arguments.activation_checkpointing,
    )
    runs = [judge.judge_folder(folder) for folder in arguments.runs]
    known = advising.known(catalogue.load_profile(arguments.profile), runs, arguments.mfu)
    advice = advising.advise(question, known)
    print(json.dumps(as_json(advice), indent=1) if arguments.json else advice_text.screen(advice))
    return 0


def _drill(arguments: argparse.Namespace) -> int:
    from bringup.checks import catalogue
    from bringup.drill import result as drill_result
    from bringup.drill import suite
    from bringup.plan import profile_text
    from bringup.run import site as at_site

    ids = [drill.id for drill in catalogue.DRILLS]
    unknown = [name for name in arguments.only if name not in ids]
    if unknown:
        near = profile_text.meant(unknown[0], ids)
        raise UsageError(f"no drill is called {', '.join(unknown)}{near}; bringup drill --list shows all")
    if arguments.list:
        print(
            drill_result.listed(
                [drill for drill in catalogue.DRILLS if not arguments.only or drill.id in arguments.only]
            )
        )
        return 0
    if arguments.healthy and (arguments.anywhere or arguments.only):
        raise UsageError("--healthy makes no fault and runs on local clusters: without --anywhere and --only")
    if arguments.anywhere:
        at_site.enter(at_site.from_environment())
    if arguments.resume is not None and (arguments.only or arguments.healthy):
        raise UsageError("--resume goes on with what was planned: without --only and --healthy")
    known = catalogue.DECLARED.values() if arguments.anywhere else catalogue.DRILLS
    chosen = [drill for drill in known if not arguments.only or drill.id in arguments.only]
    if arguments.anywhere and not arguments.only and arguments.resume is None:
        chosen = [drill for drill in chosen if drill.where == "anywhere"]
    return suite.run(
        suite.Request(
            drills=[] if arguments.healthy else chosen,
            healthy=arguments.healthy,
            phases=arguments.phases,
            anywhere=arguments.anywhere,
            # a run that is continued knows what it had planned
            profile=catalogue.load_profile(arguments.profile) if arguments.anywhere else None,
            resume=arguments.resume,
        )
    )


def _gates(arguments: argparse.Namespace) -> int:
    from bringup.checks import catalogue
    from bringup.report import text

    header = ("gate", "per", "rule", "unit", "a pass says: it was seen that")
    rows = [(gate.id, gate.per, gate.rule, gate.unit, gate.proves) for gate in catalogue.GATES.values()]
    print(text.columns(header, rows))
    return 0


def _schema(arguments: argparse.Namespace) -> int:
    from bringup import generated
    from bringup.report import outputs, text

    folder = arguments.folder or generated.SCHEMAS
    outputs.make_folder("schema", folder)
    for name, content in generated.schemas().items():
        output = outputs.Output("schema", folder / name, outputs.SCHEMA)
        outputs.write(output, content)
        print(text.shown_path(output.path))
    return 0
