"""The storage probe with fio and without: tests/fixtures/fio holds what fio 3.33 printed, healthy, failed, and cut in
half."""

import json
import sys
from pathlib import Path

import fio
import pytest
import storage
from bringup.evidence import facts
from loops import for_each
from programs import program, ran
from runs_for_tests import FIXTURES
from simulated_tools import PROBES

REAL = FIXTURES / "fio"
TEXT = {path.stem: path.read_text() for path in REAL.glob("*.json")}
ANSWERS = f'case "$*" in *--rw=write*) exec /bin/cat "{REAL}/write.json";; *) exec /bin/cat "{REAL}/read.json";; esac'
PLAIN = "plain I/O (fio is not installed)"


@for_each(("direction", "speed", "slowest"), [("write", 0.9321, "4.42 ms"), ("read", 1.3696, "8.16 ms")])
def test_a_healthy_answer_gives_the_speed_of_its_direction(direction, speed, slowest):
    record = fio.figures(TEXT[direction], direction)
    assert record == (speed, 64, f"fio-3.33, 99 of 100 blocks within {slowest}")
    with pytest.raises(fio.NoFigure, match="moved 0 MiB"):
        fio.figures(TEXT[direction], "read" if direction == "write" else "write")


@for_each(
    ("text", "says"),
    [
        (TEXT["no-space"], "No space left on device"),  # half of the file was written, and has a speed
        (TEXT["no-file"], "Invalid argument"),
        (TEXT["truncated"], r"cannot be read.*unrecognized option"),
        ("", r"cannot be read.*unrecognized option"),
        ("{\n}", r"cannot be read.*KeyError"),
        ('{\n"jobs": [], "fio version": "fio-3.33"}', "cannot be read"),
        ('{\n"jobs": [null], "fio version": "fio-3.33"}', "cannot be read"),
        (TEXT["write"].replace('"bw_bytes" : 932067555', '"bw_bytes" : "fast"'), "cannot be read"),
    ],
    ids=lambda value: value[-60:],
)
def test_what_is_no_figure_is_refused_with_the_reason(text, says):
    with pytest.raises(fio.NoFigure, match=says) as error:
        fio.figures(text, "write", "fio: unrecognized option")
    assert "\n" not in str(error.value)


def test_fio_is_bounded_and_is_told_no_path_with_a_colon(tmp_path):
    for direction in ("write", "read"):
        command = fio.command(tmp_path / "a:b" / "n0.bytes", direction, 64)
        assert {"--runtime=60", "--filename=n0.bytes"} <= set(command)
        assert ("--size=64M" in command) is (direction == "write")
    assert "--direct=1" in fio.command(tmp_path, "read", 64, direct=True)


def probed(
    place: Path, work: Path, tool: str | None, how: str = "together", mib: int = 2, **env: str
) -> dict[str, dict]:
    """What storage.py says of the folder `work`, where `fio` is this script, or is not there; quantity -> fact."""
    (place / "tools").mkdir()
    if tool is not None:
        program(place / "tools/fio", tool, "/bin/sh")
    env = {"PATH": str(place / "tools"), "SLURMD_NODENAME": "n0", **env}
    done = ran([sys.executable, PROBES / "storage.py", work, str(mib), how], check=True, env=env)
    assert not facts.parse(done.stdout, "f").problems
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    begin = "storage.scratch." if how == "scratch" else "smoke.storage."
    return {line["quantity"].removeprefix(begin): line for line in lines if begin in line.get("quantity", "")}


def probe(folder: Path, tool: str | None, how: str = "together", **env: str) -> dict[str, dict]:
    (folder / "work").mkdir()
    seen = probed(folder, folder / "work", tool, how, **env)
    assert not [path for path in (folder / "work").iterdir() if not path.name.endswith(".fio.json")]  # it cleans up
    return seen


def test_without_fio_plain_io_is_timed_and_says_so(tmp_path):
    seen = probe(tmp_path, None)
    for direction in ("write", "read"):
        assert seen[f"{direction}_together"]["value"] > 0
        assert PLAIN in seen[f"{direction}_together"]["why"]
    assert seen["files"]["value"] > 0


def test_a_file_is_read_past_the_cache_of_the_node_or_the_answer_says_so(tmp_path, monkeypatch):
    """A client of NFS or Lustre may answer a read of what it has just written from its own memory."""
    opened, real, path = [], storage.os.open, tmp_path / "bytes"

    def watched(path, flags, *rest, **options):
        opened.append(flags)
        return real(path, flags, *rest, **options)

    storage.write(path, 2, 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "open", watched)
        if storage.takes_direct(path):
            speed, moved, by = storage.plainly(path, "read", 2, False)
            assert (speed > 0, moved, by) == (True, 2, f"{PLAIN}, past the cache")
        assert opened
        assert all(flags & storage.os.O_DIRECT for flags in opened)
        with pytest.raises(OSError, match="shorter"):
            storage.read_directly(path, 3, 0.0)
    monkeypatch.setattr(storage, "read_directly", lambda *_: (_ for _ in ()).throw(OSError(22, "Invalid argument")))
    speed, _, by = storage.plainly(path, "read", 2, False)
    assert speed > 0
    assert by.endswith("perhaps from this node's cache: no direct I/O here")
    asked = []
    monkeypatch.setattr(storage.fio, "run", lambda *words: asked.append(words[-1]) or (1.0, 2, "fio-3.33"))
    assert storage.with_fio(path, "read", 2, False)[2].endswith("no direct I/O here")
    assert storage.with_fio(path, "write", 2, False)[2] == "fio-3.33"
    assert asked == [False, False]


def test_with_fio_its_figures_count_and_its_answers_are_kept(tmp_path):
    seen = probe(tmp_path, ANSWERS)
    assert (seen["write_together"]["value"], seen["read_together"]["value"]) == (0.9321, 1.3696)
    assert seen["write_together"]["why"] == "64 MiB from n0 by fio-3.33, 99 of 100 blocks within 4.42 ms"
    kept = {path.name for path in (tmp_path / "work").iterdir()}
    assert kept == {f"n0.together.{direction}.fio.json" for direction in ("write", "read")}


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ("echo 'fio: engine psync not loadable' >&2; exit 1", "engine psync not loadable"),
        ("kill -9 $$", "fio ended with -9"),
        (f"/bin/cat '{REAL}/no-space.json'; exit 1", "No space left on device"),
    ],
)
def test_a_fio_that_fails_leaves_the_speeds_unknown_and_no_plain_io_hides_it(tmp_path, tool, says):
    seen = probe(tmp_path, tool, how="alone")
    for direction in ("write", "read"):
        assert (seen[direction]["value"], seen[direction]["subject"]) == (None, "job")
        assert says in seen[direction]["why"]


def test_the_drill_for_slow_storage_also_slows_fio(tmp_path):
    seen = probe(tmp_path, 'echo "$*" >&2', how="alone", BRINGUP_DRILL="slow-storage:n0")
    assert "--rate=2m" in seen["write"]["why"]


def test_a_folder_that_is_not_there_leaves_nothing_known(tmp_path):
    seen = probed(tmp_path, tmp_path / "nowhere", None)
    assert [(fact["value"], "No such file" in fact["why"]) for fact in seen.values()] == [(None, True)] * 3


@pytest.mark.parametrize(("there", "tool"), [(True, None), (True, ANSWERS), (False, None)])
def test_the_scratch_folder_is_measured_in_a_folder_of_its_own_and_left_as_it_was(tmp_path, there, tool):
    place = tmp_path / "scratch"
    if there:
        place.mkdir()
    seen = probed(tmp_path, place, tool, "scratch", 1)
    for direction in ("write", "read"):
        fact = seen[direction]
        assert fact["subject"] == "n0"
        assert fact["value"] > 0 if there else fact["value"] is None and "No such file or directory" in fact["why"]
    assert place.exists() is there
    assert not there or list(place.iterdir()) == []
