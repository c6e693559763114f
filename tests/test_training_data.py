"""Models and datasets in the hub's format, in folders: found, tokenised once per node, or refused in one line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import real_trainings as trainings
from loops import case_for_each
from real_trainings import (
    NOTHING_ELSE,
    SOURCE,
    TORCHRUN,
    Finished,
    documents_tokenized,
    ended_well,
    one_node,
    two_nodes,
)
from recipe import data
from tiers import FEWER
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

pytestmark = pytest.mark.filterwarnings("default")  # torch and transformers warn about their own insides
SMALL = ("--sequence-length", "256", *NOTHING_ELSE)


@pytest.fixture(scope="module", autouse=True)
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hf")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Alpaca format; documents of very different length."""
    folder = tmp_path_factory.mktemp("data") / "alpaca"
    folder.mkdir()
    counts = {n: " ".join(map(str, range(n))) for n in range(1, 101)}
    rows = [{"instruction": f"Count to {n}.", "input": "", "output": numbers} for n, numbers in counts.items()]
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Weights, configuration and a tokenizer of its own, as save_pretrained leaves them; tied embeddings."""
    folder = tmp_path_factory.mktemp("model") / "tiny-tied"
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    of_bytes = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "show_progress": False}
    learner = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<eos>"], **of_bytes)
    tokenizer.train_from_iterator(["Count to the number below: instruction response"] * 3, learner)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", unk_token="<unk>").save_pretrained(folder)
    tiny = json.loads((SOURCE.parent / "models/tiny.json").read_text())
    config = AutoConfig.for_model(**tiny | {"vocab_size": 320, "tie_word_embeddings": True})
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return str(folder)


def single(folder: Path, *options: str) -> Finished:
    program = str(SOURCE / "train_single_gpu.py")
    return trainings.launch(folder, [[TORCHRUN[0], program, "--steps", "6", *SMALL, *options]])


def test_a_hub_model_and_dataset_train_the_same_on_one_rank_on_two_nodes_and_sharded(tmp_path, model, dataset):
    """Documents are tokenised once, by one rank of the node."""
    options = (*SMALL, "--model", model, "--dataset", dataset)
    alone = ended_well(single(tmp_path / "one", *options))
    sharded = one_node(tmp_path / "fsdp", "train_fsdp_single_node", *options)
    two = [two_nodes(tmp_path / "two", 1, "train_ddp_multi_node", *options)] if not FEWER else []
    for run in (*two, sharded):
        assert set(run.codes) == {0}, run.output
        assert run.metrics().loss == pytest.approx(alone.metrics().loss, abs=1e-5)
        assert run.metrics().grad_norm == pytest.approx(alone.metrics().grad_norm, rel=1e-5)
        assert (run.metrics().sample_count, run.metrics().sample_distinct) == (48, 48)
    (once,) = documents_tokenized(alone)
    assert 0 < once <= 100
    assert [documents_tokenized(run) for run in two] == [[once, once] for _ in two]
    assert documents_tokenized(sharded) == [once, 0]
    assert sharded.output.count("documents tokenised") == 1


@case_for_each(
    (("--dataset", "nobody/data"), "dataset nobody/data cannot be loaded: "),
    (("--model", "nobody/nothing"), "model nobody/nothing cannot be loaded: "),
)
def test_what_cannot_be_had_is_one_line_and_exit_code_2(tmp_path, options, message):
    run = one_node(tmp_path / "missing", "train_ddp_single_node", *options)
    trainings.require_refused(run, message)
    assert run.output.count("cannot be loaded") == 1
    assert "hf download" in run.output


def test_what_was_measured_is_said_before_a_record_that_cannot_be_written(tmp_path):
    (tmp_path / "run/metrics.json").mkdir(parents=True)
    run = single(tmp_path / "run")
    assert run.codes == [1]
    assert "tokens/s over all ranks" in run.output.partition("raised ")[0]


def test_a_file_without_a_folder_is_a_dataset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("texts.jsonl").write_text(json.dumps({"text": "a b"}) + "\n")
    assert list(data.open_source("texts.jsonl", 1)) == ["a b"]


def test_conversations_are_refused_with_the_program_that_learns_them(tmp_path):
    file = tmp_path / "chats.jsonl"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": "a"}]}) + "\n")
    with pytest.raises(data.DataError, match=r"columns \['messages'\], expected text.* training/src/starter.py"):
        data.open_source(str(file), 1)
