"""`bringup advise`: memory, traffic and time of every strategy before anything runs, and which one to use."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from bringup import advice_text, advise, models, profile
from bringup.records import as_json
from bringup.verbs.verb import Verbs, load_profile, natural


def add(verbs: Verbs) -> None:
    one = verbs.add_parser(
        "advise", help="does it fit, what does it send, how long does a step take: per strategy, computed"
    )
    one.add_argument("--model", required=True, help="a name in training/models, or the path of a config.json")
    one.add_argument("--nodes", type=natural, required=True)
    one.add_argument("--gpus-per-node", type=natural, required=True)
    one.add_argument(
        "--profile", default=profile.from_environment(), help="default: $BRINGUP_PROFILE, here %(default)s"
    )
    one.add_argument(
        "--from",
        dest="runs",
        nargs="+",
        type=Path,
        default=[],
        metavar="RUN",
        help="measured here: a run of nccl_scaling for the bandwidth, a training run for the MFU",
    )
    one.add_argument("--sequence-length", type=natural, default=4096, help="tokens per row (default: %(default)s)")
    one.add_argument("--rows", type=natural, default=1, help="per GPU and micro-step (default: %(default)s)")
    one.add_argument("--global-batch", type=natural, help="rows per step over all GPUs (default: GPUs x --rows)")
    one.add_argument(
        "--mfu", type=_share, help="of the compute alone (default: the profile's, or that of a training run)"
    )
    one.add_argument(
        "--float32", action="store_true", help="compute in float32 (default: bfloat16 over float32 weights)"
    )
    one.add_argument(
        "--reduce-dtype", choices=("float32", "bfloat16"), default="float32", help="gradients between sharded ranks"
    )
    one.add_argument("--activation-checkpointing", action="store_true", help="recompute activations")
    one.add_argument("--json", action="store_true", help="the record instead of the screen")
    one.set_defaults(verb=_advise)


def _advise(arguments: argparse.Namespace) -> int:
    if arguments.float32 and arguments.reduce_dtype == "bfloat16":
        raise ValueError("--reduce-dtype bfloat16 means something with bfloat16 compute only; leave out --float32")
    shape = models.load(arguments.model)
    batch = arguments.global_batch or arguments.nodes * arguments.gpus_per_node * arguments.rows
    question = advise.Question(
        shape,
        arguments.nodes,
        arguments.gpus_per_node,
        arguments.sequence_length,
        arguments.rows,
        batch,
        arguments.float32,
        2 if arguments.reduce_dtype == "bfloat16" else 4,
        arguments.activation_checkpointing,
    )
    answer = advise.advise(question, advise.known(load_profile(arguments.profile), arguments.runs, arguments.mfu))
    print(json.dumps(as_json(answer), indent=1) if arguments.json else advice_text.screen(answer))
    return 0


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share: more than 0, at most 1")
    return value
