"""What the steps so far produced: loss and gradient norm of the global batch, and the rows this rank trained on.

Tensors of single steps stay on the device, and no step waits to read one, until settle() turns them into numbers: at a
checkpoint, which keeps them, and at the end. So a resumed run knows the steps before it.
"""

import contextlib
import json
import math
import statistics
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import torch
from torch.distributed.tensor import DTensor

from recipe import group
from recipe.meter import Meter
from recipe.rank import say

OWN_LOSS_FINITE = "the loss of this rank was finite"  # a victim's words: bringup.readers.launcher knows them
LINES = 10  # on the screen, of a run
CHECK_EVERY = 10  # steps
LAST_WORDS_S = 10  # a rank looks once a step: more than most steps take


class NotFinite(RuntimeError):
    """Training produced a NaN or an infinity. One line: the step, and whether it began on this rank."""

    def wait_for_others(self) -> None:
        """Wait, as the words of this rank are written, for those of all: the NaN of one reaches all in one step, and
        torchrun ends all of them as soon as one has ended."""
        group.meet_at_the_end(LAST_WORDS_S)


class Sent:
    """Numbers on their way to the host, behind what the device has to do until now. No rank waits for them."""

    def __init__(self, *values: torch.Tensor) -> None:
        self.event: Any = None
        self.values = [each.double().to("cpu", non_blocking=True) for each in values]  # into pinned memory
        if group.CUDA:
            self.event = torch.cuda.Event()
            self.event.record()

    def arrived(self) -> bool:
        return self.event is None or bool(self.event.query())

    def wait(self) -> Self:
        """Wait until they have arrived, and return them."""
        if self.event is not None:
            self.event.synchronize()
        return self


def judge(first_step: int, losses: list[float], norms: list[float]) -> None:
    """Raise NotFinite at the first step whose loss on this rank, or whose norm, is not a number."""
    for step, (loss, norm) in enumerate(zip(losses, norms, strict=True), start=first_step):
        if not math.isfinite(loss):
            raise NotFinite(
                f"step {step}: the loss of this rank is {loss}; a faulty GPU or bad rows if it is the only one, "
                "else lower --learning-rate"
            )
        if not math.isfinite(norm):
            raise NotFinite(
                f"step {step}: the gradient norm is {norm}, {OWN_LOSS_FINITE}; where all ranks say so, lower "
                "--learning-rate"
            )


class Trajectory:
    """loss, grad_norm: index = step - 1, the same on every rank. rows: of this rank, in order, repeats included.

    loss_dtype: of the losses as training returned them; None before the first.
    """

    def __init__(self) -> None:
        self.loss: list[float] = []
        self.grad_norm: list[float] = []
        self.rows: list[int] = []
        self.loss_dtype: torch.dtype | None = None
        # of the micro-steps of this step, which become one tensor each: a small one takes 512 bytes of a GPU's memory
        self._micro_steps: list[tuple[torch.Tensor, torch.Tensor]] = []  # rows, loss
        # per step: this rank's share of the loss, the norm of the averaged gradient before clipping, rows
        self._steps: list[tuple[torch.Tensor, Any, torch.Tensor]] = []

    def add(self, rows: torch.Tensor, loss: torch.Tensor) -> None:
        """Add the rows and the loss of each micro-step."""
        self._micro_steps.append((rows, loss))
        self.loss_dtype = loss.dtype

    def add_norm(self, norm: Any) -> None:
        """Add the norm after each optimizer step."""
        rows, shares = zip(*self._micro_steps, strict=True)
        self._steps.append((torch.stack(shares).double().sum(), norm, torch.cat(rows)))
        self._micro_steps.clear()

    def recent(self, most: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (this rank's share of the loss, its part of the norm: all under DDP, a part of the sum under FSDP) of
        the last steps kept, `most` or less; on the device, without a collective."""
        losses, norms, _ = zip(*self._steps[-most:], strict=True)
        own = [norm.to_local() if isinstance(norm, DTensor) else norm for norm in norms]
        return torch.stack(losses), torch.stack(own)

    def settle(self) -> None:
        """Take over the steps since the last time. A collective. Raises NotFinite at a loss of NaN or Inf."""
        if not self._steps:
            return
        losses, own_norms, rows = zip(*self._steps, strict=True)
        # the mean of the shares over the ranks is the loss of the global batch
        mine = torch.stack(losses).tolist()
        # norms are equal on all ranks, unless one has gradients of its own: the highest; NaN stays NaN
        whole = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in own_norms]
        of_ranks = group.gather(torch.stack(whole).double().tolist())
        norms = torch.tensor(of_ranks, dtype=torch.float64).amax(dim=0).tolist()
        judge(len(self.loss) + 1, mine, norms)
        self.loss += [math.fsum(step) / len(step) for step in zip(*group.gather(mine), strict=True)]
        self.grad_norm += norms
        self.rows += torch.cat(rows).tolist()
        self._steps.clear()


class Live:
    """Looks at the last steps while it trains. `tokens_per_step`: of all ranks; `mfu`: tokens/s of one rank -> MFU.

    A loss or a norm that is no number ends the training. A rank's loss is its own; the norm is that of the averaged
    gradient, so the NaN of one rank reaches all. Rank 0 shows some ten times how far it is, on the screen and in
    raw/progress.jsonl. Nothing waits: numbers are looked at in a later step, when they have arrived.
    """

    def __init__(self, file: Path, steps: int, tokens_per_step: int, mfu: Callable[[float], float | None]) -> None:
        self.file, self.steps, self.tokens_per_step, self.mfu = file, steps, tokens_per_step, mfu
        self.every = max(1, steps // LINES)
        self.on_the_way: deque[tuple[int, Sent]] = deque()  # step; losses and norms of the steps up to it

    def after_step(self, step: int, trajectory: Trajectory, clock: Meter) -> None:
        """Look, and raise NotFinite at what is no number."""
        self.tell(clock)
        if self._is_shown(step) or step % CHECK_EVERY == 0:
            self.on_the_way.append((step, Sent(*trajectory.recent(CHECK_EVERY))))
            self.tell(clock)  # on a CPU it is there already

    def _is_shown(self, step: int) -> bool:
        return step % self.every == 0 or step == self.steps

    def tell(self, clock: Meter) -> None:
        """Judge what has arrived, and print it."""
        while self.on_the_way and self.on_the_way[0][1].arrived():
            step, sent = self.on_the_way.popleft()
            losses, norms = (values.tolist() for values in sent.values)
            judge(step - len(losses) + 1, losses, norms)
            if group.RANK == 0 and self._is_shown(step):
                self._print(step, losses[-1], clock)

    def _print(self, step: int, loss: float, clock: Meter) -> None:
        line, words = {"step": step, "of": self.steps, "loss_of_rank_0": loss}, f"loss {loss:.4f} (this rank)"
        if recent_s := clock.steps[-self.every :]:
            step_s = statistics.fmean(recent_s)
            speed = self.tokens_per_step / step_s
            mfu = self.mfu(speed / group.WORLD)
            line |= {"step_s": step_s, "tokens_per_s": speed, "mfu": mfu}  # type: ignore[dict-item]
            words += f"  {speed:,.0f} tokens/s  {1000 * step_s:.0f} ms"
            words += "" if mfu is None else f"  MFU {100 * mfu:.1f} %"
        with contextlib.suppress(OSError), self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")  # for people: a full disk ends no training here
        say(f"step {step}/{self.steps}  {words}")
