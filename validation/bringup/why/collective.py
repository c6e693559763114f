"""The collective in which ranks of a job waited, and the rank that did not come."""

from bringup.readers.known.signatures import SIGNATURES
from bringup.why import job_log
from bringup.why.job_log import JobLog
from bringup.why.records import Cause, Job, Text, speaker


def waited(job: Job, text: Text, log: JobLog) -> Cause | None:
    """Find whom ranks waited for: they are victims, and it is behind them, or printed nothing."""
    stuck = [wait for wait in log.waited if wait.operation]
    if log.absent and not stuck:
        _, line, rank = min(log.absent)
        words = f"rank {rank} did not come to a barrier (monitoredBarrier), as others of its group say"
        place = speaker(job, log, rank, None)
        return Cause("collective", words, **place, evidence=f"{text.name}:{line}", do=SIGNATURES["nccl.timeout"].do)
    if not stuck:
        return None
    groups = {wait.group for wait in stuck}
    groups -= {""} if job_log.DEFAULT in groups else set()
    is_one = len(groups) == 1 and job_log.UNKNOWN not in groups  # numbers of several groups cannot be compared
    of_all = is_one and groups <= {"", job_log.DEFAULT}  # who is in a group of some ranks is not known
    first = max(stuck, key=lambda wait: wait.sequence) if is_one else stuck[0]
    known = [wait for wait in log.waited if wait.operation or wait.group in groups]
    behind = [wait.rank for wait in known if is_one and wait.sequence < first.sequence]
    waiting = {wait.rank for wait in known} - set(behind)
    tasks = job.tasks if job.places(log).ranks_are_tasks else 0
    ranks = max([tasks, 1 + max(waiting), *(1 + rank for rank in log.hosts)])
    missing = ranks - len(waiting) - len(behind) if of_all else 0
    # without a name it may be a group of the first ranks: at most half of all
    few = 0 < missing <= len(waiting) - ("" in groups)
    silent = [rank for rank in range(ranks) if rank not in waiting and rank not in behind] if few else []
    counted = [wait.rank for wait in known if not wait.operation and wait.rank in behind]  # by its own word
    culprits = counted or (behind if 0 < len(behind) < len(waiting) and not missing else silent)
    collective = f"{first.operation}, number {first.sequence}"
    if not of_all:
        collective += f", in group {first.group}" if is_one else ", in one of several process groups"
    who = "which of the ranks it waited for is not known" if not culprits else ""
    if culprits:
        many = f" and {len(culprits) - 1} more" if len(culprits) > 1 else ""
        who = f"rank {culprits[0]}{many} {'reported nothing' if culprits == silent else 'was behind'}"
    words = f"a collective was not joined by all ranks in time; {who}, {len(waiting)} waited"
    culprit = culprits[0] if culprits else None
    node = "" if culprit is None else job.places(log).of_rank(culprit)
    evidence, do = f"{text.name}:{first.line}", SIGNATURES["nccl.timeout"].do
    return Cause("collective", words, node=node, rank=culprit, collective=collective, evidence=evidence, do=do)
