"""Strict reading of a profile's YAML, with errors that name the key and suggest what was meant."""

from __future__ import annotations

import difflib
import json
import socket
import types
import typing
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from bringup.kernel import characters
from bringup.kernel.errors import FileError

if TYPE_CHECKING or not yaml.__with_libyaml__:
    _Safe = yaml.SafeLoader
else:
    from yaml.cyaml import CParser

    class _Safe(Composer, SafeConstructor, Resolver, CParser):
        """yaml.SafeLoader with libyaml's parser, seven times as fast. CSafeLoader is not used: it also composes in C,
        and a text of many brackets overflows its stack and kills the process."""

        def __init__(self, text):
            CParser.__init__(self, text)
            Composer.__init__(self)
            SafeConstructor.__init__(self)
            Resolver.__init__(self)


class _Loader(_Safe):
    """A loader that refuses duplicate keys. YAML itself silently keeps the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[Hashable, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            key, line = key_node.value, key_node.start_mark.line + 1
            if key in lines:
                twice = f"{key} is given twice, first in line {lines[key]}; keep one"
                raise yaml.constructor.ConstructorError(None, None, twice, key_node.start_mark)
            lines[key] = line
        return super().construct_mapping(node, deep)


R = TypeVar("R", bound=BaseModel)
_EXAMPLES = {"schema_version": "1", "name": "lab", "description": "what it is of", "source": "where the number is from"}


def text_of(path: Path, what: str = "") -> str:
    """Read the file. Raises FileError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise FileError(f"{what}{path}: cannot be read: {why}") from error


def refused(
    error: ValidationError,
    model: type[BaseModel],
    text: str,
    where: str,
    place: tuple[int | str, ...] = (),
    forms: Mapping[str, str] = MappingProxyType({}),
) -> FileError:
    """Return the error with its line: of a misspelled key first, which may be missing as well, or cause another error.
    place: of the model in the text. forms: key -> what its pattern means, in words."""
    first = next((detail for detail in error.errors() if detail["type"] == "extra_forbidden"), error.errors()[0])
    message = in_words(first, model)
    if forms and first["type"] == "string_pattern_mismatch":
        form = next((forms[str(part)] for part in reversed(first["loc"]) if part in forms), "write one word")
        message = f"{message.partition(': ')[0]}: {first['input']!r} is not understood; {form}"
    check = f"{place[-1]}: " if place else ""
    return FileError(f"{where}:{line_of(text, (*place, *first['loc']))}: {check}{message}")


def valid(model: type[R], data: Mapping[str, Any], text: str, where: str, place: tuple[int | str, ...] = ()) -> R:
    """Return the data as a record; its lists may become tuples. place: of the data in the text. Raises FileError."""
    try:
        return model.model_validate_json(json.dumps(data, default=str))
    except ValidationError as error:
        raise refused(error, model, text, where, place) from error


def find(name_or_path: str, what: str, there: Mapping[str, Path], of: str = "") -> Path:
    """Find the file given by name or by path. there: files by name. Raises FileError with the names there are."""
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise FileError(f"{of}{what} {path}: no such file, seen from {socket.gethostname()}")
        return path
    if name_or_path not in there:
        begins = [name for name in there if name_or_path and name.startswith(name_or_path)]
        near = begins or difflib.get_close_matches(name_or_path, there, 3)
        listed = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(there)}"
        raise FileError(f"{of}no {what} named {name_or_path!r}; {listed}; or give the path of a .yaml file")
    return there[name_or_path]


def read(
    text: str, where: str, kind: str = "a profile", begins: str = "schema_version, name and description"
) -> dict[str, Any]:
    """Read keys and values of the text. Raises FileError with the line."""
    loader = _Loader(text)
    try:
        data = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        problem = " ".join(str(error.problem or error).split())
        duplicate = isinstance(error, yaml.constructor.ConstructorError) and "is given twice" in problem
        raise FileError(f"{where}{line}: {problem if duplicate else f'not valid YAML: {problem}'}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # for example a date that does not exist
        raise FileError(f"{where}: not valid YAML: {' '.join(str(error).split())[:200]}") from error
    finally:
        loader.dispose()
    if data is None:
        raise FileError(f"{where}: the file is empty; {kind} begins with {begins}")
    if not isinstance(data, dict):
        raise FileError(f"{where}: the file is a {type(data).__name__}; {kind} is `key: value`, one a line")
    return data


def dump(data: dict[str, Any]) -> str:
    """Return the data as YAML, with the keys in their order."""
    return yaml.dump(data, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False, allow_unicode=True)


def line_of(text: str, place: tuple[int | str, ...]) -> int:
    """Return the line of a key, or of the innermost key around it that exists. The text was read without an error."""
    node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    line = 1
    for part in place:
        pairs = []  # of a key, and what it holds
        if isinstance(node, yaml.MappingNode):
            pairs = [pair for pair in node.value if pair[0].value == str(part)]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            pairs = [(each, each) for each in node.value[part : part + 1]]
        for key, inner in pairs[:1]:
            node, line = inner, key.start_mark.line + 1
    return line


def in_words(error: ErrorDetails, model: type[BaseModel]) -> str:
    """Say the error in one line: `expect.nccl.transport.one_off: there is no such key; did you mean …`"""
    keys = tuple(part for part in error["loc"] if not _is_tag(part))
    place = " ".join(".".join(map(str, keys)).split()) or "the file"  # a key may hold a line feed
    name, value = str(keys[-1]) if keys else "", error["input"]
    match error["type"]:
        case "extra_forbidden":
            return f"{place}: there is no such key{meant(name, _keys_at(keys[:-1], model))}"
        case "missing":
            example = _EXAMPLES.get(name)
            return f"{place}: is missing" + (f"; add the line `{name}: {example}`" if example else "")
        case "list_type":
            return f"{place}: write a list, [{value}]"
        case "literal_error" if name == "schema_version":
            return f"{place}: {value!r} is unknown to this version of bringup, which knows 1"
        case "float_type" | "int_type" | "int_parsing" | "float_parsing" if (number := _numeral(value)) is not None:
            how = f"{number} without quotes" if number == value else number
            return f"{place}: YAML reads {value} as a text; write {how}"
        case "string_type" if isinstance(value, bool | int | float):
            return f"{place}: YAML reads it as {value}; put it in quotes"
    return f"{place}: {error['msg'].removeprefix('Value error, ')}"


def _is_tag(part: int | str) -> bool:
    """Say whether this part is not a key but pydantic's name for the kind of the value."""
    return isinstance(part, str) and part.startswith("[") and part.endswith("]")


def meant(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean at_least?`, or all names if they are few."""
    known = list(names)
    few = f"; there are {', '.join(known)}" if 0 < len(known) <= 12 else ""
    return characters.meant(name, known) or few


def _keys_at(place: tuple[int | str, ...], model: type[BaseModel]) -> list[str]:
    """Return the keys that the record at this place accepts."""
    annotation: Any = model
    for part in place:
        fields = _fields_of(annotation)  # else: an entry of a list or of a mapping
        annotation = fields[str(part)].annotation if part in fields else _inside(annotation)
    return list(_fields_of(annotation))


def _options(annotation: Any) -> list[Any]:
    """Return the types of a union: both of `Machine | None`. The type itself if it is annotated."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _options(typing.get_args(annotation)[0])
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return [option for part in typing.get_args(annotation) for option in _options(part)]
    return [annotation]


def _fields_of(annotation: Any) -> dict[str, Any]:
    """Return the fields of the record in `Machine` or `Machine | None`; empty: it is none."""
    kinds = (kind for kind in _options(annotation) if isinstance(kind, type) and issubclass(kind, BaseModel))
    return next((kind.model_fields for kind in kinds), {})


def _inside(annotation: Any) -> Any:
    """Return the type of the items of a list or the values of a mapping."""
    return next((typing.get_args(option)[-1] for option in _options(annotation) if typing.get_args(option)), None)


def _numeral(text: object) -> str | None:
    """Write the number that a text says. None: it says none."""
    try:
        return f"{float(text):.12g}" if isinstance(text, str) else None
    except ValueError:
        return None
