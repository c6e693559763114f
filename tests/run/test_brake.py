"""The brake: how many nodes bringup keeps out of service, also when all find a fault in the same second."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from bringup.run import brake
from bringup.run.brake import SEPARATOR, Brake, SlurmAway
from loops import for_each

REASON = "bringup: discovery.gpu.count 7, expected 8; reboot (2026-11-24T02:00Z, health-check)"
TICK_S = 0.02  # the second of this slurmctld


class Slurm:
    """A slurmctld: states, and the times of reasons with the resolution of a tick."""

    def __init__(self, *states: str, partitions: dict[str, Sequence[str]] | None = None) -> None:
        self.nodes = {f"n{number}": [state, "Unknown", "none"] for number, state in enumerate(states)}
        self.partitions = partitions or {"main": list(self.nodes)}
        self.lock, self.orders, self.away_after = threading.Lock(), [], 1 << 30  # type: ignore[var-annotated]

    def out(self, *names: str, reason: str = REASON) -> Slurm:
        for name in names:
            self.nodes[name] = ["drained", "1", reason]
        return self

    def ask(self, command: Sequence[str], more: dict[str, str]) -> str:
        with self.lock:
            self.away_after -= 1
            if self.away_after < 0:
                raise SlurmAway("sinfo: no answer")
            if command[0] == "sinfo":
                assert more == brake.TIMES
                return "".join(
                    SEPARATOR.join((node, partition, *self.nodes[node])) + "\n"
                    for partition, members in self.partitions.items()
                    for node in members
                )
            self.orders.append(command[3])
            node = command[2].removeprefix("NodeName=")
            state, *_ = self.nodes[node]
            if command[3] == "State=DRAIN":
                is_busy = state in ("allocated", "mixed", "completing")
                reason = command[4].removeprefix("Reason=")
                self.nodes[node] = ["draining" if is_busy else "drained", str(int(time.monotonic() / TICK_S)), reason]
            else:
                self.nodes[node] = ["idle*" if state == "drained" else "allocated*", "Unknown", "none"]
            return ""

    def brake(self, most: str = brake.MOST) -> Brake:
        return Brake(self.ask, most, "bringup: ", ("Prolog error", "Epilog error"), lambda _: time.sleep(2.2 * TICK_S))

    def drained(self) -> list[str]:
        return [node for node, (state, _, _) in self.nodes.items() if state.startswith("drain")]


@pytest.mark.parametrize(("most", "nodes", "limit"), [("10%", 2, 1), ("10%", 39, 3), ("3", 2, 3), ("100%", 5, 5)])
def test_the_limit_is_a_share_or_a_number_and_at_least_one_node(most: str, nodes: int, limit: int):
    assert brake.limit(most, nodes) == limit


@for_each("most", ["", "0", "0%", "101%", "ten", "1.5", "-1", "10 %", "%"])
def test_a_limit_that_is_none_is_refused(most: str):
    with pytest.raises(ValueError, match="neither a number of nodes nor a share"):
        brake.checked(most)


@for_each(
    ("shown", "is_out", "is_busy", "is_idle"),
    [
        ("idle", False, False, True),
        ("IDLE", False, False, True),
        ("idle~", False, False, True),
        ("idle#", False, False, True),
        ("idle*", False, False, True),
        ("idle@", False, False, False),
        ("idle$", False, False, False),
        ("planned", False, False, False),
        ("mixed-", False, True, False),
        ("allocated*", False, True, False),
        ("drained*", True, False, False),
        ("draining@", True, False, False),
        ("down$", True, False, False),
        ("fail", True, False, False),
        ("powering_down", False, False, False),
        ("unknown", False, False, False),
    ],
)
def test_states_are_read_with_their_marks(shown: str, is_out: bool, is_busy: bool, is_idle: bool):
    line = SEPARATOR.join(("n0", "main", shown, "1795487881", "a reason of | several words"))
    (node,) = brake.read(f"{line}\nsinfo: a warning\n{line.replace('main', 'debug')}\n").values()
    assert (node.is_out, node.is_busy, node.is_idle) == (is_out, is_busy, is_idle)
    assert (node.since, node.reason) == (1795487881, "a reason of | several words")
    assert node.partitions == ("main", "debug")


def answer(slurm: Slurm, node: str = "n0", most: str = brake.MOST) -> brake.Answer:
    (answered,) = slurm.brake(most).drain([(node, REASON)])
    return answered


def test_one_node_of_a_small_partition_may_be_drained():
    slurm = Slurm("idle", "idle")
    assert answer(slurm).is_drained
    assert slurm.drained() == ["n0"]


@pytest.mark.parametrize("reason", [REASON, "Prolog error", "Epilog error"])
def test_a_share_that_is_out_already_is_not_exceeded(reason: str):
    slurm = Slurm(*["idle"] * 10).out("n3", reason=reason)
    answered = answer(slurm)
    assert answered.is_drained is False
    assert answered.why.startswith("1 of 10 nodes of partition main are drained by bringup already, at most 1")
    assert slurm.orders == []
    assert answer(slurm, most="2").is_drained


def test_what_is_out_for_another_reason_does_not_count():
    assert answer(Slurm(*["idle"] * 10).out("n3", "n4", reason="fan is loud")).is_drained


@pytest.mark.parametrize("states", [("idle",), ("idle", "allocated"), ("idle", "planned"), ("allocated", "down*")])
def test_the_last_node_is_not_taken(states: tuple[str, ...]):
    slurm = Slurm(*states)
    answered = answer(slurm)
    assert answered.is_drained is False
    assert "no other node of partition main is" in answered.why
    assert slurm.orders == []


def test_a_busy_node_needs_another_one_in_service_that_need_not_be_idle():
    assert answer(Slurm("completing", "allocated")).is_drained


def test_every_partition_of_the_node_is_asked():
    nodes = [f"n{number}" for number in range(20)]
    slurm = Slurm(*["idle"] * 20, partitions={"all": nodes, "small": ["n0", "n1"]}).out("n1")
    assert "of 2 nodes of partition small" in answer(slurm).why
    assert answer(slurm, "n2").is_drained


def test_a_node_that_is_out_or_unknown_is_left_alone():
    slurm = Slurm("idle", "idle").out("n0", reason="fan is loud")
    assert "out of service already (drained)" in answer(slurm).why
    assert answer(slurm, "n7").why == "Slurm knows no such node"
    assert slurm.orders == []


@for_each("state", ["idle", "allocated", "completing"])
@for_each(("most", "expected"), [("10%", 1), ("3", 3)])
def test_ten_nodes_at_once_drain_as_many_as_they_may(state: str, most: str, expected: int):
    """Started at once and one after another, so that looks, claims and ticks meet in every order."""
    for spread in (0, 0.5, 2, 5):
        slurm = Slurm(*[state] * 10)
        answers: list[brake.Answer] = []

        def find(node: str, slurm: Slurm = slurm, answers: list[brake.Answer] = answers, after: float = spread) -> None:
            time.sleep(random.uniform(0, after * TICK_S))
            answers.append(answer(slurm, node, most))

        threads = [threading.Thread(target=find, args=(node,)) for node in slurm.nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(entry.node for entry in answers if entry.is_drained) == slurm.drained()
        assert len(slurm.drained()) == expected


def test_a_reason_that_was_changed_is_not_taken_back():
    slurm = Slurm(*["idle"] * 10)
    guard = slurm.brake()

    def wait(_: float) -> None:
        slurm.nodes["n0"][2] = "fan is loud"
        slurm.out("n5")

    guard._wait = wait
    (answered,) = guard.drain([("n0", REASON)])
    assert answered.is_drained is False
    assert slurm.orders == ["State=DRAIN"]


def test_a_new_reason_of_a_node_that_was_out_before_makes_it_no_later_claim():
    """The health check writes "passes again" into it; the time of a reason is then new."""
    slurm = Slurm(*["idle"] * 20).out("n5")
    guard = slurm.brake()

    def wait(_: float) -> None:
        slurm.out("n7")  # another one, earlier than ours
        slurm.nodes["n5"][1] = str(1 << 40)

    guard._wait = wait
    (answered,) = guard.drain([("n0", REASON)])
    assert answered.why.startswith("2 of 20 nodes")
    assert "n0" not in slurm.drained()


@pytest.mark.parametrize(("after", "drained"), [(0, None), (1, None), (2, None)])
def test_a_controller_that_goes_away_is_said(after: int, drained: bool | None):
    slurm = Slurm("idle", "idle")
    slurm.away_after = after
    if after == 0:
        with pytest.raises(SlurmAway):
            answer(slurm)
    else:
        assert answer(slurm).is_drained is drained


def test_nothing_else_in_the_package_or_the_hooks_orders_a_drain():
    """But what puts back: a node that resume-nodes has asked again, and the lines that a person pastes."""
    root = Path(brake.__file__).resolve().parents[3]
    sources = [*(root / "validation/bringup").rglob("*.py"), *(root / "infrastructure-validation/slurm").glob("*")]
    ordering = {path.name for path in sources if path.is_file() and '"State=DRAIN"' in path.read_text()}
    assert ordering == {"brake.py", "asked_again.py", "drain.py"}


def test_sinfo_answers_for_all_partitions_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SINFO_PARTITION", "small")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    assert "SINFO_PARTITION" not in brake.environment({})
    assert brake.environment(brake.TIMES)["SLURM_CONF"] == "/etc/slurm/slurm.conf"
