"""What `bringup site-baseline` does."""

import argparse
from pathlib import Path

from bringup.health import baseline
from bringup.kernel import judge
from bringup.report import outputs, run_folders


def do_site_baseline(arguments: argparse.Namespace) -> int:
    output = outputs.Output("-o", arguments.output or Path("-"), arguments.force)
    outputs.check([output])
    runs = run_folders.find(arguments.runs)
    made = baseline.made_of([judge.judge_folder(folder) for folder in runs.once])
    outputs.write(output, made.model_dump_json(indent=1) + "\n")
    if not output.is_standard_output:
        nodes, limits = sum(len(group.nodes) for group in made.groups), len(made.groups[-1].asked)
        counted = f"{nodes} nodes, {limits} questions"
        print(f"{arguments.output}: {counted}; infrastructure-validation/slurm/install takes it")
    return 0
