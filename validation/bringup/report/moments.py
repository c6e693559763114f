"""When what failed was seen: only what has a time in the evidence. Times are those of the clocks that wrote them."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice

from bringup.derive.blame import raised_at
from bringup.derive.gpu import LAST_AT
from bringup.derive.provenance import CLOSED_AT, CLOSED_AT_IN
from bringup.derive.provenance import moment as utc
from bringup.evidence.parsed import Seen
from bringup.judge import Judged
from bringup.known_faults.signatures import SIGNATURES
from bringup.records import Outcome, Verdict, files
from bringup.report.text import sentence

MOST = 200  # failures of one run that are looked up
_LONGEST = 240  # characters of a sentence
_ZONES_S = 900.0  # two time zones differ by a multiple of it
# lines of Slurm, NCCL and torch do not name their zone: 2026-01-31T12:00:00, E0131 12:00:00.123
_CLOCK = re.compile(r"(?:\b\d{4}-\d\d-\d\d[T _]|\b[A-Z]\d{4} )(\d\d):(\d\d):(\d\d)")
_OF_A_BLOCK = re.compile(r"\d+: +exitcode +:")  # of torchrun: time, host and rank stand above it
_LOG = re.compile(r"raw/[^:,]+\.(?:log|err|out):\d+")


@dataclass(frozen=True)
class Moment:
    unix: float
    says: str
    is_own: bool  # of the event; otherwise it is the end of the probe or the run that saw it
    is_before: bool = False  # the run: a message that stood in the log already

    @property
    def words(self) -> str:
        at = datetime.fromtimestamp(self.unix, tz=timezone.utc)
        day = f"{at:%Y-%m-%d} " if self.is_before else ""
        return f"{'' if self.is_own else 'seen by '}{day}{at:%H:%M:%S} UTC: {textwrap.shorten(self.says, _LONGEST)}"


def moments(judged: Judged, begin: float, end: float) -> tuple[list[Moment], int]:
    """Return (moments in the order of time, how many failures have none). begin, end: of the run, Unix s."""
    times = _Times(judged, begin, end)
    failed = [verdict for verdict in judged.verdicts.verdicts if verdict.outcome is Outcome.FAIL]
    known = [times.of(verdict) for verdict in failed[:MOST]]
    signs = [
        Moment(at, known_sign.cause, True)
        for sign in judged.verdicts.signs
        if (known_sign := SIGNATURES.get(sign.signature)) and (at := times.of_line(sign.evidence)) is not None
    ]
    seen = [*filter(None, known), *signs]
    return sorted(seen, key=lambda each: each.unix), len(failed) - len(seen) + len(signs)


def line(judged: Judged, evidence: str, before: int = 0) -> str:
    """Return the line that evidence names, `raw/inventory.jsonl:12`; empty where it is none, or not there any more.
    before: lines above it that are given, too."""
    name, _, number = evidence.partition(",")[0].rpartition(":")
    if not number.isdigit() or int(number) < 1:
        return ""
    try:
        lines = files.read_text(judged.folder / name, judged.folder).split("\n")  # as evidence counts them
    except (OSError, ValueError):
        return ""
    return "\n".join(islice(lines, max(0, int(number) - 1 - before), int(number)))


class _Times:
    """Of one run."""

    def __init__(self, judged: Judged, begin: float, end: float) -> None:
        self._judged, self._begin, self._end = judged, begin, end
        seen = Seen(judged.observations)
        self._own = {("train.rank.finished", rank): float(at) for rank, at in raised_at(seen).items()}
        self._own |= _messages(seen)
        self._own |= {("train.rank.stall", rank): at for rank, at in _stalls(judged).items()}
        self._ended: dict[str, dict[str, float]] = {}  # file -> node -> the end of its probe
        for stamp in seen.of("probe.stamp"):
            at = utc(str(stamp.value[-1])) if isinstance(stamp.value, list) and stamp.value else None
            if at is not None:
                self._ended.setdefault(stamp.evidence.rpartition(":")[0], {})[stamp.subject] = at.timestamp()
        for closed in seen.of(CLOSED_AT):
            at = utc(str(closed.value)) if closed.evidence == CLOSED_AT_IN else None
            if at is not None:
                self._ended["closed.json"] = {closed.subject: at.timestamp()}

    def of(self, verdict: Verdict) -> Moment | None:
        says = f"{verdict.subject}: {sentence(verdict)}"
        own = self._own.get((verdict.gate, verdict.subject)) or self.of_line(verdict.evidence)
        if own is not None:
            return Moment(own, says, True, own < self._begin)
        ended = self._ended.get(verdict.evidence.partition(":")[0], {})
        by = ended.get(verdict.subject.partition("/")[0], max(ended.values(), default=None))
        return None if by is None else Moment(by, says, False)

    def of_line(self, evidence: str) -> float | None:
        """Read the time in a line of a log: known where exactly one zone puts it inside of the run."""
        text = line(self._judged, evidence) if _LOG.fullmatch(evidence) else ""
        if _OF_A_BLOCK.match(text):
            text = line(self._judged, evidence, before=3)
        clock = _CLOCK.search(text)
        if clock is None:
            return None
        second = 3600 * int(clock[1]) + 60 * int(clock[2]) + int(clock[3])
        first = self._begin + (second - self._begin) % _ZONES_S
        return first if first <= self._end < first + _ZONES_S else None


def _messages(seen: Seen) -> dict[tuple[str, str], float]:
    """Return when the driver's newest message stood in the kernel log of each node."""
    newest: dict[tuple[str, str], float] = {}
    for fact in seen.of(LAST_AT):
        if (at := utc(str(fact.value))) is not None:
            key = LAST_AT.replace("last_at", "xid"), fact.subject.partition("/")[0]
            newest[key] = max(at.timestamp(), newest.get(key, 0.0))
    return newest


def _stalls(judged: Judged) -> dict[str, float]:
    """Rank -> the end of the step in which it stood still."""
    if judged.training is None:
        return {}
    metrics = judged.training.metrics
    first = 1 if metrics.resumed is None else metrics.resumed.step + 1
    ends = dict(enumerate(metrics.steps_unix_s, start=first))
    ranks = enumerate(zip(metrics.observed.hosts, metrics.standstills, strict=True))
    return {f"{host}/rank{rank}": ends[still.step] for rank, (host, still) in ranks if still.step in ends}
