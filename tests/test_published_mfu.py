"""What others published: MFUs and memory beside measured ones, and what `bringup advise` assumes of a speed."""

from pathlib import Path

import predictors
import pytest
from bringup.domains import parts
from bringup.kernel.records import known, read_record
from bringup.training.formulae import flops, published
from bringup.training.formulae.models import load
from bringup.training.records import TrainMetrics

CARDS = {"A100": "NVIDIA A100-SXM4-80GB"}  # of which the published numbers are
SHAPES = {8: "llama3-8b", 70: "llama3-70b"}


def measured(billions: float, gpu: str | None, recomputed: int = 0) -> TrainMetrics:
    metrics = read_record(Path(__file__).parent / "fixtures/training/run_fsdp_2node/metrics.json", TrainMetrics)
    seen = metrics.observed.model_copy(update={"parameters": int(billions * 1e9), "recomputed_layers": recomputed})
    source = None if gpu is None else flops.peak_bf16_tflops(CARDS.get(gpu, gpu))[1]
    return metrics.model_copy(update={"observed": seen, "peak_source": source})


def test_each_published_mfu_follows_from_its_tokens_per_second():
    checked = 0
    for row in published.all_published():
        peak, _ = flops.peak_bf16_tflops(CARDS.get(row.gpu, row.gpu))
        if row.billions in SHAPES and row.source != "llm-foundry" and row.tokens == 8192:
            per_token = flops.flops_per_token(load(SHAPES[row.billions]), row.tokens)
            assert row.mfu == pytest.approx(per_token * row.tokens_per_s / peak / 1e12, abs=0.002), row
            checked += 1
    assert checked >= 7


def test_neighbours_have_the_gpu_the_size_and_the_recomputation_of_the_training():
    assert published.beside(measured(7.6, "H100")) == (
        "33 to 47 % for 7 to 8 billion parameters on H100, activations kept, or recomputed in part "
        "(torchtitan, accelerate, llm-foundry, fms-fsdp)"
    )
    says = "40 % for 7 billion parameters on H100, all activations recomputed (llm-foundry)"
    assert published.beside(measured(7.6, "H100", recomputed=32)) == says
    assert "(torchtitan, fms-fsdp)" in published.beside(measured(70, "A100", recomputed=80))


def test_where_nothing_was_published_it_says_so_and_a_cpu_has_none():
    assert published.beside(measured(3, "B200")).startswith("nothing for 3 billion parameters on B200")
    assert published.beside(measured(8, None)) is None


def test_sizes_are_ordered_as_numbers_and_7_and_13_billion_are_not_neighbours():
    """They were ordered as words: `13 to 8`."""
    assert published._span([8.0, 13.0]) == "8 to 13"
    assert published.beside(measured(7.6, "A100")) == published.beside(measured(8, "A100"))
    assert "13" not in str(published.beside(measured(8.1, "A100")))


def test_the_source_of_each_peak_names_its_gpu_or_the_one_it_shares_it_with():
    """`FP32` was taken for a GPU."""
    shared = {"a800": "A100", "h800": "H100"}
    for path in (parts.PARTS / "gpus").glob("*.yaml"):
        peak = parts.of_gpu(path.stem).machine.peak_bf16_tflops
        named = None if peak is None else published._MODEL.search(peak.source)
        assert named is None or named[0] == shared.get(path.stem, path.stem.split("-")[0].upper()), path.stem


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
    rows = known("reserved", list[predictors.Reserved])
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
