"""The runs of this checkout, each by the name of its folder: listed, and found."""

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from bringup import registry
from bringup.kernel import results
from bringup.kernel.characters import many, meant
from bringup.kernel.errors import RecordError, RunError
from bringup.kernel.facts import hostlist
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Run, Verdicts, read_record
from bringup.report import text
from bringup.report.campaigns import DrillReport, Playbook, Sweep

LAST = "last"
_NAMED = 3  # runs of a message
_DRILLS = Path("validation/results/drill")
_WHOLE = {  # what holds further runs: its folder, and the record that shows it
    "playbook": (results.PLAYBOOKS, results.PLAYBOOK),
    "sweep": (results.SWEEPS, results.SWEEP),
    "drill": (_DRILLS, results.DRILLS),
    "preflight": (results.PREFLIGHTS, results.PREFLIGHT),
}
_OF_A_RUN = (results.RUN, results.METRICS, results.RUN_ARGS)  # the last two are enough for `compare`
_STAMP = re.compile(r"\d{8}-\d{6}")


class Known(NamedTuple):
    name: str  # a playbook's is also that of its phases
    what: str  # playbook, sweep, drill, soak, or the phase
    folder: Path

    @property
    def at(self) -> str:
        """Return when it began, UTC: as its name says, else as its folder does."""
        stamp = _STAMP.match(self.name)
        written = datetime.fromtimestamp(self.folder.stat().st_mtime, timezone.utc)
        return stamp[0] if stamp else written.strftime("%Y%m%d-%H%M%S")

    @property
    def row(self) -> tuple[str, str, str, str, str]:
        """Name, when, what, nodes, verdict."""
        try:
            what, nodes, verdict = self._record()
        except (RecordError, OSError):
            what, nodes, verdict = self.what, "", "cannot be read"
        when = f"{self.at[4:6]}-{self.at[6:8]} {self.at[9:11]}:{self.at[11:13]}"
        return self.name, when, what, nodes, verdict

    def _record(self) -> tuple[str, str, str]:
        if self.what == "playbook":
            book = read_record(self.folder / results.PLAYBOOK, Playbook)
            verdict = "not finished" if book.headline is None else book.headline.word
            what = " ".join(book.planned) if len(book.planned) < _NAMED else many(len(book.planned), "phase")
            return what, hostlist.shortened(book.nodes), verdict
        if self.what == "sweep":
            sweep = read_record(self.folder / results.SWEEP, Sweep)
            return f"sweep of {sweep.phase}", hostlist.shortened(sweep.nodes), f"{len(sweep.runs)} trainings"
        if self.what == "drill":
            drill = read_record(self.folder / results.DRILLS, DrillReport)
            return "drill", drill.place, f"{len(drill.results)} of {len(drill.planned)} drills"
        if self.what == "soak":
            what, nodes, verdict = registry.called(registry.SOAK_SHOWN)(self.folder)
            return what, hostlist.shortened(nodes), verdict
        run = read_record(self.folder / results.RUN, Run)
        judged = self.folder / results.VERDICTS
        outcome = text.MARK[read_record(judged, Verdicts).outcome] if judged.is_file() else "not judged"
        return self.what, hostlist.shortened(run.nodes), outcome


def listed() -> list[Known]:
    """List the runs and the soaks, the newest first; of the rotations of a soak none."""
    records = (results.REPOSITORY / results.SOAKS).glob(f"*/{results.SOAK}")
    soaks = [Known(path.parent.name, "soak", path.parent) for path in records]
    rotations = tuple(f"{soak.name}-" for soak in soaks)
    shown = [*soaks, *(run for run in newest_first() if not run.name.startswith(rotations))]
    return sorted(shown, key=lambda known: (known.at, known.name), reverse=True)


def newest_first() -> list[Known]:
    """List playbooks, sweeps, drills, and the runs of phases that belong to nothing larger."""
    whole = [
        Known(path.parent.name, what, path.parent)
        for what, (place, record) in _WHOLE.items()
        for path in (results.REPOSITORY / place).glob(f"*/{record}")
    ]
    names = {known.name for known in whole}
    longer = tuple(f"{name}-" for name in names)
    alone = [known for known in _of_phases() if known.name not in names and not known.name.startswith(longer)]
    shown = [known for known in [*whole, *alone] if known.what != "preflight"]
    return sorted(shown, key=lambda known: (known.at, known.name), reverse=True)


def _of_phases() -> Iterator[Known]:
    for stem, phase in PHASES.items():
        begin = f"{stem}-" if phase.is_training else ""
        for path in (results.REPOSITORY / phase.results).glob(f"{begin}*/{results.RUN}"):
            yield Known(path.parent.name.removeprefix(begin), stem, path.parent)


def called(name: str, what: str = "") -> Path:
    """Find the folder of a run by that folder, a file in it, its name, or as the `last` one. what: the kind that it has
    to be; empty: any that has verdicts. Raises RunError, whose line names the newest ones."""
    path, folder, within = Path(name), None, list[str]()
    try:
        path = path if path.exists() else results.REPOSITORY / name  # as screens print it
        if _holds_a_run(path):
            folder = path
        elif path.is_file():
            folder = path.parent if _holds_a_run(path.parent) else None
        elif path.is_dir():
            within = [inside.name for inside in path.iterdir() if _holds_a_run(inside)]
    except OSError:  # a folder of another user: who reads it says so
        return path
    if folder is not None and not what:
        return folder
    known = newest_first()
    of_kind = [run for run in known if (run.what == what if what else run.what != "drill")]
    if folder is None and not path.exists():
        same = [run for run in (*known, *_of_phases()) if name in (run.name, run.folder.name)]
        folder = next((run.folder for run in (of_kind if name == LAST else same)), None)
    if folder is not None and (not what or results.holds(folder, _WHOLE[what][1])):
        return folder
    if folder is not None:
        why = f"is no {what}"
    elif within:
        newest = next((run.folder.name for run in known if run.folder.name in within), "")
        also = f": {Path(name) / newest} is the newest" if newest else ""
        raise RunError(f"{name}: is the folder of several runs; name one of them{also}")
    else:
        why = "is a file of no run" if path.is_file() else "holds no run" if path.is_dir() else "no run is called so"
        why += "" if path.exists() else meant(name, [run.name for run in known])
    shown = "; ".join(f"{run.name} ({run.what})" for run in of_kind[:_NAMED])
    there = f"the newest are {shown}; `bringup runs` lists all" if shown else f"no {what or 'run'} is here yet"
    raise RunError(f"{name}: {why}; {there}")


def _holds_a_run(path: Path) -> bool:
    records = (*_OF_A_RUN, *(record for _, record in _WHOLE.values()))
    return any(results.holds(path, record) for record in records)
