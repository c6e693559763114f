"""What a shell reads."""

from __future__ import annotations

import argparse
from pathlib import Path

from bringup.plan.phases import PHASES


def do_completion(arguments: argparse.Namespace) -> int:
    """Print a script for the shell, made from the verbs themselves. Once it is loaded, a TAB starts no Python."""
    import shtab

    from bringup.cli import parser

    top = parser()
    [verbs] = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    for verb in verbs.choices.values():
        for action in verb._actions:
            if action.type is Path or action.metavar == "RUN":
                vars(action)["complete"] = shtab.FILE
            elif action.metavar == "PHASE":
                action.choices = list(PHASES)
    print(shtab.complete(top, arguments.shell))
    return 0
