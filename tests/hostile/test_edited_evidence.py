"""Runs whose evidence was edited, with checksums that were made anew, or while it was judged."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bringup.cli import main
from runs_for_tests import discovery, lose_a_gpu, reseal

COUNT = '"quantity": "discovery.gpu.count", "value": {}'


@pytest.fixture
def lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A closed run in which a GPU is lost."""
    return lose_a_gpu(discovery(tmp_path / "lost", monkeypatch))


def judged(folder: Path, capsys) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["judge", str(folder)])
    return code, "".join(capsys.readouterr())


def test_sums_that_were_made_anew_pass(lost: Path, capsys):
    """What docs/SECURITY.md says that checksums do not promise."""
    assert judged(lost, capsys)[0] == 1, "a GPU is lost"
    path = lost / "raw/inventory.jsonl"
    assert COUNT.format(1) in path.read_text()
    path.write_text(path.read_text().replace(COUNT.format(1), COUNT.format(2)))
    assert judged(lost, capsys)[0] == 2
    assert judged(reseal(lost), capsys)[0] == 0


@pytest.fixture
def at_open() -> Iterator[Callable[[str, int, Callable[[], None]], None]]:
    """Do something when a file of this name is opened for the nth time, before it is."""
    steps: list[tuple[str, int, Callable[[], None]]] = []
    opened: Counter[str] = Counter()

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and steps and isinstance(arguments[0], str):
            name = Path(arguments[0]).name
            opened[name] += 1
            for what, nth, do in list(steps):
                if (name, opened[name]) == (what, nth):
                    do()

    sys.addaudithook(audit)  # nothing removes it
    yield lambda name, nth, do: steps.append((name, nth, do))
    steps.clear()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("raw/inventory.jsonl", COUNT.format(1), COUNT.format(2)),
        ("run.json", '"gpus_per_node": 2', '"gpus_per_node": 1'),
    ],
)
def test_checksums_are_of_the_bytes_that_were_judged(lost: Path, at_open, capsys, file: str, old, new):
    """Its owner shows other bytes to the first who reads the file, and the honest ones to the second."""
    honest = (lost / file).read_text()
    assert old in honest
    (lost / file).write_text(honest.replace(old, new))
    at_open(Path(file).name, 2, lambda: (lost / file).write_text(honest))
    code, output = judged(lost, capsys)
    assert (code != 0, f"{file} was changed after the run was closed" in output) == (True, True), output
