"""training/src/starter.py, copied alone into an empty folder: an own tiny model, an own JSONL, one rank and two."""

import ast
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import warm_python
from accelerate import FullyShardedDataParallelPlugin
from loops import case_for_each
from programs import ROOT, program, ran
from tiers import FEWER, first, rest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config

STARTER = ROOT / "training/src/starter.py"
STEPS, ROWS, LENGTH = 6, 8, 64
WORDS = ["a", "node", "waits", "for", "its", "shard", "while", "the", "loss", "falls", "and", "gradients", "meet"]
BEFORE = r"out/checkpoint-3 \(move it away, and --resume goes on from the one before\) cannot be read: "
LEARNT = ("--learning-rate", "0.001", "--sequence-length", str(LENGTH), "--global-batch", str(ROWS))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model/: a folder with weights, tied, and a tokenizer of bytes without a chat template. chat.jsonl, text.jsonl."""
    folder = tmp_path_factory.mktemp("own")
    vocabulary = ["<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bytes_only = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(vocabulary)}, merges=[]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytes_only, eos_token="<eos>", pad_token="<eos>")
    tokenizer.save_pretrained(folder / "model")
    torch.manual_seed(1)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = Qwen2Config(vocab_size=len(vocabulary), num_key_value_heads=2, tie_word_embeddings=True, **shape)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder / "model")
    dice = random.Random(0)
    for name, count in (("chat", 200), ("text", 60)):
        texts = [[" ".join(dice.choices(WORDS, k=dice.randint(3, 9))) for _ in range(2)] for _ in range(count)]
        lines = [document(name, *each) for each in texts]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def document(kind: str, asked: str, answer: str) -> dict[str, Any]:
    turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    return {"messages": turns} if kind == "chat" else {"text": f"{asked} {answer}"}


def start(folder, own, ranks, *options, data="chat", source=None) -> subprocess.CompletedProcess[str]:
    """The copy in `folder`, on so many ranks; it sees no other file of this repository. Its output is in folder/out."""
    folder.mkdir(exist_ok=True)
    (folder / "starter.py").write_text(source or STARTER.read_text())
    python = sys.executable if "--processes" in options else warm_python.python()
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_HOME": f"{own}/hf", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHON_EXEC": python}
    what = ["--model", f"{own}/model", "--data", f"{own}/{data}.jsonl", "--out", "out", "--steps", str(STEPS), *LEARNT]
    command = [python, *launcher, "starter.py", *what, *options]
    return ran(command, cwd=folder, env=environment | {"GLOO_SOCKET_IFNAME": "lo"})


def refused(folder: Path, own: Path, *options: str, ranks: int = 1, **more: Any) -> str:
    """What it says at its end, which is a bad one."""
    done = start(folder, own, ranks, *options, **more)
    assert done.returncode != 0
    return done.stderr


def trained(folder: Path, own: Path, ranks: int, *options: str) -> Path:
    done = start(folder, own, ranks, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out"


def losses(out: Path) -> list[float]:
    """Of every step, as Trainer logged them."""
    state = json.loads((out / f"checkpoint-{STEPS}/trainer_state.json").read_text())
    return [entry["loss"] for entry in state["log_history"] if "loss" in entry]


@pytest.fixture(scope="module")
def runs(own: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    save, fsdp = ("--save-steps", "3"), ("--strategy", "fsdp", "--activation-checkpointing", "--rows-at-once", "2")
    return {
        "single": trained(folder / "single", own, 1, *save, "--processes", "2"),
        **({} if FEWER else {"ddp": trained(folder / "ddp", own, 2, *save)}),
        "fsdp": trained(folder / "fsdp", own, 2, *save, *fsdp),
    }


def test_it_needs_no_other_file_and_is_short():
    text = STARTER.read_text()
    assert len(text.splitlines()) <= 205
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        for name in ([each.name for each in node.names] if isinstance(node, ast.Import) else [])
        + ([str(node.module)] if isinstance(node, ast.ImportFrom) else [])
    }
    assert imported - set(sys.stdlib_module_names) == {"torch", "transformers", "accelerate", "datasets", "numpy"}


def test_one_rank_ddp_and_fsdp_train_the_same(runs):
    single = losses(runs["single"])
    assert len(single) == STEPS and single[-1] < single[0] - 0.1
    for kind in (*rest("ddp"), "fsdp"):
        gap = max(abs(a - b) for a, b in zip(single, losses(runs[kind]), strict=True))
        assert gap < 2e-6, (kind, gap)  # float32; 5e-7 was seen


def test_what_is_exported_loads_and_computes_the_same(runs, own):
    ids = torch.arange(100, 140).view(2, 20)
    before = AutoModelForCausalLM.from_pretrained(own / "model")(ids).logits
    logits = {}
    for kind, out in runs.items():
        model = AutoModelForCausalLM.from_pretrained(out / "model")
        assert type(model).__name__ == "Qwen2ForCausalLM"
        assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
        logits[kind] = model(ids, labels=ids).logits
        assert AutoTokenizer.from_pretrained(out / "model").chat_template
    assert (logits["single"] - before).abs().max() > 0.01  # it is the trained model
    for kind in (*rest("ddp"), "fsdp"):
        assert (logits[kind] - logits["single"]).abs().max() < 1e-4, kind


@pytest.mark.parametrize(("kind", "ranks"), first([("single", 1), ("fsdp", 2)]))
def test_it_goes_on_from_the_newest_complete_checkpoint(kind, ranks, runs, own, tmp_path):
    whole, folder = runs[kind], tmp_path / "again"
    shutil.copytree(whole / "checkpoint-3", folder / "out/checkpoint-3")
    (folder / "out/checkpoint-5").mkdir()  # a job was killed while it wrote this one
    done = start(folder, own, ranks, *(("--strategy", kind) if ranks > 1 else ()), "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"'loss':", done.stdout)) == STEPS - 3
    gap = max(abs(a - b) for a, b in zip(losses(whole), losses(folder / "out"), strict=True))
    assert gap < 2e-6, gap


@pytest.mark.parametrize(("kind", "ranks"), first([("single", 1), ("fsdp", 2)]))
def test_a_finished_training_is_not_trained_on(kind, ranks, runs, own, tmp_path):
    """Each start trained a step more, deleted an older checkpoint for it, and exported another model."""
    out = tmp_path / "again/out"
    shutil.copytree(runs[kind], out)
    before = contents(out)
    (out / "model/model.safetensors").write_bytes(b"")  # the job was killed while it exported
    for _ in range(2):
        done = start(tmp_path / "again", own, ranks, *(("--strategy", kind) if ranks > 1 else ()), "--resume")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "nothing is left to train: out/checkpoint-6 has the 6 steps" in done.stdout
        assert contents(out) == before


def contents(out: Path) -> dict[str, str]:
    """Name and hash of each file that a training leaves. training_args.bin names the process that wrote it."""
    files = (path for path in sorted(out.rglob("*")) if path.is_file() and path.name != "training_args.bin")
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@case_for_each(
    ("--learning-rate", "0.1", "learning_rate 0.001 there, 0.1 here"),
    ("--global-batch", "16", "global_batch 8 there, 16 here"),
    ("--sequence-length", "32", "sequence_length 64 there, 32 here"),
)
def test_a_resume_with_other_arguments_is_refused(runs, own, tmp_path, option, value, words):
    """Trainer took the old learning rate, and skipped rows of another order, without a word."""
    out = tmp_path / "again/out"
    for name in ("checkpoint-3", "arguments.json"):
        (shutil.copytree if name[0] == "c" else shutil.copy)(runs["single"] / name, out / name)
    expected = f"--resume: out/checkpoint-3 is of another training: {words}"
    assert expected in refused(tmp_path / "again", own, "--resume", option, value)
    assert {each.name for each in out.iterdir()} == {"checkpoint-3", "arguments.json"}


@case_for_each(
    ("out/checkpoint-3/model.safetensors", BEFORE),
    ("out/checkpoint-3/rng_state.pth", BEFORE),
    ("out/checkpoint-3/trainer_state.json", BEFORE),
    ("own/model/model.safetensors", r"\S+/own/model cannot be read: "),
    ("own/model/tokenizer.json", r"the tokenizer of \S+/own/model cannot be read: "),
    ("own/chat.jsonl", r"\S+/own/chat.jsonl cannot be read: JSON parse error: "),
)
def test_a_damaged_file_is_said_in_one_line(runs, own, tmp_path, damaged, words):
    """Each was a traceback of 20 to 40 lines of a library, and most of them named no file."""
    shutil.copytree(own, tmp_path / "own")
    if damaged.startswith("out"):
        shutil.copytree(runs["single"] / "checkpoint-3", tmp_path / "out/checkpoint-3")
    content = (tmp_path / damaged).read_bytes()
    (tmp_path / damaged).write_bytes(content[: len(content) // 2 - 9])
    done = start(tmp_path, tmp_path / "own", 1, "--resume")
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(f"starter.py: {words}.+", done.stderr.splitlines()[-1]), done.stderr
    assert "Traceback" not in done.stderr


def test_other_rows_at_a_resume_are_refused_and_more_steps_are_not(runs, own, tmp_path):
    shutil.copytree(runs["single"], tmp_path / "again/out")
    more = start(tmp_path / "again", own, 1, "--resume", "--steps", "7", "--rows-at-once", "2")
    assert more.returncode == 0, more.stderr
    assert len(re.findall(r"'loss':", more.stdout)) == 1
    (tmp_path / "own").mkdir()
    (tmp_path / "own/chat.jsonl").write_text((own / "chat.jsonl").read_text()[: 1 << 14].rpartition("\n")[0])
    done = start(tmp_path / "again", own, 1, "--resume", "--data", str(tmp_path / "own/chat.jsonl"))
    says = r"another training: data \S+ there, \S+/own/chat.jsonl here; rows \d+ there, \d+ here"
    assert re.search(says, done.stderr)


def test_a_loss_that_is_nan_ends_it_and_nothing_is_exported(own, tmp_path):
    """Trainer logged 0 for it, ended with 0, and all weights of the exported model were NaN."""
    words = refused(tmp_path / "nan", own, "--learning-rate", "1e30")
    assert re.search(r"step \d: \{'loss': '?nan.*nothing is exported", words), words
    assert not (tmp_path / "nan/out/model").exists()


@case_for_each(
    {"content": "a text"},
    {"prompt": "who", "completion": "she"},
    {"prompt": "who", "output": "she"},
    {"messages": [{"role": "user", "content": "who"}, {"role": "assistant", "content": None}]},
)
def test_a_line_of_another_format_is_refused(own, tmp_path, line):
    """The word "None" was learnt, with exit code 0."""
    data = tmp_path / "other.jsonl"
    data.write_text(f"{json.dumps(line)}\n" * 600)
    expected = f"a line has {[*line]}, expected text, messages with content, or instruction and output"
    assert expected in refused(tmp_path / "other", own, "--data", str(data))


@pytest.mark.parametrize("option", ["--rows-at-once", "--sequence-length", "--global-batch", "--save-steps"])
def test_a_number_that_divides_is_at_least_1(option, own, tmp_path):
    assert f"{option} 0: expected 1 or more" in refused(tmp_path / "none", own, option, "0")


def test_without_resume_checkpoints_are_not_overwritten(runs, own, tmp_path):
    shutil.copytree(runs["single"] / "checkpoint-3", tmp_path / "again/out/checkpoint-3")
    assert "out/checkpoint-3 would be deleted in time: --resume, or another --out" in refused(tmp_path / "again", own)
    assert [each.name for each in (tmp_path / "again/out").iterdir()] == ["checkpoint-3"]


@pytest.mark.parametrize(("data", "columns"), first([("mixed", 3), ("text", 2)]))
def test_a_file_may_mix_texts_and_conversations(data, columns, own, tmp_path):
    text, chat = ((own / f"{name}.jsonl").read_text().splitlines() for name in ("text", "chat"))
    (own / "mixed.jsonl").write_text("\n".join([*text[:30], *chat, *text[30:]]))
    train = "    trainer.train("
    shown = STARTER.read_text().replace(train, f"    print(sorted(trainer.train_dataset[0]))\n{train}")
    done = start(tmp_path / data, own, 1, data=data, source=shown)
    assert done.returncode == 0, done.stderr
    assert str(["input_ids", "labels", "position_ids"][:columns]) in done.stdout


def test_where_fsdp_is_lost_it_refuses_before_the_first_step(own, tmp_path):
    """accelerate drops its plugin on a CPU and DDP trains, with the right loss and exit code 0."""
    lost = STARTER.read_text().replace('_shared_state["distributed_type"] =', '_shared_state["unused"] =')
    assert lost != STARTER.read_text()
    done = start(tmp_path / "lost", own, 2, "--strategy", "fsdp", data="text", source=lost)
    assert done.returncode != 0
    assert "expected 2 rank(s) and parameters (Shard(dim=0),), observed (2, {'whole'})" in done.stderr
    assert "'loss':" not in done.stdout


def test_the_policy_that_the_file_gives_is_the_one_that_is_used():
    """Without it accelerate reduces gradients in bfloat16, and casts what a block puts out."""
    given = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    policies = []
    for own_policy in (given, None):
        plugin = FullyShardedDataParallelPlugin(fsdp_version=2, mixed_precision_policy=own_policy)
        plugin.set_mixed_precision("bf16")  # as AcceleratorState does where mixed_precision is bf16
        policies.append(plugin.mixed_precision_policy)
    assert policies[0] == given
    assert (policies[1].reduce_dtype, policies[1].output_dtype) == (torch.bfloat16, torch.bfloat16)


def test_the_answer_is_learnt_and_documents_of_a_row_do_not_see_each_other(own, monkeypatch):
    monkeypatch.syspath_prepend(str(STARTER.parent))
    import starter

    tokenizer = AutoTokenizer.from_pretrained(own / "model")
    tokenizer.chat_template = starter.CHAT
    asked, answered = "user:\nwho\n\nwhat\nassistant:\n", "she<eos>\n"
    for row in (
        {"instruction": "who", "input": "what", "output": "she", "messages": None},
        {"messages": document("chat", "who\n\nwhat", "she")["messages"]},
    ):
        encoded = starter.encode(row, tokenizer)
        assert tokenizer.decode(encoded["input_ids"]) == asked + answered
        assert tokenizer.decode([label for label in encoded["labels"] if label >= 0]) == answered
    length = len(encoded["input_ids"])
    packed = starter.pack({name: [each, each] for name, each in encoded.items()}, 2 * length)
    model = AutoModelForCausalLM.from_pretrained(own / "model", use_cache=False)
    ids, places = (torch.from_numpy(packed[name]) for name in ("input_ids", "position_ids"))
    with torch.no_grad():
        first, second = model(input_ids=ids, position_ids=places).logits[0].split(length)
        together = model(input_ids=ids).logits[0, length:]
    assert (first - second).abs().max() < 1e-5
    assert (second - together).abs().max() > 1e-3


def test_the_batch_script_of_the_readme_is_whole(tmp_path):
    """With stand-ins for Slurm: torchrun gets the node's rank and the same master on both nodes."""
    readme = (ROOT / "training/README.md").read_text()
    (tmp_path / "mine.sbatch").write_text(readme.split("<!-- mine.sbatch -->\n```bash\n")[1].split("```")[0])
    tools = {
        "scontrol": 'printf "n0\\nn1\\n"',
        "srun": 'while [[ $1 == --* ]]; do shift; done; for SLURM_NODEID in 0 1; do export SLURM_NODEID; "$@"; done',
        "torchrun": 'echo "torchrun $MASTER_ADDR $*"',
    }
    for name, does in tools.items():
        program(tmp_path / name, does)
    slurm = {"SLURM_JOB_NODELIST": "n[0-1]", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "8", "SLURM_CPUS_ON_NODE": "96"}
    own = os.environ | slurm | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    lines = ran(["bash", tmp_path / "mine.sbatch", "--steps", "9"], env=own, check=True).stdout.splitlines()
    assert [line.split(" --model")[0] for line in lines] == [
        f"torchrun n0 --nnodes 2 --node-rank {node} --nproc-per-node 8 --master-addr n0 --master-port 29500 "
        "starter.py --strategy hsdp"
        for node in (0, 1)
    ]
    assert all(line.endswith("--resume --steps 9") for line in lines)


def test_the_output_on_the_page_is_that_of_the_program():
    page = (ROOT / "docs/06-training-fsdp-design.md").read_text(encoding="utf-8")
    command, _, shown = page.split("<!-- output: training/benchmarks/dtensor.py -->\n```\n$ ")[1].partition("\n")
    python = warm_python.python()
    own = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHON_EXEC": python}
    done = ran([python, "-m", "torch.distributed.run", *command.split()[1:]], cwd=ROOT, env=own)
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown.split("```")[0]
