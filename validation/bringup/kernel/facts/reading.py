"""Reading raw/: each file by the reader that is listed for its name."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath

from bringup import registry
from bringup.kernel.facts import speakers
from bringup.kernel.facts.parser_result import Parsed, shortened
from bringup.kernel.facts.speakers import Speakers
from bringup.kernel.plan.subjects import scale_of_file
from bringup.kernel.records import Run, files
from bringup.kernel.results import RAW
from bringup.kernel.run_folder import RunFolder

Windows = Mapping[str, tuple[float, float]]  # node -> begin and end of the measured steps, unix s, its own clock
_LOGS = (".err", ".log")  # in which anybody writes; tables and facts have lines that must be whole
_NEVER_IN_PART = {f"{RAW}/monitor.csv"}  # half of the samples would be a sampler that stopped


@dataclass(frozen=True)
class File:
    folder: RunFolder
    where: str  # raw/collectives-2.jsonl
    text: str
    name: re.Match[str]
    steps: Windows | None  # of a training that finished

    @property
    def run(self) -> Run:
        return self.folder.run

    @property
    def scale(self) -> str:
        return scale_of_file(self.name["scale"])

    @property
    def speakers(self) -> Speakers:
        """Return which tasks wrote the file: as the script wrote it down beside it, where it did."""
        path = PurePosixPath(self.where)
        beside = path.with_suffix(".step").as_posix()
        step = (read_text(Parsed(), self.folder, beside) or "") if self.folder.is_there(beside) else None
        return speakers.of_file(path.stem, self.run, step)


Reader = Callable[[File], Parsed]


def read_raw(folder: RunFolder, steps: Windows | None = None) -> Parsed:
    """Read all that stands in raw/. steps: of a training that finished, its measured steps by node. Bad evidence is
    reported as a problem; it never raises."""
    parsed = Parsed(problems=[f"{name}: {why}" for name, why in sorted(folder.raw.others.items())])
    for where in folder.raw.files:
        below = where.removeprefix(f"{RAW}/")
        for pattern, reader in patterns().items():
            name = pattern.fullmatch(below)
            if name is not None and (text := read_text(parsed, folder, where)) is not None:
                parsed.add(with_source(reader(File(folder, where, text, name, steps)), name))
    for module in registry.READERS:
        for together in registry.called(module).TOGETHER:
            together(parsed, folder)
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


def read_text(parsed: Parsed, folder: RunFolder, where: str) -> str | None:
    """Return the text with its carriage returns, so that lines are numbered as by grep -n. A file that cannot be read
    is a problem; so is the end of one that is too long."""
    is_log = where.endswith(_LOGS)
    try:
        content = folder.read(where, files.MOST_OF_A_LOG if is_log else files.MOST_BYTES)
    except OSError as error:
        parsed.note(f"{where}: cannot be read: {error.strerror}")
        return None
    if content.left_out:
        parsed.note(f"{where}: its last {content.left_out} bytes were not read: it is longer than others")
        if where in _NEVER_IN_PART:
            return None
    return shortened(content.text) if is_log else content.text
