"""Small files that would grow, and long ones: a judge says one line, and its memory stays small."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bringup import cli
from bringup.errors import RecordError
from bringup.judge import judge_folder
from bringup.records import Run, files, read_record
from factory import a_run
from runs_for_tests import discovery, reseal
from tiers import first

GIBIBYTE = 2**30
JUDGE = """import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), -1))
from bringup.cli import main
sys.exit(main(["judge", sys.argv[1]]))
"""


def judged(folder: Path, most: int = 2 * GIBIBYTE) -> subprocess.CompletedProcess[str]:
    """Under a limit of its address space, which is more than what it uses: libraries are mapped."""
    return subprocess.run(
        [sys.executable, "-c", JUDGE, folder, str(most)],
        capture_output=True, text=True, timeout=300, check=False, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip


def refusal(run: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["judge", str(run)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1, message
    assert "a fault of bringup itself" not in message
    return message


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return discovery(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ranks_per_node", 10**9),
        ("gpus_per_node", 1025),
        ("nodes", [f"n{number}" for number in range(100_000)]),
        ("allocated", [f"n{number}" for number in range(16_385)]),
    ],
)
def test_a_plan_for_more_than_any_cluster_has_is_one_line(run: Path, capsys, field: str, value: object):
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {field: value}))
    assert f"run.json: not a valid Run: {field}" in refusal(run, capsys)


def test_the_largest_plan_is_a_record(tmp_path: Path):
    run = a_run(nodes=[f"n{number}" for number in range(16_384)], gpus=1_024, plan={})
    (tmp_path / "run.json").write_text(run.model_dump_json())
    assert read_record(tmp_path / "run.json", Run) == run


BOMBS = {
    "aliases": "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 10)}]\n" for i in range(12)),
    "depth": "[" * 200_000,
    "digits": "gpus: " + "9" * 100_000,
    "tag": "!!python/object/apply:os.system [false]\n",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_yaml_bomb_is_one_line(run: Path, capsys, bomb: str):
    (run / "profile.yaml").write_text(BOMBS[bomb])
    refusal(run, capsys)


@pytest.mark.parametrize("bomb", ["[" * 200_000, '{"a":' * 200_000, "9" * 100_000, "NaN", "1e999", '"\\ud800"'])
@pytest.mark.parametrize("name", ["run.json", "raw/inventory.jsonl", "raw/error.json", "raw/dcgm-n0.json"])
def test_a_json_bomb_is_one_line_or_a_note(run: Path, name: str, bomb: str):
    (run / name).write_text(bomb)
    if name == "run.json":
        with pytest.raises(RecordError):
            read_record(run / name, Run)
    else:
        verdicts = judge_folder(reseal(run)).verdicts
        assert verdicts.outcome in ("pass", "incomplete")


def test_the_end_of_a_log_that_is_too_long_is_said(run: Path, monkeypatch: pytest.MonkeyPatch):
    (run / "raw/x.err").write_text("a\n" * 4096)
    monkeypatch.setattr(files, "MOST_OF_A_LOG", 4096)
    monkeypatch.setattr(files, "MOST_BYTES", (run / "raw/inventory.jsonl").stat().st_size - 100)
    verdicts = judge_folder(reseal(run)).verdicts
    assert any(note.startswith("raw/x.err: its last 4096 bytes were not read") for note in verdicts.notes)
    assert any(note.startswith("raw/inventory.jsonl: its last 100 bytes were not read") for note in verdicts.notes)
    assert verdicts.outcome == "incomplete"  # the facts of a probe without its closing line are none


@pytest.mark.parametrize("name", first(["x.jsonl", "x.err"]))
def test_a_gibibyte_is_judged_in_less_memory(run: Path, name: str):
    """Sparse: one line of zeros. What many short lines take is measured by hand: it would take minutes."""
    with (run / "raw" / name).open("wb") as stream:
        stream.truncate(GIBIBYTE)
    done = judged(run)
    assert "a fault of bringup itself" not in done.stderr
    assert f"raw/{name}: its last" in done.stdout
