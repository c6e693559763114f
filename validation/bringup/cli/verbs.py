"""All verbs, in the order of --help: what each does and takes. `do_verb` of a file of this room does `file.verb`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bringup.cli.arguments import RunName, awaited, natural, node_called, positive, share, whole
from bringup.kernel.plan.phases import PHASES, PREFLIGHT
from bringup.training.varied import FIELDS

Argument = tuple[tuple[str, ...], dict[str, Any]]  # of add_argument; a default may be a function


class Verb(NamedTuple):
    help: str
    arguments: tuple[Argument, ...]
    example: str | None = None  # None: a verb for scripts
    description: str | None = None
    starts_scripts: bool = False  # of a checkout
    takes_options: bool = False  # and hands them to its program


def _verb(help: str, *arguments: Argument, **more: Any) -> Verb:
    return Verb(help, arguments, **more)


def _arg(*flags: str, **options: Any) -> Argument:
    return flags, options


def _flag(name: str, help: str) -> Argument:
    return (name,), {"action": "store_true", "help": help}


def _path(name: str, help: str, metavar: str = "FILE", **more: Any) -> Argument:
    return (name,), {"type": Path, "metavar": metavar, "help": help, **more}


def _number(
    name: str, metavar: str, help: str, default: int | None = None, kind: Callable[[str], Any] = natural
) -> Argument:
    shown = help if default is None else f"{help} (default: %(default)s)"
    return (name,), {"type": kind, "metavar": metavar, "default": default, "help": shown}


def _several(name: str, metavar: str, help: str) -> Argument:
    return (name,), {"action": "append", "default": [], "metavar": metavar, "help": f"{help}. May be repeated"}


def _optional(name: str, metavar: str, help: str) -> Argument:
    return (name,), {"nargs": "?", "const": "", "metavar": metavar, "help": help}


def _named_profile() -> str:
    return os.environ.get("BRINGUP_PROFILE") or "auto"


def _profile(what: str) -> Argument:
    return _arg("--profile", default=_named_profile, help=f"{what} (default: $BRINGUP_PROFILE, here %(default)s)")


NEWEST = [RunName("last")]  # what stands in arguments.runs where no run was named


def _runs(help: str, default: list[RunName] = NEWEST) -> Argument:
    return _arg("runs", nargs="*", type=RunName, default=default, metavar="RUN", help=help)


def _resume(what: str, help: str) -> Argument:
    return _arg("--resume", type=partial(RunName, what=what), metavar="RUN", help=help)


def _from(help: str, **more: Any) -> Argument:
    return _arg("--from", type=RunName, metavar="RUN", dest="runs", nargs="+", help=help, **more)


def _output(help: str) -> Argument:
    return _arg("-o", "--output", type=Path, metavar="FILE", help=help)


NODELIST = _arg("--nodelist", help="which nodes: n[0-3]")
FORCE = _flag("--force", "also over files that are there")
NAME_OR_PATH = _profile("name or .yaml path")
JUDGE_WITH = _arg("--profile", help="judge against this profile instead of the one that each run was opened with")
PROFILE = _arg("--profile", default=_named_profile)
NODES = _arg("--nodes", required=True)
GPUS_PER_NODE = _arg("--gpus-per-node", type=natural, required=True)

TITLES = {  # file of this room -> what its verbs are for
    "before": "Before a run",
    "running": "Run something",
    "reading": "Read a run (without RUN: the newest one)",
    "comparing": "Compare runs",
    "daily": "Every day",
}
VERBS: Mapping[str, Verb] = {
    "before.doctor": _verb(
        "what would stop a run, each with its cure; submits nothing",
        NAME_OR_PATH,
        description="One screen; every line that is not a PASS says what to do. "
        "Exit code: 0 a run can start, 1 a run will fail, 2 something could not be found out.",
        starts_scripts=True,
        example="bringup doctor",
    ),
    "before.site": _verb(
        "what the site file says; --init writes a first one",
        _arg("phase", nargs="?", metavar="PHASE", help="with its own time limit (default: that of any phase)"),
        _flag("--export", "source <(bringup site --export)"),
        _optional(
            "--init", "NAME", "write a first one, as Slurm says: its name, or path (default: the cluster's name)"
        ),
        example="bringup site --init lab",
    ),
    "before.gates": _verb(
        "all checks, and what a pass of each says",
        _flag("--json", "one JSON array instead of the table"),
        _path("--site", "only a site's own checks, of this file: is it right? Nothing is run"),
        example="bringup gates",
    ),
    "before.completion": _verb(
        "what completes verbs, phases and options in a shell",
        _arg("shell", choices=["bash", "zsh", "tcsh"], metavar="SHELL", help="bash, zsh or tcsh"),
        example="source <(bringup completion bash)",
    ),
    "running.run": _verb(
        "all phases of the playbook, or some of them, with verdicts",
        _arg(
            "phases",
            nargs="*",
            metavar="PHASE",
            help=f"default: all ({', '.join(PHASES)}). Also a phase's number (3), a strategy (fsdp), training",
        ),
        _number("--nodes", "NODES", "how many (default: all nodes of the default partition)"),
        NODELIST,
        NAME_OR_PATH,
        _resume("playbook", "continue an earlier playbook run: what passed is not repeated"),
        _flag("--strict", "stop at any fault; default: unhealthy nodes are excluded"),
        _flag("--dry-run", "print what would be submitted, where and for how long, and submit nothing"),
        starts_scripts=True,
        example="bringup run discovery smoke --nodes 2",
    ),
    "running.train": _verb(
        "one training on this machine, without Slurm",
        _arg("strategy", choices=("single", "ddp", "fsdp", "hsdp"), help="hsdp: two launchers stand for two nodes"),
        _number("--ranks", "RANKS", "processes, each with a GPU of its own (default: every GPU here)"),
        _number("--resume-on", "RANKS", "then its second half again, from a checkpoint, on so many; losses must agree"),
        NAME_OR_PATH,
        description="Planned, watched and judged as its job is. Further options go to the program: "
        "training/README.md. Exit code: 0 pass, 1 a gate failed, 2 we could not tell.",
        starts_scripts=True,
        takes_options=True,
        example="bringup train ddp --ranks 2 --steps 50",
    ),
    "running.sweep": _verb(
        "variants of one training, and what each of them gives",
        _arg("phase", nargs="?", metavar="PHASE", help="a training: run_fsdp_1node"),
        _several(
            "--vary",
            "FIELD=VALUE,VALUE",
            "one field at a time against the base ($BRINGUP_TRAIN_ARGS, or the profile's workload). Fields: "
            f"{', '.join(FIELDS)}; of the flags yes or no. strategy=ddp,fsdp,hsdp: "
            "the trainings of these. nodes=1,2,4, alone: how it scales",
        ),
        _flag("--weak", "with nodes=…: the global batch grows with them (default: it stays the same)"),
        _flag("--grid", "every combination of the values instead"),
        _number("--repeat", "N", "runs of each variant, which show the noise", 1),
        _number("--nodes", "NODES", "how many (default: all that the phase takes)"),
        NODELIST,
        NAME_OR_PATH,
        _resume("sweep", "continue an earlier sweep: runs that finished are not repeated"),
        starts_scripts=True,
        example="bringup sweep run_fsdp_1node --vary compile=yes,no",
    ),
    "running.drill": _verb(
        "make faults on purpose, and see whether they are found",
        _flag("--list", "print the catalogue and make nothing"),
        _path("--checks", "the drills of a site's own checks, in place of the catalogue"),
        _arg("--only", nargs="+", metavar="ID", default=[], help="these drills"),
        _flag("--anywhere", "on the cluster you are on: those that stay inside your own jobs, and no other"),
        _resume("drill", "continue an earlier drill run"),
        _profile("with --anywhere: of this cluster"),
        description="The whole catalogue, on a local cluster that is started and ended for it. "
        "Exit code: 0 all found, 1 a fault was missed or something else accused, 2 we could not tell.",
        starts_scripts=True,
        example="bringup drill --anywhere",
    ),
    "reading.runs": _verb(
        "all runs: when, phases, nodes, verdict", _number("--newest", "N", "how many", 20), example="bringup runs"
    ),
    "reading.explain": _verb(
        "what went wrong: first causes, signs in logs, what to run",
        _runs("of a phase or of a whole playbook"),
        JUDGE_WITH,
        _flag("--json", "one JSON array instead of the screen"),
        example="bringup explain last",
    ),
    "reading.report": _verb(
        "one HTML page, or document; JUnit, Prometheus, drain lines",
        _runs("a playbook, or runs"),
        _output("the page (default: report.html in the folder, when it is one; -: standard output)"),
        _path("--markdown", "also all phases in one document, the decision first (.md)"),
        _path("--zip", "also one file to send: the page with the evidence"),
        _path("--junit", "also JUnit XML, a test case per verdict"),
        _path("--prometheus", "also gauges for node_exporter's textfile collector (.prom)"),
        FORCE,
        JUDGE_WITH,
        example="bringup report last --zip send.zip",
    ),
    "reading.ticket": _verb(
        "what a vendor asks for, of one node",
        _arg("node", metavar="NODE", type=node_called),
        _runs("a playbook, or runs"),
        _output("the ticket, in Markdown (default: standard output)"),
        FORCE,
        _path("--folder", "the ticket, its evidence, and a script that collects what to attach", "FOLDER"),
        example="bringup ticket n3 last -o n3.md",
    ),
    "reading.judge": _verb(
        "set verdicts again: today's gates, another profile, a copy",
        _runs("runs, or whole playbooks; needs no Slurm and no torch"),
        JUDGE_WITH,
        _path(
            "--signers",
            "whose signatures count, as ssh-keygen's allowed signers; what none of them signed is exit code 2 "
            "(default: the site's allowed_signers; without any, signatures are not verified)",
        ),
        example="bringup judge last --profile h100-8x400g",
    ),
    "comparing.compare": _verb(
        "trainings side by side; --baseline: slower than it was?",
        _runs("runs; or folders that hold metrics.json and run_args.json, which are not judged"),
        _arg(
            "--baseline",
            type=RunName,
            metavar="RUN",
            nargs="+",
            help="the same arguments earlier, best in turn: regression (exit 1), none (0), cannot tell (2)",
        ),
        _several(
            "--vary",
            "FIELD",
            "an argument that may differ, as run_args.json names it (global_batch, attention); it becomes a column",
        ),
        JUDGE_WITH,
        _flag("--json", "one JSON array instead of the table"),
        example="bringup compare last",
    ),
    "comparing.history": _verb(
        "all runs over time: is the newest one slower?",
        _runs("default: every closed run of this checkout", default=[]),
        _flag("--json", "one JSON object instead of the table"),
        _optional(
            "--lemons",
            "FILE",
            "also: which nodes stood in failed jobs more often than chance, by Slurm's accounting of "
            "30 days, or by a file with its table (docs/08-daily-life.md)",
        ),
        example="bringup history",
    ),
    "comparing.profile": _verb(
        "write a profile from runs that passed, to be the floors",
        _from("runs that passed", required=True),
        _arg("--name", default="measured", help="of the profile (default: %(default)s)"),
        _output("a .yaml file (default: standard output)"),
        FORCE,
        example="bringup profile --from last --name lab -o lab.yaml",
    ),
    "comparing.advise": _verb(
        "DDP or FSDP: what fits and how long a step takes, computed",
        _arg("--model", required=True, help="a name in training/models, or the path of a config.json"),
        _arg("--nodes", type=natural, required=True),
        GPUS_PER_NODE,
        _profile("of the cluster"),
        _from("measured here: a run of nccl_scaling for the bandwidth, a training run for the MFU", default=[]),
        _number("--sequence-length", "TOKENS", "per row", 4096),
        _number("--rows", "N", "per GPU and micro-step", 1),
        _number("--global-batch", "N", "rows per step over all GPUs (default: GPUs x --rows)"),
        _number(
            "--mfu", "SHARE", "of the compute, recomputation paid (default: the profile's, or a run's)", kind=share
        ),
        _flag("--float32", "compute in float32 (default: bfloat16 over float32 weights)"),
        _arg("--reduce-dtype", choices=("float32", "bfloat16"), default="float32", help="of gradients between ranks"),
        _flag("--activation-checkpointing", "recompute activations"),
        _flag("--fast", "with --recipe fast: the logits of 2,048 tokens at a time"),
        _number("--shard-size", "N", "of HSDP: GPUs of a shard group (default: those of a node)"),
        _flag("--sync-each-batch", "reduce gradients in every micro-step"),
        _number(
            "--failures-per-node-day", "RATE", "how often to save: 0.0038 for Llama 3 (arXiv 2407.21783)", kind=positive
        ),
        _number("--save-s", "S", "that a save takes (default: what a run of --from took)", kind=positive),
        _number("--restart-s", "S", "from a failure until training goes on", kind=positive),
        _flag("--json", "the record instead of the screen"),
        example="bringup advise --model llama3-8b --nodes 2 --gpus-per-node 8 --profile h100-8x400g",
    ),
    "daily.why": _verb(
        "why any job waits, what it does, or the cause of its end",
        _arg("job", metavar="JOBID", help="or a FILE with some lines of a log, or -: standard input"),
        _arg("--state", metavar="STATE", default="", help="with a FILE: how Slurm says that the job ended"),
        _arg("--nodes", metavar="LIST", default="", dest="of_nodes", help="with a FILE: the nodes of the job, n[0-3]"),
        _number("--tasks", "N", "with a FILE: tasks of the job", 0, kind=whole),
        _flag("--on-nodes", "also a small step of your own on its nodes: kernel log, processes, stacks (py-spy)"),
        _number("--stall-after", "S", "seconds without a new line, after which a running job stands still", 600),
        _flag("--json", "one JSON object instead of the screen"),
        description="Reads what Slurm, its accounting and the job's own files say; submits and changes nothing "
        "without --on-nodes. What could not be seen is a line of its own.",
        example="bringup why 4711",
    ),
    "daily.preflight": _verb(
        "run your command on the healthy nodes of a job with spares",
        _arg("--nodes", type=natural, required=True, metavar="N", help="of the command; all others are spares"),
        _number("--retries", "M", "how often it is started again after a node was exchanged", 2, kind=whole),
        _number("--stall-after", "S", "seconds without output after which it counts as hung (default: never)"),
        _arg(
            "--phases",
            nargs="+",
            metavar="PHASE",
            choices=PREFLIGHT,
            default=list(PREFLIGHT),
            help=f"checks before the start and after a bad end (default: {' '.join(PREFLIGHT)})",
        ),
        NAME_OR_PATH,
        _arg("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="as you would start it in this job"),
        description="In a job of yours with spare nodes; again without a culprit. "
        "Exit code: the command's own; 1: too few healthy nodes, it did not run; 2: not in a job.",
        starts_scripts=True,
        example="bringup preflight --nodes 2 -- srun python train.py",
    ),
    "daily.site-baseline": _verb(
        "what the health check compares with, from runs that passed",
        _runs("runs of discovery, or playbooks that hold one"),
        _output("a .json file (default: standard output)"),
        FORCE,
        example="bringup site-baseline last -o baseline.json",
    ),
    "for_scripts.nodes": _verb(
        "which nodes were requested, as assignments for the shell",
        _arg("--nodes", type=natural),
        _arg("--nodelist"),
        _flag("--sharing", "also: WHOLE_NODES=yes where no two jobs share a node"),
        _arg("--phase", help="as the site file has it for this one; its partition has to take its job"),
    ),
    "for_scripts.scales": _verb(
        "at which numbers of nodes collectives are run: a scale per line", NODES, GPUS_PER_NODE, _flag("--whole", "all")
    ),
    "for_scripts.workload": _verb("what the profile trains, as options; nothing: the default", PROFILE),
    "for_scripts.variants": _verb(
        "which ways NCCL is told to go: variant, scale as `scales` says it, variables", NODES, GPUS_PER_NODE
    ),
    "for_scripts.ended": _verb(
        "wait for jobs to end, and keep what Slurm says about them",
        _arg("run", type=Path),
        _arg("jobs", nargs="*", type=awaited, metavar="FILE=JOBID[=SECONDS]", help="default: 90 seconds"),
    ),
    "for_scripts.pairs": _verb(
        "which pairs of nodes to measure: a round per line",
        _arg("--nodes", default=""),
        _arg("--here", help="nodes that are there now; pairs with others are left out"),
        _flag("--files", "instead: the rounds of the file coherence, as coherence.py reads them"),
        _flag("--ring", "instead: every node with the one after it"),
        _arg("--again", type=Path, help="instead: the pairs of this run that should be measured once more"),
        _path("--next", "instead: the round that follows from what this run has measured so far", "RUN"),
    ),
    "for_scripts.open": _verb(
        "create a run folder with its plan; as assignments",
        _arg("phase"),
        _arg("--nodes", required=True, help="node list: n0,n1 or n[0-1]"),
        _arg(
            "--allocated",
            default=lambda: os.environ.get("SLURM_JOB_NODELIST"),
            help="those of them that the steps run on (default: the job's, all without a job)",
        ),
        GPUS_PER_NODE,
        _arg("--ranks-per-node", type=natural, help="default: one per GPU"),
        _flag("--whole-nodes", "the partition lets no two jobs share a node"),
        PROFILE,
        _arg("--results", type=Path, help="folder of the runs (default: the phase's own)"),
        _arg("--argv", nargs=argparse.REMAINDER, default=[], help="last: the script's own arguments, to be recorded"),
    ),
    "for_scripts.close": _verb(
        "close a run, judge it, write report.md",
        _arg("run", type=Path),
        _arg("--exit-code", type=int, required=True),
        _flag("--only", "close it; somebody else judges it"),
    ),
}
