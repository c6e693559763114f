"""How small a fault is noticed: sentences, the table on the screen, and the page."""

from __future__ import annotations

from collections.abc import Sequence

from bringup.formulae.chance import share_within
from bringup.records import FaultLimit, LimitsReport, LimitTrial
from bringup.report.text import columns, table

_HEAD = ("fault", "gate", "smallest found", "found", "next smaller", "found there", "without the fault", "load")


def of(fault: FaultLimit, size: float | None) -> list[LimitTrial]:
    """The repeats of a size that were performed; null: without the fault."""
    return [trial for trial in fault.trials if trial.size == size and trial.found is not None]


def always(fault: FaultLimit, size: float) -> bool:
    trials = of(fault, size)
    return bool(trials) and all(trial.found for trial in trials)


def smallest(fault: FaultLimit) -> float | None:
    """The smallest size found each time, below no size that was missed. null: none was."""
    best = None
    for size in fault.sizes:
        if of(fault, size):
            if not always(fault, size):
                break
            best = size
    return best


def never_tried(fault: FaultLimit) -> bool:
    """Neither its largest sizes nor its absence could be judged."""
    return not any(trial.found is not None for trial in fault.trials if trial.size is not None) or not of(fault, None)


def counted(trials: Sequence[LimitTrial]) -> str:
    """`3 of 10`, with the bounds of the share (95 %)."""
    if not trials:
        return "not tried"
    hits = sum(bool(trial.found) for trial in trials)
    low, high = share_within(hits, len(trials))
    return f"{hits} of {len(trials)} ({100 * low:.0f} to {100 * high:.0f} %)"


def _size(fault: FaultLimit, size: float | None) -> str:
    return "none" if size is None else f"{size:g} {fault.unit}"


def _below(fault: FaultLimit) -> float | None:
    """The next smaller size than the smallest found that was repeated."""
    best = smallest(fault)
    later = fault.sizes if best is None else fault.sizes[fault.sizes.index(best) + 1 :]
    return next((size for size in later if of(fault, size)), None)


def trial(fault: FaultLimit, of_it: LimitTrial) -> str:
    words = {None: "NOT PERFORMED", True: "FOUND", False: "not found"}[of_it.found]
    if of_it.size is None and of_it.found is not None:
        words = "FALSE ALARM" if of_it.found else "quiet"
    what = "without the fault" if of_it.size is None else _size(fault, of_it.size)
    return f"{words:<14} {fault.drill} {what} ({of_it.seconds:.0f} s, load {of_it.load:g})"


def sentence(fault: FaultLimit) -> str:
    best, below = smallest(fault), _below(fault)
    if never_tried(fault):
        return f"{fault.drill}: could not be tried"
    at_best = (
        f"found each time at {_size(fault, best)}: {counted(of(fault, best))}"
        if best is not None
        else "in no size found each time"
    )
    smaller = f"; at {_size(fault, below)}: {counted(of(fault, below))}" if below is not None else ""
    performed = sum(trial.found is not None for trial in fault.trials)
    return (
        f"{fault.fault.replace('{size}', 'SIZE')}: {at_best}{smaller}; false alarms: {counted(of(fault, None))}; "
        f"{performed} of {len(fault.trials)} runs performed"
    )


def _load(fault: FaultLimit, done: LimitsReport) -> str:
    loads = [trial.load for trial in fault.trials]
    return f"load {min(loads):.1f} to {max(loads):.1f} on {done.cores} cores" if loads else "no load noted"


def _row(fault: FaultLimit, done: LimitsReport) -> tuple[str, ...]:
    best, below = smallest(fault), _below(fault)
    return (
        fault.fault.replace("{size}", "SIZE"),
        f"{fault.gate} [{fault.subject}]",
        ("could not be tried" if never_tried(fault) else "not found each time in any size")
        if best is None
        else _size(fault, best),
        "" if best is None else counted(of(fault, best)),
        "" if below is None else _size(fault, below),
        "" if below is None else counted(of(fault, below)),
        counted(of(fault, None)),
        _load(fault, done),
    )


def screen(done: LimitsReport) -> str:
    return columns((_HEAD[0], *_HEAD[2:7]), [(f.drill, *_row(f, done)[2:7]) for f in done.faults])


def markdown(done: LimitsReport) -> str:
    elsewhere = [
        (fault.drill, _size(fault, trial.size), alarm)
        for fault in done.faults
        for trial in (*fault.searched, *fault.trials)
        for alarm in trial.alarms
    ]
    where = "a local cluster made for it" if done.place == "local-cluster" else f"{done.cluster}, {done.profile}"
    return "\n".join(
        [
            "# How small a fault is found",
            "",
            f"`bringup drill --limits --repeat {done.repeat} --only {' '.join(fault.drill for fault in done.faults)}`, "
            f"on {where}, begun {done.opened_at}, "
            f"commit {(done.git_commit or 'unknown')[:12]}, {done.cores} cores.",
            "",
            "Found: the gate names the subject of the fault, and no other. Behind a share are its bounds (95 %,",
            "Clopper and Pearson). Nothing here speaks of another cluster or another load.",
            "",
            *table(_HEAD, (_row(fault, done) for fault in done.faults)),
            "",
            "Searched first, with one trial a size:",
            "",
            *(f"- {fault.drill}: {_searched(fault)}" for fault in done.faults),
            "",
            *(
                ["Accused besides, or not performed:", "", *table(("drill", "size", "what"), elsewhere), ""]
                if elsewhere
                else ["Nothing else was accused in any trial.", ""]
            ),
        ]
    )


def _searched(fault: FaultLimit) -> str:
    words = {None: "not performed", True: "found", False: "not found"}
    return ", ".join(f"{_size(fault, trial.size)} {words[trial.found]}" for trial in fault.searched)
