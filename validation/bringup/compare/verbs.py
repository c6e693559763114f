"""Verbs about several runs."""

from bringup import verb
from bringup.training.fields import FIELDS

_SWEEP = verb.verb(
    "variants of one training, and what each of them gives",
    verb.arg("phase", nargs="?", metavar="PHASE", help="a training: run_fsdp_1node"),
    verb.several(
        "--vary",
        "FIELD=VALUE,VALUE",
        "one field at a time against the base ($BRINGUP_TRAIN_ARGS, or the profile's workload). Fields: "
        f"{', '.join(FIELDS)}; of the flags yes or no. strategy=ddp,fsdp,hsdp: "
        "the trainings of these. nodes=1,2,4, alone: how it scales",
    ),
    verb.flag("--weak", "with nodes=…: the global batch grows with them (default: it stays the same)"),
    verb.flag("--grid", "every combination of the values instead"),
    verb.number("--repeat", "N", "runs of each variant, which show the noise", 1),
    verb.number("--nodes", "NODES", "how many (default: all that the phase takes)"),
    verb.NODELIST,
    verb.NAME_OR_PATH,
    verb.resume("sweep", "continue an earlier sweep: runs that finished are not repeated"),
    starts_scripts=True,
    example="bringup sweep run_fsdp_1node --vary compile=yes,no",
)

_COMPARE = verb.verb(
    "trainings side by side; --baseline: slower than it was?",
    verb.runs(
        "default: the newest trainings that are alike; or folders that hold metrics.json and run_args.json, "
        "which are not judged",
        default=[],
    ),
    verb.arg(
        "--baseline",
        type=verb.RunName,
        metavar="RUN",
        nargs="+",
        help="the same arguments earlier, best in turn: regression (exit 1), none (0), cannot tell (2)",
    ),
    verb.several(
        "--vary",
        "FIELD",
        "an argument that may differ, as run_args.json names it (global_batch, attention); it becomes a column",
    ),
    verb.JUDGE_WITH,
    verb.flag("--json", "one JSON array instead of the table"),
    example="bringup compare",
)

_HISTORY = verb.verb(
    "all runs over time: is the newest one slower?",
    verb.runs("default: every closed run of this checkout", default=[]),
    verb.flag("--json", "one JSON array instead of the table"),
    example="bringup history",
)

_PROFILE = verb.verb(
    "write a profile from runs that passed, to be the floors",
    verb.from_("runs that passed", required=True),
    verb.arg("--name", default="measured", help="of the profile (default: %(default)s)"),
    verb.output("a .yaml file (default: standard output)"),
    verb.FORCE,
    example="bringup profile --from last --name lab -o lab.yaml",
)

_ADVISE = verb.verb(
    "DDP or FSDP: what fits and how long a step takes, computed",
    verb.arg("--model", required=True, help="a name in training/models, or the path of a config.json"),
    verb.arg("--nodes", type=verb.natural, required=True),
    verb.GPUS_PER_NODE,
    verb.profile_argument("of the cluster"),
    verb.from_("measured here: a run of nccl_scaling for the bandwidth, a training run for the MFU", default=[]),
    verb.number("--sequence-length", "TOKENS", "per row", 4096),
    verb.number("--rows", "N", "per GPU and micro-step", 1),
    verb.number("--global-batch", "N", "rows per step over all GPUs (default: GPUs x --rows)"),
    verb.number(
        "--mfu", "SHARE", "of the compute, recomputation paid (default: the profile's, or a run's)", kind=verb.share
    ),
    verb.flag("--float32", "compute in float32 (default: bfloat16 over float32 weights)"),
    verb.arg("--reduce-dtype", choices=("float32", "bfloat16"), default="float32", help="of gradients between ranks"),
    verb.flag("--activation-checkpointing", "recompute activations"),
    verb.flag("--fast", "with --recipe fast: the logits of 2,048 tokens at a time"),
    verb.number("--shard-size", "N", "of HSDP: GPUs of a shard group (default: those of a node)"),
    verb.flag("--sync-each-batch", "reduce gradients in every micro-step"),
    verb.number(
        "--failures-per-node-day",
        "RATE",
        "how often to save: 0.0038 for Llama 3 (arXiv 2407.21783)",
        kind=verb.positive,
    ),
    verb.number("--save-s", "S", "that a save takes (default: what a run of --from took)", kind=verb.positive),
    verb.number("--restart-s", "S", "from a failure until training goes on", kind=verb.positive),
    verb.flag("--json", "the record instead of the screen"),
    example="bringup advise --model llama3-8b --nodes 2 --gpus-per-node 8 --profile h100-8x400g",
)

VERBS: dict[str, dict[str, verb.Verb]] = {
    verb.RUN: {"sweep": _SWEEP},
    verb.COMPARE: {"compare": _COMPARE, "history": _HISTORY, "profile": _PROFILE, "advise": _ADVISE},
}
