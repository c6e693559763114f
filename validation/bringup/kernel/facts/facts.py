"""The fact lines that probes print (probes/facts.py), with or without srun's label in front."""

import re
from array import array
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from msgspec import UNSET, Struct, UnsetType

from bringup.kernel.facts.parser_result import Parsed, each_line
from bringup.kernel.facts.speakers import LABEL, Refusals, Speakers
from bringup.kernel.records import Observation, Value

MOST_NAMED, MOST_OTHERS = 20, 100_000  # lines of a file that are no facts: named one by one, read at all
UNFINISHED = "did not finish"  # what a probe said before it ended: no evidence, and Slurm may say why it ended
_LONGEST = 4000  # characters of a line: a probe writes 1,000 at most
_MOST = 2**63 - 1  # no counter holds more, and no comparison can overflow
_SUBJECT, _QUANTITY = ', "subject": ', ', "quantity": '
_MOST_KEPT = 20_000  # ends of lines that are kept: those of a fleet's devices say the same
_CLOSINGS = re.compile(r'^ {0,9}(\d{1,9}): \{"probe": "[^"\n]{1,64}", "at": "([^"\n]{1,255})", "end": ', re.MULTILINE)


class _Said(Struct, forbid_unknown_fields=True):
    """What is said of a subject: the end of a line."""

    quantity: str
    value: bool | Annotated[int, msgspec.Meta(ge=-_MOST, le=_MOST)] | float | str | list[str] | None
    unit: str
    why: str | UnsetType = UNSET


class _Fact(_Said, kw_only=True):
    probe: str
    at: str
    subject: str


class _Closing(Struct, forbid_unknown_fields=True):
    probe: str
    at: str
    end: int
    run: str | UnsetType = UNSET
    utc: str | UnsetType = UNSET


_decode, _text = msgspec.json.Decoder(_Said).decode, msgspec.json.Decoder(str).decode
_fact, _closing = msgspec.json.Decoder(_Fact).decode, msgspec.json.Decoder(_Closing).decode
_What = tuple[str, Value | None, str, str | None]  # quantity, value, unit, why


@dataclass(eq=False)
class _Task:
    """What one probe said on one node, under one label of srun."""

    at: str
    probe: str
    objection: str | None  # why nothing of it is believed
    subjects: dict[str, str] = field(default_factory=dict)  # as JSON -> one that it may speak of, whatever it says
    places: "array[int]" = field(default_factory=lambda: array("L"))  # of its facts in Parsed.observations
    ends: list[tuple[int, str]] = field(default_factory=list)  # each closing line's count of facts, and its place

    @property
    def is_whole(self) -> bool:
        """Say whether exactly one closing line arrived, and as many facts as it says."""
        return [end for end, _ in self.ends] == [len(self.places)]


def parse(text: str, where: str, speakers: Speakers | None = None) -> Parsed:
    """Read facts of any number of tasks in one file. speakers: who may say what; None: what stands there is believed.

    A task without a matching closing line is a problem: it has not finished.
    """
    lines = _Lines(where, speakers)
    lines.read(text)
    parsed, tasks = (
        lines.parsed,
        sorted((task for task in lines.tasks.values() if task.places), key=lambda task: task.places[0]),
    )
    if lines.refusals and speakers is not None and (by_label := speakers.as_labelled(_CLOSINGS.findall(text))):
        return parse(text, where, by_label)
    for task in lines.closed:
        _close(parsed, task)
    for task in tasks:
        if not task.is_whole:
            _doubt(parsed, task)
            count = f"{len(task.places)} facts and no closing line"
            parsed.note(f"{where}: {task.probe} on {task.at} {UNFINISHED}: {count}")
    if lines.others > MOST_NAMED:
        parsed.note(f"{where}: {lines.others} lines are no facts")
    parsed.problems += lines.refusals.problems()
    return parsed if tasks or parsed.problems else parsed.note(f"{where}: holds no fact")


def _close(parsed: Parsed, task: _Task) -> None:
    """probe.NAME.finished: true if exactly one closing line arrived and its count of facts matches."""
    finished, arrived, evidence = f"probe.{task.probe}.finished", len(task.places), task.ends[-1][1]
    if task.is_whole:
        parsed.saw(finished, task.at, True, "flag", evidence)
        return
    counts = " and ".join(str(end) for end, _ in task.ends)  # cut off, or written twice
    parsed.note(f"{evidence}: {task.probe} on {task.at} wrote {counts} facts, {arrived} arrived")
    why = f"{task.probe} says that it wrote {counts} facts, and {arrived} arrived"
    parsed.saw(finished, task.at, None, "flag", evidence, why)


def _doubt(parsed: Parsed, task: _Task) -> None:
    """Turn the facts of a probe that ended early into remarks: half a report is not evidence of health."""
    for place in task.places:
        fact = parsed.observations[place]
        why = f"{task.probe} {UNFINISHED}; it had said {fact.value}"
        parsed.observations[place] = fact.model_copy(update={"value": None, "why": why})


class _Lines:
    """Reads the lines of one file. It runs once per fact of a fleet, so it must be fast. A line has three parts: who
    says it, of what, and what. Each part that is the same in many lines is decoded once, and is once in the memory."""

    def __init__(self, where: str, speakers: Speakers | None) -> None:
        self.parsed, self.refusals, self.others = Parsed(), Refusals(where), 0
        self.tasks: dict[tuple[str, str, str], _Task] = {}  # by label, node and probe
        self.closed: list[_Task] = []
        self._where, self._speakers = where, speakers
        self._begun: dict[str, _Task] = {}  # the first part, with its label
        self._ends: dict[str, _What] = {}  # the last part

    def read(self, text: str) -> None:
        begun, ends, seen, where = self._begun, self._ends, self.parsed.observations, self._where
        for number, line in enumerate(each_line(text), start=1):
            beginning, _, rest = line.partition(_SUBJECT)
            named, _, end = rest.partition(_QUANTITY)
            try:
                if len(line) > _LONGEST:
                    raise ValueError
                task, what = begun[beginning], ends.get(end) or self._end(end)
                subject = task.subjects.get(named) or self._believed(task, _text(named), what[0], number, named)
            except (KeyError, ValueError):  # another order, a closing line, or no fact
                if (alone := self._alone(line, number)) is None:
                    if self.others < MOST_OTHERS:
                        continue
                    self.parsed.note(f"{where}:{number}: the rest of the file was not read")
                    break
                task, subject, what = alone
            if subject is not None:
                task.places.append(len(seen))
                quantity, value, unit, why = what
                at = f"{where}:{number}"
                seen.append(
                    Observation(quantity=quantity, subject=subject, value=value, unit=unit, evidence=at, why=why)
                )

    def _end(self, end: str) -> _What:
        """Read the last part of a line. Raises ValueError."""
        what = _what(_decode(f'{{"quantity": {end}'))
        if len(self._ends) < _MOST_KEPT:
            self._ends[end] = what
        return what

    def _alone(self, line: str, number: int) -> tuple[_Task, str | None, _What] | None:
        """Read a line by itself: the first fact of a task, a closing line, or neither: None."""
        label = LABEL.match(line)
        words = line[label.end() :] if label else line
        entry = _decoded(words)
        if entry is None:
            if words and not words.isspace():
                self.others += 1
                if self.others <= MOST_NAMED:
                    self.parsed.note(f"{self._where}:{number}: not a fact: {words[:60]!r}")
            return None
        of = label[1] if label else "", entry.at, entry.probe
        if (task := self.tasks.get(of)) is None:
            objection = None if self._speakers is None else self._speakers.of_task(*of)
            task = self.tasks[of] = _Task(entry.at, entry.probe, objection)
        if isinstance(entry, _Fact):
            if words.startswith(f'{{"probe": "{entry.probe}", "at": "{entry.at}"{_SUBJECT}'):
                self._begun[line.partition(_SUBJECT)[0]] = task
            return task, self._believed(task, entry.subject, entry.quantity, number), _what(entry)
        evidence = f"{self._where}:{number}"
        if task.objection is not None:
            self.refusals.note(task.objection, number)
            return None
        if not task.ends:
            self.closed.append(task)
        task.ends.append((entry.end, evidence))
        if entry.run is not UNSET and entry.utc is not UNSET:
            self.parsed.saw("probe.stamp", entry.at, [entry.run, entry.utc], "run and UTC", evidence)
        return None

    def _believed(self, task: _Task, subject: str, quantity: str, number: int, named: str = "") -> str | None:
        """Return the subject. None: who says it may not speak of it. named: the subject as JSON."""
        asks = None if self._speakers is None else self._speakers.of_subject
        objection = task.objection or (asks and asks(task.at, subject, quantity))
        if objection is not None:
            self.refusals.note(objection, number)
            return None
        if named and (asks is None or asks(task.at, subject, "") is None):
            task.subjects[named] = subject
        return subject


def _what(entry: _Said) -> _What:
    """Return what is said. No name, version or id is empty: two nodes without one are not alike. Raises ValueError: a
    value is missing, and the reason, too."""
    value, why = entry.value, None if entry.why is UNSET else entry.why
    if value is None and not why:
        raise ValueError
    if value == "":
        value, why = None, why or "an empty text"
    return entry.quantity, value, entry.unit, why


def _decoded(words: str) -> _Fact | _Closing | None:
    """Read a fact or a closing line; None: it is neither."""
    if len(words) > _LONGEST:
        return None
    with suppress(ValueError):
        fact = _fact(words)
        return fact if _what(fact) else None
    with suppress(ValueError):
        closing = _closing(words)
        return closing if (closing.run is UNSET) == (closing.utc is UNSET) else None
    return None
