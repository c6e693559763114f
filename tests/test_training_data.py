"""Models and datasets in the hub's format, in folders: found, tokenised once per node, or refused in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_training_runs import (
    NOTHING_ELSE,
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
    assert data.masked(turns[:1], render) is None

    def prompts(some: list[dict[str, str]], asks: bool) -> list[int]:
        """The prompt for an answer has text that the answer itself has not."""
        return [*(ord(turn["content"]) for turn in some), *[7] * asks]

    message = "shows the answer otherwise than its prompt for one: roles \\['user', 'assistant'\\]"
    with pytest.raises(DataError, match=message):
        data.masked(turns[:2], prompts)


def test_conversations_without_an_answer_are_left_out_and_counted(tmp_path: Path) -> None:
    from recipe import data, documents

    turns = conversation(3)["messages"]
    assert isinstance(turns, list)

    def made(name: str, of: list[Any], rows: int) -> data.Made:
        return data.make_rows(
            tmp_path, documents.Source(iter(of), name), data.chat_encoder(None), rows, 8, packing=False
        )

    result = made("some", [turns[:2], turns, []], 1)
    assert (result.documents, result.left_out) == (1, 1)
    with pytest.raises(documents.DataError, match=r"fills 0 rows .*; 2 conversation\(s\) had no answer to learn"):
        made("none", [turns[:2], turns[:1]], 1)


SHOWN = "{% for t in messages %}{{ t.role }} {{ t.content }}{{ eos_token }}{% endfor %}"


def with_template(model: str, template: str) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize(
    ("turns", "says"),
    [
        ([{"role": "tool", "content": "1"}, {"role": "assistant", "content": "2"}], "no tools here: roles ['tool', "),
        ([{"content": "1"}], "cannot be shown: 'role': roles [None]"),
        ([{"role": "assistant", "content": None}], "cannot be shown: "),
    ],
)
def test_what_a_template_refuses_is_one_line_for_all_ranks(model: str, turns: list[Any], says: str) -> None:
    from recipe import data
    from recipe.documents import DataError

    refuses = "{% for t in messages %}{% if t.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    encoder = data.chat_encoder(with_template(model, refuses + "{{ t.role + t.content }}{% endfor %}"))
    with pytest.raises(DataError) as refused:
        encoder.encode([turns])
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_rows_do_not_depend_on_the_day(model: str) -> None:
    """A template that shows it gets a fixed one, in the template's own form. Other templates are left as they are."""
    from recipe import data
    from recipe.documents import DataError

    today = "{% if strftime_now is defined %}{% set day = strftime_now('%d %b %Y') %}{% endif %}Today: {{ day }}\n"
    tokenizer = with_template(model, today + SHOWN)
    encoder = data.chat_encoder(tokenizer)
    (ids,) = encoder.encode([conversation(3)["messages"]])
    assert ids is not None
    shown = tokenizer.decode([token if token >= 0 else data.HIDDEN - token for token in ids])
    assert shown.replace("Ġ", "").replace(" ", "").startswith("Today:26Jul2024")
    assert encoder.identity != data.chat_encoder(with_template(model, today.replace("%d ", "") + SHOWN)).identity
    assert data.dated(SHOWN) == SHOWN
    with pytest.raises(DataError, match="shows the day in a form that cannot be fixed"):
        data.dated("{{ strftime_now(form) }}")
    named = with_template(model, {"default": SHOWN, "tool_use": "x"})  # type: ignore[arg-type]
    assert data.chat_encoder(named).identity == data.chat_encoder(with_template(model, SHOWN)).identity


def test_a_file_without_a_folder_is_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recipe import documents

    monkeypatch.chdir(tmp_path)
    Path("chats.jsonl").write_text(json.dumps(conversation(2)) + "\n")
    assert [len(turns) for turns in documents.open_source("chats.jsonl", 1, chat=True).documents] == [5]


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
