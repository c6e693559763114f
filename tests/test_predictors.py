"""What `bringup advise` assumes of a speed is what others published, and the page that shows it is of today."""

import predictors
import pytest
from bringup.formulae import published
from bringup.plan import parts

COMPARED = 19  # the rows that were held against one assumed MFU of each GPU


def span(gpu: str, *, recomputed: bool, compiled: bool, without: str = "") -> published.Span:
    peak = parts.of_gpu(gpu).machine.peak_bf16_tflops
    spanned = published.span(peak.source, recomputed=recomputed, compiled=compiled, without=without)
    assert spanned is not None
    return spanned


def test_the_page_is_of_today():
    assert predictors.INTO.read_text() == predictors.written()


def test_published_speeds_lie_inside_the_range_where_a_bandwidth_is_known():
    speeds = [predictors.speed_of(row) for row in published.all_published()]
    inside = [speed.is_inside(speed.low, speed.high) for speed in speeds]
    assert inside[:COMPARED].count("inside") == 17
    assert {verdict for verdict in inside if verdict != "inside"} == {"unknown"}
    assert {speed.row.gpus for speed, verdict in zip(speeds, inside, strict=True) if verdict == "unknown"} == {2, 4}


def test_published_memory_is_what_is_predicted_of_the_program_that_published_it():
    rows = predictors.known(predictors.Reserved, "reserved")
    assert len(rows) == 14
    assert all(0.95 <= predictors.ratio_of(row) <= 1.06 for row in rows)
    active = [predictors.ratio_of(row) for row in rows if row.quantity == "active"]
    assert active == pytest.approx([1, 1], abs=0.01)  # nothing was chosen for these


def test_eager_and_compiled_are_different_ranges():
    eager, compiled = (span("h100", recomputed=False, compiled=which) for which in (False, True))
    assert eager.low < compiled.low
    assert eager.high < compiled.high
    assert "eager (torchtitan, llm-foundry)" in eager.source


def test_a_setting_that_was_not_published_is_wider_by_what_published_pairs_differ():
    """Of H100 nothing compiled with full recomputation: from eager, by torchtitan's two pairs."""
    least, most = published.by_compiling("H100")
    assert (round(least, 2), round(most, 2)) == (1.16, 1.16)
    eager, compiled = (span("h100", recomputed=True, compiled=which) for which in (False, True))
    assert compiled.low == pytest.approx(eager.low * least)
    assert compiled.high == pytest.approx(eager.high * most)


def test_a_gpu_of_which_nothing_was_published_has_no_range():
    assert published.span("NVIDIA L4 data sheet", recomputed=False, compiled=False) is None
