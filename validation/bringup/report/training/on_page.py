"""Figures and advice of trainings on the page."""

from bringup.kernel.judge import Judged
from bringup.report.charts import training
from bringup.report.charts.drawing import Drawing
from bringup.report.training.conclusions import entry_of
from bringup.training.comparison import recommend
from bringup.training.comparison.sidebyside import SideBySide


def of_ranks(judged: Judged) -> list[Drawing]:
    entry = entry_of(judged)
    return [] if entry is None else training.of_ranks(entry)


def of_compared(compared: SideBySide) -> dict[str, object]:
    """Return what the template shows of trainings that were compared: what decides, and the advice."""
    deciding = training.deciding([row.entry for row in compared.rows])
    return {"deciding": deciding, "advice": recommend.recommend(compared)}
