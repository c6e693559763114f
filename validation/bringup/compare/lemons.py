"""Which nodes stood in failed jobs more often than chance: from Slurm's accounting, with an exact test.

If failures had nothing to do with nodes, then, among a user's jobs of one name, of one day and of about the same size,
which of them failed would be a draw: the failed ones among those with a given node follow the hypergeometric
distribution. Strata are independent, so the distribution of their sum is a convolution (the exact test of
Cochran-Mantel-Haenszel tables: Agresti, Categorical Data Analysis, section 6.3.5). So a program that is broken, or is
broken on some days, accuses no node, though the scheduler places it on the same nodes in these days.

What changes within a day is left. A program may fail each morning until its author mends it: of a day only the jobs
after its first success count. Of those on one node only the first counts, failed or not. (The first failure and the
first success would accuse busy nodes.) A node in whose failed jobs only one user stood is not named. Holm's step-down
method (Scand. J. Statist. 6, 65, 1979) over all nodes bounds the chance that a healthy one is named; the jobs of a
named node are then taken out, because they accuse its neighbours, too.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from bringup.compare.noise import FALSE_ALARMS
from bringup.kernel.characters import many
from bringup.readers.jobs import AccountedJob
from bringup.report import text

BAD, GOOD = {"FAILED", "NODE_FAIL", "BOOT_FAIL"}, {"COMPLETED"}
"""Other ends (cancelled, time limit, memory, preempted) speak neither for nor against a node."""


@dataclass(frozen=True)
class Lemon:
    node: str
    failed: int
    jobs: int
    expected: float  # failed jobs, if nodes did not matter
    chance: float  # of so many or more
    users: int  # of the failed ones


@dataclass(frozen=True)
class Lemons:
    named: list[Lemon]
    of_one_user: list[Lemon]  # that would be named: is it the node, or what the user does there?
    next: Lemon | None  # the most suspect of the others
    nodes: int
    jobs: int  # that count
    failed: int
    left_out: int  # that ended otherwise, or came before a success of the day, or followed on the same node
    unread: int = 0  # rows of the table


_Stratum = tuple[str, str, date, int]  # user, job name, day, size class


def find(jobs: Iterable[AccountedJob], false_alarms: float = FALSE_ALARMS) -> Lemons:
    """Find lemons. false_alarms: the chance that any healthy node is named."""
    known = list(jobs)
    counted = _exchangeable([job for job in known if job.state in BAD | GOOD])
    names = {node for job in counted for node in job.nodes}
    left, suspected = counted, list[Lemon]()
    suspects = _suspects(left, names)
    while suspects and suspects[0].chance <= false_alarms / (len(names) - len(suspected)):
        suspected.append(suspects[0])
        left = [job for job in left if suspects[0].node not in job.nodes]
        suspects = _suspects(left, names - {lemon.node for lemon in suspected})
    failed = sum(job.state in BAD for job in counted)
    named, of_one = ([each for each in suspected if (each.users > 1) is several] for several in (True, False))
    counts = len(names), len(counted), failed, len(known) - len(counted)
    return Lemons(named, of_one, next(iter(suspects), None), *counts)


def _suspects(jobs: Sequence[AccountedJob], names: Collection[str]) -> list[Lemon]:
    """Return the nodes that stood in more failed jobs than expected, the least probable first."""
    totals: dict[_Stratum, list[int]] = defaultdict(lambda: [0, 0])  # jobs, failed
    users: dict[str, set[str]] = defaultdict(set)  # of failed jobs
    of_node: dict[str, dict[_Stratum, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for job in jobs:
        stratum = job.user, job.name, job.start.date(), len(job.nodes).bit_length()
        is_bad = job.state in BAD
        for counts in [totals[stratum], *(of_node[node][stratum] for node in job.nodes)]:
            counts[0] += 1
            counts[1] += is_bad
        for node in job.nodes if is_bad else ():
            users[node].add(job.user)
    suspects = []
    for node in sorted(names & of_node.keys()):
        strata = [(totals[stratum][0], totals[stratum][1], drawn) for stratum, (drawn, _) in of_node[node].items()]
        count, failed = (sum(each[place] for each in of_node[node].values()) for place in (0, 1))
        expected = math.fsum(drawn * bad / total for total, bad, drawn in strata)
        if failed > expected:
            suspects.append(Lemon(node, failed, count, expected, chance(strata, failed), len(users[node])))
    return sorted(suspects, key=lambda lemon: lemon.chance)


def chance(strata: Iterable[tuple[int, int, int]], least: int) -> float:
    """Compute P(X >= least): X is the sum over strata (jobs, failed ones, those with the node), hypergeometric."""
    sums = [1.0]  # P(sum = 0), P(sum = 1), ..., P(sum >= least)
    for total, bad, drawn in strata:
        if bad == 0 or drawn == 0:
            continue
        first, part = _hypergeometric(total, bad, drawn)
        summed = [0.0] * min(len(sums) + first + len(part) - 1, least + 1)
        for place, probability in enumerate(sums):
            for more, other in enumerate(part, start=first):
                summed[min(place + more, least)] += probability * other
        sums = summed
    return min(1.0, math.fsum(sums[least:]))


def _hypergeometric(total: int, bad: int, drawn: int) -> tuple[int, list[float]]:
    """Return (the least number, probabilities from it on)."""
    first = max(0, bad + drawn - total)
    whole = _log_choose(total, drawn)
    return first, [
        math.exp(_log_choose(bad, number) + _log_choose(total - bad, drawn - number) - whole)
        for number in range(first, min(bad, drawn) + 1)
    ]


def _log_choose(several: int, of_them: int) -> float:
    """Return the logarithm of a binomial coefficient: it is too large for a float from about 1,030 on."""
    return math.lgamma(several + 1) - math.lgamma(of_them + 1) - math.lgamma(several - of_them + 1)


def _exchangeable(jobs: Sequence[AccountedJob]) -> list[AccountedJob]:
    """Of a program's jobs of one day those after its first success; of those with a node in common the first alone."""
    works = set[tuple[str, str, date]]()
    seen = set[tuple[tuple[str, str, date], str]]()
    first = []
    for job in sorted(jobs, key=lambda job: job.start):
        program = job.user, job.name, job.start.date()
        keys = {(program, node) for node in job.nodes}
        if program in works and not keys & seen:
            first.append(job)
            seen |= keys
        elif job.state in GOOD:
            works.add(program)
    return first


def in_words(nodes: Lemons) -> str:
    """List the nodes that are named, and how the next one stands."""
    groups = [("more than chance", nodes.named), ("all of one user", nodes.of_one_user)]
    groups.append(("within chance", [nodes.next] if nodes.next is not None else []))
    rows = [
        (each.node, str(each.failed), str(each.jobs), f"{each.expected:.1f}", f"{each.chance:.2g}", remark)
        for remark, several in groups
        for each in several
    ]
    unread = f"; {many(nodes.unread, 'row')} could not be read" if nodes.unread else ""
    head = f"{many(nodes.nodes, 'node')} in {many(nodes.jobs, 'job')}, of which {nodes.failed} failed; {nodes.left_out}"
    head += f" more ended otherwise, were before a success of the day, or followed on the node{unread}: "
    names = ", ".join(each.node for each in nodes.named) or "no node"
    table = text.columns(("node", "failed", "of", "expected", "chance", "said"), rows)
    return "\n".join([*([table, ""] if rows else []), f"{head}{names} stood in failed jobs more often than chance"])
