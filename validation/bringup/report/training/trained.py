"""What the report of one training reads: its records, its evidence, and what discovery said of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from bringup.advise import bandwidth
from bringup.evidence import curve
from bringup.judge import Judged
from bringup.records import Observation, RunArgs, TrainMetrics
from bringup.report import system
from bringup.report.training.sampled import Sampled, sampled


@dataclass(frozen=True)
class Trained:
    judged: Judged
    args: RunArgs
    metrics: TrainMetrics
    facts: Mapping[str, str] = field(default_factory=dict)  # of the cluster, by what they say: report/system.py
    curve: bandwidth.Measured | None = None  # of the collectives, where the same report has them

    @cached_property
    def sampled(self) -> Sampled:
        return sampled(self.judged)

    def seen(self, quantity: str) -> list[Observation]:
        """What was observed of it, and has a value."""
        return [
            observation
            for observation in self.judged.observations
            if observation.quantity == quantity and observation.value is not None
        ]


def trained(judged: Sequence[Judged]) -> list[Trained]:
    """The trainings among these runs that came to their end, fewest ranks first."""
    facts = {
        fact.what: fact.value if not fact.others else f"{fact.value} ({fact.scope})" for fact in system.facts(judged)
    }
    alone = [run for run in judged if run.training is None and curve.curves(run.observations)]
    measured = bandwidth.measured(alone) if alone else None
    trainings = [
        Trained(run, run.training.args, run.training.metrics, facts, measured)
        for run in judged
        if run.training is not None
    ]
    return sorted(trainings, key=lambda run: run.metrics.world_size)
