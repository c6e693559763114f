"""Models and datasets in the hub's format, in folders: found, tokenised once per node, or refused in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_training_runs import (
    SOURCE,
    TORCHRUN,
    Finished,
    documents_tokenized,
    launch,
    one_node,
    require_refused,
    two_nodes,
)

sys.path.append(str(SOURCE))
sys.path.append(str(SOURCE.parents[1] / "infrastructure-validation" / "probes"))
pytestmark = pytest.mark.filterwarnings("default")  # torch and transformers warn about their own insides
SMALL = ("--sequence-length", "256", "--no-rehearse-resume")


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
    rows = [
        {"instruction": f"Count to {n}.", "input": "", "output": " ".join(map(str, range(n)))} for n in range(1, 101)
    ]
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Weights, configuration and a tokenizer of its own, as save_pretrained leaves them; tied embeddings."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("model") / "tiny-tied"
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        ["Count to the number below: instruction response"] * 3,
        trainers.BpeTrainer(
            vocab_size=300, special_tokens=["<unk>", "<eos>"], initial_alphabet=letters, show_progress=False
        ),
    )
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", unk_token="<unk>").save_pretrained(folder)
    tiny = json.loads((SOURCE.parent / "models/tiny.json").read_text())
    config = AutoConfig.for_model(**tiny | {"vocab_size": 320, "tie_word_embeddings": True})
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return str(folder)


def single(folder: Path, *options: str) -> Finished:
    return launch(folder, [[TORCHRUN[0], str(SOURCE / "train_single_gpu.py"), "--steps", "6", *SMALL, *options]])


def test_padded_rows_of_a_hub_dataset_train_the_same_on_one_rank_and_on_two_nodes(
    tmp_path: Path, model: str, dataset: str
) -> None:
    options = ("--model", model, "--dataset", dataset, "--no-packing", "--data-cache", str(tmp_path / "cache"))
    on_one_rank = single(tmp_path / "one", *options)
    assert on_one_rank.codes == [0], on_one_rank.output
    two = two_nodes(tmp_path / "two", 1, "train_ddp_multi_node", *SMALL, *options)
    assert two.codes == [0, 0], two.output
    ours, reference = two.metrics(), on_one_rank.metrics()
    assert ours.loss == pytest.approx(reference.loss, abs=1e-5)
    assert ours.grad_norm == pytest.approx(reference.grad_norm, rel=1e-5)
    assert (ours.sample_count, ours.sample_distinct) == (48, 48)
    for metrics in (ours, reference):
        assert metrics.padded_tokens_per_s > 0
        assert metrics.tokens_per_s > 0
    # 4 steps after warm-up: the same rows are padded, however fast they went by
    shares = [m.padded_tokens_per_s / (m.padded_tokens_per_s + m.tokens_per_s) for m in (ours, reference)]
    assert shares[0] == pytest.approx(shares[1])
    assert documents_tokenized(on_one_rank) == [48]
    assert documents_tokenized(two) == [0, 0]  # they were in the folder


def test_a_hub_dataset_is_packed_and_tokenized_by_one_rank_of_the_node(
    tmp_path: Path, model: str, dataset: str
) -> None:
    run = one_node(tmp_path / "fsdp", "train_fsdp_single_node", *SMALL, "--model", model, "--dataset", dataset)
    assert run.codes == [0], run.output
    counts = documents_tokenized(run)
    assert 0 < counts[0] <= 100
    assert counts[1] == 0
    assert run.metrics().padded_tokens_per_s == 0
    assert run.output.count("documents tokenised") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--dataset", "/nowhere/data"), "dataset /nowhere/data cannot be loaded: Couldn't find any data"),
        (("--model", "nobody/nothing"), "model nobody/nothing cannot be loaded: "),
    ],
)
def test_what_cannot_be_had_is_one_line_and_exit_code_2(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    run = one_node(tmp_path / "missing", "train_ddp_single_node", *options)
    require_refused(run, message)
    assert run.output.count("cannot be loaded") == 1
    assert "hf download" in run.output


def conversation(n: int) -> dict[str, object]:
    turns = [
        ("system", "Count."),
        ("user", f"To {n}?"),
        ("assistant", "1 2 3"),
        ("user", "More?"),
        ("assistant", "4" * n),
    ]
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def test_of_a_conversation_the_answers_are_learnt_and_nothing_else(tmp_path: Path) -> None:
    from recipe import data, documents

    turns = conversation(3)["messages"]
    (made,) = data.chat_encoder(None).encode([turns])
    source = documents.Source(iter([turns]), "one")
    rows = data.Rows(data.make_rows(tmp_path, source, data.chat_encoder(None), 1, len(made) + 2, packing=False).path)
    row, text = rows[0], "system:\nCount.\nuser:\nTo 3?\nassistant:\n1 2 3\n#user:\nMore?\nassistant:\n444\n#"

    def shown(ids: list[int]) -> str:
        return "".join("#" if id == data.END_OF_TEXT else chr(id - data.FIRST_BYTE) for id in ids)

    assert shown(row["input_ids"].tolist()[:-2]) == text
    assert shown([id for id in row["labels"].tolist() if id != data.IGNORED]) == "1 2 3\n#444\n#"
    assert (row["padding"], rows.highest) == (2, data.FIRST_BYTE + ord("y"))


def test_an_answer_that_a_template_shows_otherwise_later_is_not_learnt_and_one_must_be() -> None:
    from recipe import data
    from recipe.documents import DataError

    turns = [{"role": role, "content": content} for role, content in (("user", "a"), ("assistant", "b")) * 2]

    def render(some: list[dict[str, str]], asks: bool) -> list[int]:
        """The last answer begins with a thought, which is left out of it when another turn follows."""
        ids = []
        for number, turn in enumerate(some):
            thought = [9, 9] if number == len(some) - 1 and turn["role"] == "assistant" else []
            ids += [1, *thought, ord(turn["content"])]
        return ids + [1] * asks

    assert [token for token in data.masked(turns, render) if token >= 0] == [9, 9, ord("b")]
    with pytest.raises(DataError, match="has no answer to learn: roles \\['user'\\]"):
        data.masked(turns[:1], render)


def test_conversations_train_the_same_on_one_rank_and_on_two(tmp_path: Path, model: str) -> None:
    """Ranks have unequal numbers of answers' tokens: the loss is the mean over those of all of them."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    turn = "{% for t in messages %}{{ t.role }} {{ t.content }}{{ eos_token }}{% endfor %}"
    tokenizer.chat_template = f"{turn}{{{{ 'assistant ' if add_generation_prompt }}}}"
    tokenizer.save_pretrained(model)
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(f"{json.dumps(conversation(n))}\n" for n in range(1, 200)))
    options = ("--model", model, "--dataset", str(file), "--chat")
    alone = single(tmp_path / "one", *options)
    assert alone.codes == [0], alone.output
    both = one_node(tmp_path / "two", "train_ddp_single_node", *SMALL, *options)
    assert both.codes == [0], both.output
    assert both.metrics().loss == pytest.approx(alone.metrics().loss, abs=1e-5)
    assert both.metrics().grad_norm == pytest.approx(alone.metrics().grad_norm, rel=1e-5)
    assert both.args().chat and both.metrics().padded_tokens_per_s == 0
