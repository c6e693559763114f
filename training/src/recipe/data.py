"""Rows of tokens: documents are tokenised and packed end to end into full rows.

So every token counts, and every strategy does the same work. Rows are made once per node, into a file that its ranks
map into memory. Documents are sentences made from the seed, or a dataset in alpaca format or with a column `text`.
"""

import hashlib
import math
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from bringup.kernel.characters import many
from transformers import AutoTokenizer

from recipe import group
from recipe.arguments import DATA_FILES, Args
from recipe.rank import say
from recipe.strategy import Refused

T = TypeVar("T")
Encoder = Callable[[list[str]], list[list[int]]]  # texts to ids, each text ended by its end-of-text token

END_OF_TEXT = 1
FIRST_BYTE = 3  # ids 0, 1, 2 are begin, end and padding; byte b is id b + 3

DOCUMENTS_AT_ONCE = 1000  # a tokenizer is faster with many

STORY = (
    "a node in the rack lost its link and the job waits for the queue while one switch drops packets every fan holds "
    "speed two drivers disagree about memory some kernel counts errors no power no fabric the disk fills slowly each "
    "gradient meets its peers a shard is gathered used freed the loss falls tokens stream past and the next step begins"
)
WORDS = STORY.split()
ROWS = "rows.int32"


class DifferentStart(RuntimeError):
    """The ranks do not start from the same weights and data."""


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
    if name == "generated":
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
    return "\n\n".join(filter(None, (item["instruction"], item.get("input"), item["output"])))


def encode_bytes(texts: list[str]) -> list[list[int]]:
    """Return UTF-8 bytes as ids: a tokenizer without a file that ranks could race on."""
    return [[*(FIRST_BYTE + byte for byte in text.encode()), END_OF_TEXT] for text in texts]


def encoder_of(tokenizer: Any) -> Encoder:
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    return lambda texts: [ids + end for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The rows of a file, mapped into memory: shape (rows, sequence_length)."""

    def __init__(self, path: Path, sequence_length: int) -> None:
        self.ids = np.memmap(path, np.int32, "r").reshape(-1, sequence_length)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One sample. The model shifts the labels itself; `row` says later what a rank consumed. There is no attention
        mask: every token counts, and the fast kernels take none."""
        ids = torch.from_numpy(self.ids[index].astype(np.int64))
        return {"input_ids": ids, "labels": ids, "row": index}


def make_rows(path: Path, texts: Iterator[str], encode: Encoder, rows: int, sequence_length: int) -> int:
    """Make the file of these rows: documents end to end until each is full. Returns how many. Raises DataError."""
    left = rows * sequence_length
    try:
        with path.open("wb") as file:
            for count, ids in enumerate(_encoded(texts, encode), start=1):
                file.write(np.array(ids[:left], np.int32).tobytes())
                left -= min(len(ids), left)
                if not left:
                    return count
    except OSError as error:
        raise DataError(
            f"{path.parent} cannot hold the tokenised rows ({rows} x {sequence_length} x 4 bytes): {error.strerror}; "
            "set TMPDIR to another folder"
        ) from error
    raise DataError(
        f"the dataset fills {rows - math.ceil(left / sequence_length)} rows of {sequence_length} tokens, the run needs "
        f"{rows} (steps x global batch): lower --steps, --global-batch or --sequence-length, or take more data"
    )


def _encoded(texts: Iterator[str], encode: Encoder) -> Iterator[list[int]]:
    while some := list(islice(texts, DOCUMENTS_AT_ONCE)):
        yield from encode(some)


def fingerprint(rows: Rows) -> list[Any]:
    """Return the number of rows, and a hash of some from all over the file. Equal rows: equal fingerprints."""
    return [len(rows), hashlib.sha256(rows.ids[:: len(rows) // 16 + 1].tobytes()).hexdigest()]


def together(make: Callable[[], T], args: Args | None = None) -> T:
    """Call make() on every rank. When some raise DataError, all raise Refused with the message of the first. With
    `args` any failure is one, where their model is a hub model or a folder: without it there is no run."""
    made, problem = None, None
    try:
        made = make()
    except DataError as error:
        problem = str(error)
    except torch.OutOfMemoryError:
        raise  # a model that is there and does not fit
    except Exception as error:
        if args is None or args.model_config is not None:
            raise
        problem = str(cannot_load("model", args.model, error, f"hf download {args.model}"))
    failed = {rank: text for rank, text in enumerate(group.gather(problem)) if text is not None}
    for rank, text in failed.items():
        raise Refused(f"{text} (so says rank {rank}; {len(failed)} of {many(group.WORLD, 'rank')} failed)")
    return made  # type: ignore[return-value]  # no problem, so it was made


def open_rows(args: Args, config: Any, hosts: list[str]) -> Rows:
    """Return as many rows as the run consumes. A collective. The first rank of each node tokenises them into a
    temporary folder, which is removed when all have opened the file: what is mapped stays readable."""
    encode: Encoder = encode_bytes  # for models of random weights; a hub model has its own tokens
    if args.model_config is None:
        encode = encoder_of(together(lambda: AutoTokenizer.from_pretrained(args.model), args))
    first = hosts.index(hosts[group.RANK])  # of this node
    folder = Path(tempfile.mkdtemp(prefix="bringup-rows-")) if first == group.RANK else None

    def make() -> None:
        if folder is None:
            return
        begun, texts = time.perf_counter(), open_source(args.dataset, args.seed)
        documents = make_rows(folder / ROWS, texts, encode, args.steps * args.global_batch, args.sequence_length)
        highest = int(Rows(folder / ROWS, args.sequence_length).ids.max())
        if highest >= config.vocab_size:
            raise DataError(
                f"token {highest} is beyond the {config.vocab_size} tokens of model {args.model}: its tokenizer or its "
                "vocab_size is that of another model"
            )
        say(f"{documents} documents tokenised in {time.perf_counter() - begun:.1f} s")

    try:
        together(make)
        folders = group.gather(folder, Path | None)
        rows = Rows(folders[first] / ROWS, args.sequence_length)  # type: ignore[operator]  # the first rank made one
        require_same("rows of tokens", fingerprint(rows))
        return rows
    finally:
        if folder is not None:
            shutil.rmtree(folder)


def require_same(what: str, mine: Any) -> None:
    """Require an equal value on every rank. A collective."""
    everyone = group.gather(mine)
    odd = [rank for rank, theirs in enumerate(everyone) if theirs != everyone[0]]
    if odd:
        raise DifferentStart(
            f"ranks {odd[:8]} start with other {what} than rank 0: {everyone[odd[0]]} against {everyone[0]}; same "
            "files, same versions, same GPU model on every node?"
        )
