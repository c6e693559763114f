"""--report-to: what Trainer itself reports of a training, for people who look at curves in TensorBoard or W&B.

Rank 0 writes, into RUN_DIR/reports. Nothing is sent anywhere: wandb is offline unless WANDB_MODE says otherwise. A step
that is reported waits for the device, because the loss is read from it.
"""

from __future__ import annotations

import os
from typing import Any

from recipe.arguments import Args

EVERY_STEPS = 10


def trainer_arguments(args: Args) -> dict[str, Any]:
    """Return what TrainingArguments takes. Set the variables that the reporters read, where they are not set."""
    if not args.report_to:
        return {"report_to": []}
    folder = args.run_dir.resolve() / "reports"
    folder.mkdir(exist_ok=True)
    variables = {
        "TENSORBOARD_LOGGING_DIR": str(folder / "tensorboard"),
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "WANDB_PROJECT": "bringup",
        "WANDB_SILENT": "true",
    }
    for name, value in variables.items():
        os.environ.setdefault(name, value)
    return {
        "report_to": args.report_to,
        "run_name": args.run_dir.resolve().name,
        "logging_strategy": "steps",
        "logging_steps": EVERY_STEPS,
    }
