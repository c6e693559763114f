"""What the phase scripts themselves write down."""

import re

from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan.rounds import ROUND, link_name
from bringup.kernel.plan.subjects import scale_of_file

_PAIRS = re.compile(r"[^\s,]+,[^\s,]+(?: [^\s,]+,[^\s,]+)*")


def not_opened(text: str, where: str) -> Parsed:
    """Return the reason why the script did not open its run, recorded by `bringup run`."""
    why = text.strip() or "its script did not open it"
    return Parsed().saw("run.closed", "job", None, "flag", f"{where}:1", why)


def parts_left_out(text: str, where: str) -> Parsed:
    """Return the parts of smoke that its user did not want (BRINGUP_SMOKE_PARTS)."""
    parsed = Parsed()
    for number, part in enumerate(text.split(), start=1):
        parsed.saw("run.part_left_out", "job", part, "text", f"{where}:{number}")
    return parsed


def rounds_of_pairs(text: str, where: str) -> Parsed:
    """Read `n0,n3 n1,n2` -> n0--n3 and n1--n2: a round, written before it is measured. An empty line is one without
    pairs."""
    parsed = Parsed()
    for number, line in enumerate(parsed.whole_lines(text, where), start=1):
        if line and not _PAIRS.fullmatch(line):
            parsed.note(f"{where}:{number}: not a round of pairs: {line[:60]!r}")
            continue
        for pair in line.split():
            first, _, second = pair.partition(",")
            parsed.saw(ROUND, link_name((first, second)), number, "count", f"{where}:{number}")
    return parsed


def starts(text: str, where: str) -> Parsed:
    """Read how many ranks a start had, and its seconds (infrastructure-validation/scripts/nccl_scaling.sh)."""
    parsed = Parsed()
    for number, match in enumerate(re.finditer(r"^(\d{1,9}) (\d{1,9}\.\d)$", text, re.MULTILINE), start=1):
        parsed.saw("nccl.start.seconds", "job", float(match[2]), "s", f"{where}:{number}", match[1])
    return parsed


def launches(text: str, where: str) -> Parsed:
    """Read how long srun took at each scale for a program that does nothing: the last time counts."""
    parsed, first = Parsed(), dict[str, str]()
    rows = list(re.finditer(r"^(1gpu|[1-9]\d{0,5}) (\d{1,9}) (\d{1,9}\.\d)$", text, re.MULTILINE))
    last = {match[1]: (number, match) for number, match in enumerate(rows, start=1)}
    for match in rows:
        first.setdefault(match[1], match[3])
    for scale, (number, match) in last.items():
        why = f"{match[2]} tasks; the first time {first[scale]} s"
        parsed.saw("nccl.launch", scale_of_file(scale), float(match[3]), "s", f"{where}:{number}", why)
    return parsed
