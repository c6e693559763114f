"""Checks of a site: its file is read strictly, what the nodes answer is judged like everything else."""

import json
from contextlib import nullcontext
from pathlib import Path

import own_checks
import pytest
from bringup.cli import main
from bringup.kernel import judge
from bringup.kernel.answers import answers
from bringup.kernel.errors import FileError
from bringup.kernel.plan import own
from bringup.kernel.records import Mark, Outcome, Verdict
from bringup.run import open as opening
from bringup.run import site_file as site
from bringup.run.site import AtSite
from loops import case_for_each
from runs_for_tests import opened

EXAMPLE = Path(__file__).resolve().parents[2] / "validation/checks/own/example.yaml"
CHECK = """\
sections:
- title: Scratch is missing
  action: configure
  next: ["ssh {node} findmnt /scratch"]
  checks:
    site.scratch:
      proves: /scratch has room
      command: df /scratch
      unit: GiB
      at_least: 10
"""


def written(tmp_path: Path, text: str = CHECK) -> Path:
    path = tmp_path / "checks.yaml"
    tmp_path.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def judged(tmp_path: Path, answers_of: dict[str, object], text: str = CHECK) -> judge.Judged:
    """A discovery whose nodes answered so. An exception: unknown, for this reason. Others are silent."""
    lab = site.Site(schema_version=1, name="lab", checks=str(written(tmp_path, text)))
    folder = opened("discovery", tmp_path / "runs", site=AtSite(lab, tmp_path / "lab.site.yaml"))
    lines = []
    for number, node in enumerate(("n0", "n1")):
        value = answers_of.get(node)
        if value is None:
            continue
        fact = {"probe": "own_checks", "at": node, "subject": node, "quantity": "site.scratch", "value": value}
        if isinstance(value, Exception):
            fact |= {"value": None, "why": str(value)}
        for record in (fact | {"unit": "GiB"}, {"probe": "own_checks", "at": node, "end": 1}):
            lines.append(f"{number}: {json.dumps(record)}\n")
    (folder / "raw/own_checks.jsonl").write_text("".join(lines))
    opening.close_run(folder, 0)
    return judge.judge_folder(folder)


def of_check(run: judge.Judged) -> dict[str, Verdict]:
    return {verdict.subject: verdict for verdict in run.verdicts.verdicts if verdict.gate == "site.scratch"}


def test_an_answer_is_judged_and_silence_is_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str], shown):
    run = judged(tmp_path, {"n0": 20, "n1": 3})
    assert {node: verdict.outcome for node, verdict in of_check(run).items()} == {"n0": "pass", "n1": "fail"}
    assert not judge.stops(of_check(run)["n1"])
    assert of_check(run)["n1"].fails == "observed 3 GiB, expected at least 10 GiB"
    assert "ssh n1 findmnt /scratch" in shown(1, "explain", run.folder)
    assert main(["report", str(run.folder), "-o", str(tmp_path / "page.html")]) == 1
    assert "NodeName=n1 State=DRAIN 'Reason=bringup: site.scratch; configure" in capsys.readouterr().out
    silent = of_check(judged(tmp_path / "silent", {"n0": ValueError("it ended with 1: no such folder")}))
    assert [silent[node].outcome for node in ("n0", "n1")] == [Outcome.INCOMPLETE] * 2
    assert silent["n0"].cause == "not found out: it ended with 1: no such folder"


def test_they_answer_question_2_where_there_are_any(tmp_path: Path):
    for value, mark in ((20, Mark.PASS), (3, Mark.FAIL)):
        run = judged(tmp_path / str(value), {"n0": 20, "n1": value})
        assert {claim.claim: claim for claim in answers([run])[1].claims}[own.CLAIM].mark is mark
    assert own.CLAIM not in [claim.claim for answer in answers([]) for claim in answer.claims]


def test_a_check_of_the_site_has_a_sentence_of_its_own_where_it_gives_one(tmp_path: Path):
    own_words = "      fails: '/scratch has {value}, needed {limit}'\n      command: df /scratch\n"
    run = judged(tmp_path, {"n0": 20, "n1": 3}, CHECK.replace("      command: df /scratch\n", own_words))
    assert [of_check(run)[node].fails for node in ("n0", "n1")] == [None, "/scratch has 3 GiB, needed at least 10 GiB"]
    says = r":8: site.scratch: fails: \{used\} is not known here; there are \{value\} and"
    with pytest.raises(FileError, match=says):
        own.read(written(tmp_path, CHECK.replace("      command: df /scratch\n", own_words.replace("value", "used"))))


def test_a_foreign_folder_replaces_no_gate_of_ours(tmp_path: Path):
    run = judged(tmp_path, {"n0": 20, "n1": 20})
    path = run.folder / "own_checks.json"
    planned = path.read_text()
    for old, new in (("site.scratch", "run.evidence"), (own.CLAIM, "gpus-healthy")):
        path.write_text(planned.replace(old, new))
        with pytest.raises(FileError, match="site's own check"):
            judge.judge_folder(run.folder)
    path.write_text(planned + "\n")
    evidence = [v for v in judge.judge_folder(run.folder).verdicts.verdicts if v.gate == "run.evidence"]
    assert [verdict.outcome for verdict in evidence] == [Outcome.INCOMPLETE]  # it was changed after it was closed


@case_for_each(
    ("site.scratch", "discovery.scratch", "site.NAME"),
    ("      command: df /scratch\n", "", "needs `command`"),
    ("command: df", "from: worst a.b\n      command: df", "it has no `from`"),
    ("at_least: 10", "at_least: profile", "a profile has no number for it"),
    ("at_least: 10", "at_least: 10\n      at_most: 20", "needs one of"),
    ("      unit: GiB", "      unti: GiB", ":9: site.scratch: unti: there is no such key; did you mean unit?"),
    ("      unit: GiB", "      unit: GiB\n      per: job", "are given: discovery, node, own-checks, nothing"),
)
def test_a_mistake_is_one_line(tmp_path: Path, replaced: str, by: str, message: str):
    with pytest.raises(FileError) as error:
        own.read(written(tmp_path, CHECK.replace(replaced, by)))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_example_is_right_and_is_listed(shown):
    assert "site.mnt.free" in shown(0, "gates", "--site", EXAMPLE)


@case_for_each(
    ("flag", "true", (True, None)),
    ("flag", "echo no daemon >&2; false", (False, "no daemon")),
    ("text", "echo a; echo b", ("b", None)),
    ("GiB", "echo 12.5", (12.5, None)),
    ("flag", "exit 2", "it ended with 2: no output"),
    ("GiB", "echo 5; exit 1", "it ended with 1: 5"),
    ("count", "cat /nowhere 2>/dev/null | wc -l", "it ended with 1: 0"),
    ("GiB", "echo much", "it printed 'much', expected a number"),
    ("GiB", "echo inf", "it printed 'inf', expected a number"),
    ("text", "true", "it printed nothing"),
)
def test_the_unit_says_how_a_command_is_read_and_what_is_no_answer_has_a_reason(unit: str, command: str, answer):
    expected = pytest.raises(ValueError, match=answer) if isinstance(answer, str) else nullcontext()
    with expected:
        assert own_checks.read(unit, *own_checks.answer(command)[:2]) == answer


def test_a_command_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(own_checks, "PATIENCE_S", 0.2)
    assert own_checks.answer("sleep 60") == (None, "", "it did not end within 0.2 s")
