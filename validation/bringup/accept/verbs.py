"""The verb that holds runs against a contract."""

from bringup.verb import FORCE, READ, Verb, flag, output, path, runs, verb

VERBS: dict[str, dict[str, Verb]] = {
    READ: {
        "accept": verb(
            "each line of a contract: proven, refuted, not asked",
            runs("runs and playbooks that are the evidence: all of them count"),
            path("--contract", "what was sold, line by line (docs/acceptance.md)"),
            flag("--template", "write a contract to begin with, of what a discovery saw, to -o"),
            path("--check", "an acceptance.json: does it still hold, by these runs?"),
            path("--limits", "limits.json of validation/benchmarks/fault_limits.py: how small a fault is found"),
            path("--signers", "whose signatures count, as ssh-keygen takes it (default: the site's)"),
            output("a new folder (default: validation/results/acceptance/CONTRACT-TIME); with --template a .yaml file"),
            FORCE,
            example="bringup accept last --contract contract.yaml",
        ),
    },
}
