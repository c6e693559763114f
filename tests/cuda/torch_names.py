#!/usr/bin/env python3
"""Does every name of torch, transformers and accelerate that a program uses exist in the CUDA build, and fit its call?

    python tests/cuda/torch_names.py [FILE ...]        # file:line: what is wrong; without FILE: everything

Nothing is imported: the libraries are read from surface.jsonl, the programs as text. So code is checked that no CPU
runs. Names are followed through imports, assignments, annotations, attributes of self and the base of a class, inside a
file. An argument named torch, dist or c10d is that module, as the probes hand it over. Out of reach is what a function
of another file gives, what is taken from a tuple, a list or a dict, and a parameter without annotation.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torch_surface import PACKAGES, TENSOR, Missing, Surface, Thing, misfit

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("training", "infrastructure-validation/probes", "validation/bringup")
HANDED_OVER = {
    "torch": "torch",
    "dist": "torch.distributed",
    "c10d": "torch._C._distributed_c10d",
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Known = Thing | ast.FunctionDef | ast.ClassDef | None


def sources(root: Path = ROOT) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [root / name for name in sorted(listed.stdout.splitlines()) if name.endswith(".py")]


def used() -> tuple[set[str], set[str]]:
    """For make_surface.py: (dotted names as far as they can be read off, every private attribute's name)."""
    dotted: set[str] = set()
    private: set[str] = set()
    for file in sources():
        tree = ast.parse(file.read_text())
        imported = dict(HANDED_OVER) if any_handed_over(tree) else {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.partition(".")[0] in PACKAGES:
                        dotted.add(alias.name)
                        imported[alias.asname or alias.name.partition(".")[0]] = (
                            alias.name if alias.asname else alias.name.partition(".")[0]
                        )
            elif isinstance(node, ast.ImportFrom) and not node.level and str(node.module).partition(".")[0] in PACKAGES:
                for alias in node.names:
                    dotted.add(f"{node.module}.{alias.name}")
                    imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                private |= {node.attr} if node.attr.startswith("_") else set()
                base, rest = parts_of(node)
                if base in imported:
                    dotted.add(".".join((imported[base], *rest)))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) > 1:
                base, rest = parts_of(node.args[0])
                private |= set(constants(node.args[1]))
                if base in imported:
                    dotted |= {".".join((imported[base], *rest, name)) for name in constants(node.args[1])}
    return dotted, private


def any_handed_over(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.arg) and node.arg in HANDED_OVER for node in ast.walk(tree))


def parts_of(node: ast.expr) -> tuple[str, list[str]]:
    """torch.cuda.Event -> torch, [cuda, Event]; also behind self. Something else begins with an empty name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return "", []
    return (names[0], names[1:]) if node.id == "self" and names else (node.id, names)


def constants(node: ast.expr) -> list[str]:
    """The texts that an expression may be: "a", "a" if ... else "b"."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    return [*constants(node.body), *constants(node.orelse)] if isinstance(node, ast.IfExp) else []


@dataclass
class Scope:
    """The names of a module or a function; of a method also whose it is."""

    parent: Scope | None = None
    names: dict[str, Known] = field(default_factory=dict)
    own: ast.ClassDef | None = None

    def look_up(self, name: str) -> Known:
        if name in self.names:
            return self.names[name]
        return self.parent.look_up(name) if self.parent else None


class File:
    """One program. `wrong`: (line, what); `resolved`, `bound`: how many names and calls were looked at."""

    def __init__(self, text: str, surface: Surface) -> None:
        self.surface = surface
        self.wrong: set[tuple[int, str]] = set()
        self.seen: set[int] = set()
        self.bound: set[int] = set()
        self.attributes: dict[ast.ClassDef, dict[str, Known]] = {}
        self.bases: dict[ast.ClassDef, list[Thing]] = {}
        tree = ast.parse(text)
        module = Scope()
        self.gather(tree, module)
        self.classes(tree, module)
        self.check(tree, module)

    # what is known

    def gather(self, of: ast.AST, scope: Scope) -> None:
        """Names that `of` gives values to, twice: a value may be named before it is understood."""
        for _ in range(2):
            values: dict[str, list[Known]] = {}
            for node in own_nodes(of):
                for name, value in self.given(node, scope):
                    values.setdefault(name, []).append(value)
            for name, candidates in values.items():
                first = candidates[0]
                scope.names[name] = first if all(each == first for each in candidates) else None

    def given(self, node: ast.AST, scope: Scope) -> Iterator[tuple[str, Known]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                thing = self.known(self.surface.module(alias.name), node)
                if alias.asname is None:
                    thing = self.known(self.surface.module(alias.name.partition(".")[0]), node)
                yield alias.asname or alias.name.partition(".")[0], thing
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module = None if node.level else self.known(self.surface.module(str(node.module)), node)
                yield alias.asname or alias.name, self.member(module, alias.name, node) if module else None
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            for target, value in pairs(node):
                if isinstance(target, ast.Name):
                    if value is None or not is_none(value):
                        yield target.id, self.type_of(value, scope) if value else None
                else:
                    yield from ((name, None) for name in stored(target))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, self.annotated(node.annotation, scope)
        elif isinstance(node, ast.arg):
            handed = HANDED_OVER.get(node.arg) if node.annotation is None else None
            yield node.arg, Thing("module", handed) if handed else self.annotated(node.annotation, scope)
        elif isinstance(node, ast.For | ast.comprehension):
            yield from ((name, None) for name in stored(node.target))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield from ((name, None) for name in stored(node.optional_vars))
        elif isinstance(node, ast.NamedExpr):
            yield node.target.id, self.type_of(node.value, scope)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name, None
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            yield from ((part.id, None) for part in node.args[:1] if isinstance(part, ast.Name))  # more than annotated

    def classes(self, tree: ast.AST, module: Scope) -> None:
        """What self.x is, where all assignments agree; and which listed classes a class is made from."""
        defined = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for node in defined:
            bases = [self.type_of(base, module) for base in node.bases]
            self.bases[node] = [base for base in bases if isinstance(base, Thing) and base.kind == "class"]
            self.attributes[node] = {}
        for node in defined:
            values: dict[str, list[Known]] = {}
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    values.setdefault(line.target.id, []).append(self.annotated(line.annotation, module))
            for method in (each for each in node.body if isinstance(each, ast.FunctionDef)):
                scope = Scope(module, own=node)
                self.gather(method, scope)
                for name, value in self.set_on_self(method, scope):
                    values.setdefault(name, []).append(value)
            self.attributes[node] = {
                name: given[0] for name, given in values.items() if all(each == given[0] for each in given)
            }

    def set_on_self(self, method: ast.FunctionDef, scope: Scope) -> Iterator[tuple[str, Known]]:
        for node in ast.walk(method):
            if isinstance(node, ast.Assign):
                for place, value in pairs(node):
                    if isinstance(place, ast.Attribute) and is_self(place.value) and not (value and is_none(value)):
                        yield place.attr, self.type_of(value, scope) if value else None
            elif (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Attribute)
                and is_self(node.target.value)
            ):
                yield node.target.attr, self.annotated(node.annotation, scope)

    def annotated(self, note: ast.expr | None, scope: Scope) -> Thing | None:
        """What an annotation says: an instance of a listed class, also when it may be None."""
        if isinstance(note, ast.BinOp) and isinstance(note.op, ast.BitOr):
            sides = [side for side in (note.left, note.right) if not is_none(side)]
            return self.annotated(sides[0], scope) if len(sides) == 1 else None
        if isinstance(note, ast.Constant) and isinstance(note.value, str):
            return self.annotated(ast.parse(note.value, mode="eval").body, scope)
        kind = self.type_of(note, scope) if isinstance(note, ast.Name | ast.Attribute) else None
        return Thing("instance", kind.name) if isinstance(kind, Thing) and kind.kind == "class" else None

    def type_of(self, node: ast.expr, scope: Scope) -> Known:
        if isinstance(node, ast.Name):
            return scope.look_up(node.id)
        if isinstance(node, ast.Attribute):
            return self.attribute(node, scope)
        if isinstance(node, ast.Call):
            return self.called(node, scope)
        if isinstance(node, ast.IfExp | ast.BoolOp):
            parts = node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]
            types = [self.type_of(part, scope) for part in parts if not is_none(part)]
            same = types and all(each == types[0] for each in types)
            return types[0] if same or (types and isinstance(node, ast.BoolOp)) else None
        if isinstance(node, ast.UnaryOp | ast.BinOp | ast.Compare | ast.Subscript):
            if isinstance(node, ast.Compare) and not all(
                isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq) for op in node.ops
            ):
                return None
            of = node.operand if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not) else None
            of = (
                node.value
                if isinstance(node, ast.Subscript)
                else node.left
                if isinstance(node, ast.BinOp | ast.Compare)
                else of
            )
            kind = self.type_of(of, scope) if of is not None else None
            return kind if kind == Thing("instance", TENSOR) else None
        return None

    def attribute(self, node: ast.Attribute, scope: Scope) -> Known:
        own = own_class(scope)
        if own is not None and is_self(node.value):
            if node.attr in self.attributes[own]:
                return self.attributes[own][node.attr]
            if any(isinstance(each, ast.FunctionDef) and each.name == node.attr for each in own.body):
                return None
            return self.inherited(own, node, scope)
        if own is not None and isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()":
            return self.inherited(own, node, scope)
        base = self.type_of(node.value, scope)
        return self.member(base, node.attr, node) if isinstance(base, Thing) else None

    def inherited(self, own: ast.ClassDef, node: ast.Attribute, scope: Scope) -> Known:
        """Of the only base; a name that is set elsewhere, as in a with, is not missed."""
        if len(self.bases[own]) != 1 or len(own.bases) != 1 or not isinstance(node.ctx, ast.Load):
            return None
        member = self.surface.member(Thing("instance", self.bases[own][0].name), node.attr)
        if isinstance(member, Missing) and node.attr in names_set(own):
            return None
        return self.known(member, node)

    def called(self, node: ast.Call, scope: Scope) -> Known:
        if isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) > 1:
            base = self.type_of(node.args[0], scope)
            things = (
                [self.member(base, name, node) for name in constants(node.args[1])] if isinstance(base, Thing) else []
            )
            return things[0] if things and all(each == things[0] for each in things) else None
        function = self.type_of(node.func, scope)
        if isinstance(function, Thing):
            return self.surface.result(function)
        if isinstance(function, ast.FunctionDef):
            return self.annotated(function.returns, scope)
        return None

    def member(self, thing: Thing, name: str, node: ast.AST) -> Thing | None:
        return self.known(self.surface.member(thing, name), node)

    def known(self, member: Thing | Missing | None, node: ast.AST) -> Thing | None:
        if isinstance(member, Missing):
            self.wrong.add((getattr(node, "lineno", 0), member.message))
            return None
        if member is not None:
            self.seen.add(id(node))
        return member

    # what is looked at

    def check(self, of: ast.AST, scope: Scope) -> None:
        for node in own_nodes(of):
            if isinstance(node, ast.Call):
                self.check_call(node, scope)
            elif isinstance(node, ast.Attribute):
                base = self.type_of(node.value, scope)
                if isinstance(node.ctx, ast.Load) or (isinstance(base, Thing) and base.kind != "instance"):
                    self.attribute(node, scope)
            elif isinstance(node, FUNCTIONS) and node is not of:
                inner = Scope(scope, own=None)
                self.gather(node, inner)
                self.check(node, inner)
            elif isinstance(node, ast.ClassDef):
                for method in node.body:
                    inner = Scope(scope, own=node)
                    if isinstance(method, FUNCTIONS):
                        self.gather(method, inner)
                    self.check(method, inner)

    def check_call(self, node: ast.Call, scope: Scope) -> None:
        self.called(node, scope)
        function = self.type_of(node.func, scope)
        if not isinstance(function, Thing) or not function.ways:
            return
        self.bound.add(id(node))
        stars = [each for each in node.args if isinstance(each, ast.Starred)]
        keywords = [each.arg for each in node.keywords if each.arg]
        some = bool(stars) or len(keywords) < len(node.keywords)
        why = misfit(function, len(node.args) - len(stars), keywords, some)
        if why:
            self.wrong.add((node.lineno, why))


def own_class(scope: Scope | None) -> ast.ClassDef | None:
    while scope is not None:
        if scope.own is not None:
            return scope.own
        scope = scope.parent
    return None


def own_nodes(of: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a module or function, of what is defined inside only the head."""
    waiting = list(ast.iter_child_nodes(of))
    while waiting:
        node = waiting.pop(0)
        yield node
        if isinstance(node, ast.ClassDef):
            waiting[:0] = [*node.bases, *node.decorator_list]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting[:0] = [*node.decorator_list, *node.args.defaults, *(each for each in node.args.kw_defaults if each)]
        elif not isinstance(node, ast.Lambda):
            waiting[:0] = ast.iter_child_nodes(node)


def names_set(own: ast.ClassDef) -> set[str]:
    return {node.attr for node in ast.walk(own) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}


def pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """(target, its value) also of a, b = x, y; None: a part of the value."""
    for target in node.targets:
        if not isinstance(target, ast.Tuple):
            yield target, node.value
        elif isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(target.elts):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield from ((part, None) for part in target.elts)


def stored(target: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def main(paths: list[str]) -> int:
    surface = Surface()
    outdated = surface.outdated()
    if outdated:
        print(outdated)
        return 1
    names = calls = wrong = 0
    for path in [Path(path).resolve() for path in paths] or sources():
        file = File(path.read_text(), surface)
        names, calls, wrong = names + len(file.seen), calls + len(file.bound), wrong + len(file.wrong)
        for line, what in sorted(file.wrong):
            print(f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{line}: {what}")
    print(f"{names} names and {calls} calls, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
