"""What is said to somebody who typed the wrong thing, and hints that run as they are printed."""

import re
import shlex
import shutil

from bringup import judge
from bringup.cli import main
from bringup.drill import suite
from runs_for_tests import discovery


def output_of(capsys, *arguments: object) -> tuple[int, str]:
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as stop:  # of argparse
        code = int(stop.code or 0)
    return code, "".join(capsys.readouterr())


def test_a_verb_that_is_misspelt_gets_a_guess_and_not_all_verbs(capsys):
    says = "bringup: argument VERB: no 'explian'; did you mean explain?; see bringup --help\n"
    assert output_of(capsys, "explian", "x") == (2, says)
    assert "'qqq'; bringup --help lists the verbs" in output_of(capsys, "qqq")[1]


def test_bringup_alone_says_what_to_do_first(capsys):
    code, text = output_of(capsys)
    assert code == 2, "nothing was asked, so nothing was answered"
    verbs = re.findall(r"^  bringup (\S+)", text, re.MULTILINE)
    assert verbs == ["site", "doctor", "run", "run"]


def test_half_the_name_of_a_profile_names_those_that_begin_so(capsys):
    asked = ("advise", "--model", "llama3-8b", "--nodes", "1", "--gpus-per-node", "8", "--profile", "h100")
    assert "did you mean h100-8x400g, h100-azure-ndv5, " in output_of(capsys, *asked)[1]


def test_a_copy_of_a_run_counts_once(capsys, tmp_path, monkeypatch):
    run = discovery(tmp_path / "runs", monkeypatch)
    shutil.copytree(run, tmp_path / "copy")
    page = tmp_path / "page.html"
    alone = output_of(capsys, "report", run, "-o", page)[1]
    assert output_of(capsys, "report", run, tmp_path / "copy", "-o", page, "--force")[1] == alone


def test_the_hint_of_a_judgement_by_another_profile_explains_that_judgement(capsys, tmp_path, monkeypatch):
    """judge said FAIL, and the explanation that it named said PASS."""
    run = discovery(tmp_path, monkeypatch)
    code, judged = output_of(capsys, "judge", run, "--profile", "h100-8x400g")
    assert code == 1
    hint = re.search(r"why: bringup (.*)", judged)
    assert hint is not None
    code, explained = output_of(capsys, *shlex.split(hint[1]))
    assert code == 1
    assert explained.startswith("FAIL ")


def test_runs_that_passed_are_one_line_of_an_explanation(capsys, tmp_path, monkeypatch):
    """12 times "nothing to explain", before."""
    runs = [discovery(tmp_path / str(number), monkeypatch) for number in range(2)]
    count = sum(len(judge.judge_folder(run).verdicts.verdicts) for run in runs)
    assert output_of(capsys, "explain", *runs) == (0, f"PASS       discovery: all {count} checks passed\n")


def test_drills_without_a_cluster_leave_nothing_behind(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "DRILLS", tmp_path / "drills")
    monkeypatch.setenv("PATH", "/nonexistent")
    code, text = output_of(capsys, "drill", "--anywhere")
    assert code == 2
    assert "sinfo" in text
    assert not (tmp_path / "drills").exists()
