"""The names of torch, transformers and accelerate that a program may use, and how each is called: in surface.jsonl.

The first line of the file says which versions it belongs to. Each further line is a module, a class, or another object:

    of       its full name: torch.cuda, torch.cuda.streams.Event
    kind     module, class, or object (of which only the names that the project uses are known)
    part     it has more names than are listed (transformers has thousands): absent is not wrong, but not known
    base     the listed class that it is made from, which has its other names
    open     it makes names up when asked (nn.Module): absent is not wrong
    names    name -> what it is:
               module NAME, class NAME(...)     another line, if it is listed
               (...)->NAME                      called so, gives an instance of NAME; several ways are parted by |
               :NAME                            an instance of NAME
               empty                            a value

A way to call is a list of parameters without types: `a,b=,*,c=,**more`. `=`: it has a default. A method has no self,
and begins with @ when it is called on the class.
"""

import functools
import inspect
import json
import keyword
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("surface.jsonl")
PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
PACKAGES = ("torch", "transformers", "accelerate")
RENEW = "make it anew: make surface (it needs torch's CUDA build, no GPU)"
TENSOR = "torch.Tensor"


def pins() -> dict[str, str]:
    given = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]["train"]
    return {name: version for name, _, version in (line.partition("==") for line in given) if name in PACKAGES}


@dataclass(frozen=True)
class Thing:
    """What an expression is, as far as it is known. `kind`: module, class, object, call, instance."""

    kind: str
    name: str  # call: a name for messages
    ways: str = ""  # of a call or a class: how it is called, and what it gives


@dataclass(frozen=True)
class Missing:
    """A name that is not there. `sure`: the list holds every name of that place."""

    message: str


class Surface:
    def __init__(self, file: Path = FILE) -> None:
        self.file = file.name
        self.versions, *lines = map(json.loads, file.read_text().splitlines())
        self.places = {line["of"]: line for line in lines}

    def outdated(self) -> str | None:
        """It belongs to other versions than those that are pinned: in one line."""
        pairs = [(name, self.versions[name], pinned) for name, pinned in pins().items()]
        wrong = [f"{name} {listed}, pinned {pinned}" for name, listed, pinned in pairs if listed != pinned]
        return f"{self.file} belongs to {'; '.join(wrong)}: {RENEW}" if wrong else None

    def module(self, dotted: str) -> Thing | Missing | None:
        """An imported module. None: not one of the packages."""
        if dotted.partition(".")[0] not in PACKAGES:
            return None
        if dotted in self.places:
            return Thing("module", dotted)
        return Missing(f"{dotted} is not listed: {RENEW}, or there is no such module")

    def member(self, thing: Thing, name: str) -> Thing | Missing | None:
        """thing.name. None: not known."""
        if name.startswith("__") or thing.kind == "call":
            return None
        place = self.places.get(thing.name)
        if place is None:
            return None
        if name not in place["names"]:
            if "base" in place:
                return self.member(Thing(thing.kind, place["base"]), name)
            full = f"{thing.name}.{name}"
            if full in self.places:  # a submodule that is imported elsewhere
                return Thing("module", full)
            if place.get("open"):
                return None
            if place.get("part") or name.startswith("_"):
                return Missing(f"{full} is not listed: {RENEW}, or there is no such name")
            return Missing(f"there is no {full}")
        return self._read(place["names"][name], thing, name)

    def _read(self, text: str, thing: Thing, name: str) -> Thing | None:
        full = f"{thing.name}.{name}"
        if full in self.places and self.places[full]["kind"] == "object":
            return Thing("object", full)
        if text.startswith("module "):
            return Thing("module", text[len("module ") :])
        if text.startswith("class "):
            called, _, ways = text[len("class ") :].partition("(")
            return Thing("class", called, f"({ways}" if ways else "")
        if text.startswith(":"):
            return Thing("instance", text[1:])
        if text.startswith("@"):
            return Thing("call", full, text[1:])
        if text.startswith("("):  # on the class itself, self would be the first argument
            return None if thing.kind == "class" else Thing("call", full, text)
        return None

    def result(self, thing: Thing) -> Thing | None:
        """What calling it gives."""
        if thing.kind == "class":
            return Thing("instance", thing.name)
        given = thing.ways.partition("->")[2]
        return Thing("instance", given) if thing.kind == "call" and given else None


def misfit(thing: Thing, positional: int, keywords: list[str], some: bool) -> str | None:
    """Why a call does not fit, or None. `some`: there are further arguments, behind * or **."""
    if thing.kind not in ("call", "class") or not thing.ways:
        return None
    why = ""
    for way in thing.ways.partition("->")[0].split("|"):
        signature = signature_of(way)
        try:
            (signature.bind_partial if some else signature.bind)(*[None] * positional, **dict.fromkeys(keywords))
            return None
        except TypeError as error:
            why = str(error)
    ways = thing.ways.partition("->")[0].replace("|", " or ")
    return f"{thing.name}: {why}; it is called {ways}"


@functools.cache
def signature_of(way: str) -> inspect.Signature:
    """`(a,b=,*,c=)`. A name that Python keeps for itself (random_(from, to)) can be given by place alone."""
    names = re.sub(r"\w+", lambda name: f"{name[0]}_" if keyword.iskeyword(name[0]) else name[0], way[1:-1])
    return inspect.signature(eval(f"lambda {names.replace('=', '=None')}: None"))
