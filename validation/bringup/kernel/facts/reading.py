"""Reading raw/: each file by the reader that is listed for its name."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bringup import registry
from bringup.kernel.facts import speakers
from bringup.kernel.facts.parser_result import Parsed, shortened
from bringup.kernel.facts.speakers import Speakers
from bringup.kernel.plan.subjects import scale_of_file
from bringup.kernel.records import Run, files

RAW = "raw"
Windows = Mapping[str, tuple[float, float]]  # node -> begin and end of the measured steps, unix s, its own clock
_LOGS = {".err", ".log"}  # in which anybody writes; tables and facts have lines that must be whole
_NEVER_IN_PART = {f"{RAW}/monitor.csv"}  # half of the samples would be a sampler that stopped


@dataclass(frozen=True)
class File:
    path: Path
    where: str  # raw/collectives-2.jsonl
    text: str
    name: re.Match[str]
    run: Run
    steps: Windows | None  # of a training that finished

    @property
    def scale(self) -> str:
        return scale_of_file(self.name["scale"])

    @property
    def speakers(self) -> Speakers:
        return speakers.of_file(self.path.stem, self.run, step_beside(self.path))


Reader = Callable[[File], Parsed]


def read_raw(folder: Path, run: Run, steps: Windows | None = None) -> Parsed:
    """Read all that stands in raw/. steps: of a training that finished, its measured steps by node. Bad evidence is
    reported as a problem; it never raises."""
    parsed = Parsed()
    paths, others = files.below(folder / RAW)
    parsed.problems += [f"{path.relative_to(folder).as_posix()}: {why}" for path, why in sorted(others.items())]
    for path in paths:
        below = path.relative_to(folder / RAW).as_posix()
        for pattern, reader in patterns().items():
            name = pattern.fullmatch(below)
            if name is not None and (text := read_text(parsed, path, f"{RAW}/{below}")) is not None:
                parsed.add(with_source(reader(File(path, f"{RAW}/{below}", text, name, run, steps)), name))
    for module in registry.READERS:
        for together in registry.called(module).TOGETHER:
            together(parsed, folder, run)
    return parsed


@cache
def patterns() -> dict[re.Pattern[str], Reader]:
    """Return the names of files below raw/, each with its reader. No two match the same name."""
    modules = [registry.called(module) for module in registry.READERS]
    return {re.compile(pattern): reader for module in modules for pattern, reader in module.FILES.items()}


def with_source(parsed: Parsed, name: re.Match[str]) -> Parsed:
    """Return what was read, with its step and round, where the name of the file has them."""
    source = name.groupdict()
    if (step := source.get("step")) is None:
        return parsed
    of_file = {"step": step, "round": int(source.get("round") or 0) or None}
    return Parsed([seen.model_copy(update=of_file) for seen in parsed.observations], parsed.problems)


def read_text(parsed: Parsed, path: Path, where: str) -> str | None:
    """Return the text with its carriage returns, so that lines are numbered as by grep -n. A file that cannot be read
    is a problem; so is the end of one that is too long."""
    try:
        most = files.MOST_OF_A_LOG if path.suffix in _LOGS else files.MOST_BYTES
        run_folder = next(folder.parent for folder in path.parents if folder.name == RAW)
        content = files.read(path, run_folder, most)  # no part of what is in raw/ may be a link, raw/ neither
    except OSError as error:
        parsed.note(f"{where}: cannot be read: {error.strerror}")
        return None
    if content.left_out:
        parsed.note(f"{where}: its last {content.left_out} bytes were not read: it is longer than others")
        if where in _NEVER_IN_PART:
            return None
    return shortened(content.text) if path.suffix in _LOGS else content.text


def step_beside(path: Path) -> str | None:
    """Which tasks wrote the file, as the script wrote it down. None: it did not."""
    beside = path.with_suffix(".step")
    return (read_text(Parsed(), beside, "") or "") if os.path.lexists(beside) else None
