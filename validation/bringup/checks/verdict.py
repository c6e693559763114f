"""A verdict from a gate, an observation and its requirement. Its words are made last, from the data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from bringup.errors import RuleError
from bringup.plan.gate import Gate
from bringup.plan.rules import WITHOUT_UNIT, holds, in_words
from bringup.records import Kind, Limit, Observation, Outcome, Value, Verdict
from bringup.results import RUN

NOTHING = "nothing"


@dataclass(frozen=True)
class Requirement:
    """What a gate's value is compared with in this run."""

    unit: str
    rule: str
    value: Limit | None  # None with `undeclared`, and if nodes are compared with each other
    quantity: str
    undeclared: str | None = None  # why the profile gives no limit
    basis: str | None = None  # how the limit was computed from the number of nodes

    @property
    def at(self) -> str | None:
        return self.quantity.partition("@")[2] or None

    @cached_property
    def in_words(self) -> str:
        if self.undeclared is not None:
            return "a number in the profile"
        at = f" at {self.at}" if self.at else ""
        basis = f" ({self.basis})" if self.basis else ""
        return in_words(self.rule, self.value, self.unit) + at + basis


def compared(gate: Gate, against: Requirement, observation: Observation) -> Verdict:
    if observation.value is None:
        return not_found_out(gate, against, observation)
    if observation.unit != gate.unit:
        return wrong_unit(gate, against, observation)
    subject = observation.subject
    if against.value is None:
        why = "this run requested nothing to compare with"
        return incomplete(gate, against, subject, Kind.UNKNOWN, why, observation)
    try:
        good = holds(against.rule, observation.value, against.value)
    except RuleError as error:
        return incomplete(gate, against, subject, Kind.UNKNOWN, str(error), observation)
    return judged(gate, against, observation, good, observation.why)


def judged(gate: Gate, against: Requirement, observation: Observation, good: bool, remark: str | None) -> Verdict:
    assert observation.value is not None
    return Verdict(
        gate=gate.id,
        subject=observation.subject,
        outcome=Outcome.PASS if good else gate.severity,
        kind=Kind.JUDGED,
        value=observation.value,
        unit=gate.unit,
        rule=against.rule,
        limit=against.value,
        at=against.at,
        basis=against.basis,
        observed=shown(observation.value, gate.unit, remark),
        expected=against.in_words,
        evidence=observation.evidence,
        cause=None if good else remark,
        fix=gate.fix,
        action=None if good else gate.guide.action,
    )


def incomplete(
    gate: Gate, against: Requirement, subject: str, kind: Kind, cause: str, observation: Observation | None = None
) -> Verdict:
    return Verdict(
        gate=gate.id,
        subject=subject,
        outcome=Outcome.INCOMPLETE,
        kind=kind,
        value=None if observation is None else observation.value,
        unit=gate.unit,
        rule=against.rule,
        limit=against.value,
        at=against.at,
        basis=against.basis,
        observed=NOTHING
        if observation is None or observation.value is None
        else shown(observation.value, observation.unit, None),
        expected=against.in_words,
        evidence="none" if observation is None else observation.evidence,
        cause=cause,
        fix=gate.fix,
    )


def not_found_out(gate: Gate, against: Requirement, observation: Observation) -> Verdict:
    return incomplete(
        gate, against, observation.subject, Kind.UNKNOWN, f"not found out: {observation.why}", observation
    )


def wrong_unit(gate: Gate, against: Requirement, observation: Observation) -> Verdict:
    why = f"observed in {observation.unit}, the gate is in {gate.unit}"
    return incomplete(gate, against, observation.subject, Kind.UNKNOWN, why, observation)


def blocked(gate: Gate, against: Requirement, subject: str, by: list[str]) -> Verdict:
    verdict = incomplete(gate, against, subject, Kind.BLOCKED, f"not judged: {', '.join(by)} did not pass")
    return verdict.model_copy(update={"blocked_by": by})


def undeclared(gate: Gate, against: Requirement, subject: str, observations: list[Observation]) -> Verdict:
    """Incomplete, because the profile declares no number. It shows the observed value, for the profile."""
    verdict = incomplete(gate, against, subject, Kind.UNDECLARED, against.undeclared or "")
    if not observations:
        return verdict
    text = "; ".join(
        shown(observation.value, observation.unit, _size(observation))
        for observation in observations
        if observation.value is not None
    )
    single = observations[0] if len(observations) == 1 else None
    return verdict.model_copy(
        update={
            "value": None if single is None else single.value,
            "at": None if single is None else _size(single),
            "observed": text,
            "evidence": observations[0].evidence,
        }
    )


def _size(observation: Observation) -> str | None:
    return observation.quantity.partition("@")[2] or None


def unknown_gate(gate_id: str, subject: str) -> Verdict:
    return Verdict(
        gate=gate_id,
        subject=subject,
        outcome=Outcome.INCOMPLETE,
        kind=Kind.UNKNOWN,
        value=None,
        unit="text",
        rule="equals",
        limit=None,
        observed=NOTHING,
        expected="a gate that this version knows",
        evidence=RUN,
        cause="no gate is called so in this version",
        fix="docs/07-failure-modes.md#unknown-gate",
    )


# --- words


def shown(value: Value, unit: str, remark: str | None) -> str:
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, list):
        text = ", ".join(value)
    elif isinstance(value, float):
        text = f"{value:.4g}"
    else:
        text = str(value)
    text += "" if unit in WITHOUT_UNIT else f" {unit}"
    return f"{text} ({remark})" if remark else text
