"""What is trained where there is no model yet: the shape of a Llama-like decoder, read from its configuration. And its
layout over ranks.

Arithmetic on numbers of a JSON file; no torch, no transformers. Counts are of elements, unless a name says bytes. A
training reads the shape of any model from the model itself (training/src/recipe/model_shape.py), and asks no table.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bringup.kernel.errors import ModelError
from bringup.kernel.results import REPOSITORY
from bringup.training.records import ON, Attention, Blocks, ModelShape, RunArgs, Tensor

MODELS = REPOSITORY / "training/models"
# q, k, v, o; gate, up, down; two norms; one LM head; no biases
DENSE_DECODERS = frozenset({"llama", "mistral", "smollm3"})

Kind = Literal["single", "ddp", "zero2", "fsdp", "hsdp"]
# simplest first
NAMES: dict[Kind, str] = {"single": "single", "ddp": "DDP", "zero2": "ZeRO-2", "fsdp": "FSDP", "hsdp": "HSDP"}
KINDS: tuple[Kind, ...] = tuple(NAMES)
CHUNKED_LOSS = "loss in chunks of tokens"
"""Its name in the tuning of a training (training/src/recipe/fast)."""


def dense_block(hidden: int, heads: int, kv_heads: int, head_size: int, feed_forward: int) -> tuple[Tensor, ...]:
    """Return a Llama's tensors: q, k, v, o; gate, up, down; two norms."""
    h, a, k, f = hidden, heads * head_size, kv_heads * head_size, feed_forward
    return ((a, h), (k, h), (k, h), (h, a), (f, h), (f, h), (h, f), (h, 1), (h, 1))


def padded(tensors: tuple[Tensor, ...], ranks: int) -> int:
    """Count elements of one rank's shard: fully_shard cuts rows into equal pieces and pads the last ones."""
    return sum(math.ceil(rows / ranks) * columns for rows, columns in tensors)


def shape_of(config: Mapping[str, Any], name: str) -> ModelShape:
    """Read the shape from a Hugging Face configuration alone. Raises ModelError for a model of unknown tensors."""
    kind = config.get("model_type")
    if kind not in DENSE_DECODERS:
        unknown = f"no formula for model type {kind!r}; there are {', '.join(sorted(DENSE_DECODERS))}"
        others = "`python training/src/predict.py --model CONFIG.JSON` computes others"
        raise ModelError(f"model {name}: {unknown}; {others}")
    biased = [field for field in ("attention_bias", "mlp_bias") if config.get(field)]
    if biased:
        raise ModelError(f"model {name}: {biased[0]} is true, and the formulae count no biases")
    try:
        hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        layers, vocabulary = int(config["num_hidden_layers"]), int(config["vocab_size"])
        kv_heads = int(config.get("num_key_value_heads") or heads)
        head_size = int(config.get("head_dim") or hidden // heads)
        block = dense_block(hidden, heads, kv_heads, head_size, int(config["intermediate_size"]))
    except KeyError as error:
        raise ModelError(f"model {name}: its configuration has no {error.args[0]}") from error
    tied, head = bool(config.get("tie_word_embeddings", False)), (vocabulary, hidden)
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    return ModelShape(
        name=name,
        hidden=hidden,
        vocabulary=vocabulary,
        tied=tied,
        embedding=() if tied else (head,),
        blocks=(Blocks(count=layers, tensors=block),),
        tail=((hidden, 1), head),
        matmul_parameters=layers * sum(rows * columns for rows, columns in block if columns > 1) + vocabulary * hidden,
        attention=(Attention(layers=layers, heads=heads, kv_heads=kv_heads, head_size=head_size, window=window),),
    )


def load(name_or_path: str) -> ModelShape:
    """Load a stem of training/models, the path of a config.json, or its folder. Raises ModelError."""
    path = Path(name_or_path)
    if path.is_dir():
        path /= "config.json"
    elif path.suffix != ".json":
        path = MODELS / f"{name_or_path}.json"
        if "/" in name_or_path or not path.is_file():
            known = ", ".join(sorted(file.stem for file in MODELS.glob("*.json")))
            named = f"there are {known}" if known else "those with a name come with a checkout of bringup"
            path_of = "the path of a config.json"
            if name_or_path.count("/") == 1:
                path_of += f": huggingface-cli download {name_or_path} config.json"
            raise ModelError(f"no model named {name_or_path!r}; {named}; or give {path_of}")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{path}: cannot be read as a model configuration: {error}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path}: a model configuration is a mapping, this is not")
    return shape_of(config, path.parent.name if path.name == "config.json" else path.stem)


@dataclass(frozen=True)
class Job:
    """One training step's layout. `rows` are per rank and micro-step; a rank has a GPU."""

    kind: Kind
    nodes: int
    gpus_per_node: int
    sequence_length: int
    rows: int = 1
    accumulation: int = 1
    compute_bytes: int = 2  # 2: bfloat16 over float32 master weights; 4: float32
    reduce_bytes: int = 4  # a gradient on the wire, sharded strategies; DDP reduces float32
    activation_checkpointing: bool = False
    eager_attention: bool = False  # keeps the S x S scores; sdpa and flash do not
    shard_size: int | None = None  # ranks of an HSDP shard group; None: those of a node
    sync_each_batch: bool = False  # gradients are reduced in every micro-step
    bucket_mib: int = 25  # of gradients that DDP reduces at once: its bucket_cap_mb
    buckets_apart: bool = False  # DDP's buckets are a second copy of the gradients, as Trainer has it by default
    chunked_loss: bool = False  # the logits of some thousand tokens are there at once, and not of all

    @property
    def ranks(self) -> int:
        return 1 if self.kind == "single" else self.nodes * self.gpus_per_node

    @property
    def shards(self) -> int:
        """Count ranks that share one copy of the states."""
        return {"single": 1, "ddp": 1, "hsdp": self.shard_size or self.gpus_per_node}.get(self.kind, self.ranks)

    @property
    def replicas(self) -> int:
        """Count copies of the states."""
        return self.ranks // self.shards

    @property
    def sharded(self) -> bool:
        return self.kind in ("zero2", "fsdp", "hsdp")

    @property
    def reductions(self) -> int:
        """Count micro-steps of a step that reduce gradients."""
        return self.accumulation if self.sync_each_batch else 1

    @property
    def tokens(self) -> int:
        """Count tokens per rank and micro-step."""
        return self.rows * self.sequence_length

    @property
    def global_batch(self) -> int:
        return self.ranks * self.rows * self.accumulation


def shard_sizes(nodes: int, ranks_per_node: int) -> list[int]:
    """Return sizes that a shard group of HSDP can have: a part of a node or whole nodes, and 2 groups or more."""
    world = nodes * ranks_per_node
    whole = (size for size in range(2, world // 2 + 1) if world % size == 0)
    return [size for size in whole if ranks_per_node % size == 0 or size % ranks_per_node == 0]


def job_of(args: RunArgs, *, reads_checkpoint: bool = False) -> Job:
    """Return the layout that the arguments of a run ask for. reads_checkpoint: its first step has the optimizer's
    states already, and its micro-steps before the first reduction have gradients beside DDP's buckets."""
    bf16 = args.compute_dtype == "bfloat16"
    apart_at_first = reads_checkpoint and args.gradient_accumulation > 1 and not args.sync_each_batch
    return Job(
        kind="zero2" if args.strategy == "fsdp" and args.reshard_after_forward is False else args.strategy,
        nodes=args.nodes,
        gpus_per_node=args.ranks_per_node,
        sequence_length=args.sequence_length,
        rows=args.per_device_batch,
        accumulation=args.gradient_accumulation,
        compute_bytes=2 if bf16 else 4,
        reduce_bytes=2 if bf16 and args.reduce_dtype == "bfloat16" else 4,
        activation_checkpointing=args.activation_checkpointing,
        eager_attention=args.attention == "eager",
        shard_size=args.shard_size,
        sync_each_batch=args.sync_each_batch,
        bucket_mib=args.ddp_bucket_cap_mb or Job.bucket_mib,
        buckets_apart=apart_at_first,
        chunked_loss=args.tuning.get(CHUNKED_LOSS) == ON,
    )
