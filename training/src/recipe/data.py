"""Rows of tokens: documents are tokenised and packed end to end into full rows.

So every token counts, and every strategy does the same work. Rows are made once per node, by one rank, into a file that
the ranks of the node map into memory. Documents are sentences made from the seed, or a dataset in alpaca format or with
a column `text`.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recipe.arguments import DATA_FILES

END_OF_TEXT = 1
FIRST_BYTE = 3  # ids 0, 1, 2 are begin, end and padding; byte b is id b + 3
BYTE_VOCABULARY = FIRST_BYTE + 256

DOCUMENTS_AT_ONCE = 1000  # a tokenizer is faster with many

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


def first_line(error: BaseException) -> str:
    """Return what the first cause of an exception says first, with what it lists; its name where it says nothing."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return "it is empty" if isinstance(error, StopIteration) else type(error).__name__
    return " ".join(lines if lines[0].endswith(":") else lines[:1])


def cannot_load(what: str, name: str, error: BaseException, other: str) -> DataError:
    """Return one line: what a library and a network say, and what to do. other: what to take instead."""
    cure = "look at what lies there" if Path(name).exists() else f"fetch it once where there is a network ({other})"
    return DataError(f"{what} {name} cannot be loaded: {first_line(error)}; {cure}")


def open_source(name: str, seed: int) -> Iterator[str]:
    """Return texts: of a dataset (hub name, folder or file of JSON lines; split train), or endless ones for
    `generated`. Raises DataError, also as they are read."""
    if name == GENERATED:
        return generated(seed)
    import datasets  # here: 0.7 s that generated text does not need

    datasets.disable_progress_bars()
    try:
        where = {"path": "json", "data_files": name} if name.endswith(DATA_FILES) else {"path": name}
        dataset = datasets.load_dataset(**where, split="train")
    except Exception as error:  # without the dataset there is no run
        raise cannot_load("dataset", name, error, f"hf download --repo-type dataset {name}") from error
    columns = set(dataset.column_names)
    needed = ("instruction", "output") if {"instruction", "output"} <= columns else ("text",)
    if not columns.issuperset(needed):
        raise DataError(
            f"the dataset has columns {sorted(columns)}, expected text, or instruction and output (alpaca format); "
            "conversations are learnt by training/src/starter.py"
        )
    return (_text(number, item, needed) for number, item in enumerate(dataset, start=1))


def generated(seed: int) -> Iterator[str]:
    """Yield made-up sentences, a function of the seed alone."""
    dice = random.Random(seed)  # noqa: S311  # sentences, not secrets
    while True:
        yield " ".join(dice.choices(WORDS, k=dice.randint(6, 18))) + ".\n"


def _text(number: int, item: dict[str, Any], needed: tuple[str, ...]) -> str:
    for column in needed:
        if not isinstance(item[column], str):
            raise DataError(f"row {number} of the dataset has {item[column]!r} in column {column}, expected a text")
    if "text" in needed:
        return str(item["text"])
    return ALPACA.format(
        instruction=item["instruction"],
        output=item["output"],
        input=f"### Input:\n{item['input']}\n\n" if item.get("input") else "",
    )


Encoder = Callable[[list[str]], list[list[int]]]  # texts to ids, each text ended by its end-of-text token


def encode_bytes(texts: list[str]) -> list[list[int]]:
    """Return UTF-8 bytes as ids: a tokenizer without a file that ranks could race on."""
    return [[*(FIRST_BYTE + byte for byte in text.encode()), END_OF_TEXT] for text in texts]


def encoder_of(tokenizer: Any) -> Encoder:
    """Return that of a Hugging Face tokenizer."""
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    return lambda texts: [ids + end for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The rows of a file, mapped into memory: shape (rows, sequence_length)."""

    def __init__(self, path: Path) -> None:
        self.ids = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One sample. The model shifts the labels itself; `row` says later what a rank consumed. There is no attention
        mask: every token counts, and the fast kernels take none."""
        ids = torch.from_numpy(self.ids[index].astype(np.int64))
        return {"input_ids": ids, "labels": ids, "row": index}


def make_rows(path: Path, texts: Iterator[str], encode: Encoder, rows: int, sequence_length: int) -> int:
    """Make the file of these rows. Returns how many documents were used. Raises DataError."""
    try:
        file = np.lib.format.open_memmap(path, mode="w+", dtype=np.int32, shape=(rows, sequence_length))
        with path.open("r+b") as whole:  # now: a mapped page that the filesystem has no block for ends the process
            os.posix_fallocate(whole.fileno(), 0, path.stat().st_size)
        documents = _pack(file, _encoded(texts, encode))
        file.flush()
    except OSError as error:
        raise DataError(
            f"{path.parent} cannot hold the tokenised rows ({rows} x {sequence_length} x 4 bytes): {error.strerror}; "
            "set TMPDIR to another folder"
        ) from error
    return documents


def _encoded(texts: Iterator[str], encode: Encoder) -> Iterator[list[int]]:
    while some := list(islice(texts, DOCUMENTS_AT_ONCE)):
        yield from encode(some)


def _pack(file: Any, documents: Iterator[list[int]]) -> int:
    """Documents end to end until every row is full. Returns how many were used."""
    flat, filled = file.reshape(-1), 0
    for count, ids in enumerate(documents, start=1):
        used = min(len(ids), len(flat) - filled)
        flat[filled : filled + used] = ids[:used]
        filled += used
        if filled == len(flat):
            return count
    rows, length = file.shape
    raise DataError(
        f"the dataset fills {filled // length} rows of {length} tokens, the run needs {rows} (steps x global batch): "
        "lower --steps, --global-batch or --sequence-length, or take more data"
    )


def fingerprint(rows: Rows, samples: int = 16) -> str:
    """Hash the number of rows, and up to `samples` of them, from all over the file. Equal rows: equal fingerprints."""
    digest = hashlib.sha256(str(rows.ids.shape).encode())
    for index in range(0, len(rows), max(1, len(rows) // samples)):
        digest.update(rows.ids[index].tobytes())
    return digest.hexdigest()
