"""What nodes see of each other's files: the probe itself, a process per node, on folders of this machine."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import coherence
import pytest
import shared_files
import software
from bringup.evidence import facts
from bringup.evidence.parsed import Parsed
from bringup.plan import rounds as tournament
from loops import for_each
from probing import answers_of
from programs import ran
from runs_for_tests import values
from simulated_tools import PROBES

PROBE = PROBES / "coherence.py"
STEPS = ("write", "read", "change", "see")
FLAGS = ("write", "attributes", "lock_refused", "append", "rename", "unlink")
THREE = ("n0", "n1", "n2")
SOON_S = 2  # that a probe of these tests waits for what is there; in a job it is more
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


def performed(
    folders: dict[str, Path], usable: list[str] | None = None, between: dict[str, Callable[[], object]] | None = None
) -> Parsed:
    """All steps, each on all usable nodes at once. folders: what each node takes for the shared one. between: before a
    step."""
    names, parsed = list(folders), Parsed()
    usable = usable or names
    rounds = ",".join(str(number) for number in tournament.circle_rounds(names))
    lists = [next(iter(folders.values())).parent / name for name in ("nodes.txt", "usable.txt")]
    for file, listed in zip(lists, (names, usable), strict=True):
        file.write_text("\n".join(listed))
    for step in STEPS:
        (between or {}).get(step, lambda: None)()
        running = [
            subprocess.Popen(
                [sys.executable, PROBE, step, folders[node], *lists, rounds],
                env={
                    **os.environ,
                    "SLURMD_NODENAME": node,
                    "SHARED": str(folders[node]),
                    "KEPT": str(folders[node].with_name(f"kept-{node}")),
                },
                stdout=subprocess.PIPE,
                text=True,
            )
            for node in usable
        ]
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
    wrong = {pair for pair, seen in flags(parsed, "write").items() if seen is not True}
    assert wrong == {"n1->n0", "n1->n2"}
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
        own = {"SLURMD_NODENAME": node, "SHARED": str(place), "KEPT": str(tmp_path / f"kept-{node}")}
        command = [sys.executable, PROBE.with_name("shared_fs.py"), name, place, *arguments]
        return subprocess.run(command, env={**os.environ, **own}, check=True, stdout=subprocess.PIPE, text=True).stdout

    (tmp_path / "usable.txt").write_text("n0\n")
    culprit = step("look", seen, node="n0") + step("reference", folder, "token")
    culprit += step("node", seen, "token", node="n0") + step("check", folder, "token", str(tmp_path / "usable.txt"))
    return {observation.quantity: observation.value for observation in facts.parse(culprit, "f").observations}


def test_a_client_that_keeps_missing_names_reads_the_shared_folder_and_sees_the_late_name_later(
    tmp_path, caching_client
):
    folder, another, own = (tmp_path / name for name in ("shared", "another", "own"))
    for each in (folder, another, own):
        each.mkdir()
    seen = one_folder(folder, folder, tmp_path)
    assert seen["smoke.fs.looked"] is seen["smoke.fs.reads_submit_host"] is seen["smoke.fs.seen_by_submit_host"] is True
    assert 1 < float(str(seen["smoke.fs.late_lookup"])) < KEEP_S + 3
    seen = one_folder(another, own, tmp_path)  # which is not shared
    assert (seen["smoke.fs.reads_submit_host"], seen["smoke.fs.seen_by_submit_host"]) == (False, False)
    assert seen["smoke.fs.late_lookup"] is None


def test_nodes_that_keep_missing_names_hold_and_try_locks_and_see_every_change(tmp_path, caching_client):
    folder = tmp_path / "shared"
    folder.mkdir()
    parsed = performed(dict.fromkeys(THREE, folder))
    for case in FLAGS:
        assert set(flags(parsed, case).values()) == {True}, case
    assert all(1 < float(str(seconds)) < KEEP_S + 3 for seconds in flags(parsed, "late_lookup").values())


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


@for_each(
    "arguments",
    [(), ("write", "/tmp", "list"), ("look", "/tmp", "list", "list", "1"), ("write", "/tmp", "list", "list", "1")],
)
def test_a_wrong_call_says_how(tmp_path, arguments):
    (tmp_path / "list").write_text("n1\n")
    arguments = [tmp_path / "list" if argument == "list" else argument for argument in arguments]
    done = ran([sys.executable, PROBE, *arguments], env={**os.environ, "SLURMD_NODENAME": "n0"})
    assert done.returncode == 1
    assert "usage: coherence.py" in done.stderr or "n0 is none of those in " in done.stderr
