"""Where a step or a job was refused, or ended by Slurm, the checks that it leaves without evidence say so."""

from bringup import judge
from bringup.derive.blame import blame
from bringup.evidence import slurm
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan import profile
from bringup.records import Kind
from factory import a_run
from loops import for_each

QOS = """\
sbatch: error: QOSMaxSubmitJobPerUserLimit
sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, …)
"""
BUSY = "srun: error: Unable to allocate resources: Requested nodes are busy\n"
ENDED = "slurmstepd-n0: error: *** STEP 7.0 ON n0 CANCELLED AT 2026-11-28T13:04:42 DUE TO PREEMPTION ***\n"


def cause_of_an_array(*files: tuple[str, str]) -> str | None:
    parsed, run = Parsed(), a_run("smoke", ("n0", "n1"))
    for name, text in files:
        parsed.add(slurm.launch_errors(text, f"raw/{name}.err"))
    verdicts = blame(judge.judge(run, profile.load("local-cpu"), parsed), Seen(parsed.observations), run).verdicts
    (verdict,) = (verdict for verdict in verdicts if verdict.gate == "smoke.array")
    assert verdict.kind is Kind.ABSENT
    return verdict.cause


@for_each(
    ("files", "cause"),
    [
        ((), "no evidence arrived"),
        ((("jobs", QOS),), "no evidence arrived; Slurm refused a step: QOSMaxSubmitJobPerUserLimit (raw/jobs.err)"),
        (
            (("second-job", BUSY), ("third", BUSY)),
            "no evidence arrived; Slurm refused a step: Unable to allocate resources: Requested nodes are busy "
            "(raw/second-job.err, and in 1 more file)",
        ),
        ((("compute", ENDED),), "no evidence arrived; Slurm ended a step: preemption (raw/compute.err)"),
        ((("compute", f"0: {BUSY}"),), "no evidence arrived"),  # what a task printed
    ],
)
def test_a_check_without_evidence_has_the_words_of_slurm_beside_it(files, cause):
    assert cause_of_an_array(*files) == cause
