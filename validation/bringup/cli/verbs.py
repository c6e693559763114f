"""All verbs, in the order of --help, by the file of this room in which `do_VERB` does what it says."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bringup.cli.arguments import RunName, awaited, natural, node_called, positive, run_named, share, whole
from bringup.plan.phases import PHASES, PREFLIGHT
from bringup.plan.sweep import FIELDS

Argument = tuple[tuple[str, ...], dict[str, Any]]  # of add_argument; a default may be a function


class Verb(NamedTuple):
    help: str
    arguments: tuple[Argument, ...]
    description: str | None


Verbs = Mapping[str, Mapping[str, Verb]]  # file of this room -> verb -> its help and arguments


def _verb(help: str, *arguments: Argument, description: str | None = None) -> Verb:
    return Verb(help, arguments, description)


def _arg(*flags: str, **options: Any) -> Argument:
    return flags, options


def _flag(name: str, help: str) -> Argument:
    return (name,), {"action": "store_true", "help": help}


def _path(name: str, help: str, metavar: str = "FILE", **more: Any) -> Argument:
    return (name,), {"type": Path, "metavar": metavar, "help": help, **more}


def _count(name: str, default: int, help: str, **more: Any) -> Argument:
    return (name,), {"type": natural, "default": default, "help": f"{help} (default: %(default)s)", **more}


def _several(name: str, metavar: str, help: str) -> Argument:
    return (name,), {"action": "append", "default": [], "metavar": metavar, "help": f"{help}. May be repeated"}


def _named_profile() -> str:
    return os.environ.get("BRINGUP_PROFILE") or "auto"


def _profile(what: str) -> Argument:
    return _arg("--profile", default=_named_profile, help=f"{what} (default: $BRINGUP_PROFILE, here %(default)s)")


NEWEST = [run_named("last")]  # what stands in arguments.runs where no run was named


def _runs(help: str, default: list[RunName] = NEWEST) -> Argument:
    return _arg("runs", nargs="*", type=run_named, default=default, metavar="RUN", help=help)


def _resume(what: str, help: str) -> Argument:
    return _arg("--resume", type=partial(run_named, what=what), metavar="RUN", help=help)


def _from(help: str, **more: Any) -> Argument:
    return _arg("--from", type=run_named, metavar="RUN", dest="runs", nargs="+", help=help, **more)


def _output(help: str, **more: Any) -> Argument:
    return _arg("-o", "--output", type=Path, help=help, **{"metavar": "FILE", **more})


NODELIST = _arg("--nodelist", help="which nodes: n[0-3]")
SIGNERS = _path(
    "--signers",
    "whose signatures count, as ssh-keygen's allowed signers; what none of them signed is exit code 2 "
    "(default: the site's allowed_signers; without any, signatures are not verified)",
)
FORCE = _flag("--force", "also over files that are there")
NAME_OR_PATH = _profile("name or .yaml path")
PROFILE = _arg("--profile", default=_named_profile)
NODES = _arg("--nodes", required=True)
GPUS_PER_NODE = _arg("--gpus-per-node", type=natural, required=True)

VERBS: Verbs = {
    "running": {
        "run": _verb(
            "all phases of the playbook, or some of them, with verdicts",
            _arg(
                "phases",
                nargs="*",
                metavar="PHASE",
                help=f"default: all ({', '.join(PHASES)}). Also a phase's number (3), a strategy (fsdp), training",
            ),
            _arg("--nodes", type=natural, help="how many nodes (default: all nodes of the default partition)"),
            NODELIST,
            NAME_OR_PATH,
            _resume("playbook", "continue an earlier playbook run: what passed is not repeated"),
            _flag("--strict", "stop at any fault; default: unhealthy nodes are left out"),
            _flag("--dry-run", "print what would be submitted, where and for how long, and submit nothing"),
        ),
        "sweep": _verb(
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
            _count("--repeat", 1, "runs of each variant, which show the noise"),
            _arg("--nodes", type=natural, help="how many nodes (default: all that the phase takes)"),
            NODELIST,
            NAME_OR_PATH,
            _resume("sweep", "continue an earlier sweep: runs that finished are not repeated"),
        ),
        "train": _verb(
            "one training on this machine, without Slurm",
            _arg("strategy", choices=("single", "ddp", "fsdp", "hsdp"), help="hsdp: two launchers stand for two nodes"),
            _arg("--ranks", type=natural, help="processes, each with a GPU of its own (default: every GPU here)"),
            _arg(
                "--resume-on",
                type=natural,
                metavar="RANKS",
                help="then its second half again, from the checkpoint in its middle, on so many; losses must agree",
            ),
            NAME_OR_PATH,
            description="Planned, watched and judged as its job is. Further options go to the program: "
            "training/README.md. Exit code: 0 pass, 1 a gate failed, 2 we could not tell.",
        ),
        "site": _verb(
            "what the site file says; --init writes a first one",
            _arg("phase", nargs="?", metavar="PHASE", help="with its own time limit (default: that of any phase)"),
            _flag("--export", "source <(bringup site --export)"),
            _arg(
                "--init",
                nargs="?",
                const="",
                metavar="NAME",
                help="write a first site file from what Slurm says: its name, or a path (default: the cluster's name)",
            ),
        ),
        "doctor": _verb(
            "what would stop a run, each with its cure; submits nothing",
            NAME_OR_PATH,
            description="One screen; every line that is not a PASS says what to do. "
            "Exit code: 0 a run can start, 1 a run will fail, 2 something could not be found out.",
        ),
        "why": _verb(
            "why any job waits, what it does, or the cause of its end",
            _arg("job", metavar="JOBID"),
            _flag("--on-nodes", "also a small step of your own on its nodes: kernel log, processes, stacks (py-spy)"),
            _count(
                "--stall-after", 600, "seconds without a new line, after which a running job stands still", metavar="S"
            ),
            _flag("--json", "one JSON object instead of the screen"),
            description="Reads what Slurm, its accounting and the job's own files say; submits and changes nothing "
            "without --on-nodes. What could not be seen is a line of its own.",
        ),
        "drill": _verb(
            "make faults on purpose, and see whether they are found",
            _flag("--list", "print the catalogue and make nothing"),
            _path("--checks", "the drills of a site's own checks, in place of the catalogue"),
            _arg("--only", nargs="+", metavar="ID", default=[], help="these drills"),
            _flag("--anywhere", "on the cluster you are on: those that stay inside your own jobs, and no other"),
            _arg(
                "--healthy",
                type=natural,
                default=0,
                metavar="N",
                help="no fault: N rounds on a healthy local cluster, in which everything has to pass",
            ),
            _count("--nodes", 4, "with --healthy: of the cluster"),
            _count("--gpus", 2, "with --healthy: of each node"),
            _arg(
                "--phases",
                nargs="+",
                metavar="PHASE",
                choices=list(PHASES),
                default=list(PHASES),
                help="with --healthy: of each round (default: all)",
            ),
            _resume("drill", "continue an earlier drill run"),
            _profile("with --anywhere: of this cluster"),
            description="The whole catalogue, on a local cluster that is started and ended for it. "
            "Exit code: 0 all found, 1 a fault was missed or something else accused, 2 we could not tell.",
        ),
    },
    "reading": {
        "runs": _verb("all runs: when, phases, nodes, verdict", _count("--newest", 20, "how many", metavar="N")),
        "judge": _verb(
            "set verdicts again: today's gates, another profile, a copy",
            _runs("runs, or whole playbooks; needs no Slurm and no torch"),
            _arg("--profile", help="judge against this profile instead of the one the run was opened with"),
            SIGNERS,
        ),
        "explain": _verb(
            "what went wrong: first causes, signs in logs, what to run",
            _runs("of a phase or of a whole playbook"),
            _arg("--profile", help="judge against this profile instead of the one the run was opened with"),
            _flag("--json", "one JSON array instead of the screen"),
        ),
        "report": _verb(
            "one HTML page, or document; JUnit, Prometheus, drain lines",
            _runs("a playbook, or runs"),
            _output("the page (default: report.html in the folder, when it is one; -: standard output)"),
            _path("--markdown", "also all phases in one document, the decision first (.md)"),
            _path("--zip", "also one file to send: the page with the evidence"),
            _path("--junit", "also JUnit XML, a test case per verdict"),
            _path("--prometheus", "also gauges for node_exporter's textfile collector (.prom)"),
            FORCE,
            _arg("--profile", help="judge against this profile instead of the one that each run was opened with"),
        ),
        "ticket": _verb(
            "what a vendor asks for, of one node",
            _arg("node", metavar="NODE", type=node_called),
            _runs("a playbook, or runs"),
            _output("the ticket, in Markdown (default: standard output)"),
            FORCE,
            _path(
                "--folder", "the ticket, the files of its evidence, and a script that collects what to attach", "FOLDER"
            ),
        ),
        "history": _verb(
            "all runs over time: is the newest one slower?",
            _runs("default: every closed run of this checkout", default=[]),
            _flag("--json", "one JSON object instead of the table"),
            _arg(
                "--lemons",
                nargs="?",
                const="",
                metavar="FILE",
                help="also: which nodes stood in failed jobs more often than chance, by Slurm's accounting of "
                "30 days, or by a file with its table (docs/08-daily-life.md)",
            ),
        ),
        "profile": _verb(
            "write a profile from runs that passed, to be the floors",
            _from("runs that passed", required=True),
            _arg("--name", default="measured", help="of the profile (default: %(default)s)"),
            _output("a .yaml file (default: standard output)"),
            FORCE,
        ),
        "gates": _verb(
            "all checks, and what a pass of each says",
            _flag("--json", "one JSON array instead of the table"),
            _path("--site", "only a site's own checks, of this file: is it right? Nothing is run"),
        ),
        "completion": _verb(
            "what completes verbs, phases and options in a shell",
            _arg("shell", choices=["bash", "zsh", "tcsh"], metavar="SHELL", help="bash, zsh or tcsh"),
        ),
        "schema": _verb(
            "the JSON Schema of a record, a profile or a site file",
            _arg("name", metavar="NAME", help="such as run, verdicts, metrics, profile, site"),
        ),
    },
    "training": {
        "compare": _verb(
            "trainings side by side; --baseline: slower than it was?",
            _runs("runs; or folders that hold metrics.json and run_args.json, which are not judged"),
            _arg(
                "--baseline",
                type=run_named,
                metavar="RUN",
                nargs="+",
                help="the same arguments earlier, best in turn: regression (exit 1), none (0), cannot tell (2)",
            ),
            _several(
                "--vary",
                "FIELD",
                "an argument that may differ, as run_args.json names it (global_batch, attention); it becomes a column",
            ),
            _arg("--profile", help="judge against this profile instead of the one that each run was opened with"),
            _flag("--json", "one JSON array instead of the table"),
        ),
        "advise": _verb(
            "DDP or FSDP: what fits and how long a step takes, computed",
            _arg("--model", required=True, help="a name in training/models, or the path of a config.json"),
            _arg("--nodes", type=natural, required=True),
            GPUS_PER_NODE,
            _profile("of the cluster"),
            _from("measured here: a run of nccl_scaling for the bandwidth, a training run for the MFU", default=[]),
            _count("--sequence-length", 4096, "tokens per row"),
            _count("--rows", 1, "per GPU and micro-step"),
            _arg("--global-batch", type=natural, help="rows per step over all GPUs (default: GPUs x --rows)"),
            _arg(
                "--mfu",
                type=share,
                help="of the compute alone, recomputation paid (default: the profile's, or that of a training run)",
            ),
            _flag("--float32", "compute in float32 (default: bfloat16 over float32 weights)"),
            _arg(
                "--reduce-dtype",
                choices=("float32", "bfloat16"),
                default="float32",
                help="gradients between sharded ranks",
            ),
            _flag("--activation-checkpointing", "recompute activations"),
            _flag("--fast", "with --recipe fast: the logits of 2,048 tokens at a time"),
            _arg("--shard-size", type=natural, help="of HSDP: GPUs of a shard group (default: those of a node)"),
            _flag("--sync-each-batch", "reduce gradients in every micro-step"),
            _arg(
                "--failures-per-node-day",
                type=positive,
                metavar="RATE",
                help="how often to save a checkpoint: 0.0038 in the training of Llama 3 (arXiv 2407.21783)",
            ),
            _arg("--save-s", type=positive, metavar="S", help="that a save takes (default: what a run of --from took)"),
            _arg("--restart-s", type=positive, metavar="S", help="from a failure until training goes on"),
            _flag("--json", "the record instead of the screen"),
        ),
    },
    "daily": {
        "site-baseline": _verb(
            "what the health check compares with, from runs that passed",
            _runs("runs of discovery, or playbooks that hold one"),
            _output("a .json file (default: standard output)"),
            FORCE,
        ),
        "preflight": _verb(
            "run your command on the healthy nodes of a job with spares",
            _arg("--nodes", type=natural, metavar="N", help="that the command needs; all others are spares"),
            _arg("--spares", type=natural, metavar="K", help="instead: how many nodes the command does without"),
            _arg(
                "--retries",
                type=whole,
                default=2,
                metavar="M",
                help="how often it is started again after a node was exchanged (default: %(default)s)",
            ),
            _arg(
                "--stall-after",
                type=natural,
                metavar="S",
                help="seconds without output after which it counts as hung (default: never)",
            ),
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
        ),
    },
}

FOR_SCRIPTS: Verbs = {
    "for_scripts": {
        "nodes": _verb(
            "which nodes were requested, as assignments for the shell",
            _arg("--nodes", type=natural),
            _arg("--nodelist"),
            _flag("--sharing", "also: WHOLE_NODES=yes where no two jobs share a node"),
            _arg("--phase", help="as the site file has it for this one; its partition has to take its job"),
        ),
        "scales": _verb(
            "at which numbers of nodes collectives are run: a scale per line",
            NODES,
            GPUS_PER_NODE,
            _flag("--whole", "only that of all nodes"),
        ),
        "workload": _verb("what the profile trains, as options; nothing: the default", PROFILE),
        "variants": _verb(
            "which ways NCCL is told to go: variant, scale as `scales` says it, variables", NODES, GPUS_PER_NODE
        ),
        "ended": _verb(
            "wait for jobs to end, and keep what Slurm says about them",
            _arg("run", type=Path),
            _arg("jobs", nargs="*", type=awaited, metavar="FILE=JOBID[=SECONDS]", help="default: 90 seconds"),
        ),
        "pairs": _verb(
            "which pairs of nodes to measure: a round per line",
            _arg("--nodes", default=""),
            _arg("--here", help="nodes that are there now; pairs with others are left out"),
            _flag("--files", "instead: the rounds of the file coherence, as coherence.py reads them"),
            _flag("--ring", "instead: every node with the one after it"),
            _arg("--again", type=Path, help="instead: the pairs of this run that should be measured once more"),
            _path("--next", "instead: the round that follows from what this run has measured so far", "RUN"),
        ),
        "open": _verb(
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
            _arg(
                "--argv",
                nargs=argparse.REMAINDER,
                default=[],
                help="last: the script's own arguments, to be recorded",
            ),
        ),
        "close": _verb(
            "close a run, judge it, write report.md",
            _arg("run", type=Path),
            _arg("--exit-code", type=int, required=True),
            _flag("--only", "close it; somebody else judges it"),
        ),
    }
}
