"""What health-check does: start the checks, compare their facts with the baseline, and say what was found.

It asks no Slurm and orders nothing. What it finds goes to standard output, to syslog and a log (what is new), and into
a file for Prometheus. What could not be told is no fault: it is printed, and said to syslog once it was so three times
in a row.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROBES = HERE / "probes" if (HERE / "probes").is_dir() else HERE.parent / "probes"
sys.path.insert(0, str(HERE))  # python3 -I leaves it out
sys.path.append(str(PROBES))

import baseline as baselines
import checks
import textfile
from own_files import objection
from state import Settings, State

FAULTY, UNKNOWN, FAILED = 3, 4, 5  # exit codes, of which health-check makes 1 and 2: Python gives 1 and 2 for a crash
PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
TIMES = 3  # in a row without an answer, before it is said


class Ended(BaseException):
    """SIGTERM: the caller does not want to wait any longer."""


def end(*_):
    raise Ended("it was ended by SIGTERM")


def main():
    signal.signal(signal.SIGTERM, end)
    parser = argparse.ArgumentParser(prog="health-check", description="Exit code 0, whatever it finds.")
    parser.add_argument("--all", action="store_true", help="print what passed, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--exit-code", action="store_true", help="0 no fault, 1 a fault, 2 it could not tell")
    parser.add_argument("--only", nargs="+", metavar="CHECK", help="these alone: gpus driver-log (default: all)")
    parser.add_argument("--repaired", action="store_true", help="what the driver has said until now is dealt with")
    parser.add_argument("--baseline", type=Path, default=HERE / "baseline.json", help="default: %(default)s")
    arguments = parser.parse_args()
    try:
        return look(arguments)
    except (Exception, Ended) as error:  # noqa: BLE001  a fault of this program is none of the node
        where = error.__traceback__
        while where.tb_next is not None:
            where = where.tb_next
        place = f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}"
        print(" ".join(f"{type(error).__name__}: {error} ({place})".split()))
        return FAILED


def look(arguments):
    begun = time.monotonic()
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    settings = Settings.read(HERE / "settings.json")
    state = State(settings, node)
    if arguments.repaired:
        state.repaired()
        return 0
    answers = asked(arguments, settings, state, node)
    seen = {
        "node": node,
        "at": time.time(),
        "boot": state.boot,
        "seconds": round(time.monotonic() - begun, 2),
        "answers": answers,
    }
    say_what_is_new(state, answers)
    for folder in {state.folder, settings.textfile_folder}:
        why = objection(folder)
        if why is not None:  # root writes into no folder of others
            state.log(f"{folder} is not used, and nothing is written there: {why}")
        elif folder == settings.textfile_folder:
            textfile.write(folder, seen)
    show(seen, arguments)
    outcomes = {each["outcome"] for each in answers}
    if baselines.FAULT in outcomes:
        return FAULTY
    return UNKNOWN if baselines.UNKNOWN in outcomes or not answers else 0


def asked(arguments, settings, state, node):
    """One answer per question: a dict with gate, outcome, words, action."""
    why = settings.problem or objection(HERE) or objection(PROBES)
    if why is not None:  # as root it would run what somebody else wrote
        return [could_not_tell("health-check", f"{why}; nothing was run")]
    try:
        limits = baselines.load(arguments.baseline, node)
    except baselines.NoBaseline as error:
        return [could_not_tell("baseline", str(error))]
    due = checks.of(HERE / "checks.d", arguments.only)
    environment = {
        "PATH": PATH + ":" + settings.tools_folder,  # last: it must not come before the system's own programs
        "LC_ALL": "C",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SLURMD_NODENAME": node,
        "BRINGUP_PROBES": str(PROBES),
        "BRINGUP_BASELINE": str(arguments.baseline),
    }
    if state.objection is None:
        environment["BRINGUP_STATE"] = str(state.folder)
    facts, unfinished, findings, hanging = checks.ask(due, environment, state.read("hanging"))
    limited = {entry["check"] for entry in limits}
    unfinished.update(
        (check.name, check.path.name + " wrote no facts") for check, _ in findings if check.name in limited
    )
    answers = baselines.judged(limits, facts, unfinished)
    answers += [of_a_site(check, finding) for check, finding in findings if check.name not in limited]
    answers += [  # of a site's own check: of ours, each of its gates is there
        could_not_tell("checks." + name, why) for name, why in unfinished.items() if name not in limited
    ]
    state.keep_hanging(hanging)
    state.keep_driver_log(facts, answers)
    return answers


def could_not_tell(gate, why):
    return {"gate": gate, "outcome": baselines.UNKNOWN, "words": why, "action": baselines.WATCH}


def of_a_site(check, finding):
    outcome = baselines.PASS if finding is None else baselines.outcome_of(check.action)
    return {
        "gate": "checks." + check.name,
        "outcome": outcome,
        "words": finding or "nothing found",
        "action": check.action,
    }


def say_what_is_new(state, answers):
    """To syslog and the log: a finding that is another one than at the last call, one that is gone, and at the third
    call in a row that a check could not tell. A check that is not asked now keeps what was said of it."""
    lines = state.read("lines")
    silent = {gate: times for gate, times in state.read("silent").items() if isinstance(times, int)}
    for each in answers:
        gate, before = each["gate"], lines.get(each["gate"])
        silent[gate] = silent.get(gate, 0) + 1 if each["outcome"] == baselines.UNKNOWN else 0
        if silent[gate] == TIMES:
            state.log("could not tell {} times in a row: {gate}: {words}".format(TIMES, **each))
        if each["outcome"] == baselines.PASS and lines.pop(gate, None) is not None:
            state.log(f"passes again: {gate}")
        elif each["outcome"] in (baselines.FAULT, baselines.WATCH) and each["words"] != before:
            lines[gate] = each["words"]
            state.log("{outcome}: {gate}: {words}; {action}".format(**each))
    state.keep("lines", lines)
    state.keep("silent", {gate: times for gate, times in silent.items() if times})


def show(seen, arguments):
    if arguments.json:
        print(json.dumps(seen))
        return
    for each in seen["answers"]:
        if arguments.all or each["outcome"] != baselines.PASS:
            words = "{outcome_:<8} {gate:<32} {words}".format(outcome_=each["outcome"].upper(), **each)
            print(words + ("; {action}".format(**each) if each["outcome"] == baselines.FAULT else ""))
    outcomes = [each["outcome"] for each in seen["answers"]]
    counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in baselines.OUTCOMES if outcome in outcomes)
    print("{node}: {counts} in {seconds:.1f} s; nothing was changed".format(counts=counts or "no answer", **seen))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
