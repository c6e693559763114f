"""Folders that jobs write to: what a node says of them, and which of them a verdict names."""

import errno
import os
import threading
from types import SimpleNamespace
from typing import Any

import folders
import pytest
from bringup.evidence.parsed import Parsed
from bringup.plan.phases import PHASES
from bringup.plan.site import Site
from bringup.records import SiteUsed
from bringup.run import site as at_site
from factory import a_run
from probing import told_by
from runs_for_tests import add_derived

QUOTA = """Disk quotas for user alice (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
      /dev/vda1 1048576       0       0       0     100       0       0       0
nas:/export/home 1048576* 1000000 3145728 1795000000     100     200     300       0
"""
LUSTRE = """      /lustre/a/very/long/path/of/a/filesystem
                1048576       0 2097152       -     250*    200     200  6d23h59m
"""


def seen(question) -> dict[str, Any]:
    return {
        observation.quantity: (observation.value, observation.why) for observation in told_by(question).observations
    }


def test_a_folder_that_works_tells_its_room_and_keeps_nothing(tmp_path):
    facts_by_name = seen(lambda probe: folders.folders(probe, [("results", str(tmp_path))]))
    assert facts_by_name["inventory.folder.results.writes"][0] == "works"
    assert facts_by_name["inventory.folder.results.space"][0] > 0
    assert facts_by_name["inventory.folder.results.files"][0] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_said(tmp_path):
    facts_by_name = seen(lambda probe: folders.folders(probe, [("scratch", str(tmp_path / "nowhere"))]))
    assert facts_by_name["inventory.folder.scratch.writes"] == ("No such file or directory", str(tmp_path / "nowhere"))
    assert facts_by_name["inventory.folder.scratch.space"][0] is None


def test_a_disk_that_is_full_is_said_and_the_file_is_removed(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(folders.os, "fsync", full)
    assert folders.writes(str(tmp_path), "n0") == "No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_other_bytes_than_were_written_are_no_working_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(folders.os, "fsync", lambda fd: os.pwrite(fd, b"other", 0))
    assert folders.writes(str(tmp_path), "n0") == "what was read is not what was written"


def test_a_folder_that_does_not_answer_does_not_hold_up_the_probe(tmp_path, monkeypatch):
    never = threading.Event()
    monkeypatch.setattr(folders, "ANSWER_S", 0.05)
    monkeypatch.setattr(folders, "writes", lambda *_: never.wait())
    try:
        facts_by_name = seen(lambda probe: folders.folders(probe, [("results", str(tmp_path))]))
    finally:
        never.set()
    assert facts_by_name["inventory.folder.results.writes"][0] == "no answer within 0.05 s"
    assert facts_by_name["inventory.folder.results.space"] == (None, f"{tmp_path} does not answer")


def test_a_health_check_that_waits_less_finds_no_fault_in_a_busy_folder(tmp_path, monkeypatch):
    never = threading.Event()
    monkeypatch.setattr(folders, "writes", lambda *_: never.wait())
    try:
        facts_by_name = seen(lambda probe: folders.folders(probe, [("tmp", str(tmp_path))], answer_s=0.05))
    finally:
        never.set()
    assert facts_by_name["inventory.folder.tmp.writes"] == (None, f"{tmp_path}: no answer within 0.05 s")


def test_a_filesystem_without_a_number_of_files_has_room_for_them(tmp_path, monkeypatch):
    about = SimpleNamespace(f_blocks=20 * 2**20, f_bavail=10 * 2**20, f_frsize=1024, f_files=0, f_favail=0)
    monkeypatch.setattr(folders.os, "statvfs", lambda _: about)
    facts_by_name = seen(lambda probe: folders.room(probe, "tmp", str(tmp_path)))
    assert facts_by_name["inventory.folder.tmp.files"][0] == folders.NO_LIMIT
    assert facts_by_name["inventory.folder.tmp.space"][0] == 10


def test_a_filesystem_that_says_no_size_is_not_full(tmp_path, monkeypatch):
    about = SimpleNamespace(f_blocks=0, f_bavail=0, f_frsize=4096, f_files=0, f_favail=0)
    monkeypatch.setattr(folders.os, "statvfs", lambda _: about)
    facts_by_name = seen(lambda probe: folders.room(probe, "tmp", str(tmp_path)))
    assert facts_by_name["inventory.folder.tmp.space"] == (None, f"{tmp_path}: its filesystem does not say its size")


@pytest.mark.parametrize(
    ("source", "left"),
    [("nas:/export/home", (2.0, 200)), ("/dev/vda1", (None, None)), ("/dev/other", None)],
    ids=["limits", "none set", "another filesystem"],
)
def test_what_quota_leaves(source, left):
    assert folders.left_of(QUOTA, source) == left


@pytest.mark.parametrize("text", ["", "Disk quotas for user alice (uid 1000): none\n", QUOTA[:-30]])
def test_no_quota_and_half_an_answer_leave_the_filesystem_to_say_it(text):
    assert folders.left_of(text, "nas:/export/home") is None


def test_what_lfs_quota_leaves():
    assert folders.lustre_left(LUSTRE) == (1.0, 0)
    assert folders.lustre_left("lfs: cannot get quota") is None


def test_a_quota_that_ends_before_the_filesystem_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "quota", lambda _: (0.001, 3))
    facts_by_name = seen(lambda probe: folders.room(probe, "results", str(tmp_path)))
    assert facts_by_name["inventory.folder.results.space"] == (0.001, f"{tmp_path}, by quota")
    assert facts_by_name["inventory.folder.results.files"] == (3, f"{tmp_path}, by quota")


@pytest.mark.parametrize(("mount", "asked"), [("lustre mds:/lustre rw", "lfs"), ("nfs4 nas:/home rw", "quota")])
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


def derived(**folders_of: tuple[Any, Any]) -> dict[str, tuple[Any, str | None]]:
    """label -> (writes, space)"""
    parsed = Parsed()
    for label, (writes, space) in folders_of.items():
        why = f"/{label}"
        parsed.saw(f"inventory.folder.{label}.writes", "n0", writes, "text", "f:1", why)
        parsed.saw(f"inventory.folder.{label}.space", "n0", space, "GiB", "f:2", why)
    run = a_run().model_copy(update={"site": SiteUsed(name="a", says={"scratch": "/scratch"})})
    return {
        observation.quantity.rpartition(".")[2]: (observation.value, observation.why)
        for observation in add_derived(parsed, run).observations
        if observation.quantity.startswith("discovery.folders.")
    }


def test_the_worst_folder_counts_and_is_named():
    observation = derived(results=("works", 5.0), scratch=("Read-only file system", 0.5))
    assert observation["writes"] == (False, "scratch (/scratch): Read-only file system")
    assert observation["space"] == (0.5, "scratch: /scratch")


def test_folders_that_all_work_pass():
    observation = derived(results=("works", 5.0), scratch=("works", 6.0))
    assert observation["writes"][0] is True
    assert observation["space"] == (5.0, "results: /results")


def test_a_folder_of_the_site_that_nobody_spoke_of_is_not_known():
    assert derived(results=("works", 5.0))["writes"] == (None, "nothing was said of scratch")


def test_a_folder_that_is_not_known_is_not_passed_over_for_a_better_one():
    assert derived(results=("works", 5.0), scratch=("works", None))["space"] == (None, "scratch: /scratch")


def test_a_number_that_is_a_text_is_not_known():
    """It once ended the judging of the whole run."""
    value, why = derived(results=("works", "much"), scratch=("works", 6.0))["space"]
    assert (value, why) == (None, "results: not a number: 'much'")


def test_the_folders_of_the_site_are_asked_about_in_discovery_only(tmp_path):
    at = at_site.AtSite(Site(schema_version=1, name="a", scratch="/fast", checkpoints="/big one"), tmp_path / "a.yaml")
    line = "FOLDERS_SITE=(--folder scratch=/fast --folder 'checkpoints=/big one')"
    assert line in at_site.assignments(at, PHASES["discovery"], tmp_path)
    assert not any("FOLDERS_SITE" in each for each in at_site.assignments(at, PHASES["smoke"], tmp_path))
