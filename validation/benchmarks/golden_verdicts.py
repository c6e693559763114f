"""Judge every recorded run, and compare with the verdicts and words that are stored in expected/.

    python validation/benchmarks/golden_verdicts.py            # a line for each verdict that differs; exit code 1
    python validation/benchmarks/golden_verdicts.py --words    # also words that differ, as a unified diff; exit code 1
    python validation/benchmarks/golden_verdicts.py --accept   # store the words; refused while a verdict differs
    python validation/benchmarks/golden_verdicts.py --accept-verdicts     # store both

Names of recordings (local-faults) after the options: these alone.
"""

import argparse
import difflib
import functools
import io
import json
import lzma
import os
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import altered
from bringup.cli import parser
from bringup.drill import catalogue as drills
from bringup.kernel.judge import Judged
from bringup.kernel.plan import catalogue
from bringup.kernel.records import as_json
from bringup.kernel.results import RUN
from bringup.readers.known.exit_codes import EXIT_CODES
from bringup.readers.known.signatures import SIGNATURES
from bringup.report import collection, document, drain, explain, view

HERE = Path(__file__).resolve().parents[2] / "tests/golden"
EXPECTED = HERE / "expected"
CATALOGUE = "catalogue"
VERDICT = ("outcome", "kind", "value", "unit", "rule", "limit", "at", "action", "evidence", "blocked_by")
WORDS = ("observed", "expected", "fails", "cause", "basis", "fix")

Facts = dict[str, object]


class Golden(NamedTuple):
    facts: dict[str, Facts]  # by what they are about: all of them must be equal
    words: dict[str, str]  # a text for people, by what it is about


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("recordings", nargs="*", metavar="RECORDING")
    for option in ("--words", "--accept", "--accept-verdicts"):
        arguments.add_argument(option, action="store_true")
    chosen = arguments.parse_args()
    names = chosen.recordings or recordings()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        judged_now = dict(zip(names, pool.map(golden_of, names), strict=True))
    wrong = [f"{name}: {line}" for name in names for line in differences(stored(name).facts, judged_now[name].facts)]
    reworded = [line for name in names for line in diff(name, stored(name).words, judged_now[name].words)]
    print("\n".join(wrong + (reworded if chosen.words else [])) or "all verdicts are as stored")
    print(f"{len(wrong)} differences of verdicts; {len(reworded)} lines of the diff of words", file=sys.stderr)
    if chosen.accept_verdicts or (chosen.accept and not wrong):
        for name in names:
            store(name, judged_now[name])
        return 0
    return 1 if wrong or (chosen.words and reworded) else 0


def recordings() -> list[str]:
    return [CATALOGUE, *sorted(path.name.removesuffix(".tar.xz") for path in (HERE / "recordings").glob("*.tar.xz"))]


def golden_of(name: str, *, whole: bool = True) -> Golden:
    """Return what is said now of a recording; whole: of its altered copies, too."""
    if name == CATALOGUE:
        return of_catalogue()
    with tempfile.TemporaryDirectory(prefix="bringup-golden-") as folder:
        place = Path(folder).resolve()
        with tarfile.open(HERE / f"recordings/{name}.tar.xz") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(place)
        with gates_of_recordings(), no_terminal():
            golden = of_runs(place, whole)
    return Golden(golden.facts, {about: words.replace(str(place), "/golden") for about, words in golden.words.items()})


@contextmanager
def gates_of_recordings() -> Iterator[None]:
    """A gate without evidence would make every recording incomplete, and so hide what changes."""
    known = dict(catalogue.GATES)
    for gate in known.keys() - planned_in_recordings():
        del catalogue.GATES[gate]
    try:
        yield
    finally:
        catalogue.GATES.clear()
        catalogue.GATES.update(known)


@functools.cache
def planned_in_recordings() -> set[str]:
    """Return the gates that were in the catalogue when the runs were recorded: a plan names each, also those that do
    not apply."""
    gates: set[str] = set()
    for path in (HERE / "recordings").glob("*.tar.xz"):
        with tarfile.open(path) as archive:
            for entry in archive:
                if Path(entry.name).name == RUN and (file := archive.extractfile(entry)) is not None:
                    run = json.load(file)
                    gates |= {*run["planned"], *(left_out["gate"] for left_out in run["not_applicable"])}
    return gates


@contextmanager
def no_terminal() -> Iterator[None]:
    """Screens are as wide as the terminal, and must not differ with it."""
    with redirect_stdout(io.StringIO()), mock.patch.dict(os.environ):
        os.environ.pop("COLUMNS", None)
        yield


def of_runs(place: Path, whole: bool) -> Golden:
    golden = Golden({}, {})
    for healthy in list(place.glob("*-healthy")) if whole else ():
        altered.copies(healthy)
    for recording in sorted(place.iterdir()):
        gathered = collection.gather(sorted(path.parent for path in recording.rglob(RUN)))
        for judged in gathered.judged:
            add_run(golden, judged.folder.relative_to(place).as_posix(), judged)
        for absent in gathered.absent:
            golden.facts[f"{recording.name} {absent.phase}"] = {"outcome": "cannot be judged"}
        for answer in gathered.answers:
            about = f"{recording.name} question {answer.question}"
            golden.facts[about] = {"mark": answer.mark, **{claim.claim: claim.mark for claim in answer.claims}}
            golden.words[about] = lines(as_json(answer))
        drained = [entry.line for entry in drain.proposals(gathered.judged)]
        golden.words[f"{recording.name} drain"] = "\n".join(drained)
    return golden


def add_run(golden: Golden, run: str, judged: Judged) -> None:
    verdicts = judged.verdicts
    for verdict in verdicts.verdicts:
        data, about = as_json(verdict), f"{run} {verdict.gate} [{verdict.subject}]"
        golden.facts[about] = {name: data[name] for name in VERDICT}
        golden.words[about] = lines({name: data[name] for name in WORDS})
    golden.facts[run] = {
        "outcome": verdicts.outcome,
        "not_applicable": sorted(entry.gate for entry in verdicts.not_applicable),
        "signs": [f"{sign.signature} {sign.evidence} {sign.count}" for sign in verdicts.signs],
    }
    golden.words[f"{run} report"] = document.run(judged)
    golden.words[f"{run} notes"] = "\n".join(verdicts.notes)
    golden.words[f"{run} screen"] = view.screen(judged)
    golden.words[f"{run} explain"] = explain.screen(judged)


def of_catalogue() -> Golden:
    golden = Golden({}, {})

    def add(about: str, data: Facts, *words: str) -> None:
        golden.words[about] = lines({name: data.pop(name) for name in words})
        golden.facts[about] = data

    for gate in catalogue.GATES.values():
        data = gate.model_dump(mode="json", exclude={"fold", "guide", "no_drill"}) | as_json(gate.guide)
        data |= {"action": gate.helps}
        add(f"gate {gate.id}", data, "proves", "fails", "title", "page", "next")
        if gate.no_drill is not None:
            add(f"without a drill {gate.id}", as_json(gate.no_drill), "reason")
    for drill in drills.DRILLS:
        add(f"drill {drill.id}", as_json(drill), "fault", "says")
    for signature in SIGNATURES.values():
        add(f"signature {signature.id}", as_json(signature), "cause", "do")
    golden.facts["exit codes"] = {str(code): "known" for code in EXIT_CODES}
    verbs = next(action.choices for action in parser()._actions if isinstance(action.choices, dict))
    golden.facts["verbs"] = {verb: "there" for verb in verbs}
    return golden


def lines(data: Facts) -> str:
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in data.items()
    )


def differences(before: dict[str, Facts], after: dict[str, Facts]) -> Iterator[str]:
    if not before:
        yield "nothing is stored of it"
        return
    for about in sorted({*before, *after}):
        if about not in before or about not in after:
            yield f"{about}: {'is gone' if about in before else 'is new'}"
            continue
        # as JSON: 1, 1.0 and true differ
        old, new = ({name: json.dumps(fact) for name, fact in facts[about].items()} for facts in (before, after))
        changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        if changed:
            yield f"{about}: {'; '.join(f'{name} {old.get(name)} -> {new.get(name)}' for name in changed)}"


def diff(name: str, before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    for about in sorted({*before, *after}):
        old, new = before.get(about, ""), after.get(about, "")
        if old != new:
            yield from difflib.unified_diff(
                old.splitlines(), new.splitlines(), f"{name}: {about}", "now", lineterm="", n=1
            )


def stored(name: str, *, whole: bool = True) -> Golden:
    copies = f"{name}-"  # a recording of a healthy cluster has its own name inside

    def read(kind: str) -> dict:
        path = EXPECTED / f"{name}.{kind}.jsonl.xz"
        text = lzma.decompress(path.read_bytes()).decode() if path.exists() else ""
        entries = dict(json.loads(line) for line in text.split("\n") if line)
        return entries if whole else {about: of for about, of in entries.items() if not about.startswith(copies)}

    return Golden(read("verdicts"), read("words"))


def store(name: str, golden: Golden) -> None:
    """A line for each thing, sorted: [what it is about, its facts or its words]."""
    EXPECTED.mkdir(exist_ok=True)
    for kind, entries in (("verdicts", golden.facts), ("words", golden.words)):
        written = "".join(f"{json.dumps([about, entries[about]], ensure_ascii=False)}\n" for about in sorted(entries))
        (EXPECTED / f"{name}.{kind}.jsonl.xz").write_bytes(lzma.compress(written.encode(), preset=9))


if __name__ == "__main__":
    sys.exit(main())
