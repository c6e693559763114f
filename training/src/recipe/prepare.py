"""What is needed before the first step: the model, the rows of tokens, the weights. Of one training, or no rank
trains."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from bringup.records import RunArgs
from transformers import AutoTokenizer

from recipe import data, group, memory, weights
from recipe.arguments import Args
from recipe.checkpoint import state
from recipe.data import DataError
from recipe.memory import Footprint
from recipe.rank import RankFacts, say, say_once
from recipe.strategy import Refused

# ranks wait while one of their node tokenises, or all load; torchrun ends them sooner if that one dies
PATIENCE_S = 3600
ROWS = "rows.npy"

T = TypeVar("T")


class DifferentStart(RuntimeError):
    """The ranks do not start from the same weights and data."""


def prepare(
    args: Args,
    resolved: RunArgs,
    hosts: list[str],
    facts: RankFacts,
    require_more: Callable[[Any], None] = lambda model: None,
    reads_checkpoint: bool = False,
) -> tuple[Any, data.Rows, Footprint]:
    """Make the model, its rows, and the memory that it needs. `hosts`: index = rank. A collective.

    require_more(model): may refuse it too, before it has weights.

    A model that is going to be sharded has no weights yet: fill() makes them. Raises Refused on every rank when
    something is not available on one of them, or does not fit.
    """
    with group.patience(PATIENCE_S, args.timeout_s):
        model = together(lambda: weights.without_memory(args), args)
        predicted = memory.footprint(model, resolved, reads_checkpoint=reads_checkpoint)
        memory.require(memory.need(predicted, resolved), resolved, hosts)
        require_more(model)
        positions = getattr(model.config, "max_position_embeddings", None) or args.sequence_length
        if args.sequence_length > positions:
            say_once(
                f"WARN --sequence-length {args.sequence_length}: {args.model} was made for {positions} positions; the "
                "speed is right, the loss is not that of the model"
            )
        if args.model_config is None:
            files = together(lambda: weights.identity(args.model, model), args)
            require_same("files of the model", files)
        rows = open_rows(args, model.config, hosts, facts)
    if resolved.strategy not in ("fsdp", "hsdp"):
        fill(model, args)
    return model, rows, predicted


def fill(model: Any, args: Args) -> None:
    """Fill in the weights: after a model is sharded, and before an optimizer looks at them. A collective."""
    with group.patience(PATIENCE_S, args.timeout_s):
        require_same_start(model, together(lambda: weights.fill(model, args), args))


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
        problem = str(data.cannot_load("model", args.model, error, f"hf download {args.model}"))
    failed = {rank: text for rank, text in enumerate(group.gather(problem)) if text is not None}
    for rank, text in failed.items():
        raise Refused(f"{text} (so says rank {rank}; {len(failed)} of {group.WORLD} rank(s) failed)")
    return made  # type: ignore[return-value]  # no problem, so it was made


def open_rows(args: Args, config: Any, hosts: list[str], facts: RankFacts) -> data.Rows:
    """Return as many rows as the run consumes. A collective.

    The first rank of each node tokenises them into a temporary folder, which is removed when all ranks have opened the
    file: what is mapped stays readable."""
    encode = data.encode_bytes  # for models of random weights; a hub model has its own tokens
    if args.model_config is None:
        encode = data.encoder_of(together(lambda: AutoTokenizer.from_pretrained(args.model), args))
    first = hosts.index(hosts[group.RANK])  # of this node
    folder = Path(tempfile.mkdtemp(prefix="bringup-rows-")) if first == group.RANK else None

    def make() -> int:
        if folder is None:
            return 0
        begun, texts = time.perf_counter(), data.open_source(args.dataset, args.seed)
        documents = data.make_rows(folder / ROWS, texts, encode, args.steps * args.global_batch, args.sequence_length)
        highest = int(data.Rows(folder / ROWS).ids.max())
        if highest >= config.vocab_size:
            raise DataError(
                f"token {highest} is beyond the {config.vocab_size} tokens of model {args.model}: its tokenizer or its "
                "vocab_size is that of another model"
            )
        say(f"{documents} documents tokenised in {time.perf_counter() - begun:.1f} s")
        return documents

    try:
        facts.saw("train.rank.tokenized_documents", together(make), "count")
        folders = group.gather(folder, Path | None)
        rows = data.Rows(folders[first] / ROWS)
        require_same("rows of tokens", data.fingerprint(rows))
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


def require_same_start(model: Any, drawn: float) -> None:
    """Require the weights of one model on all ranks. A collective. `drawn`: the sum of what this rank drew.

    Without it FSDP mixes different starts, HSDP keeps them apart, and DDP hides them. None of them reports it. Every
    rank draws the whole model, part by part, so `drawn` is equal even where the shards are not. Ranks that hold the
    same shard hold the same bits; without sharding these are all ranks.
    """
    require_same("weights", drawn)
    parameters = dict(model.named_parameters())
    own = sum(state.fingerprints_of_rank(parameters).values())
    place = state.place_of_shard(next(iter(parameters.values())))
    held = group.gather((place, own), tuple[tuple[int, ...], int])
    first = dict(reversed(held))  # of each shard, what the lowest rank holds
    odd = [rank for rank, (place, theirs) in enumerate(held) if theirs != first[place]]
    if odd:
        raise DifferentStart(f"ranks {odd[:8]} start with other weights than the first rank that holds the same shard")
