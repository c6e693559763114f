"""What health-check, prolog and epilog do: ask the checks of the occasion, compare with the baseline, say, and act.

Shadow mode (the default) says what it would do, and does nothing. In drain mode a fault that is new is told to Slurm
- through the brake (brake.py), which limits how many nodes bringup keeps out of service: two looks and one order. A
  node that it refuses stays in service; it is asked again after 10 minutes;
- by the prolog and the epilog, which then end with REFUSED: Slurm requeues the job of a prolog;
- by the health check, which also tells once more when the fault is gone: the node stays drained, with "passes again" in
  its reason, until `bringup resume-nodes --apply`. What somebody else drained keeps its reason.
While nothing changes no Slurm command is called; after an hour, for a node that was resumed with its fault.

A fault that the driver reported and that is only out of its log (overwritten, or a reboot) is not gone: the reason then
asks for a load, which `bringup resume-nodes --apply` runs.
What could not be told drains nothing and refuses no job. A hook that fails has no finding: syslog says why.
"""

import argparse
import contextlib
import os
import signal
import socket
import sys
import syslog
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # python3 -I leaves it out
if not (HERE / "brake.py").exists():  # in a checkout
    sys.path.append(str(HERE.parents[1] / "validation/bringup/run"))

import baseline as baselines
import checks
from kept import DRIVER_LOG, Kept, Settings, objection
from told import Slurm, SlurmAway, asks_for_a_load, in_reason, is_of_a_run, passes_again, reason_of

REFUSED = 3  # the only exit code of which Slurm hears
WHOLE_S = 8.0  # of the whole hook; hook.sh ends it after 9
AGAIN_S = 3600
BRAKED_S = 600
IDLE = {"health-check": "idle"}  # the occasion that a check names
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Ended(BaseException):
    """SIGTERM: Slurm does not want to wait any longer."""


def end(*_):
    raise Ended("it was ended by SIGTERM")


def main():
    signal.signal(signal.SIGTERM, end)
    parser = argparse.ArgumentParser(prog="health-check")
    parser.add_argument("hook", choices=("health-check", "prolog", "epilog"))
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--repaired", action="store_true")
    parser.add_argument("--baseline", type=Path, default=HERE / "baseline.json")
    arguments = parser.parse_args()
    try:
        return act(arguments)
    except (Exception, Ended) as error:  # noqa: BLE001  a hook that fails takes no node out of service
        where = error.__traceback__
        while where.tb_next is not None:
            where = where.tb_next
        place = f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}"
        words = " ".join(f"could not tell: {type(error).__name__}: {error} ({place})".split())
        print(f"{arguments.hook}: {words}", file=sys.stderr)
        if arguments.show or arguments.repaired:
            return 2
        syslog.openlog("bringup-" + arguments.hook)
        syslog.syslog(syslog.LOG_WARNING, "".join(letter if letter.isprintable() else "_" for letter in words))
        return 0


def act(arguments):
    begun = time.monotonic()
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    settings = Settings.read(HERE / "settings.json")
    kept = Kept(settings, node)
    if arguments.repaired:
        return repaired(kept)
    if settings.problem is not None:
        print(f"{arguments.hook}: {settings.problem}", file=sys.stderr)
        if not arguments.show:
            kept.say("settings", f"shadow mode: {settings.problem}")
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
    for check in due:
        if check.action not in baseline["actions"]:
            check.why = check.why or f"{check.path.name} was not run: its action is {check.action!r}"
    broken = "; ".join(check.why for check in due if check.why is not None)
    if broken and not arguments.show:
        print(f"{arguments.hook}: could not tell: {broken}", file=sys.stderr)
        kept.say("checks", f"could not tell: {broken}")
    environment = {
        "PATH": PATH + ":" + settings.tools_folder,  # last: it must not come before the system's own programs
        "LC_ALL": "C",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SLURMD_NODENAME": node,
        "BRINGUP_OCCASION": IDLE.get(arguments.hook, arguments.hook),
        "BRINGUP_PROBES": str(settings.probes),
        "BRINGUP_BASELINE": str(arguments.baseline),
        **kept.variables(),
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
    slurm = Slurm(settings, baseline, node, begun + WHOLE_S)
    work = health_check if arguments.hook == "health-check" else at_a_job
    return work(arguments.hook, baseline, faults, answers, kept, slurm, settings.drains)


def could_not_tell(arguments, kept, why):
    print(f"{arguments.hook}: could not tell: {why}", file=sys.stderr)
    if not arguments.show:
        kept.say(arguments.hook, f"could not tell: {why}")
    return 2 if arguments.show else 0


def at_a_job(hook, baseline, faults, answers, kept, slurm, drains):
    if not faults:
        return 0
    reason = reason_of(baseline, faults, hook)
    if not drains:
        kept.say(hook, f"shadow: would refuse the node: {reason}")
        return 0
    now = observed(kept, faults, drains)
    last = kept.read("told")
    if is_braked(kept, last, now):
        return 0
    try:
        nodes = slurm.brake.look()
        is_out, current = slurm.state(nodes)
        if is_out:  # with a job on it. Ours, and settled: the job is refused, too
            return REFUSED if last.get("drained") and is_ours(baseline, current) else 0
        is_drained, words = take_out(reason, kept, slurm, nodes)
    except SlurmAway as error:
        kept.say(hook, f"not drained: Slurm gave no answer: {error}; {reason}")
        return 0
    kept.say(hook, words)
    if is_drained is None:
        return 0
    kept.keep("told", dict(now, at=time.time(), open=False, drained=is_drained, braked=not is_drained))
    if is_drained:
        kept.remember(faults)
    print(words, file=sys.stderr)
    return REFUSED if is_drained else 0


def observed(kept, faults, drains):
    key = sorted({each["gate"] for each in faults})
    if not key and kept.driver_fault():
        key = ["a load is asked for"]
    return {"boot": kept.boot, "mode": "drain" if drains else "shadow", "key": key}


def is_braked(kept, last, now):
    """Whether the brake refused these faults, or more, a short time ago. A fault that comes and goes is not new."""
    return (
        bool(last.get("braked"))
        and kept.age("told") < BRAKED_S
        and all(last.get(name) == now[name] for name in ("boot", "mode"))
        and set(now["key"]) <= set(last.get("key", []))
    )


def take_out(reason, kept, slurm, nodes):
    """(whether the node is drained now, None where Slurm did not say, in words). A claim that is not settled, because
    the hook is killed or Slurm is away, is kept: the next health check settles it."""
    if not kept.is_alone() or not kept.keep("claim", {"reason": reason, "at": time.time()}):
        return None, f"not drained: {kept.folder} cannot be written, or another hook is at it; {reason}"
    (answer,) = slurm.brake.drain([(slurm.node, reason)], nodes)
    return settled(answer, reason, kept)


def settled(answer, reason, kept):
    if answer.is_drained is None:
        return None, f"not known whether the node is drained: {answer.why}; {reason}"
    kept.forget("claim")
    return answer.is_drained, f"drained: {reason}" if answer.is_drained else f"not drained: {answer.why}; {reason}"


def settle_again(hook, kept, slurm):
    """What a hook left behind that was killed after its claim. False: Slurm gave no answer, or a hook is at it."""
    reason = kept.read("claim").get("reason")
    if not isinstance(reason, str):
        return True
    if not kept.is_alone():
        return False
    (answer,) = slurm.brake.settle({slurm.node: reason}, {})
    is_drained, words = settled(answer, reason, kept)
    kept.say(hook, words)
    return is_drained is not None


def health_check(hook, baseline, faults, answers, kept, slurm, drains):
    """Says what is new; in drain mode tells it to Slurm. What is told is kept, so that it is told once."""
    if not settle_again(hook, kept, slurm):
        return 0
    last, now = kept.read("told"), observed(kept, faults, drains)
    reason = reason_of(baseline, faults, hook) if faults else None
    unproven = sorted(each["gate"] for each in answers if each["outcome"] != baselines.PASS)
    is_new = any(last.get(name) != value for name, value in now.items())
    is_new = is_new or bool(last.get("open") and last.get("unproven") != unproven)  # a check that was silent answers
    is_due = bool(faults or last.get("open")) and kept.age("told") > (BRAKED_S if last.get("braked") else AGAIN_S)
    if is_braked(kept, last, now) or not (is_new or is_due):
        return 0
    result = {"open": False, "drained": False, "braked": False}
    message = None
    if drains:
        try:
            message = tell(baseline, reason, answers, slurm, kept, is_new, result)
            if result["drained"]:
                kept.remember(faults)
        except SlurmAway as error:  # told at the next call
            kept.say(hook, f"could not tell Slurm: {error}")
            return 0
    elif faults:
        message = f"shadow: would drain: {reason}"
    elif last.get("key"):
        message = "shadow: passes again"
    if message is not None:
        kept.say(hook, message)
    if result["drained"] is not None:
        kept.keep("told", dict(now, at=time.time(), unproven=unproven, **result))
    return 0


def is_ours(baseline, reason):
    return reason.startswith(baseline["owner"]) and not is_of_a_run(baseline, reason)


def tell(baseline, reason, answers, slurm, kept, is_new, result):
    """What was done, in words, or None. result: what is kept of it; "open": it is open whether the node passes again.
    Raises SlurmAway."""
    nodes = None if reason is None else slurm.brake.look()
    is_out, current = slurm.state(nodes)
    if reason is not None:
        if not is_out:
            result["drained"], words = take_out(reason, kept, slurm, nodes)
            result["braked"] = result["drained"] is False
            return words
        if not is_ours(baseline, current):
            return f"a fault, and somebody else keeps the node out ({in_reason(baseline, current)}): {reason}"
        result["drained"] = True
        if not is_new:
            return None  # as it was told, with its date
        slurm.say(reason)
        return f"drained: {reason}"
    if not (is_out and is_ours(baseline, current)):
        if slurm.is_in_service:  # also not in the reservation in which `bringup resume-nodes` runs it under load
            kept.forget_driver_fault()
        result["open"] = bool(kept.driver_fault())
        return None
    matching = [each for each in answers if each["gate"] in current]
    open_gates = {each["gate"] for each in matching if each["outcome"] != baselines.PASS}
    result["open"] = not matching or bool(open_gates)
    if open_gates == {DRIVER_LOG} and kept.driver_fault():
        asks = asks_for_a_load(baseline, current)
        if asks is not None:
            slurm.say(asks)
        return asks and f"told Slurm: {asks}"
    if result["open"]:
        return f"no fault, and what the node was drained for could not be told: {current}"
    again = passes_again(baseline, current)
    if again is None:
        return None
    slurm.say(again)
    return f"told Slurm: {again}"


def show(answers, seconds):
    for each in answers:
        print("{:<8} {:<36} {}".format(each["outcome"].upper(), each["gate"], each["words"]))
    outcomes = {each["outcome"] for each in answers}
    print(f"{len(answers)} answers in {seconds:.1f} s; nothing was done")
    return 1 if baselines.FAULT in outcomes else 2 if baselines.UNKNOWN in outcomes or not answers else 0


def repaired(kept):
    """Messages of the driver until now no longer count on this boot, and no fault of it is remembered."""
    kept.keep_repaired()  # first: a hook at work remembers nothing after it
    kept.forget_driver_fault()
    kept.say("health-check", "what the driver has said until now counts as repaired")
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
