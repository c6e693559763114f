"""bringup resume-nodes: which nodes are resumed, which are asked again, and which are left to whom drained them."""

from __future__ import annotations

import pytest
from bringup.daily import asked_again, drained
from bringup.daily.drained import May
from bringup.plan.profile import Profile
from bringup.records import Outcome
from bringup.run import slurm
from factory import a_verdict, judged_of
from loops import for_each

_REASON = "discovery.gpu.count 1, expected 2; reboot (2026-11-23T02:00Z, health-check)"
PASSES, FAULT = f"bringup: passes again 2026-11-23T03:00Z, was {_REASON}", f"bringup: {_REASON}"
OF_A_RUN = "bringup: discovery.gpu.count sweep.load.wrong_values; replace (2026-11-23T02:00Z, run 20261123-020000-abc)"


def answer(*lines: tuple[str, str, str]) -> str:
    return "".join(f"{slurm.SEPARATOR.join(line)}\n" for line in lines)


@for_each(
    ("state", "given", "may"),
    [
        ("drained", PASSES, May.RESUME),
        ("draining", PASSES, May.WAIT),  # jobs run there
        ("drained*", PASSES, May.WAIT),  # it does not answer
        ("down", PASSES, May.WAIT),
        ("drained", FAULT, May.WAIT),
        ("drained", OF_A_RUN, May.ASK_AGAIN),
        ("drained", "fan is loud", May.LEAVE),
        ("drained", "none", May.LEAVE),
        ("drained", "NHC: check_fs_mount: /scratch not mounted", May.LEAVE),
        ("drained", "not bringup: discovery.gpu.count; reboot (2026-11-23T02:00Z, health-check)", May.LEAVE),
        ("drained", "Prolog error", May.LEAVE),
        ("drained", "bringup: a.gate.of.another.version; reboot (2026-11-23T02:00Z, run abc)", May.LEAVE),
    ],
)
def test_only_what_bringup_drained_and_what_passes_again_is_resumed(state: str, given: str, may: May):
    assert drained.judged("n1", state, given).may is may


def test_nodes_in_service_are_not_looked_at_and_a_node_of_two_partitions_is_one():
    nodes_drained = drained.read(
        answer(
            ("n0", "idle", "none"),
            ("n1", "drained", PASSES),
            ("n1", "drained", PASSES),
            ("n2", "down*", "Not responding"),
        )
    )
    assert list(nodes_drained) == ["n1", "n2"]


def test_the_phases_of_its_gates_are_asked_again():
    assert drained.judged("n1", "drained", OF_A_RUN).phases == ["discovery", "node_sweep"]


def test_a_node_that_somebody_touched_meanwhile_has_changed():
    before = drained.judged("n1", "drained", PASSES)
    assert drained.is_unchanged(before, {"n1": drained.judged("n1", "drained", PASSES)})
    assert not drained.is_unchanged(before, {"n1": drained.judged("n1", "drained", "fan is loud")})
    assert not drained.is_unchanged(before, {})


OUT = drained.judged("n1", "drained", "bringup: discovery.gpu.count; reboot (2026-11-23T02:00Z, run abc)")


def test_it_passes_again_when_each_of_its_gates_was_judged_and_passed():
    assert asked_again.answered(OUT, [judged_of(a_verdict(outcome=Outcome.PASS))]).passes


@for_each(
    ("verdicts", "says"),
    [
        ([], "was not asked"),
        ([a_verdict(subject="n0", outcome=Outcome.PASS)], "was not asked"),
        ([a_verdict(outcome=Outcome.INCOMPLETE)], "did not pass again"),
        ([a_verdict()], "bringup: discovery.gpu.count; reboot"),
        (
            [a_verdict(outcome=Outcome.PASS), a_verdict("discovery.kernel_log.xid")],
            "bringup: discovery.kernel_log.xid; reboot",  # another fault by now
        ),
    ],
)
def test_what_was_not_seen_to_pass_stays_drained(verdicts: list, says: str):
    answer = asked_again.answered(OUT, [judged_of(*verdicts)])
    assert not answer.passes
    assert says in answer.why


@pytest.fixture
def scontrol(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every call; a reservation is never there already."""
    calls: list[str] = []

    def ask(*command: str, **_: object) -> str:
        if "show" not in command:
            calls.append(" ".join(command[1:]))
        return ""

    monkeypatch.setattr(slurm, "ask", ask)
    monkeypatch.setattr(asked_again, "_wait_for", lambda nodes: None)
    return calls


def a_request(profile: Profile | None = None) -> asked_again.playbook.Request:
    return asked_again.playbook.Request(profile, "generic")  # type: ignore[arg-type]


def test_nobody_else_gets_the_node_before_it_has_passed(scontrol: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(asked_again, "_run", lambda out, *_: [asked_again.Answer("n1", True, "passes")])
    asked_again.ask([OUT], [], a_request())
    reserved, resumed, ended = scontrol
    assert reserved.startswith("create reservation ReservationName=bringup-resume Nodes=n1 ")
    assert "Duration=UNLIMITED" in reserved  # who is killed in between leaves it reserved
    assert resumed == "update NodeName=n1 State=RESUME"
    assert ended == "delete ReservationName=bringup-resume"


def test_a_node_that_fails_again_is_drained_before_the_reservation_ends(scontrol: list[str], monkeypatch):
    monkeypatch.setattr(asked_again, "_run", lambda out, *_: [asked_again.Answer("n1", False, "x", "bringup: new")])
    asked_again.ask([OUT], [], a_request())
    assert scontrol[2:] == [
        "update NodeName=n1 State=DRAIN Reason=bringup: new",
        "delete ReservationName=bringup-resume",
    ]


def test_an_interrupt_drains_it_again_with_the_reason_that_it_had(scontrol: list[str], monkeypatch):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(asked_again, "_run", stop)
    with pytest.raises(KeyboardInterrupt):
        asked_again.ask([OUT], [], a_request())
    assert scontrol[2:] == [
        f"update NodeName=n1 State=DRAIN Reason={OUT.given}",
        "delete ReservationName=bringup-resume",
    ]


def test_an_unfinished_one_is_said_and_not_mixed_with(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(slurm, "ask", lambda *_: "ReservationName=bringup-resume Nodes=n7")
    with pytest.raises(asked_again.CannotStart, match="there is a reservation bringup-resume already"):
        asked_again.ask([OUT], [], a_request())
