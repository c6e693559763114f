"""What a gate's value is compared with in a run, and the verdict that follows: data first, words last."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property

from msgspec.structs import replace

from bringup.kernel.errors import RuleError
from bringup.kernel.facts.parser_result import is_number
from bringup.kernel.plan.expectation import size_bytes
from bringup.kernel.plan.gate import Gate
from bringup.kernel.plan.rules import SPOKEN, holds, in_words, value_in_words
from bringup.kernel.records import Kind, Limit, Observation, Outcome, Value, Verdict
from bringup.kernel.results import RUN

NOTHING = "nothing"
_NEVER_BELOW_0 = ("s", "ms", "us", "GiB", "GB/s", "TFLOP/s", "ratio", "share")


@dataclass(frozen=True)
class Requirement:
    """What a gate asks of a subject in this run; each method makes a verdict of it."""

    gate: Gate
    limit: Limit | None = None  # None with `undeclared`, and if nodes are compared with each other
    at: str | None = None  # the size that it holds for
    undeclared: str | None = None  # why the profile gives no limit
    basis: str | None = None  # how the limit was computed from the number of nodes
    declared: str = ""  # the profile's rule, where it is another one than the gate's
    is_unusable: bool = False  # the profile gives a limit, in another unit or as another rule
    _made: dict[Hashable, Verdict] = field(default_factory=dict)  # in a fleet most subjects have the same value

    @property
    def rule(self) -> str:
        return self.declared or self.gate.rule

    @property
    def quantity(self) -> str:
        return self.gate.id if self.at is None else f"{self.gate.id}@{self.at}"

    @cached_property
    def in_words(self) -> str:
        if self.undeclared is not None:
            return "a number in the profile"
        at = f" at {self.at}" if self.at else ""
        basis = f" ({self.basis})" if self.basis else ""
        return in_words(self.rule, self.limit, self.gate.unit) + at + basis

    @cached_property
    def spoken(self) -> str:
        """Say the same inside a sentence: `at least 346 GB/s at 8GiB`."""
        return in_words(self.rule, self.limit, self.gate.unit, SPOKEN) + (f" at {self.at}" if self.at else "")

    def fails(self, value: Value) -> str:
        """Say what is wrong, with the value and the limit in it: a share as a percentage."""
        words, unit, limit = self.gate.fails, self.gate.unit, self.limit
        if unit != "ratio" or "{value} of" not in words or not is_number(value):
            return words.format(value=value_in_words(value, unit), limit=self.spoken)
        if is_number(limit):
            limit = float(f"{100 * limit:.4g}")
        asked = in_words(self.rule, limit, "%", SPOKEN) if self.rule in SPOKEN else self.spoken
        return words.format(value=f"{100 * value:.3g} %", limit=asked)

    def unusable(self, seen: Observation) -> str | None:
        """Say why the observation can be compared with nothing."""
        if seen.value is None:
            return f"not found out: {seen.why}"
        is_difference = self.rule == "at_least" and self.limit == 0  # of two moments: only so it says something
        if seen.unit in _NEVER_BELOW_0 and is_number(seen.value) and seen.value < 0 and not is_difference:
            return f"observed {seen.value:g} {seen.unit}: no amount is below 0"
        unit = self.gate.unit
        return None if seen.unit == unit else f"observed in {seen.unit}, the gate is in {unit}"

    def verdict(self, subject: str, outcome: Outcome, kind: Kind, seen: Observation | None, why: str | None) -> Verdict:
        """Make a verdict. why: its cause; of a value that was judged the remark, and the cause unless it passed."""
        value = None if seen is None else seen.value
        is_judged = kind is Kind.JUDGED
        is_miss = is_judged and outcome is not Outcome.PASS
        return Verdict(
            gate=self.gate.id,
            subject=subject,
            outcome=outcome,
            kind=kind,
            value=value,
            unit=self.gate.unit,
            rule=self.rule,
            limit=self.limit,
            at=self.at,
            basis=self.basis,
            observed=NOTHING if seen is None or value is None else _shown(seen, why if is_judged else None),
            expected=self.in_words,
            fails=self.fails(value) if is_miss and value is not None else None,
            evidence="none" if seen is None else seen.evidence,
            cause=why if is_miss or not is_judged else None,
            fix=self.gate.fix,
            action=self.gate.helps if is_miss else None,
        )

    def judged(self, seen: Observation, good: bool, remark: str | None) -> Verdict:
        outcome = Outcome.PASS if good else self.gate.severity
        return self._like(seen, (good, remark), lambda: self.verdict(seen.subject, outcome, Kind.JUDGED, seen, remark))

    def _like(self, seen: Observation, how: Hashable, make: Callable[[], Verdict]) -> Verdict:
        """Return the verdict about another subject that says the same, for this one; make the first one. how: it was
        judged; None: compared with the limit."""
        key = seen.value.__class__, tuple(seen.value) if isinstance(seen.value, list) else seen.value, seen.unit, how
        if (made := self._made.get(key)) is None:
            made = self._made[key] = make()
        return replace(made, subject=seen.subject, evidence=seen.evidence)

    def unknown(self, seen: Observation, why: str) -> Verdict:
        """Judge an observation that says nothing about the gate."""
        return self.verdict(seen.subject, Outcome.INCOMPLETE, Kind.UNKNOWN, seen, why)

    def absent(self, subject: str) -> Verdict:
        return self.verdict(subject, Outcome.INCOMPLETE, Kind.ABSENT, None, "no evidence arrived")

    def blocked(self, subject: str, by: list[str]) -> Verdict:
        why = f"not judged: {', '.join(by)} did not pass"
        made = self.verdict(subject, Outcome.INCOMPLETE, Kind.BLOCKED, None, why)
        return made.model_copy(update={"blocked_by": by})

    def compared(self, seen: Observation) -> Verdict:
        return self._like(seen, seen.why, lambda: self._compared(seen))

    def _compared(self, seen: Observation) -> Verdict:
        why = self.unusable(seen)
        if why is None and self.limit is None:
            why = "this run requested nothing to compare with"
        if why is None and seen.value is not None and self.limit is not None:
            try:
                return self.judged(seen, holds(self.rule, seen.value, self.limit), seen.why)
            except RuleError as error:
                why = str(error)
        return self.unknown(seen, str(why))

    def without_limit(self, subject: str, observations: list[Observation], *, strict: bool) -> Verdict:
        """Show the observed values, at each size, for a person and the next profile. The value is the most telling one.
        strict: a number without a limit is a gap."""
        usable = [seen for seen in observations if self.unusable(seen) is None]
        for seen in observations if not usable else (seen for seen in observations if seen.quantity == self.gate.id):
            if (why := self.unusable(seen)) is not None:
                return self.verdict(subject, Outcome.INCOMPLETE, Kind.UNKNOWN, seen, why)
        if not usable:
            return self.absent(subject)
        outcome = Outcome.INCOMPLETE if strict or self.is_unusable else Outcome.NO_LIMIT
        shown = self._most_telling(usable)
        made = self.verdict(subject, outcome, Kind.UNDECLARED, shown, self.undeclared)
        text = "; ".join(_shown(seen, _size(seen)) for seen in usable)
        return made.model_copy(update={"at": _size(shown), "observed": text})

    def _most_telling(self, observations: list[Observation]) -> Observation:
        """Of a speed the largest message, of a time the smallest; of several values there the worst one."""
        worst_of, size_of = (max, min) if self.gate.rule == "at_most" else (min, max)
        sizes = [size_bytes(_size(seen) or "") or 0 for seen in observations]
        there = [seen for seen, size in zip(observations, sizes, strict=True) if size == size_of(sizes)]
        numbers = [seen for seen in there if isinstance(seen.value, int | float)]
        return worst_of(numbers, key=lambda each: float(each.value)) if numbers else there[0]  # type: ignore[arg-type]


def _shown(seen: Observation, remark: str | None) -> str:
    text = "" if seen.value is None else value_in_words(seen.value, seen.unit)
    return f"{text} ({remark})" if remark else text


def _size(seen: Observation) -> str | None:
    return seen.quantity.partition("@")[2] or None


def of_unknown_gate(gate_id: str, subject: str) -> Verdict:
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
        fix="docs/gates/run.md#unknown-gate",
    )
