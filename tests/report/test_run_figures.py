"""Pictures are drawn from what is there, and nothing is drawn from nothing."""

from bringup.plan import profile
from bringup.records import Observation
from bringup.report.figures import run as figures
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
