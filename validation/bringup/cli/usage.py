"""What --help says of all verbs: in groups, each verb in one line, and what was meant by a word that nothing knows."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Mapping

GROUPS: Mapping[str, Mapping[str, str]] = {  # verb -> an example, which its own --help shows
    "Before a run": {
        "doctor": "bringup doctor",
        "site": "bringup site --init lab",
        "gates": "bringup gates",
        "completion": "source <(bringup completion bash)",
    },
    "Run something": {
        "run": "bringup run discovery smoke --nodes 2",
        "train": "bringup train ddp --ranks 2 --steps 50",
        "sweep": "bringup sweep run_fsdp_1node --vary compile=yes,no",
        "drill": "bringup drill --anywhere",
    },
    "Read a run (without RUN: the newest one)": {
        "runs": "bringup runs",
        "explain": "bringup explain last",
        "report": "bringup report last --zip send.zip",
        "ticket": "bringup ticket n3 last -o n3.md",
        "judge": "bringup judge last --profile h100-8x400g",
    },
    "Compare runs": {
        "compare": "bringup compare last",
        "history": "bringup history",
        "profile": "bringup profile --from last --name lab -o lab.yaml",
        "advise": "bringup advise --model llama3-8b --nodes 2 --gpus-per-node 8 --profile h100-8x400g",
    },
    "Every day": {
        "why": "bringup why 4711",
        "preflight": "bringup preflight --spares 1 -- srun python train.py",
        "site-baseline": "bringup site-baseline last -o baseline.json",
    },
    "For programs": {"schema": "bringup schema metrics"},
}
EXAMPLES = {verb: example for verbs in GROUPS.values() for verb, example in verbs.items()}
ENDS = """\
RUN is a name that `bringup runs` shows, a folder, or last, the newest one.
Exit codes: 0 all passed, 1 the cluster failed a gate, 2 we could not tell (bad
input, too), 130 Ctrl-C. `bringup help VERB`: its options, with an example.
"""


def overview(helps: Mapping[str, str]) -> str:
    """Write all verbs. helps: verb -> what it does."""
    parts = ["usage: bringup VERB ...   (bringup --version, bringup --help-scripts)\n"]
    for title, verbs in GROUPS.items():
        lines = [f"  {verb:<14} {helps[verb]}" for verb in verbs]
        parts.append("\n".join([title, *lines, f"      {next(iter(verbs.values()))}", ""]))
    return "\n".join([*parts, ENDS])


def meant(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean explain?`, or nothing."""
    near = difflib.get_close_matches(word, list(known), 1, 0.7)
    return f"; did you mean {near[0]}?" if near else ""


def unknown(options: list[str], verb: argparse.ArgumentParser) -> str:
    """Say that the verb does not take these arguments."""
    first = next((option for option in options if option.startswith("-")), None)
    if first is None:
        return f"nothing takes {' '.join(options)}"
    return f"no option {first}{meant(first.partition('=')[0], verb._option_string_actions)}"
