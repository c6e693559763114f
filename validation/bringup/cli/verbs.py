"""All verbs, in the order of --help: those of runs and of their reports, and those that each room brings."""

import argparse
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from bringup import registry, verb
from bringup.kernel.plan.phases import PHASES


def awaited(text: str) -> tuple[str, str, float]:
    """Read a job to wait for: file, job id, seconds. An empty job id: it was refused, and nothing is waited for."""
    if (match := re.fullmatch(r"([\w.-]+)=([\d_]*)(?:=(\d+))?", text)) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not FILE=JOBID[=SECONDS]")
    return match[1], match[2], float(match[3] or 90)


_OWN: dict[str, dict[str, verb.Verb]] = {
    verb.BEFORE: {
        "doctor": verb.verb(
            "what would stop a run, each with its cure; submits nothing",
            verb.NAME_OR_PATH,
            description="One screen; every line that is not a PASS says what to do. "
            "Exit code: 0 a run can start, 1 a run will fail, 2 something could not be found out.",
            starts_scripts=True,
            example="bringup doctor",
        ),
        "site": verb.verb(
            "what the site file says; --init writes a first one",
            verb.arg("phase", nargs="?", metavar="PHASE", help="with its own time limit (default: that of any phase)"),
            verb.flag("--export", "source <(bringup site --export)"),
            verb.optional(
                "--init", "NAME", "write a first one, as Slurm says: its name, or path (default: the cluster's name)"
            ),
            example="bringup site --init lab",
        ),
        "gates": verb.verb(
            "all checks, and what a pass of each says",
            verb.flag("--json", "one JSON array instead of the table"),
            verb.path("--site", "only a site's own checks, of this file: is it right? Nothing is run"),
            example="bringup gates",
        ),
        "completion": verb.verb(
            "what completes verbs, phases and options in a shell",
            verb.arg("shell", choices=["bash", "zsh", "tcsh"], metavar="SHELL", help="bash, zsh or tcsh"),
            example="source <(bringup completion bash)",
        ),
    },
    verb.RUN: {
        "run": verb.verb(
            "all phases of the playbook, or some of them, with verdicts",
            verb.arg(
                "phases",
                nargs="*",
                metavar="PHASE",
                help=f"default: all ({', '.join(PHASES)}). Also a phase's number (3), a strategy (fsdp), training",
            ),
            verb.number("--nodes", "NODES", "how many (default: all nodes of the default partition)"),
            verb.NODELIST,
            verb.NAME_OR_PATH,
            verb.resume("playbook", "continue an earlier playbook run: what passed is not repeated"),
            verb.flag("--strict", "stop at any fault; default: unhealthy nodes are excluded"),
            verb.flag("--dry-run", "print what would be submitted, where and for how long, and submit nothing"),
            starts_scripts=True,
            example="bringup run discovery smoke --nodes 2",
        ),
    },
    verb.READ: {
        "runs": verb.verb(
            "all runs: when, phases, nodes, verdict",
            verb.number("--newest", "N", "how many", 20),
            example="bringup runs",
        ),
        "explain": verb.verb(
            "what went wrong: first causes, signs in logs, what to run",
            verb.runs("of a phase or of a whole playbook"),
            verb.JUDGE_WITH,
            verb.flag("--json", "one JSON array instead of the screen"),
            example="bringup explain last",
        ),
        "report": verb.verb(
            "one HTML page, or document; JUnit, Prometheus, drain lines",
            verb.runs("a playbook, or runs"),
            verb.output("the page (default: report.html in the folder, when it is one; -: standard output)"),
            verb.path("--markdown", "also all phases in one document, the decision first (.md)"),
            verb.path("--zip", "also one file to send: the page with the evidence"),
            verb.path("--junit", "also JUnit XML, a test case per verdict"),
            verb.path("--prometheus", "also gauges for node_exporter's textfile collector (.prom)"),
            verb.FORCE,
            verb.JUDGE_WITH,
            example="bringup report last --zip send.zip",
        ),
        "ticket": verb.verb(
            "what a vendor asks for, of one node",
            verb.arg("node", metavar="NODE", type=verb.node_called),
            verb.runs("a playbook, or runs"),
            verb.output("the ticket, in Markdown (default: standard output)"),
            verb.FORCE,
            verb.path("--folder", "the ticket, its evidence, and a script that collects what to attach", "FOLDER"),
            example="bringup ticket n3 last -o n3.md",
        ),
        "judge": verb.verb(
            "set verdicts again: today's gates, another profile, a copy",
            verb.runs("runs, or whole playbooks; needs no Slurm and no torch"),
            verb.JUDGE_WITH,
            verb.path(
                "--signers",
                "whose signatures count, as ssh-keygen's allowed signers; what none of them signed is exit code 2 "
                "(default: the site's allowed_signers; without any, signatures are not verified)",
            ),
            example="bringup judge last --profile h100-8x400g",
        ),
    },
    verb.FOR_SCRIPTS: {
        "nodes": verb.verb(
            "which nodes were requested, as assignments for the shell",
            verb.arg("--nodes", type=verb.natural),
            verb.arg("--nodelist"),
            verb.flag("--sharing", "also: WHOLE_NODES=yes where no two jobs share a node"),
            verb.arg("--phase", help="as the site file has it for this one; its partition has to take its job"),
        ),
        "scales": verb.verb(
            "at which numbers of nodes collectives are run: a scale per line",
            verb.NODES,
            verb.GPUS_PER_NODE,
            verb.flag("--whole", "all"),
        ),
        "workload": verb.verb("what the profile trains, as options; nothing: the default", verb.PROFILE),
        "variants": verb.verb(
            "which ways NCCL is told to go: variant, scale as `scales` says it, variables",
            verb.NODES,
            verb.GPUS_PER_NODE,
        ),
        "ended": verb.verb(
            "wait for jobs to end, and keep what Slurm says about them",
            verb.arg("run", type=Path),
            verb.arg("jobs", nargs="*", type=awaited, metavar="FILE=JOBID[=SECONDS]", help="default: 90 seconds"),
        ),
        "pairs": verb.verb(
            "which pairs of nodes to measure: a round per line",
            verb.arg("--nodes", default=""),
            verb.arg("--here", help="nodes that are there now; pairs with others are left out"),
            verb.flag("--files", "instead: the rounds of the file coherence, as coherence.py reads them"),
            verb.flag("--ring", "instead: every node with the one after it"),
            verb.arg("--again", type=Path, help="instead: the pairs of this run that should be measured once more"),
            verb.path("--next", "instead: the round that follows from what this run has measured so far", "RUN"),
        ),
        "open": verb.verb(
            "create a run folder with its plan; as assignments",
            verb.arg("phase"),
            verb.arg("--nodes", required=True, help="node list: n0,n1 or n[0-1]"),
            verb.arg(
                "--allocated",
                default=lambda: os.environ.get("SLURM_JOB_NODELIST"),
                help="those of them that the steps run on (default: the job's, all without a job)",
            ),
            verb.GPUS_PER_NODE,
            verb.arg("--ranks-per-node", type=verb.natural, help="default: one per GPU"),
            verb.flag("--whole-nodes", "the partition lets no two jobs share a node"),
            verb.PROFILE,
            verb.arg("--results", type=Path, help="folder of the runs (default: the phase's own)"),
            verb.arg(
                "--argv", nargs=argparse.REMAINDER, default=[], help="last: the script's own arguments, to be recorded"
            ),
        ),
        "close": verb.verb(
            "close a run, judge it, write report.md",
            verb.arg("run", type=Path),
            verb.arg("--exit-code", type=int, required=True),
            verb.flag("--only", "close it; somebody else judges it"),
        ),
    },
}
_FILES = {verb.BEFORE: "before", verb.RUN: "running", verb.READ: "reading", verb.FOR_SCRIPTS: "for_scripts"}
_DOCUMENTS = ("report", "ticket")  # of verb.READ: reporting.py


def _known() -> Iterator[tuple[str, verb.Known]]:
    """Yield each verb by its name, with what does it: do_NAME of a file here, or of action.py of its room."""
    tables = [(f"{room}.action", registry.called(f"{room}.verbs").VERBS) for room in registry.ROOMS]
    own = [(f"bringup.cli.{_FILES[group]}", {group: verbs}) for group, verbs in _OWN.items()]
    for module, table in [*own, *tables]:
        for group, verbs in table.items():
            for name, declared in verbs.items():
                of = "bringup.cli.reporting" if name in _DOCUMENTS else module
                yield name, verb.Known(declared, group, f"{of}:do_{name.replace('-', '_')}")


VERBS: Mapping[str, verb.Known] = dict(_known())
