"""Verbs about several runs."""

from bringup.training.fields import FIELDS
from bringup.verb import (
    COMPARE,
    FORCE,
    GPUS_PER_NODE,
    JUDGE_WITH,
    NAME_OR_PATH,
    NODELIST,
    RUN,
    RunName,
    Verb,
    arg,
    flag,
    from_,
    natural,
    number,
    optional,
    output,
    positive,
    profile_argument,
    resume,
    runs,
    several,
    share,
    verb,
)

VERBS: dict[str, dict[str, Verb]] = {
    RUN: {
        "sweep": verb(
            "variants of one training, and what each of them gives",
            arg("phase", nargs="?", metavar="PHASE", help="a training: run_fsdp_1node"),
            several(
                "--vary",
                "FIELD=VALUE,VALUE",
                "one field at a time against the base ($BRINGUP_TRAIN_ARGS, or the profile's workload). Fields: "
                f"{', '.join(FIELDS)}; of the flags yes or no. strategy=ddp,fsdp,hsdp: "
                "the trainings of these. nodes=1,2,4, alone: how it scales",
            ),
            flag("--weak", "with nodes=…: the global batch grows with them (default: it stays the same)"),
            flag("--grid", "every combination of the values instead"),
            number("--repeat", "N", "runs of each variant, which show the noise", 1),
            number("--nodes", "NODES", "how many (default: all that the phase takes)"),
            NODELIST,
            NAME_OR_PATH,
            resume("sweep", "continue an earlier sweep: runs that finished are not repeated"),
            starts_scripts=True,
            example="bringup sweep run_fsdp_1node --vary compile=yes,no",
        ),
    },
    COMPARE: {
        "compare": verb(
            "trainings side by side; --baseline: slower than it was?",
            runs(
                "default: the newest trainings that are alike; or folders that hold metrics.json and run_args.json, "
                "which are not judged",
                default=[],
            ),
            arg(
                "--baseline",
                type=RunName,
                metavar="RUN",
                nargs="+",
                help="the same arguments earlier, best in turn: regression (exit 1), none (0), cannot tell (2)",
            ),
            several(
                "--vary",
                "FIELD",
                "an argument that may differ, as run_args.json names it (global_batch, attention); it becomes a column",
            ),
            JUDGE_WITH,
            flag("--json", "one JSON array instead of the table"),
            example="bringup compare",
        ),
        "history": verb(
            "all runs over time: is the newest one slower?",
            runs("default: every closed run of this checkout", default=[]),
            flag("--json", "one JSON object instead of the table"),
            optional(
                "--lemons",
                "FILE",
                "also: which nodes stood in failed jobs more often than chance, by Slurm's accounting of "
                "30 days, or by a file with its table (docs/08-daily-life.md)",
            ),
            example="bringup history",
        ),
        "profile": verb(
            "write a profile from runs that passed, to be the floors",
            from_("runs that passed", required=True),
            arg("--name", default="measured", help="of the profile (default: %(default)s)"),
            output("a .yaml file (default: standard output)"),
            FORCE,
            example="bringup profile --from last --name lab -o lab.yaml",
        ),
        "advise": verb(
            "DDP or FSDP: what fits and how long a step takes, computed",
            arg("--model", required=True, help="a name in training/models, or the path of a config.json"),
            arg("--nodes", type=natural, required=True),
            GPUS_PER_NODE,
            profile_argument("of the cluster"),
            from_("measured here: a run of nccl_scaling for the bandwidth, a training run for the MFU", default=[]),
            number("--sequence-length", "TOKENS", "per row", 4096),
            number("--rows", "N", "per GPU and micro-step", 1),
            number("--global-batch", "N", "rows per step over all GPUs (default: GPUs x --rows)"),
            number(
                "--mfu", "SHARE", "of the compute, recomputation paid (default: the profile's, or a run's)", kind=share
            ),
            flag("--float32", "compute in float32 (default: bfloat16 over float32 weights)"),
            arg(
                "--reduce-dtype", choices=("float32", "bfloat16"), default="float32", help="of gradients between ranks"
            ),
            flag("--activation-checkpointing", "recompute activations"),
            flag("--fast", "with --recipe fast: the logits of 2,048 tokens at a time"),
            number("--shard-size", "N", "of HSDP: GPUs of a shard group (default: those of a node)"),
            flag("--sync-each-batch", "reduce gradients in every micro-step"),
            number(
                "--failures-per-node-day",
                "RATE",
                "how often to save: 0.0038 for Llama 3 (arXiv 2407.21783)",
                kind=positive,
            ),
            number("--save-s", "S", "that a save takes (default: what a run of --from took)", kind=positive),
            number("--restart-s", "S", "from a failure until training goes on", kind=positive),
            flag("--json", "the record instead of the screen"),
            example="bringup advise --model llama3-8b --nodes 2 --gpus-per-node 8 --profile h100-8x400g",
        ),
    },
}
