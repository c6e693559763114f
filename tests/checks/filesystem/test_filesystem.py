"""What nodes say of shared files, put together per pair and judged."""

import errno
import os
import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

import folders
from bringup.kernel.facts.observations import derive
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.plan import rounds
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import SiteUsed, Value
from bringup.run import site as at_site
from bringup.run.site_file import Site
from factory import a_run
from loops import for_each
from probing import answers_of
from runs_for_tests import add_derived, parsed_of, values

THREE = ("n0", "n1", "n2")


def derived(quantity: str, facts: list[tuple[str, Value | None]], nodes: tuple[str, ...] = THREE) -> Parsed:
    seen = parsed_of((f"smoke.fs.{quantity}", subject, value) for subject, value in facts).observations
    return derive(Seen(seen), a_run("smoke", nodes))


@for_each(((True, False), 1), ((True, True), 2), ((False, False), 0), ((True, None), None), ((True,), None))
def test_both_nodes_of_a_pair_must_say_who_made_the_file(answers, winners):
    parsed = derived("pair.created", [("n0->n1", answer) for answer in answers])
    assert values(parsed, "smoke.fs.pair.exclusive") == {"n0->n1": winners}


def test_why_a_pair_is_unknown_is_told():
    answers = derived("pair.created", [("n0->n1", True), ("n1->n2", True), ("n1->n2", None)]).observations
    assert {seen.subject: seen.why for seen in answers} == {"n0->n1": "1 of 2 nodes answered", "n1->n2": "not read"}


BOTH = ("n0->n1", "n1->n0")


@for_each(
    ({"n0": "nfs4", "n1": "nfs4", "n2": "tmpfs"}, BOTH, ("n1->n2", "n2->n1", "n2->n0", "n0->n2")),
    ({"n0": "nfs4", "n1": "nfs4"}, BOTH, ()),  # n2 said no type: its pairs are without evidence
    ({"n0": None, "n1": None}, (), ()),  # two unknown types are not one type
)
def test_nodes_are_compared_in_pairs_by_type_of_filesystem(types, alike, differ):
    known = values(derived("type", list(types.items())), "smoke.fs.pair.same_type")
    expected = dict.fromkeys(alike, True) | dict.fromkeys(differ, False)
    assert {pair: same for pair, same in known.items() if same is not None} == expected
    assert alike or known == dict.fromkeys(BOTH, None)


@for_each((1, 0), (2, 2), (4, 12), (16, 240), (50, 250), (1000, 1000))
def test_every_ordered_pair_of_a_small_fleet_is_planned_and_a_bounded_number_of_a_large_one(nodes, pairs):
    names = [f"n{index}" for index in range(nodes)]
    pairs_planned = rounds.ordered_pairs(names)
    assert len(pairs_planned) == len(set(pairs_planned)) == pairs
    assert not any(writer == reader for writer, reader in pairs_planned)
    if nodes > 1:  # each node writes as often as it reads
        assert len({Counter(side)[name] for side in zip(*pairs_planned, strict=True) for name in names}) == 1


# ---- folders that jobs write to: what a node says of them, and which of them a verdict names

QUOTA = """Disk quotas for user alice (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
      /dev/vda1 1048576       0       0       0     100       0       0       0
nas:/export/home 1048576* 1000000 3145728 1795000000     100     200     300       0
"""
LUSTRE = """      /lustre/a/very/long/path/of/a/filesystem
                1048576       0 2097152       -     250*    200     200  6d23h59m
"""
NAS = "nas:/export/home"


def of_folder(path: object, **how: Any) -> dict[str, tuple[Any, str]]:
    """writes, space and files -> (value, why)"""
    facts = answers_of(lambda probe: folders.folders(probe, [("results", str(path))], **how))
    return {name.removeprefix("inventory.folder.results."): fact for name, fact in facts.items()}


def test_a_folder_that_works_tells_its_room_and_keeps_nothing(tmp_path):
    seen = of_folder(tmp_path)
    assert seen["writes"][0] == "works"
    assert min(seen["space"][0], seen["files"][0]) > 0
    assert list(tmp_path.iterdir()) == []
    nowhere = of_folder(tmp_path / "nowhere")
    assert nowhere["writes"] == ("No such file or directory", str(tmp_path / "nowhere"))
    assert nowhere["space"][0] is None


def test_a_shared_folder_that_a_client_looked_for_before_it_was_there_is_waited_for(tmp_path):
    """A stock NFS client keeps for a minute that it was not there: discovery called the results folder missing."""
    made = threading.Timer(0.5, (tmp_path / "late").mkdir)
    made.start()
    assert of_folder(tmp_path / "late", cached_s=9)["writes"][0] == "works"
    made.join()


def test_a_disk_that_is_full_or_returns_other_bytes_is_said_and_the_file_is_removed(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for fsync, says in (
        (full, "No space left on device"),
        (lambda fd: os.pwrite(fd, b"other", 0), "what was read is not what was written"),
    ):
        monkeypatch.setattr(folders.os, "fsync", fsync)
        assert folders.writes(str(tmp_path), "n0") == says
        assert list(tmp_path.iterdir()) == []


@for_each(
    ({}, ("no answer within 0.05 s", "{}")),
    ({"answer_s": 0.01}, (None, "{}: no answer within 0.01 s")),  # a health check finds no fault in a busy folder
)
def test_a_folder_that_does_not_answer_does_not_hold_up_the_probe(tmp_path, monkeypatch, how, writes):
    never = threading.Event()
    monkeypatch.setattr(folders, "ANSWER_S", 0.05)
    monkeypatch.setattr(folders, "writes", lambda *_: never.wait())
    try:
        seen = of_folder(tmp_path, **how)
    finally:
        never.set()
    assert seen["writes"] == (writes[0], writes[1].format(tmp_path))
    assert seen["space"] == (None, f"{tmp_path} does not answer")


def test_a_filesystem_that_gives_no_number_of_files_or_no_size_is_not_full(tmp_path, monkeypatch):
    about = SimpleNamespace(f_blocks=20 * 2**20, f_bavail=10 * 2**20, f_frsize=1024, f_files=0, f_favail=0)
    monkeypatch.setattr(folders.os, "statvfs", lambda _: about)
    seen = of_folder(tmp_path)
    assert (seen["space"][0], seen["files"][0]) == (10, folders.NO_LIMIT)
    about.f_blocks = about.f_bavail = 0
    assert of_folder(tmp_path)["space"] == (None, f"{tmp_path}: its filesystem does not say its size")


@for_each(
    (lambda: folders.left_of(QUOTA, NAS), (2.0, 200)),
    (lambda: folders.left_of(QUOTA, "/dev/vda1"), (None, None)),  # none is set
    (lambda: folders.left_of(QUOTA, "/dev/other"), None),
    # no quota and half an answer leave the filesystem to say it
    (lambda: folders.left_of("", NAS), None),
    (lambda: folders.left_of("Disk quotas for user alice (uid 1000): none\n", NAS), None),
    (lambda: folders.left_of(QUOTA[:-30], NAS), None),
    (lambda: folders.lustre_left(LUSTRE), (1.0, 0)),
    (lambda: folders.lustre_left("lfs: cannot get quota"), None),
)
def test_what_quota_leaves(read, left):
    assert read() == left


def test_a_quota_that_ends_before_the_filesystem_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "quota", lambda _: (0.001, 3))
    seen = of_folder(tmp_path)
    assert seen["space"] == (0.001, f"{tmp_path}, by quota")
    assert seen["files"] == (3, f"{tmp_path}, by quota")


@for_each(("lustre mds:/lustre rw", "lfs"), ("nfs4 nas:/home rw", "quota"))
def test_the_tool_of_the_filesystem_is_asked(monkeypatch, mount, asked):
    called = []

    def run(command, **_):
        called.append(command[0])
        raise FileNotFoundError(command[0])

    monkeypatch.setattr(folders, "mount_of", lambda _: mount)
    assert folders.quota("/somewhere", run) is None
    assert called == [asked]


def test_tmpdir_of_the_task_is_the_folder_for_temporary_files(monkeypatch):
    monkeypatch.setenv("TMPDIR", "/scratch/job")
    assert ("tmp", "/scratch/job") in folders.of_this_task()
    monkeypatch.delenv("TMPDIR")
    assert ("tmp", "/tmp") in folders.of_this_task()


# ---- what is derived


@for_each(
    (("Read-only file system", 0.5), (False, "scratch (/scratch): Read-only file system"), (0.5, "scratch: /scratch")),
    (("works", 6.0), (True, None), (5.0, "results: /results")),
    (None, (None, "nothing was said of scratch"), None),
    (("works", None), None, (None, "scratch: /scratch")),  # not passed over for a better one
    (("works", "much"), None, (None, "scratch: not a number: 'much'")),  # it ended the judging of the whole run
)
def test_the_worst_folder_counts_and_is_named(scratch, writes, space):
    of_both = {"results": ("works", 5.0)} | ({} if scratch is None else {"scratch": scratch})
    facts = [
        (f"inventory.folder.{label}.{what}", "n0", value, f"/{label}")
        for label, values in of_both.items()
        for what, value in zip(("writes", "space"), values, strict=True)
    ]
    run = a_run().model_copy(update={"site": SiteUsed(name="a", says={"scratch": "/scratch"})})
    seen = {fact.quantity: (fact.value, fact.why) for fact in add_derived(parsed_of(facts), run).observations}
    for name, expected in (("writes", writes), ("space", space)):
        if expected is not None:
            value, why = seen[f"discovery.folders.{name}"]
            assert (value, expected[1] and why) == expected


def test_the_folders_of_the_site_are_asked_about_in_discovery_only(tmp_path):
    at = at_site.AtSite(Site(schema_version=1, name="a", scratch="/fast", checkpoints="/big one"), tmp_path / "a.yaml")
    line = "FOLDERS_SITE=(--folder scratch=/fast --folder 'checkpoints=/big one')"
    assert line in at_site.assignments(at, PHASES["discovery"], tmp_path)
    assert not any("FOLDERS_SITE" in each for each in at_site.assignments(at, PHASES["smoke"], tmp_path))
