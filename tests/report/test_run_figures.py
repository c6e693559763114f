"""Pictures are drawn from what is there, and nothing is drawn from nothing."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from bringup.plan import profile
from bringup.records import Observation
from bringup.report.figures import canvas
from bringup.report.figures import run as figures
from bringup.results import TrainingRecords
from matplotlib.figure import Figure
from runs_for_tests import FIXTURES
from trained_runs import RECORDS

PNG = b"\x89PNG\r\n"


def test_curves_and_timelines_are_drawn_beside_the_report(tmp_path):
    observations = [
        Observation(quantity=f"nccl.all_reduce.busbw@{size}", subject=scale, value=speed, unit="GB/s", evidence="e")
        for scale in ("1-node", "2-nodes")
        for size, speed in (("8KiB", 0.1), ("16MiB", 1.0))
    ]
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/monitor.csv").write_bytes((FIXTURES / "monitor.csv").read_bytes())
    drawn = figures.draw(tmp_path, observations, profile.load("local-cpu"))
    assert [name for _, name in drawn] == [figures.CURVES, figures.TIMELINES]
    assert all((tmp_path / name).read_bytes().startswith(PNG) for _, name in drawn)
    assert f"]({figures.CURVES})" in figures.markdown(drawn)


def test_nothing_is_drawn_from_nothing(tmp_path):
    observation = Observation(
        quantity="nccl.all_reduce.busbw@8KiB", subject="1-node", value=None, unit="GB/s", evidence="e", why="w"
    )
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/monitor.csv").write_text("torn\n")
    assert figures.draw(tmp_path, [observation], profile.load("local-cpu")) == []
    assert figures.markdown([]) == ""


@pytest.fixture
def drawn(monkeypatch) -> list[Figure]:
    """Figures instead of files."""
    figures_drawn: list[Figure] = []
    monkeypatch.setattr(canvas, "save", lambda figure, path: figures_drawn.append(figure))
    return figures_drawn


def lines_of(axes) -> dict[str, tuple[list[float], list[float]]]:
    return {str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}


def test_a_floor_stands_at_its_size_and_a_collective_without_one_says_so(tmp_path, drawn):
    observations = [
        Observation(quantity=f"nccl.{name}.busbw@{size}", subject="2-nodes", value=speed, unit="GB/s", evidence="e")
        for name in ("all_reduce", "broadcast")
        for size, speed in (("8KiB", 0.1), ("16MiB", 1.0))
    ]
    figures.draw(tmp_path, observations, profile.load("local-cpu"))
    [figure] = drawn
    all_reduce, broadcast = figure.axes
    [(at, limits)] = [line for label, line in lines_of(all_reduce).items() if label.startswith("expected")]
    assert at[1] == 16 * 2**20
    assert at[0] > 8 * 2**10
    assert set(limits) == {0.03}
    assert broadcast.get_title() == "broadcast (no floor declared)"


def test_of_many_nodes_a_band_is_drawn_and_the_node_that_differs_is_named():
    _, [axes] = canvas.panels(1, 1, (4, 3))
    lines = {f"n{number}": [(float(second), 50.0 + number % 3) for second in range(5)] for number in range(20)}
    lines["n7"] = [(float(second), 90.0) for second in range(5)]
    figures._band(axes, list(lines.values()))
    assert axes.get_legend_handles_labels()[1] == ["90 % of 20 nodes", "median"]
    assert figures.outliers(lines)[0] == "n7"
    assert len(figures.outliers(lines)) == figures.MAX_OUTLIERS


BEGUN = 1_795_400_000.0


def a_training(steps: int, begun: float = BEGUN + 10, checkpoints: tuple[int, ...] = ()) -> TrainingRecords:
    """Steps of a second each on n0, two of them to warm up, sampled from BEGUN on."""
    metrics = TrainingRecords(RECORDS / "run_ddp_2node").metrics
    assert metrics.checkpoint is not None
    changed = {
        "steps_unix_s": [begun + number for number in range(1, steps + 1)],
        "window_unix_s": {"n0": [begun + 2, begun + steps]},
        "observed": metrics.observed.model_copy(update={"hosts": ["n0", "n0", "n1", "n1"]}),
        "startup": metrics.startup.model_copy(update={"first_step_s": 1.0}),
        "checkpoint": metrics.checkpoint.model_copy(update={"after_steps": list(checkpoints)}),
    }
    return SimpleNamespace(metrics=metrics.model_copy(update=changed))  # type: ignore[return-value]


def timeline(folder: Path, training: TrainingRecords | None, drawn: list[Figure], seconds: int = 500) -> Figure:
    (folder / "raw").mkdir()
    rows = [f"{node},{BEGUN + second:.3f},1.0,1.00,0,0,,,,0.10,," for node in ("n0", "n1") for second in range(seconds)]
    (folder / "raw/monitor.csv").write_text("\n".join(rows) + "\n")
    figures.draw(folder, [], profile.load("local-cpu"), training)
    [figure] = drawn
    return figure


def marks_of(figure: Figure) -> list[tuple[float, str]]:
    """(second, line style) of what is upright in the first panel."""
    return [(line.get_xdata()[0], line.get_linestyle()) for line in figure.axes[0].lines if len(line.get_xdata()) == 2]


def test_begin_and_end_of_a_training_its_warm_up_and_its_checkpoints_are_marked(tmp_path, drawn):
    figure = timeline(tmp_path, a_training(400, checkpoints=(100, 400)), drawn)
    assert marks_of(figure) == [(10.0, "-"), (410.0, "-"), (12.0, "--"), (110.0, ":"), (410.0, ":")]
    caption = figure.get_suptitle()
    assert "from the begin of step 1 (10.0 s) to the end of step 400 (410.0 s)" in caption
    assert "dotted: checkpoint after step 100, 400; other steps are not marked" in caption
    assert [line.get_label() for line in figure.axes[0].get_legend().get_lines()] == [
        "n0 (own clock)",
        "n1 (own clock)",
    ]


@pytest.mark.parametrize("training", [None, a_training(12, BEGUN + 10_000), a_training(12, BEGUN - 10_000)])
def test_what_is_no_training_or_was_not_sampled_has_no_marks(tmp_path, drawn, training):
    figure = timeline(tmp_path, training, drawn)
    assert marks_of(figure) == []
    assert "step" not in figure.get_suptitle()
