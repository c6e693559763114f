"""Every training that the documents show fits into the cluster that they name, as `bringup advise` computes it."""

import argparse
import functools
import json
import re
import shlex
from dataclasses import dataclass

import pytest
from advised import default_batch
from bringup import cli
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.phases import PHASES
from loops import for_each
from programs import ROOT

PAGES = [ROOT / "README.md", ROOT / "training/README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMED = "h100-8x400g"  # by README.md, for pages that name none
HUB = {"mistralai/Mistral-7B-v0.1": "mistral-7b"}  # of hub names, the configuration in training/models
_BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SUBMITTED = re.compile(r"\bsbatch (?P<slurm>.*?)training/slurm/(?P<stem>\w+)\.sbatch(?P<options>[^#\n]*)")
_AND = re.compile(r"\b(run_(?:ddp|fsdp|hsdp)_\dnode)\b")
_WORKLOAD = re.compile(r'\bBRINGUP_TRAIN_ARGS="([^"]*)"')


@dataclass(frozen=True)
class Shown:
    """A training as a page shows it."""

    page: str
    stem: str
    nodes: int
    profile: str
    options: tuple[str, ...]


load = functools.cache(functools.partial(profiles.load, strict=False))


def shown() -> list[Shown]:
    commands: list[Shown] = []
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        for block in _BLOCK.finditer(text):
            if "sbatch" not in block[1]:
                continue
            named = [name for name in profiles.names() if re.search(rf"\b{re.escape(name)}\b", text[: block.end()])]
            profile = next((name for name in named if load(name).machine.gpu_memory_gib), NAMED)
            given = _WORKLOAD.search(block[1])
            for command in _SUBMITTED.finditer(block[1]):
                line = block[1][command.start() :].partition("\n")[0]
                options = re.sub(r"\[[^]]*\]", "", command["options"])  # [options of the program]
                known = load(profile).workload
                words = shlex.split(given[1] if given else known.arguments) + shlex.split(options)
                nodes = re.search(r"--nodes=(\d+)", command["slurm"])
                comment = line.partition("#")[2]
                for stem in dict.fromkeys([command["stem"], *_AND.findall(comment)]):
                    count = int(nodes[1]) if nodes else PHASES[stem].min_nodes
                    commands.append(Shown(str(page.relative_to(ROOT)), stem, count, profile, tuple(words)))
    return commands


SHOWN = shown()


def test_the_pages_show_trainings_of_every_strategy():
    assert len(SHOWN) >= 20
    assert {entry.stem for entry in SHOWN} >= {stem for stem, phase in PHASES.items() if phase.is_training}
    assert any("--model" in entry.options and "llama3-8b" in entry.options for entry in SHOWN)


def name_of(entry: Shown) -> str:
    return f"{entry.page}: {entry.stem} x {entry.nodes}: {' '.join(entry.options)[:60]}"


def asked(entry: Shown, gpus: int) -> list[str]:
    """The options of `bringup advise` for it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="tiny")
    for option, default in (("--sequence-length", 128), ("--global-batch", None), ("--gradient-accumulation", 1)):
        parser.add_argument(option, type=int, default=default)
    parser.add_argument("--rows-at-once", type=int)
    parser.add_argument("--activation-checkpointing", action="store_true")
    parser.add_argument("--reduce-dtype", default="float32")
    given, _ = parser.parse_known_args(entry.options)
    ranks = 1 if PHASES[entry.stem].one_gpu else entry.nodes * gpus
    most = entry.nodes * gpus  # advise asks about all strategies on these nodes
    batch = given.global_batch or default_batch(most)
    rows = given.rows_at_once or max(1, batch // ranks // given.gradient_accumulation)
    words = ["--model", HUB.get(given.model, given.model), "--sequence-length", str(given.sequence_length)]
    words += ["--rows", str(rows), "--global-batch", str(batch), "--reduce-dtype", given.reduce_dtype]
    return words + (["--activation-checkpointing"] if given.activation_checkpointing else [])


def fits(entry: Shown, capsys: pytest.CaptureFixture[str]) -> str | None:
    """What advise says of its strategy on its nodes."""
    gpus = int(profiles.load(entry.profile).machine.gpus_per_node.value)
    words = ["--nodes", str(entry.nodes), "--gpus-per-node", str(gpus), "--profile", entry.profile]
    assert cli.main(["advise", "--json", *words, *asked(entry, gpus)]) == 0
    predicted = {kind["strategy"]: kind["fits"] for kind in json.loads(capsys.readouterr().out)["strategies"]}
    strategy = PHASES[entry.stem].strategy
    if strategy == "fsdp" and "--no-reshard-after-forward" in entry.options:
        strategy = "zero2"
    assert strategy in predicted, f"{name_of(entry)}: the batch cannot be divided among its ranks"
    return predicted[strategy]


@for_each(*SHOWN, ids=name_of)
def test_a_training_that_a_page_shows_fits(capsys, entry):
    assert fits(entry, capsys) == "fits"


def test_a_training_that_does_not_fit_would_be_found(capsys):
    options = ("--model", "llama3-8b", "--sequence-length", "4096", "--global-batch", "16")
    assert fits(Shown("a page", "run_ddp_2node", 2, NAMED, options), capsys) == "does not fit"
    assert fits(Shown("a page", "run_fsdp_2node", 2, NAMED, options), capsys) == "fits"
