"""The table of readers: each file of raw/ has one, or none on purpose."""

import re
import tarfile
from pathlib import Path

from bringup.evidence import reading

RECORDINGS = Path(__file__).parents[1] / "golden/recordings"
NOT_READ = re.compile(  # shown to people, searched for known faults, read by a probe, or read together with others
    r"progress\.jsonl|.+\.log|nvidia-smi-q-.+\.txt|(shared_fs|storage|launchers|inspector|pair-logs-.+)/.+"
    r"|nccl-(1gpu|\d+)/.+|(torchrun|stacks)/.+|reference\..+\.json|.+\.seconds|rounds-again\.txt|bad-exit\.stderr"
    r"|scontrol-(partition|job)\.txt|job-array\.txt"
)


def readers_of(name: str) -> list[str]:
    return [pattern for pattern in reading.FILES if re.fullmatch(pattern, name)]


def test_every_recorded_file_has_one_reader_or_none_on_purpose():
    names: set[str] = set()
    for recording in RECORDINGS.glob("*.tar.xz"):
        with tarfile.open(recording) as tar:
            names |= {member.name.partition("/raw/")[2] for member in tar if member.isfile() and "/raw/" in member.name}
    names |= {f"variant_ring-2.{suffix}" for suffix in ("jsonl", "txt", "err")} | {"variant_ring-1gpu.rc"}
    names |= {"all_reduce_perf-1gpu.txt", "collectives-1gpu.jsonl", "nccl-2/ras.rank0.txt"}
    names |= {"not-opened.txt", "stacks/rank0.json", "job-warning.txt", "scontrol-topology.txt"}
    readers = {name: readers_of(name) for name in names}
    assert {name: matching for name, matching in readers.items() if len(matching) > 1} == {}
    assert {name for name, matching in readers.items() if not matching and not NOT_READ.fullmatch(name)} == set()
    assert {pattern for matching in readers.values() for pattern in matching} == set(reading.FILES)
