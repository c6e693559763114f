"""What is needed before the first step: the model and the rows of tokens. Equal on every rank, or no rank trains."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from recipe import data, documents, group
from recipe.arguments import Args
from recipe.documents import DataError
from recipe.rank import RankFacts
from recipe.strategy import Refused

PATIENCE_S = (
    3600  # ranks wait while one of their node tokenises, or all load; torchrun ends them sooner if that one dies
)

T = TypeVar("T")


class DifferentStart(RuntimeError):
    """The ranks do not start from the same weights and data."""


def prepare(args: Args, hosts: list[str], facts: RankFacts, say: Callable[..., None]) -> tuple[Any, data.Rows]:
    """The model and its rows. Raises Refused on every rank when one of them is not available. `hosts`: index = rank."""
    with group.patience(PATIENCE_S, args.timeout_s):
        model = together(lambda: build_model(args))
        temporary = (
            None if args.data_cache else Path(tempfile.mkdtemp(prefix="bringup-rows-")) if is_first(hosts) else None
        )
        try:
            rows = open_rows(args, model.config, args.data_cache or temporary, hosts, facts, say)
            require_same_start(model, rows)  # every rank has opened its file when this returns
        finally:
            if temporary is not None:
                shutil.rmtree(temporary)  # what is mapped stays readable
    return model, rows


def is_first(hosts: list[str]) -> bool:
    """Whether this rank is the first of its node: it tokenises, the others read."""
    return hosts.index(hosts[group.RANK]) == group.RANK


def together(make: Callable[[], T]) -> T:
    """make() on every rank. When a rank raises DataError, all raise Refused with the message of the first such rank."""
    made, problem = None, None
    try:
        made = make()
    except DataError as error:
        problem = str(error)
    problems = group.gather(problem)
    said = [(rank, text) for rank, text in enumerate(problems) if text is not None]
    if said:
        raise Refused(f"{said[0][1]} (so says rank {said[0][0]}; {len(said)} of {len(problems)} rank(s) failed)")
    return made  # type: ignore[return-value]  # no problem, so it was made


def build_model(args: Args) -> Any:
    """The model with float32 master weights, said explicitly: from_pretrained would take the dtype of the checkpoint.

    Seeded on every rank before it is built. Trainer seeds too late, and nothing broadcasts the weights under FSDP2.
    """
    torch.manual_seed(args.seed)
    common = {"dtype": torch.float32, "attn_implementation": args.attention}
    if args.model_config is None:
        return from_hub(lambda: AutoModelForCausalLM.from_pretrained(args.model, **common), args.model)
    config = AutoConfig.for_model(**transformers.PreTrainedConfig.get_config_dict(str(args.model_config))[0])
    with group.DEVICE:  # on a GPU: billions of random numbers take minutes on a host, and every rank draws all of them
        return AutoModelForCausalLM.from_config(config, **common)


def build_encoder(args: Args) -> data.Encoder:
    """Models of random weights read bytes, hub models their own tokens."""
    if args.model_config is not None:
        return data.byte_encoder()
    return data.tokenizer_encoder(from_hub(lambda: AutoTokenizer.from_pretrained(args.model), args.model))


def from_hub(load: Callable[[], T], name: str) -> T:
    """load(), and any failure as one line."""
    try:
        return load()
    except torch.OutOfMemoryError:
        raise  # a model that is there and does not fit
    except Exception as error:  # whatever a library and a network say: without the model there is no run
        raise DataError(
            f"model {name} cannot be loaded: {documents.first_line(error)}; fetch it once where there is a network "
            f"(hf download {name}), or use one of training/models"
        ) from error


def open_rows(
    args: Args, config: Any, folder: Path | None, hosts: list[str], facts: RankFacts, say: Callable[..., None]
) -> data.Rows:
    """As many rows as the run consumes, tokenised by the first rank of each node. `folder`: None on the others."""

    def make() -> data.Made | None:
        if not is_first(hosts) or folder is None:
            return None
        begun = time.perf_counter()
        made = data.make_rows(
            folder,
            documents.open_source(args.dataset, args.seed),
            build_encoder(args),
            args.steps * args.global_batch,
            args.sequence_length,
            packing=args.packing,
        )
        highest = int(data.Rows(made.path).ids.max())
        if highest >= config.vocab_size:
            raise DataError(
                f"token {highest} is beyond the {config.vocab_size} tokens of model {args.model}: its tokenizer or its "
                "vocab_size is that of another model"
            )
        say(
            f"{made.documents} documents tokenised in {time.perf_counter() - begun:.1f} s"
            if made.documents
            else f"tokenised rows were there: {made.path}"
        )
        return made

    made = together(make)
    facts.saw("train.rank.tokenized_documents", 0 if made is None else made.documents, "count")
    everyone = group.gather(None if made is None else made.path)
    path = everyone[hosts.index(hosts[group.RANK])]
    if path is None:
        raise DifferentStart(f"no rows from the first rank of {hosts[group.RANK]}")
    return data.Rows(path)


def require_same_start(model: Any, rows: data.Rows) -> None:
    """Require equal weights and data on every rank.

    Without it FSDP2 mixes different starts, HSDP keeps them apart, and DDP hides them. None of them reports it.
    """
    mine = (sum(p.detach().abs().sum(dtype=torch.float64).item() for p in model.parameters()), data.fingerprint(rows))
    everyone = group.gather(mine)
    odd = [rank for rank, theirs in enumerate(everyone) if theirs != everyone[0]]
    if odd:
        raise DifferentStart(
            f"ranks {odd[:8]} start from other weights or data than rank 0: {everyone[odd[0]]} against "
            f"{everyone[0]}; same files, same versions, same GPU model on every node?"
        )
