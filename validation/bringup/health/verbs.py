"""The verb for the baseline of the health check."""

from bringup.verb import DAILY, FORCE, Verb, output, runs, verb

VERBS: dict[str, dict[str, Verb]] = {
    DAILY: {
        "site-baseline": verb(
            "what the health check compares with, from runs that passed",
            runs("runs of discovery, or playbooks that hold one"),
            output("a .json file (default: standard output)"),
            FORCE,
            example="bringup site-baseline last -o baseline.json",
        ),
    },
}
