#!/usr/bin/env python3
"""What a batch job sees of the promises that Slurm made it. Started by smoke_jobs.sh, one job per question.

  array      this task's index, as the environment says it
  bad-exit   task 0 ends with code 3; any other task that is still there SURVIVE_S later says so
  warning    seconds until USR1 arrived, which is due DUE_S after the job's start; it is the batch script itself (exec),
             so that --signal=B: reaches it
  attempt    the how-manyth start of this job this is
Does not prove: that a training script handles any of it.
"""

import os
import re
import signal
import sys
import time

from facts import Facts
from tools import ran

SURVIVE_S = 10.0
FAIL_AFTER_S = 1.0
WARNING_PATIENCE_S = 45.0  # beyond the time at which it is due
EARLY_S = 30.0  # Slurm looks at time limits twice a minute
ATTEMPT_PATIENCE_S = 30.0


def array(facts):
    facts.saw("smoke.array.index", os.environ.get("SLURM_ARRAY_TASK_ID", "none"), "text", "job")


def bad_exit(facts):
    """Plain lines: most of these tasks are killed, and a killed task has no closing line."""
    print(f"{facts.at} began", flush=True)
    if os.environ.get("SLURM_PROCID") == "0":
        time.sleep(FAIL_AFTER_S)
        os._exit(3)
    time.sleep(SURVIVE_S)
    print(f"{facts.at} survived", flush=True)


def warning(facts, due_s=45.0):
    begun, prolog_s = time.monotonic(), since_the_start_of_the_job()
    # blocked, so that a signal which comes early waits for us
    arrived = signal.sigtimedwait({signal.SIGUSR1}, due_s + WARNING_PATIENCE_S)
    if arrived is None and prolog_s > due_s - EARLY_S:
        early = f"the signal was due from {max(due_s - EARLY_S, 0):.0f} to {due_s:.0f} s after the job's start"
        why = f"{early}, and its script began {prolog_s:.0f} s after it"
        facts.unknown("smoke.time_limit.warned", "flag", why, "job")
    elif arrived is None:
        facts.saw("smoke.time_limit.warned", False, "flag", "job")
    else:
        facts.saw("smoke.time_limit.warned", True, "flag", "job")
        facts.saw("smoke.time_limit.warned_after_s", round(time.monotonic() - begun, 1), "s", "job")


def since_the_start_of_the_job():
    """Seconds, of which a prolog takes most. Infinite where Slurm does not say when it began."""
    began, environment = os.environ.get("SLURM_JOB_START_TIME", ""), {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    if not began:  # before 23.02
        asked = ["scontrol", "--oneliner", "show", "job", os.environ.get("SLURM_JOB_ID", "")]
        began = (re.findall(r" StartTime=(\d+) ", ran(asked, env=environment).stdout) or [""])[0]
    return time.time() - int(began) if began else float("inf")


def attempt(facts):
    """Plain lines, as above: the first attempt is killed."""
    count = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    print(f"{facts.at} restarts {count}", flush=True)
    if count == 0:
        done = ran(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]])
        if done.returncode != 0:
            sys.exit(f"scontrol requeue: {done.stderr.strip()}")
        time.sleep(ATTEMPT_PATIENCE_S)  # Slurm ends us


QUESTIONS = {"array": array, "bad-exit": bad_exit, "warning": warning, "attempt": attempt}


def main():
    if sys.argv[1:2] not in [[question] for question in QUESTIONS]:
        sys.exit(f"usage: scheduler.py {'|'.join(QUESTIONS)} [DUE_S]")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    facts = Facts(f"scheduler_{sys.argv[1]}")
    QUESTIONS[sys.argv[1]](facts, *map(float, sys.argv[2:]))
    if facts.count:
        facts.finish()


if __name__ == "__main__":
    main()
