"""The steps of a training on the timelines of its samples: begin and end, end of the warm-up, checkpoints.

Single steps are not marked: there may be thousands, of milliseconds each.
"""

from __future__ import annotations

from dataclasses import dataclass

from bringup.evidence.names import shortened
from bringup.results import TrainingRecords


@dataclass(frozen=True)
class Moments:
    """Unix s by the clock of `host`, on which rank 0 ran. A GPU may be a step behind the end of a step."""

    host: str
    first_step: int  # after 1 where the training was resumed
    begin_s: float  # of the first step
    ends_s: list[float]  # of each step
    warm_s: float | None  # end of the warm-up
    checkpoints: list[int]  # steps after which one was written


def moments(training: TrainingRecords | None) -> Moments | None:
    """Return the moments of a training. None for a run that is no training, or did not end."""
    if training is None:
        return None
    metrics = training.metrics
    ends_s, host = metrics.steps_unix_s, metrics.observed.hosts[0]
    window = metrics.window_unix_s.get(host)
    return Moments(
        host,
        1 if metrics.resumed is None else metrics.resumed.step + 1,
        ends_s[0] - metrics.startup.first_step_s,
        ends_s,
        window[0] if window else None,
        [] if metrics.checkpoint is None else metrics.checkpoint.after_steps,
    )


@dataclass(frozen=True)
class Marks:
    """Seconds of the timeline."""

    begin: float
    end: float
    warm: float | None
    checkpoints: list[float]
    caption: str

    @property
    def moments(self) -> list[tuple[float, str]]:
        """Return (second, style of its line), as the caption names them."""
        warm = [] if self.warm is None else [(self.warm, "dashed")]
        return [(self.begin, ""), (self.end, ""), *warm, *((moment, "dotted") for moment in self.checkpoints)]


def marks(moments: Moments | None, shift_s: float, last_s: float) -> Marks | None:
    """Return marks on a timeline: the host's clock plus `shift_s`; its last sample is at `last_s`. None where the
    training lies outside of it."""
    if moments is None:
        return None
    begin, ends = moments.begin_s + shift_s, [end_s + shift_s for end_s in moments.ends_s]
    if begin > last_s or ends[-1] < 0:
        return None
    at = {moments.first_step + index: end for index, end in enumerate(ends)}
    saved = [step for step in moments.checkpoints if step in at]
    last_step = moments.first_step + len(ends) - 1
    words = [
        f"upright lines: training, from the begin of step {moments.first_step} ({begin:.1f} s) "
        f"to the end of step {last_step} ({ends[-1]:.1f} s)"
    ]
    warm = None if moments.warm_s is None else moments.warm_s + shift_s
    if warm is not None:
        words.append(f"dashed: end of the warm-up ({warm:.1f} s)")
    if saved:
        words.append(f"dotted: checkpoint after step {shortened([str(step) for step in saved])}")
    return Marks(begin, ends[-1], warm, [at[step] for step in saved], "; ".join([*words, "other steps are not marked"]))
