"""A soak under way: rotation after rotation, until time is over or enough is known."""

import itertools
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bringup.kernel import results as runs
from bringup.kernel.answers import not_real
from bringup.kernel.characters import many, plain
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Outcome, read_record, write_record, write_text
from bringup.kernel.results import REPOSITORY
from bringup.report import text
from bringup.report.campaigns import Playbook
from bringup.report.render import render
from bringup.run import open as opening
from bringup.run import playbook
from bringup.run.launch import stoppable
from bringup.soak import counted, drift
from bringup.soak.records import KINDS, Fault, Rotation, Soak, Without, kind_of, proven

SOAKS, RECORD, DOCUMENT = runs.SOAKS, runs.SOAK, "soak.md"
REFERENCE = "run_1gpu"
LOAD_S = "600"  # of the node sweep; its job has half an hour
BARREN = 2  # rotations in a row that count no hour end the soak


def enough(soak: Soak, now_s: float = 0.0) -> str | None:
    """Say why a soak ends. None: it goes on. now_s: seconds of the rotation under way."""
    is_known = bool(soak.proven) and all(each.lacks == 0 for each in soak.proven if each.asked)
    if soak.until and is_known and not soak.suspected:
        return f"each bound of --until is known: {', '.join(f'{kind}={hours:g}' for kind, hours in soak.until.items())}"
    if soak.hours is not None and soak.seconds + now_s >= 3600 * soak.hours:
        return f"{soak.hours:g} hours are over"
    if not soak.healthy:
        return "no node is left"
    if len(last := soak.rotations[-BARREN:]) == BARREN and not any(any(each.hours.values()) for each in last):
        return f"{BARREN} rotations in a row counted no hour without a fault"
    return None


def planned(soak: Soak, nodes: Sequence[str]) -> list[str]:
    """Return the phases of the next rotation: one training of several, in turn. A training is compared with one on one
    GPU, which is measured again when the nodes have changed."""
    possible = [stem for stem in soak.phases if PHASES[stem].lacks(len(nodes), soak.gpus_per_node) is None]
    trainings = [stem for stem in possible if PHASES[stem].is_training and stem != REFERENCE]
    wide = [stem for stem in trainings if PHASES[stem].min_nodes > 1] or trainings
    chosen = [wide[len(soak.rotations) % len(wide)]] if wide else []
    is_new = not soak.rotations or soak.rotations[-1].nodes != nodes
    if REFERENCE in possible and (is_new or not wide):
        chosen = [REFERENCE, *chosen]
    return [*(stem for stem in possible if not PHASES[stem].is_training), *chosen]


class _Work(playbook.Work):
    def show(self, screen: str, seconds: float) -> None:
        """Show a phase that did not pass, in its first lines: the page of its rotation has all of it."""
        if self.judged[-1].verdicts.outcome in (Outcome.FAIL, Outcome.INCOMPLETE):
            self.console.print("\n".join(screen.split("\n")[:4]))


@dataclass
class Soaking:
    folder: Path
    soak: Soak
    request: playbook.Request
    console: Console

    def go(self) -> int:
        self._save()  # --resume may ask for more
        with stoppable(self.console, f"bringup soak --resume {self.soak.name}"):
            while (why := enough(self.soak)) is None:
                self._rotate()
        self._save(ended=why)
        if self.soak.not_real:
            self.console.print(f"{'NOT PROVEN':<10} there was a placeholder for {', '.join(self.soak.not_real)}")
        self.console.print(f"{'ENDED':<10} {why}\nreport: {text.shown_path(self.folder / DOCUMENT)}")
        if self.soak.exit_code:
            self.console.print(f"next: bringup explain {self.soak.name}-N, of a rotation; the report names them")
        return self.soak.exit_code

    def _rotate(self) -> None:
        begun, began_at, number = time.monotonic(), opening.now(), len(self.soak.rotations) + 1
        nodes, suspect = self.soak.healthy, None
        if self.soak.rotations and not any(self.soak.rotations[-1].hours.values()) and len(nodes) > 1:
            # scripts run on the first node: where they cannot begin, no job says whose fault it is
            suspect, *nodes = nodes
        queue = deque(planned(self.soak, nodes))
        folder, kept, book = self._begin(number, nodes, list(queue))
        work = _Work(self.request, self.console, self.soak.gpus_per_node, kept, folder, book)
        work.title, work.environment = f"rotation {number}, ", {"BRINGUP_LOAD_S": LOAD_S}
        while queue and (not work.judged or enough(self.soak, time.monotonic() - begun) is None):
            before = len(work.playbook.unhealthy_nodes)
            work.do(PHASES[queue.popleft()], queue)
            if len(work.playbook.unhealthy_nodes) > before:  # the batch of a training is that of all nodes
                queue = deque(stem for stem in queue if not PHASES[stem].is_training)
        playbook.answered(work.playbook, work.judged, folder)
        out = [entry.node for entry in work.playbook.unhealthy_nodes]
        failures = {" ".join(place): (place, of) for place, of in counted.faults(work.judged, out).items()}
        standing = self.soak.rotations[-1].failing if self.soak.rotations else []
        doubtful = [name for name, failed in failures.items() if counted.is_doubtful(*failed, out)]
        suspected = [name for name in doubtful if name not in (*standing, *self.soak.suspected)]
        rotation = Rotation(
            number=number,
            playbook=text.shown_path(folder),
            began_at=began_at,
            seconds=round(time.monotonic() - begun, 3),
            nodes=nodes,
            phases=[judged.run.phase for judged in work.judged],
            hours=counted.hours(work.judged),
            failing=[name for name in failures if name not in suspected],
            suspected=suspected,
        )
        new = [counted.as_fault(*failures[name], number) for name in rotation.failing if name not in standing]
        self._add(rotation, new, work, suspect)

    def _begin(self, number: int, nodes: list[str], stems: list[str]) -> tuple[Path, playbook.Kept, Playbook]:
        """Make the folder of a rotation. What an earlier start of it has finished is kept; its jobs are waited for."""
        kept: playbook.Kept = {}
        name = f"{self.soak.name}-{number}"
        for again in itertools.count(1):
            own = name if again == 1 else f"{name}-again{again}"
            folder = REPOSITORY / runs.PLAYBOOKS / own
            if not folder.exists():
                break
            earlier = read_record(folder / runs.PLAYBOOK, Playbook)
            kept |= playbook.passed_before(folder, earlier, stems, self.request.profile.closed, self.console)
        folder.mkdir(parents=True)
        profile, site = self.request.profile.name, self.soak.site
        book = Playbook(name=own, nodes=nodes, profile=profile, site=site, planned=stems, left_out=[], steps=[])
        write_record(folder / runs.PLAYBOOK, book)
        return folder, kept, book

    def _add(self, rotation: Rotation, faults: list[Fault], work: playbook.Work, suspect: str | None) -> None:
        soak, when = self.soak, dict[str, Any](at=opening.now(), rotation=rotation.number)
        speeds = soak.speeds | {
            name: [*(point for point in soak.speeds.get(name, []) if point[0] != soak.seconds), (soak.seconds, value)]
            for name, value in counted.speeds(work.judged)
        }
        # what is measured no more does not drift
        slower = drift.changes({name: points for name, points in speeds.items() if points[-1][0] == soak.seconds})
        known = {(each.kind, each.place) for each in soak.faults if each.change is not None}
        for (gate, place), by in slower.items():
            kind, says = kind_of(gate), f"{by:+.1%} against its first hour"
            if place != drift.ALL and (kind, place) not in known:
                known.add((kind, place))
                at = {"kind": kind, "place": place, "gate": gate, "run": rotation.playbook, **when}
                faults.append(Fault(**at, says=says, change=by))
        out = [Without(**each.model_dump(), **when) for each in work.playbook.unhealthy_nodes]
        if suspect is not None and any(rotation.hours.values()):
            says, run = "with it no job could be judged, and without it they could", soak.rotations[-1].playbook
            out.append(Without(node=suspect, phase=rotation.phases[0], why=says, **when))
            faults.append(Fault(kind="node", place=suspect, gate="run.closed", run=run, says=says, **when))
        remarks = counted.remarks(work.judged, [each.node for each in out])
        remarks |= {f"WARN {name} [{who}]: slower than in the first hour" for name, who in slower if who == drift.ALL}
        remarks |= {f"SLOW {name}: no fault, unless the next rotation says so again" for name in rotation.suspected}
        of_runs = ((judged, [verdict.gate for verdict in judged.verdicts.verdicts]) for judged in work.judged)
        self._save(
            rotations=[*soak.rotations, rotation],
            faults=[*soak.faults, *faults],
            without=[*soak.without, *out],
            speeds=speeds,
            remarks=soak.remarks | {words: soak.remarks.get(words, 0) + 1 for words in sorted(remarks)},
            not_real=sorted({*soak.not_real, *(name for run, gates in of_runs for name in not_real(run, gates))}),
        )
        for each in faults:
            self.console.print(f"{'FAULT':<10} {each.at} {each.place}: {each.kind}: {each.gate}: {plain(each.says)}")
        phases, nodes = many(len(rotation.phases), "phase"), many(len(rotation.nodes), "node")
        ran = f"{phases} on {nodes} in {rotation.seconds:.0f} s; {self.soak.seconds / 3600:.2f} h of soak"
        self.console.print(f"{'ROTATION':<10} {rotation.number}: {ran}; with 95 %:")
        self.console.print(text.columns(HEADER, rows(self.soak)), highlight=False)

    def _save(self, **fields: object) -> None:
        soak = self.soak.model_copy(update=fields)
        hours = {kind: round(sum(each.hours.get(kind, 0.0) for each in soak.rotations), 6) for kind in KINDS}
        known = proven(hours, (fault.kind for fault in soak.faults), soak.until)
        self.soak = soak.model_copy(update={"proven": known})
        write_record(self.folder / RECORD, self.soak, replace=True)
        document = render("soak.md.j2", soak=self.soak, header=HEADER, rows=rows(self.soak))
        write_text(self.folder / DOCUMENT, document, replace=True)


HEADER = ("fault", "looked for", "found", "at most one in", "asked", "to go")


def rows(soak: Soak) -> list[list[str]]:
    """Write a row for each kind. to go: hours of soak, as it went so far."""
    made = []
    for each in soak.proven:
        asked, to_go = ("", "") if each.asked is None else (f"{each.asked:g}", "known")
        if each.lacks:
            to_go = f"about {each.lacks / each.hours * soak.seconds / 3600:.3g} h" if each.hours else "not known"
        hours = f"{each.hours:.3g} {each.counts}-hours"
        made.append([each.kind, hours, str(each.faults), f"{each.bound:.3g}", asked, to_go])
    return made
