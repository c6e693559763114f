"""The storage probe with fio and without: tests/fixtures/fio holds what fio 3.33 printed, healthy, failed, and cut in
half."""

import json
import sys
from pathlib import Path

import pytest
from bringup.evidence import facts
from programs import ran
from runs_for_tests import FIXTURES

PROBES = FIXTURES.parents[1] / "infrastructure-validation/probes"
REAL = FIXTURES / "fio"


@pytest.fixture
def fio(monkeypatch):
    monkeypatch.syspath_prepend(PROBES)
    import fio

    return fio


@pytest.mark.parametrize(("direction", "speed", "slowest"), [("write", 0.9321, "4.42 ms"), ("read", 1.3696, "8.16 ms")])
def test_a_healthy_answer_gives_the_speed_of_its_direction(fio, direction, speed, slowest):
    record = fio.figures((REAL / f"{direction}.json").read_text(), direction)
    assert record == (speed, 64, f"fio-3.33, 99 of 100 blocks within {slowest}")
    with pytest.raises(fio.NoFigure, match="moved 0 MiB"):
        fio.figures((REAL / f"{direction}.json").read_text(), "read" if direction == "write" else "write")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        # half of the file was written, and has a speed
        (
            (REAL / "no-space.json").read_text(),
            "No space left on device",
        ),
        ((REAL / "no-file.json").read_text(), "Invalid argument"),
        ((REAL / "truncated.json").read_text(), r"cannot be read.*unrecognized option"),
        ("", r"cannot be read.*unrecognized option"),
        ("{\n}", r"cannot be read.*KeyError"),
        ('{\n"jobs": [], "fio version": "fio-3.33"}', "cannot be read"),
        ('{\n"jobs": [null], "fio version": "fio-3.33"}', "cannot be read"),
        ((REAL / "write.json").read_text().replace('"bw_bytes" : 932067555', '"bw_bytes" : "fast"'), "cannot be read"),
    ],
)
def test_what_is_no_figure_is_refused_with_the_reason(fio, text, says):
    with pytest.raises(fio.NoFigure, match=says) as error:
        fio.figures(text, "write", "fio: unrecognized option")
    assert "\n" not in str(error.value)


def test_fio_is_bounded_and_is_told_no_path_with_a_colon(fio, tmp_path):
    for direction in ("write", "read"):
        command = fio.command(tmp_path / "a:b" / "n0.bytes", direction, 64)
        assert "--runtime=60" in command
        assert "--filename=n0.bytes" in command
    assert "--size=64M" in fio.command(tmp_path, "write", 64)
    assert "--direct=1" in fio.command(tmp_path, "read", 64, direct=True)


def probe(folder: Path, tool: str | None, how: str = "together", **env: str) -> dict[str, dict]:
    """What storage.py says of `folder`, where `fio` is this shell script, or is not there; quantity -> fact."""
    tools = folder / "tools"
    tools.mkdir()
    if tool is not None:
        (tools / "fio").write_text(f"#!/bin/sh\n{tool}\n")
        (tools / "fio").chmod(0o755)
    work = folder / "work"
    work.mkdir()
    done = ran(
        [sys.executable, PROBES / "storage.py", work, "2", how],
        check=True,
        env={"PATH": str(tools), "SLURMD_NODENAME": "n0", **env},
    )
    assert not facts.parse(done.stdout, "f").problems
    assert not [path for path in work.iterdir() if not path.name.endswith(".fio.json")]  # it cleans up
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["quantity"].removeprefix("smoke.storage."): line for line in lines if "quantity" in line}


def test_without_fio_plain_io_is_timed_and_says_so(tmp_path):
    facts_by_name = probe(tmp_path, None)
    for direction in ("write", "read"):
        assert facts_by_name[f"{direction}_together"]["value"] > 0
        assert "plain I/O (fio is not installed)" in facts_by_name[f"{direction}_together"]["why"]
    assert facts_by_name["files"]["value"] > 0


@pytest.fixture
def storage(monkeypatch):
    monkeypatch.syspath_prepend(PROBES)
    import storage

    return storage


def test_a_file_is_read_past_the_cache_of_the_node(storage, tmp_path, monkeypatch):
    """A client of NFS or Lustre may answer a read of what it has just written from its own memory."""
    opened, real = [], storage.os.open

    def watched(path, flags, *rest, **options):
        opened.append(flags)
        return real(path, flags, *rest, **options)

    storage.write(tmp_path / "bytes", 2, 0.0)
    monkeypatch.setattr(storage.os, "open", watched)
    if storage.takes_direct(tmp_path / "bytes"):
        speed, moved, by = storage.plainly(tmp_path / "bytes", "read", 2, False)
        assert (speed > 0, moved, by) == (True, 2, "plain I/O (fio is not installed), past the cache")
    assert opened
    assert all(flags & storage.os.O_DIRECT for flags in opened)
    with pytest.raises(OSError, match="shorter"):
        storage.read_directly(tmp_path / "bytes", 3, 0.0)


def test_a_filesystem_without_direct_io_is_read_all_the_same_and_the_answer_says_so(storage, tmp_path, monkeypatch):
    storage.write(tmp_path / "bytes", 2, 0.0)
    monkeypatch.setattr(storage, "read_directly", lambda *_: (_ for _ in ()).throw(OSError(22, "Invalid argument")))
    speed, _, by = storage.plainly(tmp_path / "bytes", "read", 2, False)
    assert speed > 0
    assert by.endswith("perhaps from this node's cache: no direct I/O here")
    asked = []
    monkeypatch.setattr(storage.fio, "run", lambda *words: asked.append(words[-1]) or (1.0, 2, "fio-3.33"))
    assert storage.with_fio(tmp_path / "bytes", "read", 2, False)[2].endswith("no direct I/O here")
    assert storage.with_fio(tmp_path / "bytes", "write", 2, False)[2] == "fio-3.33"
    assert asked == [False, False]


def test_with_fio_its_figures_count_and_its_answers_are_kept(tmp_path):
    answer = (
        f'case "$*" in *--rw=write*) exec /bin/cat "{REAL}/write.json";; *) exec /bin/cat "{REAL}/read.json";; esac'
    )
    facts_by_name = probe(tmp_path, answer)
    assert (facts_by_name["write_together"]["value"], facts_by_name["read_together"]["value"]) == (0.9321, 1.3696)
    assert facts_by_name["write_together"]["why"] == "64 MiB from n0 by fio-3.33, 99 of 100 blocks within 4.42 ms"
    assert {path.name for path in (tmp_path / "work").iterdir()} == {
        "n0.together.write.fio.json",
        "n0.together.read.fio.json",
    }


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ("echo 'fio: engine psync not loadable' >&2; exit 1", "engine psync not loadable"),
        ("kill -9 $$", "fio ended with -9"),
        (f"/bin/cat '{REAL}/no-space.json'; exit 1", "No space left on device"),
    ],
)
def test_a_fio_that_fails_leaves_the_speeds_unknown_and_no_plain_io_hides_it(tmp_path, tool, says):
    facts_by_name = probe(tmp_path, tool, how="alone")
    for direction in ("write", "read"):
        assert facts_by_name[direction]["value"] is None
        assert facts_by_name[direction]["subject"] == "job"
        assert says in facts_by_name[direction]["why"]


def test_the_drill_for_slow_storage_also_slows_fio(tmp_path):
    facts_by_name = probe(tmp_path, 'echo "$*" >&2', how="alone", BRINGUP_DRILL="slow-storage:n0")
    assert "--rate=2m" in facts_by_name["write"]["why"]


def test_a_folder_that_is_not_there_leaves_nothing_known(tmp_path):
    done = ran(
        [sys.executable, PROBES / "storage.py", tmp_path / "nowhere", "2", "together"],
        check=True,
        env={"PATH": "/nonexistent", "SLURMD_NODENAME": "n0"},
    )
    chapter_lines = [json.loads(line) for line in done.stdout.splitlines()][:-2]  # then its cost, and the count
    assert [fact["value"] for fact in chapter_lines] == [None, None, None]
    assert all("No such file" in fact["why"] for fact in chapter_lines)


@pytest.mark.parametrize(("there", "tool"), [(True, None), (True, "fio"), (False, None)])
def test_the_scratch_folder_is_measured_in_a_folder_of_its_own_and_left_as_it_was(tmp_path, there, tool):
    place, tools = tmp_path / "scratch", tmp_path / "tools"
    tools.mkdir()
    if tool is not None:
        (tools / "fio").write_text(
            f'#!/bin/sh\ncase "$*" in *=write*) what=write;; *) what=read;; esac; exec /bin/cat "{REAL}/$what.json"\n'
        )
        (tools / "fio").chmod(0o755)
    if there:
        place.mkdir()
    done = ran(
        [sys.executable, PROBES / "storage.py", str(place), "1", "scratch"],
        env={"SLURMD_NODENAME": "n0", "PATH": str(tools)},
        check=True,
    )
    seen = {line["quantity"]: line for line in map(json.loads, done.stdout.splitlines()) if "quantity" in line}
    assert {"storage.scratch.write", "storage.scratch.read"} <= seen.keys()
    for name in ("storage.scratch.write", "storage.scratch.read"):
        assert seen[name]["subject"] == "n0"
        if there:
            assert seen[name]["value"] > 0
        else:
            assert seen[name]["value"] is None
            assert "No such file or directory" in seen[name]["why"]
    assert place.exists() is there
    assert not there or list(place.iterdir()) == []
