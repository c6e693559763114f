"""What a record is, what a judgement can be, and the only code that reads or writes files of records."""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_type_hints

import msgspec
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic_core import core_schema

from bringup.kernel.characters import CONTROL
from bringup.kernel.errors import RecordError
from bringup.kernel.records import files

if sys.version_info >= (3, 11):
    from enum import StrEnum as StrEnum  # novm
else:  # login hosts of Ubuntu 22.04 have Python 3.10
    from enum import Enum

    class StrEnum(str, Enum):
        """As that of Python 3.11."""

        def __str__(self) -> str:
            return str(self.value)


KNOWN = Path(__file__).resolve().parents[3] / "known"  # tables with their sources

Value = bool | int | float | str | list[str]
"""What can be observed. None is not among them: an unknown is written as value null with a reason."""

Limit = bool | int | float | str | list[float] | list[str]
"""What a value is compared with."""

NonNegative = Annotated[float, Field(ge=0)]

Name = Annotated[str, Field(pattern=f"^[^{CONTROL}]*$")]
"""The name of a node, a gate or a phase: printed as it is."""

RUN_NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"
RunName = Annotated[str, Field(pattern=f"^{RUN_NAME}$")]
"""The name of a run, which is part of the names of files: never a path."""
NodeName = RunName  # a part of commands to paste

MOST_NODES, MOST_GPUS = 16_384, 1_024  # of a run, of a node: a plan of more is a damaged one, and fills the memory


def time_of(moment: str) -> datetime:
    """Read a `Moment`. Python before 3.11 reads neither the Z nor a fraction of another length. Raises ValueError."""
    seconds = moment.removesuffix("Z")
    return datetime.fromisoformat((seconds.ljust(26, "0") if "." in seconds else seconds) + "+00:00")


def _is_moment(text: str) -> str:
    time_of(text)
    return text


Moment = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$"), AfterValidator(_is_moment)]
"""UTC, ISO 8601."""


class Record(BaseModel):
    """Base of all records. Frozen, closed, and without NaN or infinity.

    A model is built when it is first used: most programs use two or three of them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)


class Versioned(Record):
    """A record that is a file of its own."""

    BY_EYE: ClassVar[bool] = False  # people read the file: its lists of numbers and words are not one to a line

    schema_version: Literal[1] = 1


M = TypeVar("M", bound="OfMany")
_AT_ONCE = 2_000  # of many that are written: their text takes a megabyte


class OfMany(msgspec.Struct, frozen=True, gc=False):
    """A fleet has hundreds of thousands of them: made and written in a tenth of the time of a record, and smaller. Who
    makes one checks what goes in. What is read from disk is checked as strictly as every record."""

    def model_copy(self: M, *, update: Mapping[str, Any]) -> M:
        """Copy it with these values in place of its own, as records do."""
        return msgspec.structs.replace(self, **update)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: Any) -> core_schema.CoreSchema:
        kinds, fields = get_type_hints(cls), msgspec.structs.fields(cls)
        defaults: dict[str, Any] = {each.name: ... if each.required else each.default for each in fields}
        defaults |= {each.name: Field(default_factory=list) for each in fields if each.default_factory is list}
        declared: Any = {name: (kinds[name], default) for name, default in defaults.items()}
        strict = handler.generate_schema(create_model(cls.__name__, __base__=Record, **declared))
        return core_schema.json_or_python_schema(
            core_schema.no_info_after_validator_function(lambda read: cls(**vars(read)), strict),
            core_schema.is_instance_schema(cls),
            serialization=core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins),
        )


class Outcome(StrEnum):
    """Worst last. A known fault is actionable, so fail outranks incomplete; reports print both counts."""

    PASS = "pass"  # noqa: S105  # an outcome, not a password
    NO_LIMIT = "no-limit"  # measured, and nothing says what it has to be
    WARN = "warn"
    INCOMPLETE = "incomplete"
    FAIL = "fail"

    @property
    def rank(self) -> int:
        return _RANK[self]

    @property
    def is_good(self) -> bool:
        """Say whether nothing failed, and all that was asked was seen."""
        return self not in (Outcome.INCOMPLETE, Outcome.FAIL)

    @property
    def is_quiet(self) -> bool:
        """Say whether there is nothing to do about it."""
        return self in QUIET

    @property
    def exit_code(self) -> int:
        """Return 0: nothing failed and nothing is open, 1: the cluster failed a gate, 2: we could not tell."""
        return {Outcome.INCOMPLETE: 2, Outcome.FAIL: 1}.get(self, 0)


QUIET = (Outcome.PASS, Outcome.NO_LIMIT)
_RANK = {outcome: rank for rank, outcome in enumerate(Outcome)}


def worst(outcomes: list[Outcome]) -> Outcome:
    """Return the worst of the outcomes. Nothing to judge is incomplete, never a pass."""
    return max(outcomes, key=lambda outcome: outcome.rank, default=Outcome.INCOMPLETE)


def worst_of_run(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the worst outcome of a run: a number without a limit does not change that all others passed."""
    return worst([outcome for outcome in outcomes if outcome is not Outcome.NO_LIMIT] or list(outcomes))


R = TypeVar("R", bound=Record)
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def known(name: str, kind: type[T]) -> T:
    """Read the table validation/known/NAME.yaml."""
    text = (KNOWN / f"{name}.yaml").read_text(encoding="utf-8")
    data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # both are safe
    return TypeAdapter(kind).validate_json(json.dumps(data))  # as JSON: a list may become a tuple


def read_record(path: Path, kind: type[R]) -> R:
    """Read `path` as `kind`. Raises RecordError (one line) when it is missing, cut off, or not that record."""
    return parse_record(path, read_record_text(path, kind), kind)


def read_record_text(path: Path, kind: type[R]) -> str:
    """Read the text of `path`, which should be a `kind`. Raises RecordError."""
    try:
        return files.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path}: cannot be read as {kind.__name__}: {error}") from error


def parse_record(path: Path, text: str, kind: type[R]) -> R:
    """Parse the text of `path` as `kind`. Raises RecordError (one line)."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        # a key may hold a line feed
        field = " ".join(".".join(str(part) for part in first["loc"]).split()) or "the file"
        raise RecordError(f"{path}: not a valid {kind.__name__}: {field}: {first['msg']}") from error


def write_record(path: Path, record: Record, *, replace: bool = False) -> None:
    """Write atomically. Without `replace` an existing file is a RecordError: evidence is never overwritten."""
    lists = {name: several for name, several in record if isinstance(several, list) and several}
    many = {name: several for name, several in lists.items() if isinstance(several[0], OfMany)}
    text = TypeAdapter(type(record)).dump_json(record.model_copy(update={name: [] for name in many}), indent=1)
    if isinstance(record, Versioned) and record.BY_EYE:
        text = lists_on_lines(text.decode()).encode()
    files.write(path, _with(many, text), replace=replace)


def _with(many: Mapping[str, Sequence[OfMany]], text: bytes) -> Iterator[bytes]:
    """Yield the text of a record, in which these lists are empty, with what they hold; piece by piece, because the text
    of a fleet is larger than all else that is in the memory."""
    for name, several in many.items():
        before, empty, text = text.partition(f'\n "{name}": []'.encode())  # no text in JSON holds a line feed
        yield before + empty[:-1]
        for begin in range(0, len(several), _AT_ONCE):
            piece = msgspec.json.format(msgspec.json.encode(several[begin : begin + _AT_ONCE]), indent=1)
            yield b"," * (begin > 0) + piece[1:-2].replace(b"\n", b"\n ")
        yield b"\n ]"
    yield text + b"\n"


def lists_on_lines(text: str) -> str:
    """Write JSON again with an indent. A list that holds no other list and no object is on one line."""
    return re.sub(r"\[\n *([^\[\]{}]*?)\n *\]", lambda match: "[" + re.sub(r"\n *", " ", match[1]) + "]", text)


def write_text(path: Path, text: str, *, replace: bool = False) -> None:
    """Write atomically; a reader sees the old file, the new file, or none, never half of one."""
    files.write(path, text.encode(), replace=replace)


def as_json(record: object) -> dict[str, Any]:
    """Return the record as plain data."""
    data: dict[str, Any] = TypeAdapter(type(record)).dump_python(record, mode="json")
    return data


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Group values by key. Keys and values stay in the order in which they come."""
    groups: defaultdict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    groups.default_factory = None
    return groups
