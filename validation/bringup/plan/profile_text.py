"""The text of a profile: YAML that is read strictly, and what is wrong with it in words that say what was meant."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Hashable, Iterable
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from bringup.errors import ProfileError


class _Loader(yaml.SafeLoader):
    """YAML lets the last of two equal keys win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[Hashable, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            key, line = key_node.value, key_node.start_mark.line + 1
            if key in lines:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key} is given twice, first in line {lines[key]}; keep one", key_node.start_mark
                )
            lines[key] = line
        return super().construct_mapping(node, deep)


def read(text: str, where: str) -> dict[str, Any]:
    """The keys. Raises ProfileError with the line."""
    loader = _Loader(text)
    try:
        data = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        what = " ".join(str(error.problem or error).split())
        duplicate = isinstance(error, yaml.constructor.ConstructorError) and "is given twice" in what
        raise ProfileError(f"{where}{line}: {what if duplicate else f'not valid YAML: {what}'}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # a date that there is not, say
        raise ProfileError(f"{where}: not valid YAML: {' '.join(str(error).split())[:200]}") from error
    finally:
        loader.dispose()
    if data is None:
        raise ProfileError(f"{where}: the file is empty; a profile begins with schema_version, name and description")
    if not isinstance(data, dict):
        raise ProfileError(f"{where}: the file is a {type(data).__name__}; a profile is `key: value`, one a line")
    return data


def in_words(error: ErrorDetails, model: type[BaseModel]) -> str:
    """`expect.nccl.transport.one_off: …`, with what was probably meant."""
    place = ".".join(str(part) for part in error["loc"] if part != "[key]") or "the file"
    name, given = str(error["loc"][-1]) if error["loc"] else "", error["input"]
    match error["type"]:
        case "extra_forbidden":
            return f"{place}: there is no such key{meant(name, _keys_at(error['loc'][:-1], model))}"
        case "missing":
            return f"{place}: is missing"
        case "literal_error" if name == "schema_version":
            return f"{place}: {given!r} is unknown to this version of bringup, which knows 1"
        case "float_type" | "int_type" | "int_parsing" | "float_parsing" if isinstance(given, str) and _is_number(
            given
        ):
            return f"{place}: YAML reads {given} as a text; write {float(given):.12g}"
    return f"{place}: {error['msg'].removeprefix('Value error, ')}"


def meant(given: str, names: Iterable[str]) -> str:
    """`; did you mean at_least?`, or all there are when they are few."""
    known = list(names)
    near = difflib.get_close_matches(given, known, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; there are {', '.join(known)}" if 0 < len(known) <= 12 else ""


def _keys_at(place: tuple[int | str, ...], model: type[BaseModel]) -> list[str]:
    """The keys that a record takes which lies there."""
    annotation: Any = model
    for part in place:
        kind = _record_of(annotation)
        if kind is not None and part in kind.model_fields:
            annotation = kind.model_fields[str(part)].annotation
        else:  # an entry of a list or of a mapping
            annotation = typing.get_args(annotation)[-1] if typing.get_args(annotation) else None
    kind = _record_of(annotation)
    return list(kind.model_fields) if kind is not None else []


def _record_of(annotation: Any) -> type[BaseModel] | None:
    """Of `Machine`, and of `Machine | None`."""
    options = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    return next((kind for kind in options if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
