"""Rows of tokens: documents are tokenised and packed end to end into full rows.

So every token counts, and every strategy does the same work. Without packing a row is one document, cut or padded on
the right. Padding is counted apart and has no loss.

Rows are made once per node, by one rank, into a file that the ranks of the node map into memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recipe.documents import DataError, Source, first_line

FORMAT = 1  # of the files; part of their names
PADDING = -1  # in the file; no tokenizer has it
HIDDEN = -2  # a token that is read and not learnt (not part of an answer) is HIDDEN - token in the file
IGNORED = -100  # the label that has no loss

END_OF_TEXT = 1
FIRST_BYTE = 3  # ids 0, 1, 2 are begin, end and padding; byte b is id b + 3
BYTE_VOCABULARY = FIRST_BYTE + 256

DOCUMENTS_AT_ONCE = 1000  # a tokenizer is faster with many

DAY = date(2024, 7, 26)  # of chat templates that show the day: rows made on another one would be others
_TODAY = re.compile(r"""strftime_now\(\s*(?:"([^"]*)"|'([^']*)')\s*\)""")


@dataclass(frozen=True)
class Encoder:
    """Texts to ids, each text ended by its end-of-text token, and a name for exactly this way of doing so."""

    encode: Callable[[list[Any]], Sequence[list[int] | None]]  # None: nothing to learn in it
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


def chat_encoder(tokenizer: Any | None) -> Encoder:
    """Conversations by the tokenizer's chat template, or as bytes. Only answers are learnt. Raises DataError."""
    template = None if tokenizer is None else dated(_template(tokenizer))

    def render(turns: list[dict[str, str]], asks: bool) -> list[int]:
        if tokenizer is not None:
            more = {"chat_template": template, "add_generation_prompt": asks}
            return list(tokenizer.apply_chat_template(turns, return_dict=False, **more))
        ids = []
        for turn in turns:
            ids += [FIRST_BYTE + byte for byte in f"{turn['role']}:\n{turn['content']}\n".encode()]
            ids += [END_OF_TEXT] if is_answer(turn) else []
        return ids + [FIRST_BYTE + byte for byte in b"assistant:\n" * asks]

    def encode(turns: list[dict[str, str]]) -> list[int] | None:
        try:
            return masked(turns, render)
        except DataError:
            raise
        except Exception as error:  # of a template, whatever it raises: the other ranks wait for this one
            raise DataError(f"--chat: a conversation cannot be shown: {first_line(error)}: {_roles(turns)}") from error

    about = "bytes" if tokenizer is None else f"{tokenizer_encoder(tokenizer).identity} {template}"
    return Encoder(lambda some: [encode(turns) for turns in some], f"chat {about}")


def _template(tokenizer: Any) -> str:
    """Of several the one that is called default, as transformers takes it."""
    named = tokenizer.chat_template
    template = named.get("default") if isinstance(named, dict) else named
    if template is None:
        raise DataError("--chat: the tokenizer has no chat template; take the model's instruct version")
    return str(template)


def dated(template: str) -> str:
    """With DAY in the place of today, so that the text alone says what rows are made. Raises DataError."""
    fixed = _TODAY.sub(lambda day: json.dumps(DAY.strftime(day[1] or day[2] or "")), template)
    if re.search(r"strftime_now\s*\(", fixed):
        raise DataError(
            "--chat: the chat template shows the day in a form that cannot be fixed, and rows would depend on it"
        )
    return fixed


def is_answer(turn: dict[str, str]) -> bool:
    return turn["role"] == "assistant"


def _roles(turns: Any) -> str:
    return f"roles {[turn.get('role') if isinstance(turn, dict) else None for turn in turns or ()]}"


def masked(turns: list[dict[str, str]], render: Callable[[list[dict[str, str]], bool], list[int]]) -> list[int] | None:
    """Tokens of a conversation, all but those of answers hidden; None: it has no answer to learn. A template that shows
    an earlier answer otherwise than the last one leaves that out of what is learnt. render(turns, whether an answer is
    to follow). Raises DataError where none can be learnt because the template shows none as it asks for it."""
    if not any(map(is_answer, turns)):
        return None
    ids = render(turns, False)
    stored = [HIDDEN - token for token in ids]
    otherwise = False
    for number, turn in enumerate(turns):
        if is_answer(turn):
            asked, answered = render(turns[:number], True), render(turns[: number + 1], False)
            if answered[: len(asked)] != asked:
                otherwise = True
            elif ids[: len(answered)] == answered:
                stored[len(asked) : len(answered)] = answered[len(asked) :]
    if any(token > HIDDEN for token in stored):
        return stored
    if otherwise:
        raise DataError(f"--chat: the template shows the answer otherwise than its prompt for one: {_roles(turns)}")
    return None


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The rows of a file, mapped into memory: shape (rows, sequence_length)."""

    def __init__(self, path: Path) -> None:
        self.ids = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def highest(self) -> int:
        """The largest token."""
        return max(int(self.ids.max()), HIDDEN - int(self.ids.min()))

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One sample. The model shifts the labels itself; `row` and `padding` say later what a rank consumed.

        It has no attention mask: padding is on the right, where a causal model does not look, and the fast kernels take
        no mask.
        """
        ids = torch.from_numpy(self.ids[index].astype(np.int64))
        real = ids != PADDING
        return {
            "input_ids": ids.where(ids > HIDDEN, HIDDEN - ids).clamp(min=0),
            "labels": ids.where(ids >= 0, IGNORED),
            "row": index,
            "padding": int(len(ids) - real.sum()),
        }


@dataclass(frozen=True)
class Made:
    """A file of rows, and how many documents were tokenised for it now; 0 when it was there."""

    path: Path
    documents: int
    left_out: int = 0  # conversations without an answer to learn


def make_rows(
    folder: Path, source: Source, encoder: Encoder, rows: int, sequence_length: int, *, packing: bool
) -> Made:
    """The file of these rows in `folder`, made if it is not there. Its name is its content, so it is never out of date.

    Two jobs, or two nodes with one folder, may make the same file at the same time. Each writes a part of its own. The
    last rename wins, and its content is the same. Raises DataError.
    """
    about = json.dumps([FORMAT, source.identity, encoder.identity, rows, sequence_length, packing])
    path = folder / f"{hashlib.sha256(about.encode()).hexdigest()[:32]}.npy"
    if path.is_file():
        return Made(path, 0)
    encoded = _Encoded(source.documents, encoder)
    part = path.with_name(f".{path.stem}.{os.uname().nodename}.{os.getpid()}.npy")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = np.lib.format.open_memmap(part, mode="w+", dtype=np.int32, shape=(rows, sequence_length))
        with part.open("r+b") as whole:  # now: a mapped page that the filesystem has no block for ends the process
            os.posix_fallocate(whole.fileno(), 0, part.stat().st_size)
        fill = _pack if packing else _pad
        documents = fill(file, iter(encoded))
        file.flush()
        part.replace(path)
    except TooLittle as error:
        why = f"; {encoded.left_out} conversation(s) had no answer to learn" if encoded.left_out else ""
        raise DataError(f"{error}{why}") from error
    except OSError as error:
        raise DataError(
            f"{folder} cannot hold the tokenised rows ({rows} x {sequence_length} x 4 bytes): {error.strerror}; "
            "give another folder with --data-cache, or set TMPDIR"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # of a folder that is none
            part.unlink(missing_ok=True)
    return Made(path, documents, encoded.left_out)


@dataclass
class _Encoded:
    """The tokens of each document, and how many documents had nothing to learn."""

    documents: Iterator[Any]
    encoder: Encoder
    left_out: int = 0

    def __iter__(self) -> Iterator[list[int]]:
        while some := list(islice(self.documents, DOCUMENTS_AT_ONCE)):
            for ids in self.encoder.encode(some):
                if ids is None:
                    self.left_out += 1
                else:
                    yield ids


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
    raise _too_little(filled // file.shape[1], file)


def _pad(file: Any, documents: Iterator[list[int]]) -> int:
    """A document per row; what is left of a row is padding, what is left of a document is dropped."""
    count = 0
    for count, ids in enumerate(islice(documents, len(file)), start=1):
        used = min(len(ids), file.shape[1])
        file[count - 1, :used] = ids[:used]
        file[count - 1, used:] = PADDING
    if count < len(file):
        raise _too_little(count, file)
    return count


class TooLittle(DataError):
    """There are fewer rows than the run needs."""


def _too_little(filled: int, file: Any) -> TooLittle:
    rows, length = file.shape
    return TooLittle(
        f"the dataset fills {filled} rows of {length} tokens, the run needs {rows} (steps x global batch): "
        "lower --steps, --global-batch or --sequence-length, or take more data"
    )


def fingerprint(rows: Rows, samples: int = 16) -> str:
    """Number of rows, and content of up to `samples` of them, spread over the file. Equal rows: equal fingerprints."""
    digest = hashlib.sha256(str(rows.ids.shape).encode())
    for index in range(0, len(rows), max(1, len(rows) // samples)):
        digest.update(rows.ids[index].tobytes())
    return digest.hexdigest()
