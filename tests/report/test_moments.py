"""Failures as marks on the time line: only what has a time in the evidence, and whose time it is."""

from dataclasses import replace
from pathlib import Path

from bringup.judge import Judged
from bringup.records import Observation, Outcome, Sign, Verdict, time_of
from bringup.report import page, timeline
from bringup.report.collection import Collection
from bringup.report.links import nowhere
from bringup.report.moments import Moment, moments
from bringup.report.section import section
from bringup.results import TrainingRecords
from factory import a_run, a_verdict, judged_of
from trained_runs import RECORDS

OPENED = "2026-01-01T12:00:00Z"
BEGIN = time_of(OPENED).timestamp()


def stamp(node: str, at: str, file: str = "raw/inventory.jsonl") -> Observation:
    return Observation(quantity="probe.stamp", subject=node, value=["", at], unit="run and UTC", evidence=f"{file}:9")


def a_judged(*verdicts: Verdict, observations: tuple[Observation, ...] = (), folder: Path | None = None) -> Judged:
    run = a_run(plan={}).model_copy(update={"opened_at": OPENED})
    judged = judged_of(*verdicts, run=run, observations=observations)
    return judged if folder is None else replace(judged, folder=folder)


def words(judged: Judged, seconds: float = 600) -> list[str]:
    return [moment.words for moment in moments(judged, BEGIN, BEGIN + seconds)[0]]


def test_a_failure_is_seen_by_the_end_of_its_nodes_own_probe_and_one_without_a_time_is_counted():
    stamps = (stamp("n0", "2026-01-01T12:00:05Z"), stamp("n1", "2026-01-01T12:00:07Z"))
    passed, failed = a_verdict(subject="n0", outcome=Outcome.PASS), a_verdict(subject="n1")
    timeless = a_verdict("train.loss.fell", "job", evidence="metrics.json:loss")
    judged = a_judged(passed, failed, timeless, observations=stamps)
    assert words(judged) == ["seen by 12:00:07 UTC: n1: observed 1, expected 2"]
    assert moments(judged, BEGIN, BEGIN + 600)[1] == 1
    assert words(a_judged(failed, observations=(stamp("n1", "soon"),))) == []


def test_a_line_of_a_log_has_its_own_time_where_one_zone_alone_puts_it_inside_of_the_run(tmp_path: Path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/launch.log").write_text(
        "0: E0101 14:02:03.000000 9 torch/x.py] failed\nno time\n"
        "1:   time      : 2026-01-01_14:01:01\n1:   host      : n1\n1:   rank      : 3\n1:   exitcode  : -9\n"
    )
    lines = [a_verdict("train.exit_code", "job", evidence=f"raw/launch.log:{number}") for number in (1, 2, 6)]
    judged = a_judged(*lines, folder=tmp_path)  # the zone of the nodes is two hours ahead
    assert [moment.unix - BEGIN for moment in moments(judged, BEGIN, BEGIN + 600)[0]] == [61, 123]
    assert words(judged, seconds=1200) == []  # two quarters of an hour fit
    signed = replace(judged, verdicts=judged.verdicts.model_copy(update={"verdicts": [], "signs": [
        Sign(signature="slurm.cancelled", line="x", count=1, evidence="raw/launch.log:1")
    ]}))  # fmt: skip
    assert words(signed)[0].startswith("12:02:03 UTC: the step was cancelled")


def test_a_rank_fails_when_it_raised_and_stalls_at_the_end_of_its_step():
    raised = (
        Observation(quantity="launcher.raised_at", subject="job", value=int(BEGIN) + 9, unit="s", evidence="raw/e:1"),
        Observation(quantity="train.rank.error_file", subject="n1/rank3", value="raw/e:1", unit="text", evidence="x"),
    )
    judged = a_judged(a_verdict("train.rank.finished", "n1/rank3", evidence="raw/x:1"), observations=raised)
    assert words(judged)[0].startswith("12:00:09 UTC: n1/rank3: ")
    records = TrainingRecords(RECORDS / "run_ddp_2node")
    still = records.metrics.standstills[1].model_copy(update={"seconds": 3.0, "step": 2, "part": "fetch"})
    first, _, *others = records.metrics.standstills
    metrics = records.metrics.model_copy(update={"standstills": [first, still, *others]})
    place = f"{metrics.observed.hosts[1]}/rank1"
    stalled = a_judged(a_verdict("train.rank.stall", place, evidence="metrics.json:standstills"))
    known = replace(stalled, training=type("Training", (), {"metrics": metrics})())
    assert [moment.unix for moment in moments(known, BEGIN, BEGIN + 600)[0]] == [metrics.steps_unix_s[1]]


def test_failures_are_numbered_marks_that_say_their_sentence_here_and_on_paper():
    closed = stamp("n1", "2026-01-01T12:05:00Z")
    run = a_judged(a_verdict(), a_verdict("discovery.cpu.count"), observations=(closed,))
    made = timeline.timeline([section(run, "a", 600.0, nowhere)], [run])
    assert [(mark.number, mark.place, len(mark.moments)) for mark in made.marks] == [(1, 50.0, 2)]
    shown = page.render(Collection([run], [], [], [], {run.folder: 600.0}))
    assert 'class="mark" style="left: 50.00%" title="seen by 12:05:00 UTC: n1: observed 1' in shown
    assert '<li id="moment-1">' in shown


def test_a_mark_of_a_thousand_nodes_says_the_first_and_how_many_more():
    many = [Moment(BEGIN, f"n{number}: lost", True) for number in range(1000)]
    assert timeline.Mark(1, 0.0, "Discovery", many).lines[-1] == "and 992 more, in the step"
