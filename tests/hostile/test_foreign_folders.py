"""A results folder that somebody else made: links, FIFOs, devices and folders in the place of files lead nowhere."""

import io
import os
import subprocess
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from bringup import cli
from bringup.kernel import results
from bringup.kernel.errors import RecordError
from bringup.kernel.judge import judge_folder
from bringup.kernel.records import Mark, Outcome, files, write_record
from bringup.report import outputs
from bringup.report.charts import drawing, sheet
from bringup.report.collection import gather
from bringup.run import open as opening
from factory import a_drill_report, a_drill_result, a_run
from pydantic import ValidationError
from runs_for_tests import discovery

SECRET = "a secret of the reader"
FILES = [f"raw/{name}" for name in ("inventory.jsonl", "launch.log", "x.err", "scontrol-node.txt", "monitor.csv")]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return discovery(tmp_path / "sent", monkeypatch)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "home/id_rsa"
    path.parent.mkdir()
    path.write_text(f"{SECRET}\n" * 20)
    return path


def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """It must end by itself, with an answer and without a traceback."""
    words = list(map(str, arguments))
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        done = subprocess.CompletedProcess(words, cli.main(words), out, err)
    done.stdout, done.stderr = out.getvalue(), err.getvalue()
    assert done.returncode in (0, 1, 2), done.stderr
    assert "Traceback" not in done.stderr and "a fault of bringup itself" not in done.stderr
    return done


def put_in_its_place(path: Path, what: str, secret: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.symlink_to({"link": secret, "device": Path("/dev/zero"), "dangling": path.with_name("nothing")}[what])


@pytest.mark.parametrize("what", ["link", "fifo", "device", "folder", "dangling"])
def test_what_stands_in_the_place_of_evidence_is_named_and_not_read(run: Path, secret: Path, what: str) -> None:
    for name in FILES:
        put_in_its_place(run / name, what, secret)
    judged = judge_folder(run)
    assert judged.verdicts.outcome != "pass"
    if what != "folder":
        for name in FILES:
            assert any(problem.startswith(f"{name}: a") for problem in judged.verdicts.notes), judged.verdicts.notes
    assert SECRET not in str(judged.verdicts)


@pytest.mark.parametrize("what", ["link", "fifo", "device", "folder"])
@pytest.mark.parametrize("name", ("closed.json", "profile.yaml", "metrics.json", "run.json"))
def test_what_stands_in_the_place_of_a_record_is_one_line(run: Path, secret: Path, what: str, name: str) -> None:
    put_in_its_place(run / name, what, secret)
    done = call("judge", run)
    assert SECRET not in done.stdout + done.stderr
    if name in ("run.json", "profile.yaml"):
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1


def test_a_linked_raw_is_not_entered(run: Path, tmp_path: Path) -> None:
    """Nor is it read there how Slurm ended the job."""
    (run / "closed.json").unlink()
    (run / "raw").rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/scontrol-job.txt").write_text("JobId=1 JobState=TIMEOUT Reason=TimeLimit")
    (run / "raw").symlink_to(tmp_path / "elsewhere")
    judged = judge_folder(run)
    assert "raw: a link; it was not read" in judged.verdicts.notes
    assert "TIMEOUT" not in str(judged.observations)
    assert not any("scontrol" in name for name in judged.files.checksums())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")
def test_a_hard_link_to_a_file_of_the_reader_is_not_read(run: Path, secret: Path, tmp_path: Path) -> None:
    """Where fs.protected_hardlinks is 0 its sender needs no right to read it."""
    os.link(secret, run / "raw/not-opened.txt")
    os.chown(run / "raw", 65534, 65534)
    call("report", run, "-o", tmp_path / "page.html")
    assert SECRET not in (tmp_path / "page.html").read_text()


def test_no_output_holds_what_a_link_leads_to(run: Path, secret: Path, tmp_path: Path) -> None:
    for name in ("raw/not-opened.txt", "raw/x.err", "raw/job-1.txt", "raw/stacks/rank0.txt"):
        put_in_its_place(run / name, "link", secret)
    call("judge", run)
    call("explain", run)
    into = tmp_path / "outputs"
    into.mkdir()
    options = ("-o", into / "page.html", "--zip", into / "all.zip", "--junit", into / "j.xml")
    call("report", run, *options, "--prometheus", into / "p.prom")
    written = [path for path in (*into.iterdir(), run / "report.md") if path.suffix != ".zip"]
    assert len(written) >= 3
    for path in written:
        assert SECRET not in path.read_text(errors="replace"), path
    with zipfile.ZipFile(into / "all.zip") as archive:
        assert not any(SECRET.encode() in archive.read(name) for name in archive.namelist())


def test_a_derived_file_is_not_written_through_a_link(run: Path, secret: Path) -> None:
    before = secret.read_text()
    for name in ("report.md", "verdicts.json", "observations.json"):
        put_in_its_place(run / name, "link", secret)
    done = call("judge", run)
    assert done.returncode == 2
    assert "a link is in the place of a file, and is not replaced" in done.stderr
    assert secret.read_text() == before


def test_the_page_is_not_written_through_a_link_in_the_folder(run: Path, tmp_path: Path) -> None:
    """Also not to a page of the reader's own."""
    own = tmp_path / "own.html"
    assert call("report", run, "-o", own).returncode == 0
    before = own.read_bytes()
    put_in_its_place(run / "report.html", "link", own)
    own.write_bytes(before + b"mine")
    done = call("report", run)
    assert done.returncode == 2
    assert "is a link in a results folder, where none is followed" in done.stderr
    assert own.read_bytes() == before + b"mine"


def test_rights_of_a_page_are_set_before_it_has_its_name(run: Path, tmp_path: Path, monkeypatch) -> None:
    """Who owns the folder can put a link there a moment later: chmod would follow it."""
    secret, page = tmp_path / "secret", outputs.Output("-o", run / "report.html", force=True)
    secret.touch(0o600)
    page.path.write_text("old")
    page.path.chmod(0o4777)
    moved = os.replace

    def moved_and_turned(*arguments: Any, **options: Any) -> None:
        moved(*arguments, **options)
        page.path.rename(run / "moved")
        page.path.symlink_to(secret)

    monkeypatch.setattr(os, "replace", moved_and_turned)
    outputs.write(page, "new")
    assert secret.stat().st_mode & 0o777 == 0o600
    assert (run / "moved").stat().st_mode & 0o7777 == 0o666


def test_a_picture_is_not_drawn_through_a_link(tmp_path: Path, secret: Path) -> None:
    before = secret.read_text()
    (tmp_path / "figure.svg").symlink_to(secret)
    with pytest.raises(RecordError, match="a link is in the place of a file"):
        sheet.save(tmp_path / "figure.svg", "t", [drawing.Drawing("t", 100.0, 1.0, [])])
    assert secret.read_text() == before


def test_the_reference_of_a_training_is_no_link(tmp_path: Path, secret: Path) -> None:
    """Else a file of the reader is copied into a run that he sends."""
    runs = [tmp_path / "run_1gpu-mine", tmp_path / "run_1gpu-theirs"]
    for path in runs:
        path.mkdir()
        for name in (results.METRICS, results.RUN_ARGS):
            (path / name).write_text("{}")
    put_in_its_place(runs[1] / results.METRICS, "link", secret)
    mine = tmp_path / "run_ddp_1node-mine"
    mine.mkdir()
    write_record(mine / results.RUN, a_run("run_ddp_1node", ["n0"]))
    assert opening._one_gpu_runs(mine) == runs[:1]


def test_names_that_were_planted_before_do_not_catch_a_writer(tmp_path: Path, secret: Path) -> None:
    """The old name of the part that is written first was made of the process id."""
    before = secret.read_text()
    target = tmp_path / "a record.json"
    for number in (os.getpid(), os.getpid() + 1):
        (tmp_path / f".{target.name}.{number}.part").symlink_to(secret)
    files.write(target, b"{}")
    assert target.read_bytes() == b"{}"
    assert secret.read_text() == before
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part") and not path.is_symlink()]


def test_a_record_is_replaced_where_it_is_derived_and_a_long_file_is_read_to_its_limit(tmp_path: Path) -> None:
    target = tmp_path / "record.json"
    files.write(target, b"first")
    with pytest.raises(RecordError, match="already written"):
        files.write(target, b"second")
    files.write(target, b"x" * 10_000, replace=True)
    content = files.read(target, most=4096)
    assert (len(content.data), content.left_out) == (4096, 10_000 - 4096)


def test_the_folder_that_was_named_may_be_a_link(run: Path, tmp_path: Path) -> None:
    link = tmp_path / "my results"
    link.symlink_to(run)
    assert judge_folder(link).verdicts.outcome == judge_folder(run).verdicts.outcome


def test_a_file_is_what_it_was_at_the_first_look(run: Path) -> None:
    """A log may grow while its run is judged. Other bytes are read by nobody, and the evidence does not hold."""
    folder, name = judge_folder(run).files, "raw/inventory.jsonl"
    first, checksum = folder.read(name), folder.checksums()[name]
    (run / name).write_bytes(first.data + b"a line more\n")
    assert (folder.read(name), folder.checksums()[name]) == (first, checksum)
    (run / name).write_bytes(b"x" * len(first.data))
    with pytest.raises(OSError, match="other bytes at a second look"):
        folder.read(name)
    assert folder.checksums()[name] != checksum


def test_drills_count_by_the_run_beside_their_record_wherever_it_was_moved_to(tmp_path, monkeypatch) -> None:
    """A result written by hand was a pass. A path in a record leads nowhere else."""
    declared: dict[str, Any] = {"drill": "not-closed", "gate": "run.closed", "subject": "job"}
    declared["outcome"] = Outcome.INCOMPLETE
    result = a_drill_result(**declared, evidence="r/not-closed/r-not-closed")
    write_record(tmp_path / results.DRILLS, a_drill_report(result, place="anywhere"))
    monkeypatch.setenv("BRINGUP_RUN_NAME", "r-not-closed")
    assert gather([tmp_path]).answers[5].mark is Mark.INCOMPLETE
    run = discovery(tmp_path / "not-closed", monkeypatch, close=False)
    assert (run.name, gather([tmp_path]).answers[5].mark) == ("r-not-closed", Mark.PARTLY)
    for name in ("../x/r-not-closed", "/x/r-not-closed"):
        with pytest.raises(ValidationError, match="evidence"):
            a_drill_result(evidence=name)
