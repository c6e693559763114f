"""raw/rounds.txt: the rounds of pairs, one line each, written before the round is measured."""

import re

from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan.rounds import ROUND, link_name

_PAIRS = re.compile(r"[^\s,]+,[^\s,]+(?: [^\s,]+,[^\s,]+)*")


def parse(text: str, where: str) -> Parsed:
    """Read `n0,n3 n1,n2` -> n0--n3 and n1--n2. An empty line is a round without pairs."""
    parsed = Parsed()
    for number, line in enumerate(parsed.whole_lines(text, where), start=1):
        if line and not _PAIRS.fullmatch(line):
            parsed.problems.append(f"{where}:{number}: not a round of pairs: {line[:60]!r}")
            continue
        for pair in line.split():
            first, _, second = pair.partition(",")
            parsed.saw(ROUND, link_name((first, second)), number, "count", f"{where}:{number}")
    return parsed
