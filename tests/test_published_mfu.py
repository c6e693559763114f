"""MFUs that others published, beside a measured one: they follow from their tokens/s, and neighbours are alike."""

from pathlib import Path

import pytest
from bringup.formulae import flops, published
from bringup.formulae.models import load
from bringup.plan import parts
from bringup.records import TrainMetrics, read_record

METRICS = Path(__file__).parent / "fixtures/training/run_fsdp_2node/metrics.json"
CARDS = {"A100": "NVIDIA A100-SXM4-80GB"}  # of which the published numbers are
SHAPES = {8: "llama3-8b", 70: "llama3-70b"}


def measured(billions: float, gpu: str | None, recomputed: int = 0) -> TrainMetrics:
    metrics = read_record(METRICS, TrainMetrics)
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
    assert published.beside(measured(7.6, "H100", recomputed=32)) == (
        "40 % for 7 billion parameters on H100, all activations recomputed (llm-foundry)"
    )
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
