"""Another tool's word on the faults of the catalogue: what counts as found, and what as a false alarm."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from bringup.drill import checker
from bringup.drill.environment import Ended
from bringup.errors import CannotStart, DrillError, UsageError
from bringup.plan.catalogue import DRILLS
from bringup.plan.drill import Shape
from bringup.records import CheckerReport, read_record
from bringup.report import checkers

FAULT = next(drill for drill in DRILLS if drill.id == "tmp-small")  # on n1
TOOL = checker.Checker("tool", "check", once=False)


class Cluster:
    """Answers of the checker, round after round: node -> (exit code, output). None: the node starts no command."""

    shape = Shape()

    def __init__(self, *rounds: dict[str, tuple[int, str] | None]) -> None:
        self.rounds, self.asked, self.answer = list(rounds), 0, (0, "")

    def verb(self, *words: str, limit_s: float = 0) -> Ended:
        if words[-1] == "true":
            return Ended(int(self.answer is None), "", "")
        answer = self.answer = self.rounds[self.asked // len(self.shape.names)].get(words[1], (0, ""))
        self.asked += 1
        return Ended(255, "", "") if answer is None else Ended(answer[0], answer[1], "")


def marked(*rounds: dict[str, tuple[int, str] | None]) -> tuple[str, list[str], list[str]]:
    """(mark, what it said, false alarms) after three healthy rounds and the one with the fault."""
    asked = checker._Asked(TOOL)
    cluster = Cluster(*rounds)
    asked.learn(cluster)  # type: ignore[arg-type]
    answer = asked.of_fault(cluster, FAULT)  # type: ignore[arg-type]
    return answer.mark, answer.said, asked.false_alarms


@pytest.mark.parametrize(
    ("fault", "mark", "lines"),
    [
        ({"n1": (1, "/tmp has 64 MiB\n")}, "found", ["n1: /tmp has 64 MiB"]),
        ({"n0": (1, "/tmp has 64 MiB\n")}, "elsewhere", ["n0: /tmp has 64 MiB"]),
        ({}, "missed", []),
        ({"n1": (3, "")}, "found", ["n1: ended with 3"]),
        ({"n1": (0, "a remark of a healthy node")}, "missed", []),
        ({"n1": None}, "no answer", ["n1 starts no command"]),
    ],
)
def test_what_a_checker_says_of_a_fault(fault: dict[str, tuple[int, str] | None], mark: str, lines: list[str]):
    assert marked({}, {}, {}, fault) == (mark, lines, [])


def test_what_it_says_of_the_healthy_cluster_is_no_finding():
    usual = {"n1": (1, "load is 3.1")}
    assert marked(usual, usual, usual, {"n1": (1, "load is 7.9")})[0] == "missed"
    assert marked({}, {}, {"n0": (1, "fan")}, {})[2] == ["n0: fan"]


def test_only_faults_of_the_cluster_itself_are_asked_about():
    asked = {drill.id for drill in DRILLS if checker.suitable(drill)}
    assert {"tmp-small", "node-off", "gpu-ecc"} <= asked
    assert not asked & {"slow-matmul", "evidence-edited", "rank-killed"}


def test_no_fault_to_ask_about_is_no_run():
    with pytest.raises(CannotStart, match="none of these drills"):
        checker.run([drill for drill in DRILLS if drill.id == "slow-matmul"], [TOOL], None)


class Clusters:
    """One cluster: `quiet` answers, `dead` does not end, `noisy` has four new complaints in its third round."""

    shape, verbs = Shape(), 0

    @contextlib.contextmanager
    def __call__(self, *_: object) -> Iterator[Clusters]:
        yield self

    def of(self, _: Shape) -> Clusters:
        return self

    def heal(self) -> None: ...

    def make(self, _: object) -> None: ...

    def verb(self, *words: str, limit_s: float = 0) -> Ended:
        if words[-1] == "dead":
            raise DrillError("it did not end in 120 s")
        if words[-1] != "noisy":
            return Ended(0, "", "")
        self.verbs += 1
        return Ended(1, "fan\nled\ncap\nfuse\n" if self.verbs == 3 else "", "")


def test_a_checker_that_does_not_answer_ends_no_other_and_the_exit_code_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(checker.suite, "DRILLS", tmp_path)
    monkeypatch.setattr(checker.suite, "local_clusters", Clusters())
    fault = FAULT.model_copy(update={"wait_for": None})
    tools = checker.read([], ["tool=quiet", "slow=dead", "loud=noisy"])
    assert checker.run([fault], tools, None) == 2
    (file,) = tmp_path.glob(f"*/{checker.REPORT}")
    done = read_record(file, CheckerReport)
    assert [answer.mark for answer in done.rows[0].answers] == ["missed", "no answer", "missed"]
    assert done.healthy == {"tool": 1, "slow": 0, "loud": 1}
    assert "loud: 1 missed, 4 false alarms on 1 healthy clusters" in checkers.totals(done)


def test_a_checker_that_answers_and_misses_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checker.suite, "DRILLS", tmp_path)
    monkeypatch.setattr(checker.suite, "local_clusters", Clusters())
    fault = FAULT.model_copy(update={"wait_for": None})
    assert checker.run([fault], checker.read([], ["tool=quiet"]), None) == 0


@pytest.mark.parametrize("texts", [["check"], ["a b=check"], ["a="], ["a=x", "a=y"]])
def test_a_checker_has_a_name_of_its_own_and_a_command(texts: Sequence[str]):
    with pytest.raises(UsageError):
        checker.read(texts, [])


def test_the_page_counts_and_shows(monkeypatch: pytest.MonkeyPatch):
    cluster = Cluster({}, {}, {}, {"n1": (1, "/tmp has 64 MiB")})
    asked = checker._Asked(TOOL)
    asked.learn(cluster)  # type: ignore[arg-type]
    for name in ("heal", "make"):
        monkeypatch.setattr(Cluster, name, lambda self, *_: None, raising=False)
    rows: Iterable = list(checker._rows([FAULT], cluster, [asked], {FAULT.id: True}))  # type: ignore[arg-type]
    done = CheckerReport(
        git_commit=None,
        opened_at="2026-11-25T00:00:00Z",
        checkers={"tool": "check"},
        rows=list(rows),
        false_alarms=[],
        healthy={"tool": 1},
    )
    page = checkers.markdown(done)
    assert "1 faults. tool: 1 found, 0 false alarms on 1 healthy clusters; bringup: 1 of 1 found." in page
    assert "| found | found: n1: /tmp has 64 MiB |" in page
