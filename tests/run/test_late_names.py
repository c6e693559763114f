"""What another host writes is waited for through a client that keeps a missing name, as that of NFS does.

On a stock mount a name that was looked for and missing stays missing for 30 s, also when the file is there by then.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bringup.drill import catalogue as drills
from bringup.drill import environment, perform
from bringup.kernel import results as runs
from bringup.kernel.plan.phases import PHASES
from bringup.run import launch


@pytest.fixture(autouse=True)
def keeps_missing_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks a name up once. Folders are listed anew."""
    missing: set[str] = set()

    def keeping(look: Callable[..., Any]) -> Callable[..., Any]:
        def looked_up(path: Any, *arguments: Any, **options: Any) -> Any:
            if os.fspath(path) in missing:
                raise FileNotFoundError(2, "kept as missing", path)
            try:
                return look(path, *arguments, **options)
            except FileNotFoundError:
                missing.add(os.fspath(path))
                raise

        return looked_up

    monkeypatch.setattr(os, "stat", keeping(os.stat))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(runs, "REPOSITORY", tmp_path)
    folder = runs.folder_of(PHASES["discovery"], "x")
    (folder / "raw").mkdir(parents=True)
    return folder


def test_the_client_of_these_tests_keeps_a_missing_name(run: Path):
    assert not (run / "late").exists()
    (run / "late").touch()
    assert not (run / "late").exists()


def test_a_run_that_a_node_closes_is_seen_although_it_was_looked_at_before(run: Path):
    """With the login host on NFS, `bringup run` once called a run incomplete that its job had closed."""
    started = launch.Started(PHASES["discovery"], "x", run, str)
    assert not started.closed()
    (run / runs.CLOSED).touch()
    assert started.closed() == {run}
    assert (run / runs.CLOSED).exists()


@pytest.mark.parametrize("when", ["moment", "raw/moment", "new/moment"])
def test_the_moment_of_a_drill_is_seen_although_it_was_looked_for_before(run: Path, monkeypatch, when: str):
    looks: list[int] = []

    def pause() -> None:
        looks.append(1)
        (run / when).parent.mkdir(exist_ok=True)
        (run / when).touch()
        assert len(looks) == 1

    monkeypatch.setattr(environment, "pause", pause)
    drill = next(drill for drill in drills.DRILLS if drill.phase == "discovery")
    perform._wait_for_moment(drill.model_copy(update=dict(when=when)), "x")
    (run / "run.json").touch()
    perform._wait_for_moment(drill.model_copy(update=dict(when="run.json")), "x")
    assert looks == [1], "what is there is not waited for"


def test_what_is_no_folder_holds_no_file(run: Path):
    (run / "file").touch()
    assert not runs.is_there(run, "file/name")
    assert not runs.is_there(run / "nowhere", "name")
