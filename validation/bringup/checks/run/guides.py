"""What to know about gates of the run itself that did not pass. Data only."""

from __future__ import annotations

from bringup.plan.guide import Guide
from bringup.records import Action

_PAGE = "07-failure-modes"

CLOSED = Guide(
    title="The run was not closed",
    page=_PAGE,
    action=Action.WATCH,
    observes="The file `closed.json`. A phase script writes it last. Every phase has this gate.",
    why=(
        "A script that ended early may have written only part of its evidence. A run without this file is never a pass."
    ),
    usually_means=(
        "The verdict is incomplete: the script did not finish. The time limit was reached, `scancel` was called, the "
        "batch host was lost, the disk was full, or the login session ended. The script may also still be running. "
        "What was written before is judged as usual."
    ),
    next=(
        "tail -n 40 {run}/raw/batch.log",
        "scontrol show job {job} | grep -E 'JobState|Reason|TimeLimit|NodeList'",
        "sacct -j {job} --format JobID,State,ExitCode,Elapsed,NodeList",
        "ls -l {run} {run}/raw",
    ),
    by_hand=(
        "`sacct` answers only where accounting is on. Run the phase again. Do not write `closed.json` by hand. A "
        "job that Slurm requeued writes into a folder of its own, `RUN-r1`; the first attempt stays as it is."
    ),
)

EVIDENCE = Guide(
    title="The evidence is not the run's own",
    page=_PAGE,
    action=Action.WATCH,
    observes=(
        "The SHA-256 of the plan, of the records and of every file in `raw/`, compared with what `closed.json` "
        "holds. The closing line of each probe says for which run it wrote, and when. Every phase has this gate."
    ),
    why=(
        "A verdict is only as good as its evidence. Evidence of another run, or of another day, proves nothing about "
        "this one. The owner of a folder can edit it and write new checksums: only a signature shows that "
        "(docs/site-file.md)."
    ),
    usually_means=(
        "The verdict is incomplete, with one of three causes. *Changed, gone, or came later*: the folder was edited, "
        "completed or merged with another, a copy is not complete, or a job of the run went on writing after the run "
        "was closed. *Another run or time*: a filesystem gave one node the file of another run, or the clock of that "
        "node is wrong. *Cannot be read*: you lack the permission, or the filesystem failed; the evidence itself may "
        "be good."
    ),
    next=(
        "ls -lan {run} {run}/raw",
        "find {run} -newer {run}/closed.json -type f",
        "bringup judge {run}",
    ),
    by_hand=(
        "Where files cannot be read, judge the run as its owner. Otherwise run the phase again: the original folder "
        "cannot be restored."
    ),
)

RESTARTS = Guide(
    title="Slurm started the job more than once",
    page=_PAGE,
    action=Action.WATCH,
    observes=(
        "How often Slurm had started this job before (`SLURM_RESTART_COUNT`). Each attempt writes a folder of its "
        "own; this is the last one. Every phase has this gate."
    ),
    why=(
        "A job that is requeued loses the time since its last checkpoint. A node that is lost now and then ends "
        "long trainings."
    ),
    usually_means=(
        "The verdict is a warning: what was measured is valid. A node was lost during the job, or goes down and up, "
        "a job of higher priority preempted it, or it was requeued by hand. The folder without `-r` holds what "
        "happened before. Incomplete: the run was not closed."
    ),
    next=(
        "sacct -j {job} --duplicates --format JobID,State,Start,End,NodeList",
        "sinfo -N -l",
    ),
    by_hand="Where accounting is off, look for the job's number in `slurmctld.log`.",
)
