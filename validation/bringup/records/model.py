"""What of a model decides its memory, its traffic and its FLOPs: the shapes of its tensors, and its attention."""

from __future__ import annotations

from pydantic import Field

from bringup.records.base import Record

Tensor = tuple[int, int]
"""Rows and columns; FSDP cuts rows. A vector of n is (n, 1). Of more dimensions, all but the first are one."""


class Blocks(Record):
    """Decoder blocks that are alike. tensors: of one of them, as they are stored."""

    count: int = Field(ge=1)
    tensors: tuple[Tensor, ...]


class Attention(Record):
    """Layers whose attention is alike."""

    layers: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int | None = Field(ge=1)  # null: the configuration names none
    head_size: int = Field(ge=1)
    window: int | None = None  # tokens a position looks back; null: all


class ModelShape(Record):
    """A decoder: blocks between an embedding and a tail. Each tensor once, in float32 and whole, however it is sharded.

    The groups are those that accelerate gives to fully_shard. Made from a built model (training/src/recipe), or from a
    configuration where there is no model yet (bringup.formulae.models).
    """

    name: str
    hidden: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    tied: bool  # the LM head is the embedding, which is then in the tail
    embedding: tuple[Tensor, ...]
    blocks: tuple[Blocks, ...]
    tail: tuple[Tensor, ...]  # final norm and LM head, gathered together and kept until the backward pass
    rest: tuple[Tensor, ...] = ()  # in no group of its own: positions, projections beside the embedding
    matmul_parameters: int = Field(ge=0)  # weights of linear layers, the LM head among them, tied or not
    attention: tuple[Attention, ...]
    not_covered: str | None = None  # why its FLOPs, and what its blocks keep for the backward pass, are not known

    @property
    def parameters(self) -> int:
        """Tied ones once."""
        blocks = sum(blocks.count * elements(blocks.tensors) for blocks in self.blocks)
        return blocks + sum(elements(group) for group in (self.embedding, self.tail, self.rest))

    @property
    def layers(self) -> int:
        return sum(blocks.count for blocks in self.blocks)


def elements(tensors: tuple[Tensor, ...]) -> int:
    return sum(rows * columns for rows, columns in tensors)
