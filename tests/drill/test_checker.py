"""Another tool's word on the faults of the catalogue: what counts as found, and what as a false alarm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from bringup.drill import checker
from bringup.drill.environment import Ended
from bringup.errors import UsageError
from bringup.plan.catalogue import DRILLS
from bringup.plan.drill import Shape
from bringup.records import CheckerReport
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
        healthy=1,
    )
    page = checkers.markdown(done)
    assert "1 faults. tool: 1 found, 0 false alarms on 1 healthy clusters; bringup: 1 of 1 found." in page
    assert "| found | found: n1: /tmp has 64 MiB |" in page
