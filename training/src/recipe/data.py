"""Rows of tokens: documents are tokenised and packed end to end into full rows.

So every token counts, and every strategy does the same work. Rows are made once per node, by one rank, into a file that
the ranks of the node map into memory. Documents are sentences made from the seed, or a dataset in alpaca format or with
a column `text`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recipe.arguments import DATA_FILES

FORMAT = 2  # of the files; part of their names

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
    """What an exception says first; its name where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@dataclass(frozen=True)
class Source:
    """Documents, and a name for exactly these: two sources with one identity give the same documents."""

    documents: Iterator[str]
    identity: str


def open_source(name: str, seed: int) -> Source:
    """Documents: of a dataset (hub name, folder or file of JSON lines; split train), or endless ones for `generated`.
    Raises DataError."""
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
    return Source(of_dataset(dataset), f"{name} {dataset._fingerprint}")


def generated(seed: int) -> Iterator[str]:
    """Made-up sentences, a function of the seed alone."""
    dice = random.Random(seed)  # noqa: S311  # sentences, not secrets
    while True:
        yield " ".join(dice.choices(WORDS, k=dice.randint(6, 18))) + ".\n"


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
    raise DataError(
        f"the dataset has columns {sorted(columns)}, expected text, or instruction and output (alpaca format); "
        "conversations are learnt by training/src/starter.py"
    )


@dataclass(frozen=True)
class Encoder:
    """Texts to ids, each text ended by its end-of-text token, and a name for exactly this way of doing so."""

    encode: Callable[[list[str]], list[list[int]]]
    identity: str


def byte_encoder() -> Encoder:
    """UTF-8 bytes as ids: a tokenizer without a file that ranks could race on."""
    return Encoder(
        lambda some: [[*(FIRST_BYTE + byte for byte in text.encode()), END_OF_TEXT] for text in some], "bytes"
    )


def tokenizer_encoder(tokenizer: Any) -> Encoder:
    """A Hugging Face tokenizer. Its identity is its vocabulary and one encoded line, which shows how it splits."""
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]

    def encode(some: list[str]) -> list[list[int]]:
        return [ids + end for ids in tokenizer(some, add_special_tokens=False)["input_ids"]]

    about = json.dumps([sorted(tokenizer.get_vocab().items()), encode(["The 3 nodes' links:\n  up, at 400 Gbit/s."])])
    return Encoder(encode, hashlib.sha256(about.encode()).hexdigest())


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The rows of a file, mapped into memory: shape (rows, sequence_length)."""

    def __init__(self, path: Path) -> None:
        self.ids = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def highest(self) -> int:
        """The largest token."""
        return int(self.ids.max())

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One sample. The model shifts the labels itself; `row` says later what a rank consumed. There is no attention
        mask: every token counts, and the fast kernels take none."""
        ids = torch.from_numpy(self.ids[index].astype(np.int64))
        return {"input_ids": ids, "labels": ids, "row": index}


@dataclass(frozen=True)
class Made:
    """A file of rows, and how many documents were tokenised for it now; 0 when it was there."""

    path: Path
    documents: int


def make_rows(folder: Path, source: Source, encoder: Encoder, rows: int, sequence_length: int) -> Made:
    """The file of these rows in `folder`, made if it is not there. Its name is its content, so it is never out of date.

    Two jobs, or two nodes with one folder, may make the same file at the same time. Each writes a part of its own. The
    last rename wins, and its content is the same. Raises DataError.
    """
    about = json.dumps([FORMAT, source.identity, encoder.identity, rows, sequence_length])
    path = folder / f"{hashlib.sha256(about.encode()).hexdigest()[:32]}.npy"
    if path.is_file():
        return Made(path, 0)
    part = path.with_name(f".{path.stem}.{os.uname().nodename}.{os.getpid()}.npy")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = np.lib.format.open_memmap(part, mode="w+", dtype=np.int32, shape=(rows, sequence_length))
        with part.open("r+b") as whole:  # now: a mapped page that the filesystem has no block for ends the process
            os.posix_fallocate(whole.fileno(), 0, part.stat().st_size)
        documents = _pack(file, _encoded(source.documents, encoder))
        file.flush()
        part.replace(path)
    except OSError as error:
        raise DataError(
            f"{folder} cannot hold the tokenised rows ({rows} x {sequence_length} x 4 bytes): {error.strerror}; "
            "give another folder with --data-cache, or set TMPDIR"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # of a folder that is none
            part.unlink(missing_ok=True)
    return Made(path, documents)


def _encoded(documents: Iterator[str], encoder: Encoder) -> Iterator[list[int]]:
    while some := list(islice(documents, DOCUMENTS_AT_ONCE)):
        yield from encoder.encode(some)


def _pack(file: Any, documents: Iterator[list[int]]) -> int:
    """Documents end to end until every row is full. Returns how many were used."""
    flat = file.reshape(-1)
    filled = 0
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
    """Number of rows, and content of up to `samples` of them, spread over the file. Equal rows: equal fingerprints."""
    digest = hashlib.sha256(str(rows.ids.shape).encode())
    for index in range(0, len(rows), max(1, len(rows) // samples)):
        digest.update(rows.ids[index].tobytes())
    return digest.hexdigest()
