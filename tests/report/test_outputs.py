"""Files that a person names: nothing is written over without --force, and nothing is done before that is known."""

import os
import stat
from pathlib import Path

import pytest
from bringup.cli import main
from loops import for_each
from runs_for_tests import FIXTURES, discovery


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    return discovery(tmp_path / "runs", monkeypatch)


@for_each("-o", "--junit", "--prometheus")
def test_a_file_that_is_there_is_replaced_by_force_alone_and_keeps_its_rights(run, tmp_path, capsys, refused, option):
    own = tmp_path / f"own{option}"
    arguments = ["report", str(run), *([] if option == "-o" else ["-o", str(tmp_path / option)]), option, str(own)]
    own.write_text("mine")
    own.chmod(0o640)
    assert "it is left as it is" in refused(*arguments)
    assert own.read_text() == "mine"
    assert not (run / "report.html").exists()
    assert not (tmp_path / option).exists()  # nothing was done before that was known
    assert main([*arguments, "--force"]) == 0
    assert own.read_bytes() != b"mine"
    assert stat.S_IMODE(own.stat().st_mode) == 0o640  # who could read it still can
    capsys.readouterr()


def test_the_page_beside_a_run_is_made_again(run):
    assert main(["report", str(run)]) == 0
    (run / "report.html").write_text("old")
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").read_text() != "old"


NEW = ("raw/new.html", "raw/new/x.html")


@for_each("run.json", "closed.json", "metrics.json", "report.md", "raw/inventory.jsonl", *NEW)
def test_the_evidence_of_a_run_is_neither_replaced_nor_added_to(run, refused, name):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert "evidence of a run" in refused("report", run, "-o", run / name, "--force")
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_devices_fifos_and_folders_are_refused(run, tmp_path, refused):
    fifo, folder = tmp_path / "fifo", tmp_path / "folder"
    os.mkfifo(fifo)
    folder.mkdir()
    assert "not a regular file" in refused("report", run, "-o", "/dev/null")
    assert "not a regular file" in refused("report", run, "--junit", fifo)
    assert "is a folder" in refused("report", run, "--prometheus", folder)
    assert "there is no folder" in refused("report", run, "-o", tmp_path / "gone/page.html")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_link_is_followed_and_stays(run, tmp_path):
    link, page = tmp_path / "link.html", tmp_path / "page.html"
    link.symlink_to(page)
    assert main(["report", str(run), "-o", str(link)]) == 2  # somebody else may have put it there
    assert not page.exists()
    assert main(["report", str(run), "-o", str(page)]) == 0
    assert main(["report", str(run), "-o", str(link), "--force"]) == 0
    assert link.is_symlink()
    assert page.read_text().startswith("<!doctype html>")
    evidence = tmp_path / "evidence.html"
    evidence.symlink_to(run / "run.json")
    assert main(["report", str(run), "-o", str(evidence), "--force"]) == 2


def test_two_options_do_not_share_a_file(run, tmp_path, refused):
    (tmp_path / "link").symlink_to(tmp_path)
    both = ("--junit", tmp_path / "x", "--prometheus", tmp_path / "link/x")
    assert "--junit and --prometheus both name" in refused("report", run, *both)
    assert "both name -" in refused("report", run, "-o", "-", "--junit", "-")


def test_a_dash_is_standard_output_and_nothing_else_stands_there(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(run), "-o", "-", "--junit", str(tmp_path / "j.xml")]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("<!doctype html>")
    assert out.rstrip().endswith("</html>")
    assert "j.xml" in err
    assert "NOT PROVEN: nothing failed" in err
    assert not (tmp_path / "-").exists()


@for_each((0o022, 0o644), (0o027, 0o640), (0o077, 0o600))
def test_who_may_read_a_new_file_is_the_umasks_business(run, tmp_path, umask, mode):
    page, written = tmp_path / f"{mode}.html", tmp_path / f"{mode}.prom"
    before = os.umask(umask)
    try:
        assert main(["report", str(run), "-o", str(page), "--prometheus", str(written)]) == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(written.stat().st_mode) == mode


def test_a_profile_that_is_there_stays_because_people_edit_profiles(run, tmp_path, capsys, shown, refused):
    profile = tmp_path / "measured.yaml"
    assert main(["profile", "--from", str(run), "-o", str(profile)]) == 0
    text = profile.read_text()
    capsys.readouterr()
    assert "exists already" in refused("profile", "--from", run, "-o", profile)
    assert profile.read_text() == text
    assert "evidence of a run" in refused("profile", "--from", run, "-o", run / "profile.yaml")
    assert shown(0, "profile", "--from", run, "-o", "-") == text


def test_a_node_called_like_markup_and_an_unreadable_monitor_do_not_end_the_judgement(run, monkeypatch, capsys, shown):
    (run / "raw/monitor.csv").write_text((FIXTURES / "monitor.csv").read_text().replace("n0", "<x>&"))
    assert main(["judge", str(run)]) == 2  # it came after the run was closed
    assert "![" in (run / "report.md").read_text()
    assert "report:" in capsys.readouterr().out
    opened = os.open

    def unreadable(path, *arguments, **options):
        if str(path).endswith("monitor.csv"):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", unreadable)  # of a file that root may always read
    assert "raw/monitor.csv: cannot be read: Permission denied" in shown(2, "judge", run)
    assert main(["report", str(run)]) == 2
    assert (run / "report.html").exists()
