"""The verb that runs a command on the healthy nodes of a job."""

import argparse

from bringup.kernel.plan.phases import PREFLIGHT
from bringup.verb import DAILY, NAME_OR_PATH, Verb, arg, natural, number, verb, whole

VERBS: dict[str, dict[str, Verb]] = {
    DAILY: {
        "preflight": verb(
            "run your command on the healthy nodes of a job with spares",
            arg("--nodes", type=natural, required=True, metavar="N", help="of the command; all others are spares"),
            number("--retries", "M", "how often it is started again after a node was exchanged", 2, kind=whole),
            number("--stall-after", "S", "seconds without output after which it counts as hung (default: never)"),
            arg(
                "--phases",
                nargs="+",
                metavar="PHASE",
                choices=PREFLIGHT,
                default=list(PREFLIGHT),
                help=f"checks before the start and after a bad end (default: {' '.join(PREFLIGHT)})",
            ),
            NAME_OR_PATH,
            arg("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="as you would start it in this job"),
            description="In a job of yours with spare nodes; again without a culprit. "
            "Exit code: the command's own; 1: too few healthy nodes, it did not run; 2: not in a job.",
            starts_scripts=True,
            example="bringup preflight --nodes 2 -- srun python train.py",
        ),
    },
}
