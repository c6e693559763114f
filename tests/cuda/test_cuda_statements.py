"""Each statement about CUDA is on one page, with the run that executed it or why none did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import cuda_statements
import pytest
from cuda_statements import PAGE, REASONS, RECORDS, ROOT, Known, everything, record, statements

RECORDER = "infrastructure-validation/local-cluster/simulated/cuda/cuda_stand_in"
PROGRAM = '''"""It speaks of cuda."""
import os
cuda = os.environ.get("DEVICE") == "cuda"


def clock(event):
    """cuda"""
    if cuda:
        event = 1
        later = 2
    if not cuda:
        return 0
    print("done", "no cuda here")
    return {
        "cuda": cuda,
    }["cuda"]


clock(os.environ.get("DEVICE"))
'''
NAMES = [
    "at import: cuda = os.environ.get('DEVICE') == 'cuda'",
    "clock: if cuda:",
    "clock: event = 1",
    "clock: later = 2",
    "clock: if not cuda:",
    "clock: return {'cuda': cuda}['cuda']",
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("training", "tests/cuda", "docs/results", RECORDER):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "training/program.py").write_text(PROGRAM)
    (tmp_path / REASONS).write_text("[]\n")
    (tmp_path / RECORDER / "lines.py").write_text((ROOT / RECORDER / "lines.py").read_text())
    (tmp_path / RECORDER / "sitecustomize.py").write_text("import os, lines; lines.record(os.environ['BRINGUP_LINES'])")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def run(tree: Path, lines: Path, device: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(tree / RECORDER), "BRINGUP_LINES": str(lines)}
    subprocess.run([sys.executable, "training/program.py"], cwd=tree, env=environment | {"DEVICE": device}, check=True)


def test_statements_that_name_cuda_or_stand_in_an_if_on_it() -> None:
    listed = statements("program.py", PROGRAM)
    assert [each.name for each in listed] == NAMES
    assert [each.name for each in listed if each.needs_gpu] == [NAMES[2], NAMES[3], NAMES[5]]
    assert (listed[-1].first, listed[-1].last) == (14, 16)


def test_a_run_is_recorded_by_statements_and_the_page_names_it(tree: Path, tmp_path: Path) -> None:
    run(tree, tmp_path / "lines", "cuda")
    assert record("one", tmp_path / "lines", "program.py", 0, tree) is None
    stored = json.loads((tree / RECORDS).read_text())
    assert stored["executed"] == {"training/program.py": dict.fromkeys(NAMES, "one")}
    moved = PROGRAM.replace("import os", "import os\n\nimport sys", 1)
    (tree / "training/program.py").write_text(moved)
    (tree / PAGE).write_text(Known(tree).page())
    assert Known(tree).problems() == []
    text = (tree / PAGE).read_text()
    assert "**6 of 6 statements were executed**" in text
    assert "| clock | ``event = 1`` | one |" in text


def test_a_run_is_repeated_by_the_command_that_is_recorded(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tree / RECORDER))
    command = "test -d RUN/raw && DEVICE=cuda python training/program.py && exit $CODE"
    monkeypatch.setenv("CODE", "3")
    assert cuda_statements.run("one", command, tree) is None
    first = json.loads((tree / RECORDS).read_text())
    assert first["runs"]["one"]["command"] == command and first["runs"]["one"]["code"] == 3
    assert cuda_statements.run("one", None, tree) is None
    assert json.loads((tree / RECORDS).read_text()) == first
    monkeypatch.setenv("CODE", "0")
    assert cuda_statements.run("one", None, tree) == "one: expected exit code 3, observed 0"
    assert cuda_statements.run("two", None, tree) == "no run two is recorded; give its command"


def test_a_run_without_a_gpu_is_not_recorded(tree: Path, tmp_path: Path) -> None:
    run(tree, tmp_path / "lines", "cpu")
    problem = record("one", tmp_path / "lines", "program.py", 0, tree)
    assert problem is not None and "no statement ran that needs a GPU" in problem
    assert not (tree / RECORDS).exists()


def test_what_was_not_executed_needs_a_reason_and_a_reason_needs_such_a_statement(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = [{"file": "training/program.py", "statement": name, "because": "no such device"} for name in NAMES]
    (tree / REASONS).write_text(json.dumps([*reasons[:5], {**reasons[5], "statement": "clock: gone"}]))
    (tree / PAGE).write_text(Known(tree).page())
    assert "| clock | ``event = 1`` | **not executed**: no such device |" in (tree / PAGE).read_text()
    assert Known(tree).problems() == [
        f"training/program.py:14: not executed, and {REASONS} does not say why: {NAMES[5]}",
        f"{REASONS}: training/program.py has no such statement: clock: gone",
    ]
    monkeypatch.setattr(cuda_statements, "MOST_NOT_EXECUTED", 5)
    assert "6 statements were not executed, expected at most 5" in Known(tree).problems()


def test_a_reason_for_what_was_executed_and_an_old_page_are_problems(tree: Path, tmp_path: Path) -> None:
    run(tree, tmp_path / "lines", "cuda")
    record("one", tmp_path / "lines", "program.py", 0, tree)
    (tree / REASONS).write_text(
        json.dumps([{"file": "training/program.py", "statement": NAMES[2], "because": "no such device"}])
    )
    executed, page = Known(tree).problems()
    assert executed == f"{REASONS}: training/program.py: clock: event = 1 was executed by one"
    assert page.startswith(f"{PAGE} is not what the records say")


def test_what_ends_hard_is_recorded(tree: Path, tmp_path: Path) -> None:
    (tree / "training/program.py").write_text("import os\ncuda = True\nif cuda:\n    os._exit(0)\n")
    run(tree, tmp_path / "lines", "cuda")
    assert record("hard", tmp_path / "lines", "program.py", 0, tree) is None
    executed = json.loads((tree / RECORDS).read_text())["executed"]["training/program.py"]
    assert executed["at import: os._exit(0)"] == "hard"


def test_a_run_is_recorded_anew_and_others_stay(tree: Path, tmp_path: Path) -> None:
    run(tree, tmp_path / "lines", "cuda")
    for name in ("one", "two"):
        record(name, tmp_path / "lines", "program.py", 0, tree)
    (tree / "training/program.py").write_text(PROGRAM.replace("event = 1", "event = 2"))
    (tmp_path / "less").mkdir()
    (tmp_path / "less/n0.1.lines").write_text("training/program.py:10\n")
    assert record("two", tmp_path / "less", "program.py", 0, tree) is None
    executed = json.loads((tree / RECORDS).read_text())["executed"]["training/program.py"]
    assert executed == {name: "one" for name in NAMES if name != NAMES[2]} | {NAMES[3]: "one two"}


def test_the_statements_of_the_project_are_seen() -> None:
    names = {(each.file, each.name) for each in everything(ROOT)}
    assert len(names) > 120
    silent = [name for name in {file for file, _ in names} if "cuda" not in (ROOT / name).read_text().lower()]
    assert silent == []  # lines.py would not look at them
    assert ("training/src/recipe/meter.py", "forget_peaks: torch.cuda.reset_peak_memory_stats()") in names
    assert ("infrastructure-validation/probes/bench.py", "Bench.synchronize: self.torch.cuda.synchronize()") in names


def test_the_page_is_what_the_records_say() -> None:
    assert Known().problems() == []
