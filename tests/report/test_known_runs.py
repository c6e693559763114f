"""A run is named by its folder, a file in it, its name or `last`; whoever names none is told which there are."""

import os
import re
import shlex
import shutil
from pathlib import Path

import bringup.training.formulae.models  # noqa: F401  # its folder is that of this checkout, not of a test
import pytest
from bringup.cli import main
from bringup.compare import newest
from bringup.drill import suite
from bringup.kernel import judge, results
from bringup.kernel.records import Outcome, write_record
from bringup.report import known_runs
from bringup.report.campaigns import Playbook, Step
from bringup.soak.records import Proven, Soak
from loops import for_each
from runs_for_tests import discovery
from trained_runs import RECORDS, change

DISCOVERIES = "validation/results/discovery"
OLD, NEW = "20261126-090000-000001", "20261127-090000-000002"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with two runs of discovery; the newer one is a playbook's."""
    tree = tmp_path / "a checkout"
    (tree / "infrastructure-validation").mkdir(parents=True)
    monkeypatch.setattr(results, "REPOSITORY", tree)
    for name in (OLD, NEW):
        monkeypatch.setenv("BRINGUP_RUN_NAME", name)
        discovery(tree / "validation/results/discovery", monkeypatch)
    book = tree / results.PLAYBOOKS / NEW
    book.mkdir(parents=True)
    inside = f"validation/results/discovery/{NEW}"
    step = Step(phase="discovery", folder=inside, outcome=Outcome.PASS, blocks=False, seconds=1)
    record = Playbook(name=NEW, nodes=["n0"], profile="p", planned=["discovery"], left_out=[], steps=[step])
    write_record(book / results.PLAYBOOK, record)
    monkeypatch.chdir(tree)
    return tree


def answer_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as stop:  # of argparse
        code = int(stop.code or 0)
    return code, "".join(capsys.readouterr())


def test_a_run_is_found_by_name_by_last_and_by_a_file_of_it(tree: Path):
    playbook, alone = tree / results.PLAYBOOKS / NEW, tree / "validation/results/discovery" / OLD
    assert known_runs.called("last") == known_runs.called(NEW) == known_runs.called(str(playbook)) == playbook
    assert known_runs.called(OLD) == known_runs.called(str(alone / "profile.yaml")) == alone
    assert known_runs.called(str(tree / "validation/results/discovery" / NEW)) != playbook, "the phase alone"
    os.chdir("/")
    assert known_runs.called(f"validation/results/discovery/{OLD}") == alone, "as screens print it, from anywhere"
    shutil.rmtree(playbook)
    assert known_runs.called("last").parent.name == "discovery"


@for_each(
    ("20261126-090000-000003", f"no run is called so; did you mean {OLD}?; the newest are {NEW} (playbook); {OLD}"),
    ("notes.txt", "is a file of no run; the newest are"),
    (DISCOVERIES, f"the folder of several runs; name one of them: {DISCOVERIES}/{NEW} is"),
    ("validation", "holds no run; the newest are"),
)
def test_who_names_no_run_reads_which_there_are(tree: Path, capsys: pytest.CaptureFixture[str], name: str, says: str):
    Path("notes.txt").touch()
    for verb in (["explain"], ["judge"], ["report"], ["ticket", "n0"], ["compare"], ["run", "--resume"]):
        code, text = answer_of(capsys, *verb, name)
        assert (code, len(text.splitlines())) == (2, 1), verb
        assert says.replace(f"; {OLD}", "" if "run" in verb else f"; {OLD}") in text, verb
        assert text.startswith(f"bringup: {name}: "), verb


def test_a_ticket_with_run_and_node_swapped_says_which_comes_first(tree: Path, capsys: pytest.CaptureFixture[str]):
    for run in ("last", OLD, "validation/results/discovery"):
        says = f"bringup: {run}: a run, and the node comes first: bringup ticket NODE RUN\n"
        assert answer_of(capsys, "ticket", run, "n0") == (2, says)


def test_without_a_run_the_newest_one_is_read_and_a_phase_is_no_playbook(tree: Path, capsys):
    assert answer_of(capsys, "explain") == answer_of(capsys, "explain", NEW)
    says = f"bringup: {OLD}: is no playbook; the newest are {NEW} (playbook); `bringup runs` lists all\n"
    assert answer_of(capsys, "run", "--resume", OLD) == (2, says)
    shutil.rmtree(tree)
    tree.mkdir()
    os.chdir(tree)
    assert answer_of(capsys, "explain") == (2, "bringup: last: no run is called so; no run is here yet\n")


def test_a_run_that_cannot_be_read_is_one_line_and_a_wrong_option_is_told_before_the_run_that_it_looks_like(
    tree: Path, capsys: pytest.CaptureFixture[str]
):
    (tree / "validation/results/discovery" / OLD / "run.json").write_text("{")
    code, text = answer_of(capsys, "explain", OLD)
    assert (code, len(text.splitlines())) == (2, 1), text
    says = "bringup explain: no option --profiel; did you mean --profile?; see bringup explain --help\n"
    assert answer_of(capsys, "explain", "--profiel", "h100") == (2, says)


def a_training(tree: Path, stem: str, name: str, **args: object) -> Path:
    folder = tree / "training/results" / f"{stem}-{name}"
    shutil.copytree(RECORDS / stem, folder)
    shutil.copyfile(tree / "validation/results/discovery" / OLD / "run.json", folder / "run.json")
    change(folder, "run_args.json", **args)
    return folder


def test_without_a_run_the_newest_trainings_that_are_alike_are_compared(tree: Path, capsys):
    """After phases that were submitted by hand `last` was any phase, and compare ended with 2."""
    assert answer_of(capsys, "compare")[1].startswith("bringup: no training that finished is here yet: sbatch ")
    days = ("20261128-090000-job1", "20261128-100000-job2", "20261128-110000-job3", "20261129-090000-job4")
    a_training(tree, "run_1gpu", days[0])
    single, ddp = a_training(tree, "run_1gpu", days[1]), a_training(tree, "run_ddp_2node", days[2])
    a_training(tree, "run_fsdp_2node", days[0], global_batch=128)
    (a_training(tree, "run_fsdp_1node", days[3]) / "metrics.json").unlink()  # it did not finish
    assert newest.trainings() == [single, ddp]
    code, output = answer_of(capsys, "compare")
    assert f"no RUN was named: the newest trainings are {single.name}, {ddp.name}\n" in output
    assert code == 2, "records without evidence are not judged"


def test_the_list_has_a_line_for_a_playbook_and_none_for_its_phases(tree: Path, capsys: pytest.CaptureFixture[str]):
    code, text = answer_of(capsys, "runs")
    assert code == 0
    rows = [line.split() for line in text.splitlines()[2:]]
    assert [row[0] for row in rows] == [NEW, OLD]
    assert rows[0][1:4] == ["11-27", "09:00", "discovery"] and rows[1][3] == "discovery"
    assert text.splitlines()[3].endswith("not judged")


# --- what is said to somebody who typed the wrong thing, and hints that run as they are printed


def test_a_verb_that_is_misspelt_gets_a_guess_and_not_all_verbs(capsys):
    says = "bringup: argument VERB: no 'explian'; did you mean explain?; see bringup --help\n"
    assert answer_of(capsys, "explian", "x") == (2, says)
    assert "'qqq'; bringup --help lists the verbs" in answer_of(capsys, "qqq")[1]


def test_bringup_alone_says_what_to_do_first(capsys):
    code, text = answer_of(capsys)
    assert code == 2, "nothing was asked, so nothing was answered"
    assert re.findall(r"^  bringup (\S+)", text, re.MULTILINE) == ["site", "doctor", "run", "run"]


def test_half_the_name_of_a_profile_names_those_that_begin_so(capsys):
    asked = ("advise", "--model", "llama3-8b", "--nodes", "1", "--gpus-per-node", "8", "--profile", "h100")
    assert "did you mean h100-8x400g, h100-azure-ndv5, " in answer_of(capsys, *asked)[1]


def test_a_copy_of_a_run_counts_once(capsys, tmp_path, monkeypatch):
    run = discovery(tmp_path / "runs", monkeypatch)
    shutil.copytree(run, tmp_path / "copy")
    page = tmp_path / "page.html"
    alone = answer_of(capsys, "report", run, "-o", page)[1]
    assert answer_of(capsys, "report", run, tmp_path / "copy", "-o", page, "--force")[1] == alone


def test_the_hint_of_a_judgement_by_another_profile_explains_that_judgement(capsys, tmp_path, monkeypatch):
    """judge said FAIL, and the explanation that it named said PASS."""
    code, judged = answer_of(capsys, "judge", discovery(tmp_path, monkeypatch), "--profile", "h100-8x400g")
    assert code == 1
    hint = re.search(r"why: bringup (.*)", judged)
    code, explained = answer_of(capsys, *shlex.split(hint[1]))
    assert code == 1
    assert explained.startswith("FAIL ")


def test_runs_that_passed_are_one_line_of_an_explanation(capsys, tmp_path, monkeypatch):
    """12 times "nothing to explain", before."""
    runs = [discovery(tmp_path / str(number), monkeypatch) for number in range(2)]
    count = sum(len(judge.judge_folder(run).verdicts.verdicts) for run in runs)
    assert answer_of(capsys, "explain", *runs) == (0, f"PASS       discovery: all {count} checks passed\n")


def test_drills_without_a_cluster_leave_nothing_behind(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "DRILLS", tmp_path / "drills")
    monkeypatch.setenv("PATH", "/nonexistent")
    code, text = answer_of(capsys, "drill", "--anywhere")
    assert code == 2
    assert "sinfo" in text
    assert not (tmp_path / "drills").exists()


def test_a_soak_is_listed_with_what_it_proved_and_none_of_its_rotations(tree: Path, capsys):
    proven = Proven(kind="GPU", counts="GPU", hours=12, faults=0, asked=None)
    began = {"began_at": "2026-11-26T09:00:00Z", "hours": 1, "until": {}, "profile": "p", "site": None, "phases": ["x"]}
    soak = Soak(**began, name=NEW, nodes=["n0"], gpus_per_node=2, proven=[proven], not_real=["GPU"])
    (tree / results.SOAKS / NEW).mkdir(parents=True)
    write_record(tree / results.SOAKS / NEW / results.SOAK, soak)
    shutil.copytree(tree / results.PLAYBOOKS / NEW, tree / results.PLAYBOOKS / f"{NEW}-1")
    code, shown = answer_of(capsys, "runs")
    assert code == 0 and f"{NEW}-1" not in shown
    assert "soak, 0 rotations" in shown and "0 faults, at most one in hours of GPU 4.01; no GPU was seen" in shown
    assert known_runs.called(f"{NEW}-1").name == f"{NEW}-1"  # and by name a rotation is found
