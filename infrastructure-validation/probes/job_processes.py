#!/usr/bin/env python3
"""What a job does on this node, and what the kernel said in its time: for `bringup why JOB --on-nodes`.

    job_processes.py JOB START [END]      the job's number, as SLURM_JOB_ID has it; seconds since 1970

job.process   a process of the user in that job: state, how much of a core it uses now, the call it waits in
job.stack     the innermost frames of its main thread, by py-spy, where that is installed and may look
job.kernel    messages of the kernel about memory and crashes, from the job's start to its end; job.kernel.xid_79: of a
              GPU's driver

Other users' processes are not looked at.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import kernel_log
from facts import Facts
from tools import ran

PROC = Path("/proc")
BETWEEN_S = 2.0
MOST = 16  # processes and messages of a node
PY_SPY_S = 10
SHELLS = ("srun", "slurm_script", "bash", "sh", "sleep")  # they wait for programs
FRAME = re.compile(r" {4}(\S.*\(.*\))")


def main():
    job, since = sys.argv[1], float(sys.argv[2])
    until = float(sys.argv[3]) if len(sys.argv) > 3 else float("inf")
    facts = Facts("job_processes")
    processes(facts, job)
    kernel(facts, since, until)
    facts.finish()


def processes(facts, job):
    own = of_job(job)
    before, begun = {pid: cpu_s(pid) for pid in own}, time.monotonic()
    time.sleep(BETWEEN_S if own else 0)
    seconds, py_spy = time.monotonic() - begun, shutil.which("py-spy")
    for pid, who in sorted(own.items())[:MOST]:
        now = cpu_s(pid)
        if now is None or before[pid] is None:
            continue
        words = f"{name(pid)}, state {state(pid)}, {100 * (now - before[pid]) / seconds:.0f} % of a core"
        call = read(pid, "wchan")
        words += f", waits in {call}" if call not in ("", "0") else ""
        at = f"{facts.at}/{who or 'process ' + str(pid)}"
        facts.saw("job.process", words, "text", at)
        if "python" in name(pid):
            stack(facts, py_spy, pid, at)
    if not own:
        facts.unknown("job.process", "text", f"no process of user {os.getuid()} is here in job {job}")


def of_job(job):
    """{process: its rank, else its task, or empty} of the user's own; programs of Slurm and of this step are left out.
    torchrun is a task, and its ranks are not."""
    own = {}
    for path in PROC.iterdir():
        if not path.name.isdigit():
            continue
        text = read(path.name, "environ")
        known = dict(entry.partition("=")[::2] for entry in text.split("\0") if "=" in entry)
        is_here = known.get("SLURM_STEP_ID") == os.environ.get("SLURM_STEP_ID")
        ours = os.environ.get("SLURM_JOB_ID") == job and is_here
        if known.get("SLURM_JOB_ID") == job and not ours and name(path.name) not in SHELLS:
            numbers = (("rank", known.get("RANK")), ("task", known.get("SLURM_PROCID")))
            own[int(path.name)] = next((kind + number for kind, number in numbers if number), "")
    return own


def stack(facts, py_spy, pid, at):
    if py_spy is None:
        facts.unknown("job.stack", "text", "py-spy is not on the PATH there", at)
        return
    try:
        words = [py_spy, "dump", "--nonblocking", "--pid", str(pid)]
        answer = ran(words, PY_SPY_S, stderr=subprocess.STDOUT)
        text = answer.stdout
    except (OSError, subprocess.SubprocessError) as error:
        facts.unknown("job.stack", "text", f"py-spy: {error}", at)
        return
    threads = text.split("\nThread ")[1:]
    main_thread = next((thread for thread in threads if "MainThread" in thread), (threads or [""])[0])
    frames = [match.group(1) for match in map(FRAME.match, main_thread.split("\n")) if match]
    if answer.returncode or not frames:
        facts.unknown("job.stack", "text", f"py-spy may not look: {text.strip()[-160:]}", at)
    else:
        facts.saw("job.stack", ", called by ".join(frames[:3]), "text", at)


def kernel(facts, since, until=float("inf")):
    try:
        records, reach = kernel_log.read_log()
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or error
        facts.unknown("job.kernel", "text", f"the kernel log cannot be read: {why}")
        return
    booted = kernel_log.booted_at()
    timed = [record for record in records if record.microseconds is not None]
    new = [each for each in timed if since - 1 <= booted + each.microseconds / 1e6 <= until + 1]
    counts, _, _ = kernel_log.events(new)
    for (device, event), count in sorted(counts.items()):
        facts.saw(f"job.kernel.{event}", count, "count", f"{facts.at}/{device}" if device else None)
    lines = [text for text, _ in kernel_log.messages(new) if text.startswith(kernel_log.DRIVER)]
    lines += [text for _, of, _, text in kernel_log.of_the_table(new) if of != "corrected"]
    for line in lines[:MOST]:
        facts.saw("job.kernel", line[:200], "text")
    facts.saw("job.kernel.records", len(new), "count", remark=reach)


def cpu_s(pid):
    text = read(pid, "stat").rpartition(")")[2].split()
    return (int(text[11]) + int(text[12])) / os.sysconf("SC_CLK_TCK") if len(text) > 12 else None


def state(pid):
    return (read(pid, "stat").rpartition(")")[2].split() or ["?"])[0]


def name(pid):
    return read(pid, "comm").strip()


def read(pid, file):
    """Empty where the process is gone, or another user's."""
    try:
        return (PROC / str(pid) / file).read_text(errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    main()
