"""The loss in chunks: LM head and cross-entropy as one operation on some thousand tokens at a time.

Whole logits take 12 bytes x tokens x vocabulary (11.7 GiB at 8,192 x 128,256). Here it is 10 bytes x 2,048 x
vocabulary and a float32 gradient of the head. Gradients are computed in the forward pass, where the logits are: to
compute them again would be a third more work in the head. Loss and gradient are summed over the chunks in float32.
Not torch.nn.functional.linear_cross_entropy of torch 2.13: of bfloat16 input its loss is bfloat16 (near 8 it moves in
steps of 1/32), and so is the sum of the head's gradient. Nor Liger's: it asks the device for the number of labels.
"""

from collections.abc import Callable
from typing import Any

import torch
from bringup.training.formulae.memory import CHUNK_TOKENS

from recipe.strategy import Refused

OfChunk = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
IGNORED = -100  # a label that does not count, as transformers pads
INSTEAD = "leave out --recipe fast"


def of_chunk(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (sum of losses, float32; its gradient by the logits, in their type). (tokens, vocabulary), (tokens,)."""
    counts = labels != IGNORED
    labels = labels.where(counts, 0)[:, None]
    log_p = logits.log_softmax(-1, dtype=torch.float32)
    loss = -log_p.gather(1, labels)[:, 0].where(counts, 0).sum()
    gradient = log_p.exp_()  # in its place
    gradient.scatter_add_(1, labels, torch.full_like(labels, -1, dtype=gradient.dtype))
    return loss, gradient.mul_(counts[:, None]).to(logits.dtype)


class _HeadAndLoss(torch.autograd.Function):
    """hidden (tokens, width), weight (vocabulary, width), labels (tokens,) -> sum of the losses in nats, float32."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, of_chunk: OfChunk
    ) -> torch.Tensor:
        by_hidden, by_weight = torch.empty_like(hidden), torch.zeros_like(weight, dtype=torch.float32)
        total = by_weight.new_zeros(())
        weight = weight.to(hidden.dtype)
        parts = (tensor.split(CHUNK_TOKENS) for tensor in (hidden, labels, by_hidden))
        for inputs, targets, gradient in zip(*parts, strict=True):
            loss, by_logits = of_chunk(inputs @ weight.t(), targets)
            total += loss
            gradient.copy_(by_logits @ weight)
            by_weight += by_logits.t() @ inputs
            del by_logits  # not beside those of the next chunk
        ctx.gradients = by_hidden, by_weight
        return total

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        by_hidden, by_weight = ctx.gradients
        del ctx.gradients  # scaled in place: a second backward pass would scale them twice
        return by_hidden.mul_(upstream), by_weight.mul_(upstream), None, None


class ChunkedLoss:
    """The head and the loss of one model. The head is called as before, so that FSDP gathers its weight, and hands its
    input on; the loss, which gets that as logits, computes both."""

    def __init__(self, model: Any) -> None:
        """model: a causal LM of transformers, before or after it is wrapped. Raises Refused."""
        head = model.get_output_embeddings()
        if not isinstance(head, torch.nn.Linear) or head.bias is not None:
            raise Refused(f"the LM head of {type(model).__name__} is no linear layer without a bias: {INSTEAD}")
        self.head: torch.nn.Linear = head
        self.of_chunk: OfChunk = of_chunk
        self.hidden: torch.Tensor | None = None
        head.forward = self._hand_on
        model.loss_function = self

    def compile(self) -> None:
        self.of_chunk = torch.compile(of_chunk, dynamic=False)

    def _hand_on(self, hidden: torch.Tensor) -> torch.Tensor:
        self.hidden = hidden
        return hidden

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: Any = None, **named: Any) -> Any:
        """As transformers' ForCausalLMLoss: the mean over the labels that count, or sum / num_items_in_batch."""
        if logits is not self.hidden:
            raise Refused(f"the model changes its logits before the loss gets them: {INSTEAD}")
        self.hidden = None
        targets = torch.nn.functional.pad(labels, (0, 1), value=IGNORED)[..., 1:].reshape(-1)
        hidden, device = logits.reshape(-1, logits.shape[-1]), logits.device.type
        if torch.is_autocast_enabled(device):
            hidden = hidden.to(torch.get_autocast_dtype(device))
        total = _HeadAndLoss.apply(hidden, self.head.weight, targets, self.of_chunk)
        return total / ((targets != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch)
