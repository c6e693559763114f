"""Rows of tokens, every row full: no padding, so every token counts and every strategy does the same work.

Generated text needs no network and no file: row i depends on the seed and i alone, so ranks and workers cannot disagree.
A hub dataset is tokenised and packed: documents end to end with an end-of-text token between them, cut into full rows.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

STORY = (
    "a node in the rack lost its link and the job waits for the queue while one switch drops packets every fan holds speed "
    "two drivers disagree about memory some kernel counts errors no power no fabric the disk fills slowly each gradient "
    "meets its peers a shard is gathered used freed the loss falls tokens stream past and the next step begins"
)
WORDS = STORY.split()

END_OF_TEXT = 1
FIRST_BYTE = 3  # ids 0, 1, 2 are begin, end and padding; byte b is id b + 3
BYTE_VOCABULARY = FIRST_BYTE + 256

ALPACA = ("Below is an instruction that describes a task. Write a response that completes the request.\n\n"
          "### Instruction:\n{instruction}\n\n{input}### Response:\n{output}")


class DataError(RuntimeError):
    """The dataset cannot feed this run. One line: what was found, what was expected, what to do."""


def encode_bytes(text: str) -> list[int]:
    """UTF-8 bytes as ids: a tokenizer without a file that ranks could race on."""
    return [FIRST_BYTE + byte for byte in text.encode()]


class GeneratedText(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """`rows` rows of `sequence_length` byte-level ids, int64. Row i holds made-up sentences and is a function of (seed, i)."""

    def __init__(self, rows: int, sequence_length: int, seed: int) -> None:
        self.rows, self.sequence_length, self.seed = rows, sequence_length, seed

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        dice = random.Random(f"{self.seed}/{index}")  # noqa: S311  # sentences, not secrets
        ids: list[int] = []
        while len(ids) < self.sequence_length:
            sentence = " ".join(dice.choice(WORDS) for _ in range(dice.randint(6, 18)))
            ids += [*encode_bytes(sentence + ".\n"), END_OF_TEXT]
        return row(index, torch.tensor(ids[: self.sequence_length]))


class PackedText(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Rows that were packed beforehand: an int64 tensor of shape (rows, sequence_length)."""

    def __init__(self, tokens: torch.Tensor) -> None:
        self.tokens = tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return row(index, self.tokens[index])


def row(index: int, ids: torch.Tensor) -> dict[str, Any]:
    """One sample. The model shifts the labels itself; `row` says later which rows a rank consumed."""
    return {"input_ids": ids, "labels": ids.clone(), "row": index}


def pack(documents: Iterable[list[int]], rows: int, sequence_length: int) -> torch.Tensor:
    """The first `rows` full rows of the documents laid end to end. Raises DataError when they do not fill that many."""
    stream: list[int] = []
    for document in documents:
        stream += document
        if len(stream) >= rows * sequence_length:
            return torch.tensor(stream[: rows * sequence_length]).view(rows, sequence_length)
    raise DataError(f"the dataset fills {len(stream) // sequence_length} rows of {sequence_length} tokens, the run needs {rows} "
                    "(steps x global batch): lower --steps, --global-batch or --sequence-length, or take more data")


def texts(dataset: Any) -> Iterator[str]:
    """Plain text of a dataset in alpaca format (instruction, input, output) or with a column `text`. Raises DataError."""
    columns = set(dataset.column_names)
    if {"instruction", "output"} <= columns:
        for item in dataset:
            context = f"### Input:\n{item['input']}\n\n" if item.get("input") else ""
            yield ALPACA.format(instruction=item["instruction"], input=context, output=item["output"])
    elif "text" in columns:
        for item in dataset:
            yield item["text"]
    else:
        raise DataError(f"the dataset has columns {sorted(columns)}, expected text, or instruction and output (alpaca format)")


def load(name: str, encode: Callable[[str], list[int]], rows: int, sequence_length: int) -> PackedText:
    """A dataset by its hub name or local folder, split train, packed. `encode` ends a document with its end-of-text token."""
    import datasets  # here: 0.7 s that generated text does not need

    datasets.disable_progress_bars()
    try:
        dataset = datasets.load_dataset(name, split="train")
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"dataset {name} cannot be loaded: {reason}; fetch it once where there is a network "
                        f"(hf download --repo-type dataset {name}), or use --dataset generated") from error
    return PackedText(pack((encode(text) for text in texts(dataset)), rows, sequence_length))


def fingerprint(dataset: GeneratedText | PackedText, samples: int = 16) -> str:
    """Number of rows and content of up to `samples` rows spread over the dataset: equal on every rank, or they differ."""
    digest = hashlib.sha256(str(len(dataset)).encode())
    for index in range(0, len(dataset), max(1, len(dataset) // samples)):
        digest.update(dataset[index]["input_ids"].numpy().tobytes())
    return digest.hexdigest()
