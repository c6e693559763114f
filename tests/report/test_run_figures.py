"""Pictures are drawn from what is there, and nothing is drawn from nothing."""

import pytest
from bringup.plan import profile
from bringup.records import Observation
from bringup.report.figures import canvas, pairs
from bringup.report.figures import run as figures
from matplotlib.figure import Figure
from runs_for_tests import FIXTURES

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
    one = Observation(
        quantity="nccl.all_reduce.busbw@8KiB", subject="1-node", value=None, unit="GB/s", evidence="e", why="w"
    )
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/monitor.csv").write_text("torn\n")
    assert figures.draw(tmp_path, [one], profile.load("local-cpu")) == []
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
    assert figures._outliers(lines)[0] == "n7"
    assert len(figures._outliers(lines)) == figures.MAX_OUTLIERS


def test_a_map_of_pairs_becomes_a_strip_with_the_slowest_names_where_it_would_be_white(tmp_path, drawn):
    nodes = [f"n{number}" for number in range(pairs.MAX_MAP + 2)]
    observations = [
        Observation(
            quantity="pair.bandwidth",
            subject=f"{source}->{target}",
            value=2.0 if source == "n77" else 46.0,
            unit="GB/s",
            evidence="raw/pairs-0.jsonl:1",
        )
        for source, target in zip(nodes[::2], nodes[1::2], strict=True)
        for source, target in ((source, target), (target, source))
    ]
    assert pairs.draw(observations, nodes, tmp_path) == [("Bandwidth between nodes", pairs.HEAT_MAP)]
    [figure] = drawn
    [axes] = figure.axes
    assert "slowest: n77 2," in axes.get_xlabel()
    assert "130 of 16770 directions" in axes.get_title()
