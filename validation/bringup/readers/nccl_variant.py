"""NCCL's log of a variant (kernel/plan/variants.py): did NCCL take the requested path?

Rank 0 prints the algorithm of each operation (subsystem TUNING): `AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE
channel{Lo..Hi}={0..15}` since 2.26; a number before that, `Algo 1 proto 2`; before 2.23 without the operation.
"""

import re
from collections import Counter
from collections.abc import Mapping

from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan.transports import SOCKETS
from bringup.kernel.plan.variants import COLLECTIVE
from bringup.readers import nccl_log

Proof = tuple[bool | None, str]
_TUNING = re.compile(r"NCCL INFO (?:(\w+): )?\d{1,18} Bytes -> Algo (\w+) proto")
_BY_NUMBER = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_LIMITED = re.compile(r"NCCL_P2P_LEVEL set by environment to (\w+)")
_MOST_NAMED = 4


def parse(files: Mapping[str, str], folder: str, subject: str, variant: str, ranks: int) -> Parsed:
    """Read nccl.variant.NAME.effect. Unknown if a rank's log is missing: that rank may have taken another path."""
    telling = {name: words for name, words in files.items() if "NCCL INFO" in words}
    if len(telling) < ranks:
        effect, why = None, f"{len(telling)} of {ranks} ranks left a log in {folder}"
    else:
        effect, why = _PROOFS[variant](telling)
    return Parsed().saw(f"nccl.variant.{variant}.effect", subject, effect, "flag", folder, why)


def numbers(measured: Parsed, variant: str, ranks: int) -> Parsed:
    """Give a step's bandwidth the name of its variant, so that it is not taken for the usual path. Unknown if its
    results are wrong or ranks are missing."""
    parsed = Parsed(problems=measured.problems)
    expected = {"nccl.wrong_values": 0, "nccl.ranks": ranks}
    seen = measured.observations
    bad = [f"{fact.quantity} {fact.value}" for fact in seen if expected.get(fact.quantity, fact.value) != fact.value]
    for fact in seen:
        name, _, at = fact.quantity.partition("@")
        if name == f"nccl.{COLLECTIVE}.busbw" and at:
            why = f"the step measured {fact.value} with {bad[0]}" if bad else fact.why
            quantity, value = f"nccl.variant.{variant}.busbw@{at}", None if bad else fact.value
            parsed.saw(quantity, fact.subject, value, fact.unit, fact.evidence, why)
        elif name.startswith("nccl.time."):
            parsed.observations.append(fact)
    return parsed


def _ways(files: Mapping[str, str]) -> dict[str, int]:
    """Count channels of all ranks that use `P2P/CUMEM`, `NET/IB`."""
    channels = (match[1] for words in files.values() for match in nccl_log.CHANNEL.finditer(words))
    return Counter("/".join(channel.split("/")[:2]) for channel in channels)


def _in_words(ways: Mapping[str, int]) -> str:
    return ", ".join(f"{count} channels via {way}" for way, count in sorted(ways.items())[:_MOST_NAMED])


def _nvlink(files: Mapping[str, str]) -> Proof:
    ways = _ways(files)
    limits = {match for words in files.values() for match in _LIMITED.findall(words)}
    if not ways:
        return None, "the log shows no channel"
    if any(not way.startswith("P2P/") or way.startswith("P2P/indirect") for way in ways):
        return False, _in_words(ways)
    if limits != {"NVL"}:
        return None, f"{_in_words(ways)}; the log does not say that P2P was limited to NVLink (NCCL_P2P_LEVEL)"
    return True, f"{_in_words(ways)}, limited to NVLink"


def _nic(files: Mapping[str, str]) -> Proof:
    ways = _ways(files)
    if not ways:
        return None, "the log shows no channel"
    if any(not way.startswith("NET/") for way in ways):
        return False, _in_words(ways)
    used = next(s for s in nccl_log.parse(files, "", "", "INFO").observations if s.quantity == "nccl.transport")
    if used.value is None:
        return None, f"{_in_words(ways)}; {used.why}"
    if SOCKETS in str(used.value).split("+"):
        return False, f"{_in_words(ways)}, which is TCP"
    return True, f"{_in_words(ways)} ({used.value})"


def _ring(files: Mapping[str, str]) -> Proof:
    choices = [match for words in files.values() for match in _TUNING.findall(words)]
    counts = Counter(_algorithm(name) for operation, name in choices if operation in ("", "AllReduce"))
    if not counts:
        return None, "the log does not say which algorithm all_reduce took (subsystem TUNING, since NCCL 2.10)"
    counted = ", ".join(f"{name} {count} times" for name, count in sorted(counts.items()))
    return counts.keys() == {"RING"}, f"all_reduce took {counted}"


def _algorithm(name: str) -> str:
    known = name.isdigit() and int(name) < len(_BY_NUMBER)
    return _BY_NUMBER[int(name)] if known else name.upper()


def _nvls_off(files: Mapping[str, str]) -> Proof:
    counts = [int(number) for words in files.values() for number in nccl_log.NVLS_CHANNELS.findall(words)]
    if not counts:
        return None, "the log does not count nvls channels"
    return max(counts) == 0, f"{max(counts)} nvls channels"


_PROOFS = {"nvlink": _nvlink, "nic": _nic, "ring": _ring, "nvls_off": _nvls_off}
