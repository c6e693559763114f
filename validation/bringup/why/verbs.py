"""The verb for the cause of the end of any job."""

from bringup.verb import DAILY, Verb, arg, flag, number, verb, whole

_WHY = verb(
    "why any job waits, what it does, or the cause of its end",
    arg("job", metavar="JOBID", help="or a FILE with some lines of a log, or -: standard input"),
    arg("--state", metavar="STATE", default="", help="with a FILE: how Slurm says that the job ended"),
    arg("--nodes", metavar="LIST", default="", dest="of_nodes", help="with a FILE: the nodes of the job, n[0-3]"),
    number("--tasks", "N", "with a FILE: tasks of the job", 0, kind=whole),
    flag("--on-nodes", "also a small step of your own on its nodes: kernel log, processes, stacks (py-spy)"),
    number("--stall-after", "S", "seconds without a new line, after which a running job stands still", 600),
    flag("--json", "one JSON object instead of the screen"),
    description="Reads what Slurm, its accounting and the job's own files say; submits and changes nothing "
    "without --on-nodes. What could not be seen is a line of its own.",
    example="bringup why 4711",
)

VERBS: dict[str, dict[str, Verb]] = {DAILY: {"why": _WHY}}
