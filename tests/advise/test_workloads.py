"""The workload that a profile trains: it fits into its GPUs, at any number of nodes, and every script takes it."""

import json

import pytest
from advised import default_batch
from bringup import cli
from bringup.kernel.errors import FileError
from bringup.kernel.plan import profile as profiles
from bringup.training.domain.records import FEWEST_STEPS_OF_A_TAIL
from loops import for_each
from scripts_for_tests import chosen
from tiers import first

BASES = {"gpu-nodes", "efa"}  # for `extends` only
PROFILES = {name: profiles.load(name) for name in profiles.names() if name not in BASES}
WITH_WORKLOAD = [  # simulated GPUs train the tiny model, on the CPU
    name
    for name, profile in PROFILES.items()
    if profile.workload is not None and "--model tiny" not in profile.workload.arguments
]


def test_every_profile_of_gpus_has_a_workload():
    with_gpus = [name for name, profile in PROFILES.items() if profile.machine.gpu_memory_gib is not None]
    assert len(with_gpus) >= 8
    assert all(PROFILES[name].workload is not None for name in with_gpus)
    assert len(WITH_WORKLOAD) >= 8


@for_each(*WITH_WORKLOAD)
def test_a_workload_has_enough_steps_for_every_gate_of_its_speed(name):
    words = PROFILES[name].workload.arguments.split()
    steps = int(words[words.index("--steps") + 1]) if "--steps" in words else 12  # the program's default
    warmup = 2  # the program's default
    assert steps - warmup >= FEWEST_STEPS_OF_A_TAIL


@for_each(*WITH_WORKLOAD)
@for_each(*first([5, 2, 3, 6, 12, 16, 32]))
def test_the_workload_of_a_profile_fits_under_every_strategy(capsys, name, nodes):
    profile = profiles.load(name)
    gpus = int(profile.machine.gpus_per_node.value)
    words = profile.workload.arguments.split()
    given = {word: words[words.index(word) + 1] for word in words if word.startswith("--") and word != words[-1]}
    assert "--activation-checkpointing" in words
    ranks = nodes * gpus
    asked = {
        "--profile": name,
        "--model": given["--model"],
        "--nodes": str(nodes),
        "--gpus-per-node": str(gpus),
        "--rows": given["--rows-at-once"],
        "--sequence-length": given["--sequence-length"],
        "--global-batch": str(default_batch(ranks)),
    }
    options = [word for pair in asked.items() for word in pair]
    assert cli.main(["advise", "--json", "--activation-checkpointing", *options]) == 0
    predicted = {entry["strategy"]: entry for entry in json.loads(capsys.readouterr().out)["strategies"]}
    assert {predicted[strategy]["fits"] for strategy in ("single", "ddp", "fsdp", "hsdp")} == {"fits"}


@for_each(*first([40, 1, 8, 24, 256]))
def test_a_script_trains_the_workload_of_the_profile_with_any_number_of_ranks(ranks):
    most = str(max(ranks, 240 if 240 % ranks == 0 else ranks))
    done = chosen(ranks, BRINGUP_PROFILE="h100-efa-p5", BRINGUP_TRAIN_RANKS=most)
    assert done.stdout.split(maxsplit=2)[2].strip() == profiles.load("h100-efa-p5").workload.arguments


def test_a_workload_of_your_own_wins_and_an_empty_one_is_the_tiny_model():
    h100 = {"BRINGUP_PROFILE": "h100-8x400g"}
    assert chosen(4, **h100, BRINGUP_TRAIN_ARGS="--steps 5").stdout.endswith("--steps 5\n")
    assert chosen(4, **h100, BRINGUP_TRAIN_ARGS="").stdout.strip() == "--global-batch 32"
    assert chosen(4, BRINGUP_PROFILE="generic").stdout.strip() == "--global-batch 32"


def test_a_workload_is_plain_options_that_no_shell_reads():
    text = "schema_version: 1\nname: x\ndescription: x\nworkload: {arguments: '%s', source: a test}\n"
    assert profiles.parse(text % "--steps 5", "x.yaml").workload is not None
    for bad in ("--steps $(id)", "--steps 5; id", "", "--model `id`"):
        with pytest.raises(FileError):
            profiles.parse(text % bad, "x.yaml")
