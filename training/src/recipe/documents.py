"""Where documents come from: sentences made from the seed, or a dataset in alpaca format or with a column `text`.

Both give plain text, one document after the other; everything after that (data.py) is the same for both.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recipe.arguments import DATA_FILES

STORY = (
    "a node in the rack lost its link and the job waits for the queue while one switch drops packets every fan holds "
    "speed two drivers disagree about memory some kernel counts errors no power no fabric the disk fills slowly each "
    "gradient meets its peers a shard is gathered used freed the loss falls tokens stream past and the next step begins"
)
WORDS = STORY.split()
GENERATED = "generated"

ALPACA = (
    "Below is an instruction that describes a task. Write a response that completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n{input}### Response:\n{output}"
)


class DataError(RuntimeError):
    """The model or the dataset cannot be had, or cannot feed this run. One line: found, expected, what to do."""


@dataclass(frozen=True)
class Source:
    """Documents, and a name for exactly these: two sources with one identity give the same documents."""

    documents: Iterator[Any]  # texts, or the turns of conversations
    identity: str


def open_source(name: str, seed: int, *, chat: bool = False) -> Source:
    """Documents: of a dataset (hub name, folder or file of JSON lines; split train), or endless ones for `generated`.
    chat: conversations. Raises DataError."""
    if name == GENERATED:
        return Source(generated(seed), f"{GENERATED} {seed}")
    import datasets  # here: 0.7 s that generated text does not need

    datasets.disable_progress_bars()
    try:
        is_file = name.endswith(DATA_FILES)
        where = {"path": "json", "data_files": name} if is_file else {"path": name}
        dataset = datasets.load_dataset(**where, split="train")
    except Exception as error:  # whatever a library and a network say: without the dataset there is no run
        raise DataError(
            f"dataset {name} cannot be loaded: {first_line(error)}; fetch it once where there is a network "
            f"(hf download --repo-type dataset {name}), or use --dataset generated"
        ) from error
    return Source(conversations(dataset) if chat else of_dataset(dataset), f"{name} {dataset._fingerprint}")


def generated(seed: int) -> Iterator[str]:
    """Made-up sentences, a function of the seed alone."""
    dice = random.Random(seed)  # noqa: S311  # sentences, not secrets
    while True:
        yield " ".join(dice.choices(WORDS, k=dice.randint(6, 18))) + ".\n"


def conversations(dataset: Any) -> Iterator[list[dict[str, str]]]:
    """The column `messages`: of each a list of turns, with role and content. Raises DataError."""
    if "messages" not in dataset.column_names:
        raise DataError(f"--chat: the dataset has columns {sorted(dataset.column_names)}, expected messages")
    return (item["messages"] for item in dataset)


def of_dataset(dataset: Any) -> Iterator[str]:
    """Texts of a dataset with a column `text` or in alpaca format (instruction, input, output). Raises DataError."""
    columns = set(dataset.column_names)
    if {"instruction", "output"} <= columns:
        return (
            ALPACA.format(
                instruction=item["instruction"],
                output=item["output"],
                input=f"### Input:\n{item['input']}\n\n" if item.get("input") else "",
            )
            for item in dataset
        )
    if "text" in columns:
        return (item["text"] for item in dataset)
    if "messages" in columns:
        raise DataError("the dataset has conversations (column messages): give --chat")
    raise DataError(
        f"the dataset has columns {sorted(columns)}, expected text, or instruction and output (alpaca format)"
    )


def first_line(error: BaseException) -> str:
    """What an exception says first; its name where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
