"""What nodes see of each other's files: the probe itself, a process per node, on folders of this machine."""

import errno
import json
import os
import sys
import time
from pathlib import Path

import coherence
import fio
import pytest
import shared_files
import software
import storage
from bringup.kernel.facts import facts
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan import rounds as tournament
from loops import case_for_each, for_each
from probing import answers_of
from programs import PROBES, begun, program, ran
from runs_for_tests import FIXTURES, values

PROBE = PROBES / "coherence.py"
FLAGS = ("write", "attributes", "lock_refused", "append", "rename", "unlink")
THREE = ("n0", "n1", "n2")
SOON_S = 1  # that a probe of these tests waits for what is there; in a job it is more
KEEP_S = 4  # longer than that: what a client that keeps names as missing keeps them; stock NFS does so for 30
QUICK = f"""
import sys; sys.path.insert(0, {str(PROBES)!r})
import shared_files
shared_files.SOON_S = {SOON_S}
shared_files.wait_for.__defaults__ = (None, {SOON_S})
"""


@pytest.fixture(autouse=True)
def quick(tmp_path_factory, monkeypatch) -> Path:
    """What every program of a test runs first."""
    site = tmp_path_factory.mktemp("site") / "sitecustomize.py"
    site.write_text(QUICK)
    monkeypatch.setenv("PYTHONPATH", str(site.parent))
    return site


def as_node(node: str, shared: Path, kept: Path) -> dict[str, str]:
    return {**os.environ, "SLURMD_NODENAME": node, "SHARED": str(shared), "KEPT": str(kept)}


def performed(folders, usable=None, between=None) -> Parsed:
    """All steps, each on all usable nodes at once. folders: what each node takes for the shared one. between: before a
    step."""
    names, parsed = list(folders), Parsed()
    usable = usable or names
    rounds = ",".join(str(number) for number in tournament.circle_rounds(names))
    lists = next(iter(folders.values())).with_name("lists")
    lists.write_text(f"{','.join(names)}\n{','.join(usable)}\n")
    for step in ("write", "read", "change", "see"):
        (between or {}).get(step, lambda: None)()
        running = []
        for node in usable:
            with lists.open() as stream:
                own = as_node(node, folders[node], folders[node].with_name(f"kept-{node}"))
                command = [sys.executable, PROBE, step, folders[node], rounds]
                running.append(begun(command, env=own, stdin=stream, stderr=None))
        for process in running:
            parsed.add(facts.parse(process.communicate()[0], step))
            assert process.returncode == 0
    assert parsed.problems == []
    return parsed


def flags(parsed: Parsed, case: str) -> dict[str, object]:
    return values(parsed, f"smoke.fs.pair.{case}")


def test_on_one_folder_every_ordered_pair_sees_everything(tmp_path):
    parsed = performed(dict.fromkeys(THREE, tmp_path))
    pairs = {f"{writer}->{reader}" for writer, reader in tournament.ordered_pairs(THREE)}
    assert len(pairs) == 6
    for case in FLAGS:
        assert flags(parsed, case) == dict.fromkeys(pairs, True)
    assert set(flags(parsed, "late_lookup")) == pairs
    made = [seen.subject for seen in parsed.observations if seen.quantity.endswith(".created") and seen.value is True]
    assert sorted(made) == sorted(pairs)  # of each pair, one


def test_a_node_with_a_folder_of_its_own_fails_with_all_of_its_partners_and_no_other_pair(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    parsed = performed({"n0": tmp_path, "n1": own, "n2": tmp_path})
    bad = {pair for pair, seen in flags(parsed, "write").items() if seen is not True}
    assert bad == {"n0->n1", "n2->n1", "n1->n0", "n1->n2"}
    assert {pair for pair, seen in flags(parsed, "append").items() if seen is True} == {"n0->n2", "n2->n0"}


def test_a_file_that_cannot_be_read_costs_its_pair_and_no_other(tmp_path):
    """Bytes that are no text, and a name that leads nowhere, once ended all answers of a node."""
    spoil = {"read": lambda: (tmp_path / "n1.data").write_bytes(b"\xff\xfe")}
    parsed = performed(dict.fromkeys(THREE, tmp_path), between=spoil)
    assert {pair for pair, seen in flags(parsed, "write").items() if seen is not True} == {"n1->n0", "n1->n2"}
    assert {flags(parsed, "append")[pair] for pair in ("n0->n2", "n2->n0", "n0->n1")} == {True}


def tried(folder: Path, says: str):
    """Whether n0 is done with the lock of n1, which says this of it, and what it tells."""
    (folder / "n1.lock").touch()
    (folder / "n1.held").write_text(says)
    done = []

    def ask(probe):
        circle = coherence.Circle(probe, folder, ["n0", "n1"], ["n0", "n1"], [1])
        done.append(coherence.try_lock(circle, "n1", folder / "n1.held"))

    return done, answers_of(ask).get("smoke.fs.pair.lock_refused")


def test_a_slow_starter_gets_no_lock_that_was_let_go(tmp_path):
    assert tried(tmp_path, coherence.NOT_YET) == ([False], None)
    assert tried(tmp_path, coherence.OVER) == ([True], (None, "n1 had let go of its lock"))
    done, (refused, _) = tried(tmp_path, coherence.HELD)
    assert (done, refused) == ([True], False)


def test_a_filesystem_without_locks_does_not_refuse_them_and_says_why(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(coherence.fcntl, "flock", refused)
    with (tmp_path / "n1.lock").open("w") as stream:
        done, (value, why) = tried(tmp_path, coherence.take_lock(stream))
    assert (done, value) == ([True], False)
    assert "n1: no lock: Function not implemented" in why


# A client that keeps what it found missing, as NFS does: for KEEP_S, for all processes of one node.
CACHING_CLIENT = f"""
import builtins, io, os, time
from pathlib import Path

kept = Path(os.environ["KEPT"])
kept.mkdir(exist_ok=True)
folder = os.environ["SHARED"]
stat, open_file = os.stat, io.open


def asked(call, path, making, *arguments, **options):
    if making or not isinstance(path, (str, os.PathLike)) or os.path.dirname(os.fspath(path)) != folder:
        return call(path, *arguments, **options)
    note = str(kept / os.path.basename(os.fspath(path)))
    try:
        if time.time() - stat(note).st_mtime < {KEEP_S}:
            raise FileNotFoundError(2, "kept as missing", os.fspath(path))
    except FileNotFoundError as missing:
        if missing.strerror == "kept as missing":
            raise
    try:
        return call(path, *arguments, **options)
    except FileNotFoundError:
        open_file(note, "w").close()
        raise


os.stat = lambda path, *a, **o: asked(stat, path, False, *a, **o)
io.open = lambda path, mode="r", *a, **o: asked(open_file, path, "r" not in mode, mode, *a, **o)
builtins.open = io.open
"""


@pytest.fixture
def caching_client(quick) -> None:
    quick.write_text(QUICK + CACHING_CLIENT)


def one_folder(folder: Path, seen: Path, tmp_path: Path) -> dict[str, object]:
    """The steps of shared_fs.py: the submit host works in `folder`, the node n0 in `seen`."""

    def step(name: str, place: Path, *arguments: str, node: str = "submit") -> str:
        command = [sys.executable, PROBE.with_name("shared_fs.py"), name, place, *arguments]
        return ran(command, env=as_node(node, place, tmp_path / f"kept-{node}"), check=True).stdout

    (tmp_path / "usable.txt").write_text("n0\n")
    culprit = step("look", seen, node="n0") + step("reference", folder, "token")
    culprit += step("node", seen, "token", node="n0") + step("check", folder, "token", str(tmp_path / "usable.txt"))
    return {observation.quantity: observation.value for observation in facts.parse(culprit, "f").observations}


def test_a_client_that_keeps_missing_names_sees_the_late_name_later(tmp_path, caching_client):
    folder, another, own = (tmp_path / name for name in ("shared", "another", "own"))
    for each in (folder, another, own):
        each.mkdir()
    begun = time.monotonic()
    seen = one_folder(folder, folder, tmp_path)
    took = time.monotonic() - begun
    assert seen["smoke.fs.looked"] is seen["smoke.fs.reads_submit_host"] is seen["smoke.fs.seen_by_submit_host"] is True
    assert 1 < float(str(seen["smoke.fs.late_lookup"])) < took
    seen = one_folder(another, own, tmp_path)  # which is not shared
    assert (seen["smoke.fs.reads_submit_host"], seen["smoke.fs.seen_by_submit_host"]) == (False, False)
    assert seen["smoke.fs.late_lookup"] is None


def test_nodes_that_keep_missing_names_hold_and_try_locks_and_see_every_change(tmp_path, caching_client):
    folder = tmp_path / "shared"
    folder.mkdir()
    begun = time.monotonic()
    parsed = performed(dict.fromkeys(THREE, folder))
    took = time.monotonic() - begun
    for case in FLAGS:
        assert set(flags(parsed, case).values()) == {True}, case
    assert all(1 < float(str(seconds)) < took for seconds in flags(parsed, "late_lookup").values())


def test_the_mount_and_its_caches_are_named(tmp_path, monkeypatch):
    table = tmp_path / "mounts"
    table.write_text(
        "1 1 8:1 / / rw - ext4 rootfs rw\n"
        "2 1 0:1 / /home rw - nfs4 fs:/home rw,vers=4.2,acdirmin=1,lookupcache=none,addr=10.0.0.9\n"
        "3 1 0:2 / /home/my\\040data rw - nfs fs:/data rw,vers=3,addr=10.0.0.9\n"
    )
    monkeypatch.setattr(software, "MOUNTS", table)
    assert shared_files.caches(Path("/home/x")) == "nfs4, acdirmin=1,lookupcache=none"
    assert shared_files.caches(Path("/home/my data/x")) == "nfs, no option for its caches"
    assert shared_files.mounted(Path("/tmp"))[0] == "ext4"


def test_a_node_that_does_not_run_leaves_its_pairs_without_evidence_and_one_node_has_no_pair(tmp_path):
    parsed = performed(dict.fromkeys(THREE, tmp_path), usable=["n0", "n2"])
    for case in FLAGS:
        assert set(flags(parsed, case)) == {"n0->n2", "n2->n0"}
    (tmp_path / "one").mkdir()
    parsed = performed({"n0": tmp_path / "one"})
    assert not [seen for seen in parsed.observations if ".pair." in seen.quantity]
    assert values(parsed, "smoke.fs.writes") == {"n0": "none"}


@for_each(((),), (("write", "/tmp"),), (("look", "/tmp", "1"),), (("write", "/tmp", "1"),))
def test_a_wrong_call_says_how(arguments):
    done = ran([sys.executable, PROBE, *arguments], env={**os.environ, "SLURMD_NODENAME": "n0"}, input="n1\nn1\n")
    assert done.returncode == 1
    assert "usage: coherence.py" in done.stderr or "n0 is none of n1" in done.stderr


# ---- storage with fio and without: tests/fixtures/fio holds what fio 3.33 printed

REAL = FIXTURES / "fio"
TEXT = {path.stem: path.read_text() for path in REAL.glob("*.json")}
ANSWERS = f'case "$*" in *--rw=write*) exec /bin/cat "{REAL}/write.json";; *) exec /bin/cat "{REAL}/read.json";; esac'
PLAIN = "plain I/O (fio is not installed)"


@for_each(("write", 0.9321, "4.42 ms"), ("read", 1.3696, "8.16 ms"))
def test_a_healthy_answer_gives_the_speed_of_its_direction(direction, speed, slowest):
    assert fio.figures(TEXT[direction], direction) == (speed, 64, f"fio-3.33, 99 of 100 blocks within {slowest}")
    with pytest.raises(fio.NoFigure, match="moved 0 MiB"):
        fio.figures(TEXT[direction], "read" if direction == "write" else "write")


@for_each(
    (TEXT["no-space"], "No space left on device"),  # half of the file was written, and has a speed
    (TEXT["no-file"], "Invalid argument"),
    (TEXT["truncated"], r"cannot be read.*unrecognized option"),
    ("", r"cannot be read.*unrecognized option"),
    ("{\n}", r"cannot be read.*KeyError"),
    ('{\n"jobs": [], "fio version": "fio-3.33"}', "cannot be read"),
    ('{\n"jobs": [null], "fio version": "fio-3.33"}', "cannot be read"),
    (TEXT["write"].replace('"bw_bytes" : 932067555', '"bw_bytes" : "fast"'), "cannot be read"),
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


def probed(place, work, tool, how="together", mib=2, **env) -> dict[str, dict]:
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


@case_for_each(
    ("echo 'fio: engine psync not loadable' >&2; exit 1", "engine psync not loadable"),
    ("kill -9 $$", "fio ended with -9"),
    (f"/bin/cat '{REAL}/no-space.json'; exit 1", "No space left on device"),
)
def test_a_fio_that_fails_leaves_the_speeds_unknown_and_no_plain_io_hides_it(tmp_path, tool, says):
    seen = probe(tmp_path, tool, how="alone")
    for direction in ("write", "read"):
        assert (seen[direction]["value"], seen[direction]["subject"]) == (None, "job")
        assert says in seen[direction]["why"]


def test_the_drill_for_slow_storage_also_slows_fio(tmp_path):
    assert "--rate=2m" in probe(tmp_path, 'echo "$*" >&2', how="alone", BRINGUP_DRILL="slow-storage:n0")["write"]["why"]


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
