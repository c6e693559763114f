"""What `bringup advise` says of one model on one cluster, for tests to change."""

from dataclasses import replace
from typing import Any

from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.profile import Profile
from bringup.training.advise import answer as advise
from bringup.training.formulae import models
from bringup.training.formulae.flops import flops_per_token
from bringup.training.records import Advice, PredictedStrategy

LLAMA = models.load("llama3-8b")
H100 = profiles.load("h100-8x400g")


def question(**changes: Any) -> advise.Question:
    """Change fields of the question, or of its layout."""
    layout = {name: value for name, value in changes.items() if name in models.Job.__dataclass_fields__}
    of_question = {name: value for name, value in changes.items() if name not in layout}
    asked = advise.Question(LLAMA, replace(models.Job("fsdp", 2, 8, 4096), **layout), 16)
    return replace(asked, **of_question)


def advice(profile: Profile = H100, **changes: Any) -> Advice:
    return advise.advise(question(**changes), advise.known(profile, [], None))


def by_name(answer: Advice) -> dict[str, PredictedStrategy]:
    return {strategy.strategy: strategy for strategy in answer.strategies}


def flops_of_llama(sequence_length: int) -> float:
    flops = flops_per_token(LLAMA, sequence_length)
    assert flops is not None
    return flops


def default_batch(ranks: int) -> int:
    """Rows, as training/env.sh chooses them."""
    least = 32 if ranks <= 16 else min(2 * ranks, 64)
    return -(-least // ranks) * ranks
