"""Figures as files: what is drawn beside report.md, and that no name of a record gets out of its text."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from bringup.kernel.judge import Judged
from bringup.kernel.records import Observation
from bringup.report import figures
from bringup.report.charts import sampled, sheet
from bringup.report.charts.drawing import Drawing, Series, lines
from bringup.training.records.folder import TrainingRecords
from factory import a_run, judged_of, observed, records_in
from loops import for_each
from runs_for_tests import FIXTURES
from trained_runs import RECORDS

SIZES = ("8KiB", "16MiB")
SVG = "{http://www.w3.org/2000/svg}"
EVIL = 'n0"/></text></style><script>a&b</script>]]>--><!--\x1b[2J\udc80\ufffe'


def judged(folder: Path, *observations: Observation, samples: str, nodes: tuple[str, ...] = ("n0", "n1")) -> Judged:
    (folder / "raw").mkdir()
    (folder / "raw/monitor.csv").write_text(samples)
    return judged_of(run=a_run("nccl_pairwise", nodes, plan={}), observations=observations, folder=folder)


def a_line(title: str = "t") -> Drawing:
    return lines(title, [Series("a", [(1.0, 5.0), (2.0, 6.0)])], "step", "ms")


def test_curves_pairs_and_timelines_are_drawn_beside_the_report(tmp_path: Path):
    of_size = [(scale, *of_one) for scale in ("1-node", "2-nodes") for of_one in zip(SIZES, (0.1, 1.0), strict=True)]
    speeds = [observed(f"nccl.all_reduce.busbw@{size}", scale, speed) for scale, size, speed in of_size]
    samples = (FIXTURES / "monitor.csv").read_text()
    drawn = figures.draw(judged(tmp_path, *speeds, observed("pair.bandwidth", "n0->n1", 4.0), samples=samples))
    assert [name for _, name in drawn] == ["curves.svg", "pairs.svg", "timelines.svg"]
    for title, name in drawn:
        root = ElementTree.parse(tmp_path / name).getroot()
        assert (root.tag, root.findtext(f"{SVG}title")) == (f"{SVG}svg", title)
        assert root.findtext(f"{SVG}desc")
        assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")
        assert figures.NAMES[title] == name


@for_each(((None, None),), ((0.0, 0.0),), ((-1.0, -2.0),), ((1e308, 1.7e308),), ((1.0, 1e308),), ((5e-324, 1e-300),))
def test_no_number_of_the_evidence_ends_a_judgement_and_nothing_is_drawn_from_nothing(tmp_path: Path, speeds):
    """Where nothing is above 0 no axis of powers of ten exists, and beyond 1e308 no number."""
    folder = tmp_path / str(speeds)
    folder.mkdir()
    curves = [observed(f"nccl.all_reduce.busbw@{size}", "2-nodes", v) for size, v in zip(SIZES, speeds, strict=True)]
    pairs = [observed("pair.bandwidth", pair, v) for pair, v in zip(("n0->n1", "n1->n0"), speeds, strict=True)]
    drawn = figures.draw(judged(folder, *curves, *pairs, samples="torn\n"))
    assert drawn == [] or speeds[0] is not None
    assert [ElementTree.parse(folder / name).getroot().tag for _, name in drawn] == [f"{SVG}svg"] * len(drawn)


def test_a_name_of_a_record_stays_a_text_in_a_file():
    drawn = lines(EVIL, [Series(EVIL, [(1.0, 5.0), (2.0, 6.0)])], EVIL, EVIL, note=EVIL)
    root = ElementTree.fromstring(sheet.svg(EVIL, [drawn]).encode())
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "style", "g", "text", "polyline", "rect"}
    shown = root.findtext(f"{SVG}title") or ""
    assert shown.startswith('n0"/></text></style><script>a&b</script>]]>--><!--')
    assert shown.endswith("\N{REPLACEMENT CHARACTER}" * 2)
    assert "\x1b" not in shown


def test_figures_on_a_sheet_do_not_lie_over_each_other():
    drawings = [replace(a_line(str(number)), note="words " * 40) for number in range(5)]
    root = ElementTree.fromstring(sheet.svg("t", drawings))
    places = [group.attrib["transform"] for group in root.iter(f"{SVG}g")]
    assert len(set(places)) == 5
    xs, ys = zip(*(map(float, place[10:-1].split()) for place in places), strict=True)
    assert xs == (20.0, 440.0, 860.0, 20.0, 440.0)
    lowest = max(float(text.attrib["y"]) for text in root.find(f"{SVG}g") or [] if text.tag == f"{SVG}text")
    assert ys[3] - ys[0] > lowest
    assert float(root.attrib["height"]) > ys[3] + lowest


BEGUN = 1_795_400_000.0


def a_training(count: int, begun: float = BEGUN + 10, checkpoints: tuple[int, ...] = ()) -> TrainingRecords:
    """Steps of a second each on n0, two of them to warm up, sampled from BEGUN on."""
    metrics = records_in(RECORDS / "run_ddp_2node").metrics
    changed = {
        "steps_unix_s": [begun + number for number in range(1, count + 1)],
        "window_unix_s": {"n0": [begun + 2, begun + count]},
        "observed": metrics.observed.model_copy(update={"hosts": ["n0", "n0", "n1", "n1"]}),
        "startup": metrics.startup.model_copy(update={"first_step_s": 1.0}),
        "checkpoint": metrics.checkpoint.model_copy(update={"after_steps": list(checkpoints)}),
    }
    return SimpleNamespace(metrics=metrics.model_copy(update=changed))  # type: ignore[return-value]


def timeline(folder: Path, trained: TrainingRecords | None) -> list[Drawing]:
    rows = [f"{node},{BEGUN + second:.3f},1.0,1.00,0,0,,,,0.10,," for node in ("n0", "n1") for second in range(500)]
    return sampled.draw(replace(judged(folder, samples="\n".join(rows) + "\n"), training=trained))


def marks_of(drawn: Drawing) -> list[str]:
    return [shape.style for shape in drawn.shapes if shape.kind == "line" and shape.style.startswith("moment")]


def test_begin_and_end_of_a_training_its_warm_up_and_its_checkpoints_are_marked(tmp_path: Path):
    trained = a_training(400, checkpoints=(100, 400))
    moments, _ = sampled._moments(trained, {}, BEGUN, BEGUN + 500)
    assert moments == [(10.0, ""), (410.0, ""), (12.0, "dashed"), (110.0, "dotted"), (410.0, "dotted")]
    *_, last = drawn = timeline(tmp_path, trained)
    assert all(marks_of(each) == ["moment", "moment", "moment dashed", *["moment dotted"] * 2] for each in drawn)
    assert "from the begin of step 1 (10.0 s) to the end of step 400 (410.0 s)" in last.note
    assert "dotted: checkpoint after step 100, 400; other steps are not marked" in last.note


@pytest.mark.parametrize("trained", [None, a_training(12, BEGUN + 10_000), a_training(12, BEGUN - 10_000)])
def test_what_is_no_training_or_was_not_sampled_has_no_marks(tmp_path: Path, trained: TrainingRecords | None):
    drawn = timeline(tmp_path, trained)
    assert [marks_of(each) for each in drawn] == [[]] * len(drawn)
    assert drawn
    assert "step" not in drawn[-1].note


def test_of_many_nodes_the_middle_is_drawn_and_the_node_that_differs_is_named():
    of_nodes = {f"n{number}": [(float(second), 50.0 + number % 3) for second in range(5)] for number in range(20)}
    of_nodes["n7"] = [(float(second), 90.0) for second in range(5)]
    names = [series.name for series in sampled._series(of_nodes)]
    assert names[:4] == ["5 % of the nodes are below", "median", "5 % are above", "n7"]
    assert len(names) == 3 + sampled.MAX_OUTLIERS
