"""What health-check, prolog and epilog do: ask the checks of the occasion, compare with the baseline, say, and act.

Shadow mode (the default) says what it would do, and does nothing. In drain mode
- the prolog and the epilog end with 1 for a fault. Slurm drains the node for it, and requeues the job of a prolog. They
  call no Slurm command;
- the health check tells Slurm a fault when it is new: one question (who drained the node?) and one order. While nothing
  changes it calls no Slurm command. It repeats both after an hour, for a node that was resumed with its fault;
- what somebody else drained keeps its reason. A fault that is gone is told once more: the node stays drained, with
  "passes again" in its reason, until `bringup resume-nodes --apply`;
- a fault that the driver reported and that is only out of its log (overwritten, or a reboot) is not gone: the reason
  then asks for a load, which `bringup resume-nodes --apply` runs.
What could not be told drains nothing and refuses no job.
"""

import argparse
import contextlib
import os
import socket
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # python3 -I leaves it out

import baseline as baselines
import checks
from kept import DRIVER_LOG, Kept, Settings, objection
from told import Slurm, SlurmAway, asks_for_a_load, in_reason, is_of_a_run, passes_again, reason_of

WHOLE_S = 4.7  # of the whole hook
AGAIN_S = 3600
IDLE = {"health-check": "idle"}  # the occasion that a check names
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def main():
    begun = time.monotonic()
    parser = argparse.ArgumentParser(prog="health-check")
    parser.add_argument("hook", choices=("health-check", "prolog", "epilog"))
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--repaired", action="store_true")
    parser.add_argument("--baseline", type=Path, default=HERE / "baseline.json")
    arguments = parser.parse_args()
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    settings = Settings.read(HERE / "settings.json")
    kept = Kept(settings, node)
    if arguments.repaired:
        return repaired(kept)
    if not arguments.show:
        kept.say_what_is_not_used(arguments.hook)
    why = objection(HERE) or objection(settings.probes)
    if why is not None:  # as root it would run what somebody else wrote
        return could_not_tell(arguments, kept, f"{why}; only root may, nothing was run")
    try:
        baseline, limits = baselines.load(arguments.baseline, node)
    except baselines.NoBaseline as error:
        return could_not_tell(arguments, kept, str(error))
    due = checks.of(HERE / "checks.d", IDLE.get(arguments.hook, arguments.hook))
    environment = {
        "PATH": PATH + ":" + settings.tools_folder,  # last: it must not come before the system's own programs
        "LC_ALL": "C",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SLURMD_NODENAME": node,
        "BRINGUP_OCCASION": IDLE.get(arguments.hook, arguments.hook),
        "BRINGUP_PROBES": str(settings.probes),
        "BRINGUP_BASELINE": str(arguments.baseline),
        "BRINGUP_STATE": str(kept.folder),
        "BRINGUP_MEMORY": str(kept.memory),
    }
    facts, unfinished, findings, hanging = checks.ask(due, environment, kept.hanging())
    limited = {entry["check"] for entry in limits}
    unfinished.update(
        (check.name, check.path.name + " wrote no facts") for check, _ in findings if check.name in limited
    )
    answers = baselines.judged(limits, facts, unfinished)
    answers += [
        {
            "gate": "checks." + check.name,
            "outcome": baselines.PASS if finding is None else baselines.FAULT,
            "words": finding or "nothing found",
            "action": check.action,
        }
        for check, finding in findings
        if check.name not in limited
    ]
    answers += [  # of a site's own check: of ours, each of its gates is there
        {"gate": "checks." + name, "outcome": baselines.UNKNOWN, "words": why, "action": baselines.WATCH}
        for name, why in unfinished.items()
        if name not in limited
    ]
    if arguments.show:
        return show(answers, time.monotonic() - begun)
    kept.keep_hanging(hanging)
    kept.keep_place(facts)
    faults = [each for each in answers if each["outcome"] == baselines.FAULT and each["action"] != baselines.WATCH]
    kept.keep_answers(arguments.hook, answers, round(time.monotonic() - begun, 2))
    if arguments.hook == "health-check":
        slurm = Slurm(settings, node, begun + WHOLE_S)
        health_check(baseline, faults, answers, kept, slurm, settings.drains)
        return 0
    return at_a_job(arguments.hook, baseline, faults, kept, settings.drains)


def could_not_tell(arguments, kept, why):
    print(f"{arguments.hook}: {why}", file=sys.stderr)
    if not arguments.show:
        kept.say(arguments.hook, f"could not tell: {why}")
    return 2 if arguments.show else 0


def at_a_job(hook, baseline, faults, kept, drains):
    if not faults:
        return 0
    reason = reason_of(baseline, faults, hook)
    kept.say(hook, "{}: {}".format("refuses the node" if drains else "shadow: would refuse the node", reason))
    if not drains:
        return 0
    kept.remember(faults)
    kept.keep("refused", {"hook": hook, "at": time.time(), "reason": reason})
    print(reason, file=sys.stderr)
    return 1


def health_check(baseline, faults, answers, kept, slurm, drains):
    """Says what is new; in drain mode tells it to Slurm. What is told is kept, so that it is told once."""
    last, refused = kept.read("told"), kept.read("refused")
    key = sorted({each["gate"] for each in faults})
    reason = reason_of(baseline, faults, "health-check") if faults else None
    now = {"boot": kept.boot, "mode": "drain" if drains else "shadow", "key": key}
    was_refused = refused.get("at", 0) > last.get("at", 0)
    is_new = was_refused or any(last.get(name) != value for name, value in now.items())
    is_due = bool(key or last.get("open")) and time.time() > last.get("at", 0) + AGAIN_S
    if not is_new and not is_due:
        return
    is_open = False
    if drains:
        try:
            why = refused.get("reason", "") if was_refused or last.get("open") else ""
            message, is_open = tell(baseline, reason, answers, slurm, why, is_new, kept)
            kept.remember(faults)
        except SlurmAway as error:  # told at the next call
            kept.say("health-check", f"could not tell Slurm: {error}")
            return
    elif faults:
        message = f"shadow: would drain: {reason}"
    else:
        message = "shadow: passes again" if last.get("key") else None
    if message is not None:
        kept.say("health-check", message)
    kept.keep("told", dict(now, at=time.time(), open=is_open))


def tell(baseline, reason, answers, slurm, refused, is_new, kept):
    """(what was done, in words, or None; whether it is still open whether the node passes again). Raises SlurmAway.

    refused: what a prolog or an epilog of ours said of which the health check has not told Slurm yet.
    """
    is_out, current = slurm.state()
    is_ours = current.startswith(baseline["owner"]) and not is_of_a_run(baseline, current)
    is_ours = is_ours or (bool(refused) and current in baseline["slurms_own"])
    if reason is not None:
        if is_out and current and not is_ours:
            return f"a fault, and somebody else keeps the node out ({in_reason(baseline, current)}): {reason}", False
        if is_out and is_ours and not is_new:
            return None, False  # as it was told, with its date
        slurm.drain(reason)
        return f"drained: {reason}", False
    if not (is_out and is_ours):
        if slurm.is_in_service:  # also not in the reservation in which `bringup resume-nodes` runs it under load
            kept.forget()
        return None, bool(kept.driver_fault())
    was = current if current.startswith(baseline["owner"]) else refused
    matching = [each for each in answers if each["gate"] in was]
    open_gates = {each["gate"] for each in matching if each["outcome"] != baselines.PASS}
    if open_gates == {DRIVER_LOG} and kept.driver_fault():
        asks = asks_for_a_load(baseline, was)
        if asks is not None:
            slurm.say(asks)
        return asks and f"told Slurm: {asks}", True
    if not matching or open_gates:
        return f"no fault, and what the node was drained for could not be told: {was}", True
    again = passes_again(baseline, was)
    if again is None:
        return None, False
    slurm.say(again)
    return f"told Slurm: {again}", False


def show(answers, seconds):
    for each in answers:
        print("{:<8} {:<36} {}".format(each["outcome"].upper(), each["gate"], each["words"]))
    outcomes = {each["outcome"] for each in answers}
    print(f"{len(answers)} answers in {seconds:.1f} s; nothing was done")
    return 1 if baselines.FAULT in outcomes else 2 if baselines.UNKNOWN in outcomes or not answers else 0


def repaired(kept):
    """Messages of the driver until now no longer count on this boot, and no fault of it is remembered."""
    kept.forget()
    kept.keep("driver-log", {"boot": kept.boot, "microseconds": int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)})
    kept.say("health-check", "what the driver has said until now counts as repaired")
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
