#!/usr/bin/env python3
"""Write surface.jsonl, which torch_surface.py explains: `make surface` runs it where torch's CUDA build is.

Listed is each module that the project's programs name, each class that they name or are given, and the types of
results. Ways to call are read with inspect; of what is written in C++ from torch's own .pyi files.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
import types
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import torch_names
from torch_surface import FILE, PACKAGES

MOST_NAMES = 2000  # a module with more is listed in part
ANY_WAY = "(*args,**kwargs)"
# classes of which the project has instances without naming them
GIVEN = (
    "torch.Tensor",
    "torch.nn.Module",
    "torch.nn.Parameter",
    "torch.cuda.Event",
    "torch.cuda.Stream",
    "torch.distributed.Work",
    "torch.distributed.ProcessGroup",
    "torch.distributed.Store",
)
RESULTS = {  # of functions that have no annotation
    "torch.distributed.all_reduce": "torch.distributed.Work",
    "torch.cuda.current_stream": "torch.cuda.Stream",
}


def main() -> int:
    warnings.simplefilter("ignore")  # names that are deprecated say so when they are looked at
    import torch

    if torch.version.cuda is None:
        sys.exit(
            f"make surface: {sys.executable} has torch {torch.__version__}, which is no CUDA build (README.md here)"
        )
    used, private = torch_names.used()
    objects, lost = {}, []
    for dotted in [*sorted(used), *GIVEN]:
        value = resolved(dotted)
        if value is None:
            lost.append(dotted)
        else:
            objects[dotted] = value[0]
    listing = Listing(objects, private)
    head = {name: version(name).partition("+")[0] for name in PACKAGES} | {"cuda": torch.version.cuda}
    lines = [head, *listing.lines()]
    FILE.write_text("".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines))
    print(f"{FILE}: {len(lines) - 1} places, {FILE.stat().st_size} bytes, CUDA {torch.version.cuda}")
    for dotted in lost:
        print(f"the project uses {dotted}, which is not there", file=sys.stderr)
    return 0


def resolved(dotted: str) -> tuple[Any] | None:
    """The object in a tuple of one; None: there is none."""
    value: Any = None
    parts = dotted.split(".")
    for end, name in enumerate(parts, 1):
        try:
            value = getattr(value, name) if value is not None else importlib.import_module(name)
        except AttributeError:
            try:
                value = importlib.import_module(".".join(parts[:end]))
            except ImportError:
                return None
    return (value,)


def full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class Listing:
    """objects: dotted name -> object, as the project writes them."""

    def __init__(self, objects: dict[str, Any], private: set[str]) -> None:
        self.named_objects, self.private, self.stubs = objects, private, Stubs()
        self.modules: dict[str, types.ModuleType] = {}
        self.classes: dict[str, type] = {}
        self.objects: dict[str, set[str]] = {}
        self.named: dict[str, set[str]] = {}  # module -> names that the project uses of it
        for dotted, value in objects.items():
            self._take(dotted, value)
        for dotted, value in objects.items():
            if callable(value) and not isinstance(value, type):
                result = RESULTS.get(dotted)
                kind = objects[result] if result else self.stubs.kind_given(value)
                if kind is not None:
                    self.classes[full_name(kind)] = kind

    def _take(self, dotted: str, value: Any) -> None:
        if isinstance(value, types.ModuleType):
            self.modules[value.__name__] = value
        elif isinstance(value, type):
            self.classes[full_name(value)] = value
        above, _, name = dotted.rpartition(".")
        if not above:
            return
        [parent] = resolved(above) or (None,)
        if isinstance(parent, types.ModuleType):
            self.modules[parent.__name__] = parent
            self.named.setdefault(parent.__name__, set()).add(name)
        elif not isinstance(parent, type):
            self.objects.setdefault(above, set()).add(name)
        self._take(above, parent)

    def lines(self) -> Iterator[dict[str, Any]]:
        for name, module in sorted(self.modules.items()):
            used = self.named.get(name, set())
            only_on_the_way = used and all(
                isinstance(self.named_objects.get(f"{name}.{each}"), types.ModuleType) for each in used
            )
            part = {"part": True} if len(dir(module)) > MOST_NAMES or only_on_the_way else {}
            names = used if part else used | {each for each in dir(module) if self._is_listed(module, each)}
            yield {
                "of": name,
                "kind": "module",
                **part,
                "names": {each: self._in_module(module, each) for each in sorted(names)},
            }
        for name, kind in sorted(self.classes.items()):
            base = next((full_name(each) for each in kind.__mro__[1:] if full_name(each) in self.classes), None)
            known = self._names(self.classes[base]) if base else {}
            names = {each: text for each, text in self._names(kind).items() if known.get(each) != text}
            opened = {"open": True} if any("__getattr__" in vars(each) for each in kind.__mro__) else {}
            yield {"of": name, "kind": "class", **({"base": base} if base else {}), **opened, "names": names}
        for name, names in sorted(self.objects.items()):
            yield {"of": name, "kind": "object", "names": dict.fromkeys(sorted(names), "")}

    def _is_listed(self, module: types.ModuleType, name: str) -> bool:
        if name.startswith("_"):
            return name in self.private and not name.startswith("__")
        value = module.__dict__.get(name)
        belongs = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
        return not isinstance(belongs, str) or belongs.partition(".")[0] in PACKAGES or isinstance(value, int | str)

    def _in_module(self, module: types.ModuleType, name: str) -> str:
        [value] = resolved(f"{module.__name__}.{name}") or (None,)
        if isinstance(value, types.ModuleType):
            return f"module {value.__name__}"
        if isinstance(value, type):
            return f"class {full_name(value)}{self.stubs.ways(value)}"
        if callable(value):
            result = RESULTS.get(f"{module.__name__}.{name}")
            kind = self.named_objects[result] if result else self.stubs.kind_given(value)
            return self.stubs.ways(value) + self._gives(kind)
        return f":{full_name(type(value))}" if full_name(type(value)) in self.classes else ""

    def _gives(self, kind: type | None) -> str:
        return f"->{full_name(kind)}" if kind is not None and full_name(kind) in self.classes else ""

    def _names(self, kind: type) -> dict[str, str]:
        of_its_class = set(dir(type(kind))) - set(dir(type))  # dist.group.WORLD
        names = sorted({*dir(kind), *attributes_set(kind), *of_its_class})
        hidden = {
            name for name in names if name.startswith("__") or (name.startswith("_") and name not in self.private)
        }
        return {name: self._in_class(kind, name) for name in names if name not in hidden}

    def _in_class(self, kind: type, name: str) -> str:
        plain = inspect.getattr_static(kind, name, None)
        if isinstance(plain, staticmethod | classmethod):
            return f"@{self.stubs.ways(getattr(kind, name))}"
        if isinstance(plain, type):
            return f"class {full_name(plain)}{self.stubs.ways(plain)}"
        if callable(plain):
            return self.stubs.ways(plain, of=kind) + self._gives(self.stubs.kind_given(plain, of=kind))
        given = self.stubs.kind_given(plain, of=kind)
        return f":{full_name(given)}" if given is not None and full_name(given) in self.classes else ""


def attributes_set(kind: type) -> set[str]:
    """What its methods set on self, and what it annotates."""
    names: set[str] = set()
    for each in kind.__mro__[:-1]:
        names |= set(vars(each).get("__annotations__", {}))
        try:
            tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(each)))
        except (OSError, TypeError, SyntaxError):
            continue
        names |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
        }
    return names


class Stubs:
    """How something is called, and what it gives: by inspect, or by torch's .pyi files."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.functions: dict[str, list[ast.FunctionDef]] = {}
        self.methods: dict[tuple[str, str], list[ast.FunctionDef]] = {}
        folder = Path(torch.__file__).parent / "_C"
        for file in ("_distributed_c10d.pyi", "__init__.pyi", "_VariableFunctions.pyi"):
            for node in ast.parse((folder / file).read_text()).body:
                if isinstance(node, ast.FunctionDef):
                    self.functions.setdefault(node.name, []).append(node)
                elif isinstance(node, ast.ClassDef):
                    for inner in node.body:
                        if isinstance(inner, ast.FunctionDef):
                            self.methods.setdefault((node.name, inner.name), []).append(inner)

    def ways(self, value: Any, of: type | None = None) -> str:
        """of: the class whose method it is."""
        signature = self._signature(value)
        if signature is not None:
            given = list(signature.parameters.values())
            return written([each.replace() for each in (given[1:] if of else given)])
        nodes = self._nodes(value, of)
        if not nodes:
            return ANY_WAY
        ways = dict.fromkeys(written(parameters_of(node, of is not None or isinstance(value, type))) for node in nodes)
        return ANY_WAY if ANY_WAY in ways else "|".join(ways)

    def _signature(self, value: Any) -> inspect.Signature | None:
        for follow in (False, True):
            try:
                signature = inspect.signature(value, follow_wrapped=follow)
            except (ValueError, TypeError):
                return None
            kinds = {each.kind for each in signature.parameters.values()}
            if not kinds or kinds - {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
                return signature
        return None

    def _nodes(self, value: Any, of: type | None) -> list[ast.FunctionDef]:
        name = getattr(value, "__name__", "")
        if isinstance(value, type):
            made = [self.methods.get((name, each), []) for each in ("__init__", "__new__")]
            return made[0] or made[1]
        if of is None:
            return self.functions.get(name, [])
        overloads = [self.methods.get((each.__name__, name), []) for each in of.__mro__]
        return next((nodes for nodes in overloads if nodes), [])

    def kind_given(self, value: Any, of: type | None = None) -> type | None:
        """The class of what it gives when it is called; of a property: what it is."""
        getter = value.fget if isinstance(value, property) else value
        note = getattr(getter, "__annotations__", {}).get("return") if isinstance(getter, types.FunctionType) else None
        if note is None:
            notes = {ast.unparse(node.returns) for node in self._nodes(value, of) if node.returns}
            note = notes.pop() if len(notes) == 1 else None
        if note == "Self" and of is not None:
            return of
        return self._class_of(note, getattr(getter, "__globals__", {}))

    def _class_of(self, note: Any, names: dict[str, Any]) -> type | None:
        if isinstance(note, str):
            try:
                # an annotation of torch's own, in the names of torch's own module
                note = eval(note, {**vars(self.torch._C), **vars(self.torch), **names})
            except Exception:  # noqa: BLE001  # a type that exists for type checkers only
                return None
        if isinstance(note, types.UnionType):
            kinds = [each for each in get_args(note) if each is not type(None)]
            note = kinds[0] if len(kinds) == 1 else None
        if not isinstance(note, type) or note.__module__.partition(".")[0] not in PACKAGES:
            return None
        return note


def parameters_of(node: ast.FunctionDef, drop_first: bool) -> list[inspect.Parameter]:
    kinds, given = inspect.Parameter, node.args
    both = [*given.posonlyargs, *given.args]
    defaults = [False] * (len(both) - len(given.defaults)) + [True] * len(given.defaults)
    plain = [
        kinds(
            each.arg,
            kinds.POSITIONAL_ONLY if number < len(given.posonlyargs) else kinds.POSITIONAL_OR_KEYWORD,
            default=None if has else kinds.empty,
        )
        for number, (each, has) in enumerate(zip(both, defaults, strict=True))
    ]
    static = any(ast.unparse(each) == "staticmethod" for each in node.decorator_list)
    rest = [kinds(given.vararg.arg, kinds.VAR_POSITIONAL)] if given.vararg else []
    rest += [
        kinds(each.arg, kinds.KEYWORD_ONLY, default=kinds.empty if default is None else None)
        for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    rest += [kinds(given.kwarg.arg, kinds.VAR_KEYWORD)] if given.kwarg else []
    return [*(plain[1:] if drop_first and not static else plain), *rest]


def written(parameters: list[inspect.Parameter]) -> str:
    kinds, parts, starred = inspect.Parameter, [], False
    for number, each in enumerate(parameters):
        if each.kind is kinds.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        if each.kind is kinds.VAR_POSITIONAL:
            starred = True
        mark = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}.get(each.kind, "")
        parts.append(f"{mark}{each.name}{'' if each.default is kinds.empty else '='}")
        after = parameters[number + 1].kind if number + 1 < len(parameters) else None
        if each.kind is kinds.POSITIONAL_ONLY and after is not kinds.POSITIONAL_ONLY:
            parts.append("/")
    return f"({','.join(parts)})"


if __name__ == "__main__":
    sys.exit(main())
