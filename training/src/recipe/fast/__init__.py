"""The recipes plain and fast: what each changes of a training as Trainer makes it (training/README.md).

plain: no step waits for the device. Trainer's own waits are switched off in workload.Run.common_arguments; that of
       transformers is bypassed here. And DDP has one copy of the gradients: its buckets (trainer.py).
fast:  plain, and what makes one GPU faster without changing what is learnt: compiled_blocks.py, chunked_loss.py.

`recipe` is recorded with what it turned on (`tuning`), and compare refuses to mix recipes. The wait: in every forward
pass transformers reads position ids back from the device, to find out whether several sequences share a row; here they
are one. The name is private: where the installed version lacks it, its wait stays, and `tuning` says so.
"""

import contextlib
from collections.abc import Iterator, Mapping

from bringup.training.formulae.models import CHUNKED_LOSS
from bringup.training.records import ON
from transformers import masking_utils

from recipe import group
from recipe.arguments import SLOW, Args
from recipe.fast.compiled_blocks import no_compiler

NO_LOOK, COMPILE = "no look at position ids", "compile per block"
LOOK = "find_packed_sequence_indices"


def choose(args: Args) -> dict[str, str]:
    """Return what is changed -> ON, or why it cannot. A collective: runs are compared, so it is equal on every rank."""
    there = hasattr(masking_utils, LOOK)
    changes = {NO_LOOK: None if there else f"its wait stays: {masking_utils.__name__}.{LOOK} is not in this version"}
    if args.recipe == "fast":
        with group.patience(SLOW * args.timeout_s, args.timeout_s):
            changes |= {COMPILE: next(filter(None, group.gather(no_compiler())), None), CHUNKED_LOSS: None}
    return {what: why_not or ON for what, why_not in changes.items()}


def on(tuning: Mapping[str, str], what: str) -> bool:
    return tuning.get(what) == ON


@contextlib.contextmanager
def without_waits() -> Iterator[None]:
    """Remove that look inside: for models that are given rows of one sequence each, without position ids."""
    look = getattr(masking_utils, LOOK, None)
    if look is not None:
        setattr(masking_utils, LOOK, lambda *args, **kwargs: None)  # a row is one sequence
    try:
        yield
    finally:
        if look is not None:
            setattr(masking_utils, LOOK, look)
