"""What `bringup why` does."""

import argparse
import contextlib
import json
import re
from dataclasses import asdict
from pathlib import Path

from bringup.kernel.errors import SlurmError, UsageError
from bringup.report import text
from bringup.run import slurm
from bringup.why import job as why


def do_why(arguments: argparse.Namespace) -> int:
    is_file = Path(arguments.job).is_file()
    is_log = re.fullmatch(r"\d+([_+]\d+)?" if is_file else r"\d+([_+]\d+)?(\.\w+)?", arguments.job) is None
    if is_log and arguments.job != "-" and not is_file:
        raise UsageError(f"{arguments.job!r} is not a job number (squeue --me lists yours), nor a file with a log")
    with contextlib.suppress(SlurmError):  # it may be forgotten: the accounting may know it
        state = None if is_log else slurm.job(arguments.job)
        if state is not None and state.state == "PENDING":
            print(text.plain(slurm.why_pending(arguments.job, state)))
            return 0
    if is_log:
        answer = why.look_at_log(arguments.job, arguments.state, arguments.of_nodes, arguments.tasks)
    else:
        answer = why.look(arguments.job, stall_s=arguments.stall_after, on_nodes=arguments.on_nodes)
    if arguments.json:
        print("\n".join(map(text.printable, json.dumps(asdict(answer), indent=1).split("\n"))))
        return 0
    for line in why.screen(answer).split("\n"):  # what is to be run stays in one line, for who copies it
        print(text.printable(line) if line.startswith("next ") else text.wrapped(line, why.LABEL))
    return 0
