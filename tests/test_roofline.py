"""The MFU to expect: the products that are counted are those of the formula, and each part makes a step shorter."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "training" / "src"))
sys.path.append(str(ROOT / "infrastructure-validation" / "probes"))

pytestmark = pytest.mark.filterwarnings("default")
LENGTH = 4096


def small(folder: Path, **changes: int) -> str:
    file = folder / "small.json"
    sizes = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 2, "num_attention_heads": 8}
    named = {"model_type": "llama", "vocab_size": 32000, "num_key_value_heads": 4, "max_position_embeddings": LENGTH}
    file.write_text(json.dumps(sizes | named | changes))
    return str(file)


def test_time_of_products_is_that_of_the_flops_that_the_formula_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import predict
    import roofline
    from bringup.formulae import flops, models

    monkeypatch.setitem(roofline.BANDWIDTH_TB_PER_S, "H200", 1e9)  # nothing waits for memory
    model = small(tmp_path)
    counted = predict._counted(predict.Step(model, "single", 1, 1, LENGTH), "H200")
    per_token = flops.flops_per_token(models.load(model), LENGTH)
    assert per_token is not None
    peak = roofline.PEAK_TFLOPS * 1e12
    matmul = counted.micro.eager["matmul"] * peak * roofline.ASSUMED["matmul"][0] / LENGTH
    assert matmul == pytest.approx(per_token.linear, rel=1e-3)
    attention = counted.micro.eager["attention"] * peak * roofline.ASSUMED["attention"][0] / LENGTH
    square = per_token.full - per_token.causal
    assert attention == pytest.approx(square * 7 / 6, rel=1e-3)  # the backward pass computes the scores again


def test_bytes_of_an_update_are_those_of_adam_and_of_the_norm(tmp_path: Path) -> None:
    import predict
    import roofline
    from bringup.formulae import models

    model = small(tmp_path)
    counted = predict._counted(predict.Step(model, "single", 1, 1, LENGTH), "H200")
    moved = sum(counted.update.eager.values()) * roofline.bandwidth_of("H200") / models.load(model).parameters
    # AdamW reads and writes four float32 numbers; clipping reads the gradient twice and writes it
    assert moved == pytest.approx(32 + 12, rel=0.1)


@pytest.mark.parametrize("recomputed", [False, True])
def test_the_table_has_a_row_for_plain_and_for_each_part_and_none_makes_a_step_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recomputed: bool
) -> None:
    import predict
    from bringup.plan.recipes import PARTS

    options = ["--strategy", "single", "--nodes", "1", "--gpus-per-node", "1", "--mfu", "H200", "--accumulation", "2"]
    options += ["--activation-checkpointing"] * recomputed
    assert predict.main(["--model", small(tmp_path), "--sequence-length", str(LENGTH), *options]) == 0
    printed = capsys.readouterr().out
    assert "Predicted, not measured" in printed
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in printed.splitlines() if "|" in line]
    names, speeds = [row[0] for row in rows[2:]], [float(row[2].replace(",", "")) for row in rows[2:]]
    nothing = {"host", "prefetch"} | ({"selective"} if not recomputed else set())  # that they bring to one GPU
    assert names == ["plain", *(f"+ {part}" for part in PARTS if part not in nothing)]
    assert speeds == sorted(speeds)
    assert not recomputed or speeds[-1] > 1.05 * speeds[-2]
    assert speeds[1] > 1.1 * speeds[0]


def test_a_length_that_is_a_size_of_the_weights_is_refused_in_one_line(tmp_path: Path) -> None:
    """Activations are told from weights by it."""
    import predict

    with pytest.raises(SystemExit, match="512 tokens are a size of the weights too"):
        predict._counted(predict.Step(small(tmp_path), "single", 1, 1, 512), "H200")
