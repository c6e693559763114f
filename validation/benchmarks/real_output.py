"""Real output of real programs (fixtures/real/index.yaml), what our readers say of it, and the page that shows it.

Run as a program it writes docs/results/real-output.md (`make generated`).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import fabric
import fio
import kernel_log
import perftest
import smi
import yaml
from bringup.domains.fabric import nearest_nic
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.records import Run, write_text
from bringup.readers import dcgm, launcher, nccl_inspector, nccl_log, nccl_tests, ras, slurm, smoke_jobs, srun, topology
from bringup.readers.known import pending, signs, xid
from bringup.report.text import table
from bringup.why.first_cause import judged
from bringup.why.places import Step
from bringup.why.records import Job, Text
from factory import a_run
from probing import told_by

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures"
INDEX = FIXTURES / "real/index.yaml"
PAGE = ROOT / "docs/results/real-output.md"
OWN = "own"  # a cluster or a machine of this project printed it

Values = Mapping[str, Any]
"""Quantity -> value. What is not there, or None, was not recognised."""


@dataclass(frozen=True)
class Miss:
    """What is said today although the label says otherwise."""

    reads: Any
    why: str


@dataclass(frozen=True)
class Sample:
    kind: str
    reader: str
    file: str
    program: str
    source: str
    options: Mapping[str, Any]
    says: Values
    signs: frozenset[str]
    misses: Mapping[str, Miss]

    @property
    def text(self) -> str:
        return (FIXTURES / self.file).read_text(encoding="utf-8")


def index() -> list[Sample]:
    """A key that nobody reads is an error: a label with a slip would check nothing."""
    samples = []
    for kind, entry in yaml.safe_load(INDEX.read_text(encoding="utf-8")).items():
        for each in entry["samples"]:
            unknown = set(each) - {"file", "program", "source", "with", "says", "signs", "misses"}
            if unknown or entry.keys() != {"reader", "samples"}:
                raise ValueError(f"{INDEX.name}: {kind}: {each.get('file')}: unknown {sorted(unknown)}")
            samples.append(
                Sample(
                    kind=kind,
                    reader=entry["reader"],
                    file=each["file"],
                    program=each["program"],
                    source=each["source"],
                    options=each.get("with", {}),
                    says=each["says"],
                    signs=frozenset(each.get("signs", ())),
                    misses={name: Miss(miss["reads"], miss["why"]) for name, miss in each.get("misses", {}).items()},
                )
            )
    return samples


# --- readers: text and options -> what was said


def by_quantity(parsed: Parsed) -> dict[str, Any]:
    """The first value of each quantity, alone and with its subject."""
    values: dict[str, Any] = {}
    for observation in parsed.observations:
        values.setdefault(observation.quantity, observation.value)
        values.setdefault(f"{observation.quantity} [{observation.subject}]", observation.value)
    return values


def read_nccl_log(text: str) -> Values:
    return by_quantity(nccl_log.parse({"rank0.log": text}, "raw/nccl-2", "2-nodes"))


def read_nccl_tests(text: str, binary: str = "all_reduce_perf") -> Values:
    return by_quantity(nccl_tests.parse(text, "raw/nccl-2.txt", binary, "2-nodes"))


def read_topology(text: str) -> Values:
    parsed = topology.parse(text, "raw/nvidia-smi.topo.txt", "n0")
    nearest_nic(parsed, Seen(parsed.observations), a_run("discovery", ("n0",)))
    return by_quantity(parsed)


def read_smi(text: str, query: str = "gpu") -> Values:
    """The answer to one question; every other one fails. -q is asked for people only."""
    question = next((asked for name, asked, _ in smi.QUERIES if name == query), "-q")

    def answer(command: tuple[str, ...], **_: Any) -> SimpleNamespace:
        if not any(part.startswith(question) for part in command) or "Failed to" in text:
            raise subprocess.CalledProcessError(9, command, output=text)
        return SimpleNamespace(stdout=text)

    return by_quantity(told_by(lambda facts: smi.read(facts, lambda name, kept: None, run=answer)))


# what dmesg, syslog and journalctl write in front of a message
_BEFORE_A_MESSAGE = re.compile(r"(kern +:\w+ +: \S+ |\w{3} +\d+ [\d:]+ \S+ )?(kernel: )?(\[[^\]]*\d[^\]]*\] )?\s*")


def read_kernel_log(text: str) -> Values:
    messages = (_BEFORE_A_MESSAGE.sub("", line, count=1) for line in text.splitlines())
    records = kernel_log.of_kmsg("".join(f"4,1,1,-;{message}\n" for message in messages))
    counts, recovery, _ = kernel_log.events(records)
    table = [
        (" ".join(shown[:1]), name) for name, of, shown, _ in kernel_log.of_the_table(records) if of != "corrected"
    ]
    counts.update(table)
    asked = [event for _, name in counts if (event := xid.event(name)) is not None]
    action = any(event.is_fault for event in asked) or any(wish != "None" for wish in recovery.values())
    asks = "action" if action else "warning" if any(event.warns for event in asked) else "nothing"
    count_of = {f"{name} {device}".strip(): count for (device, name), count in counts.items()}
    return count_of | {"asks": asks}


@cache
def run_of(ranks: int) -> Run:
    return a_run("run_ddp_2node", gpus=ranks)


def read_launcher(text: str, ranks: int = 2, part: str = "log") -> Values:
    """What the launcher of two nodes printed. Words of a rank that lost its peers only have to be there."""
    if part == "error_file":
        return by_quantity(launcher.error_file(text, "raw/errors/0/error.json"))
    values = by_quantity(launcher.log(text, "raw/launch.log", run_of(ranks)))
    return {name: True if name.startswith("launcher.lost_peers") else value for name, value in values.items()}


def read_launch_errors(text: str) -> Values:
    values = by_quantity(srun.launch_errors(text, "raw/launch.err"))
    return {name: str(value).partition(";")[0] for name, value in values.items()}


def read_slurm_nodes(text: str) -> Values:
    return by_quantity(slurm.nodes(text, "raw/scontrol-node.txt"))


def read_slurm_answers(text: str, answer: str = "config") -> Values:
    if answer == "job":
        return {"state": by_quantity(smoke_jobs.ended_job(text, "raw/job-1.txt", name="job")).get("smoke.job.state")}
    if answer == "reasons":
        reasons = [line.rsplit("|", 4)[1] for line in text.splitlines()[1:] if line.count("|") >= 6]
        return {
            "reasons without an explanation": sum(
                "squeue(1)" in pending.explain(reason_text, {}) for reason_text in reasons
            )
        }
    read = {"config": slurm.config, "ping": smoke_jobs.ping, "mpi_list": slurm.mpi_list}[answer]
    values = by_quantity(read(text, "raw/answer.txt"))
    return {name: ",".join(value) if isinstance(value, list) else value for name, value in values.items()}


def read_sysfs(text: str) -> Values:
    """`path: content` lines as the files that they name."""
    files = re.findall(r"^(\w+/(?:ports|device)/[\w/]+): (.*)$", text, re.MULTILINE)
    if not files:
        return {}
    with TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "net").mkdir()
        for path, content in files:
            (folder / "hcas" / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / "hcas" / path).write_text(content + "\n", encoding="utf-8")
        return by_quantity(told_by(lambda facts: fabric.fabric(facts, folder / "net", folder / "hcas", folder / "pci")))


def read_fio(text: str, direction: str = "read") -> Values:
    try:
        speed, moved, _ = fio.figures(text, direction)
    except fio.NoFigure as error:
        return {"no figure because": str(error)}
    return {"GB/s": speed, "MiB": moved}


def read_inspector(text: str) -> Values:
    return {
        observation.quantity: observation.value
        for observation in nccl_inspector.parse([("raw/inspector/x", text)]).observations
    }


def read_ras(text: str) -> Values:
    (note,) = ras.parse(text, "raw/ras.txt").problems
    match = re.search(r"NCCL's RAS service: ([A-Z ,]+|\d+ communicators?): ", note)
    return {"communicators": match[1] if match else None}


def read_dcgm(text: str) -> Values:
    return by_quantity(dcgm.parse(text, "raw/dcgm-n0.json", "n0"))


def read_ib_write_bw(text: str) -> Values:
    """The rate at the last size; every sample with figures ends with the one that its label names."""
    size = re.findall(r"^ *(\d+) +\d+ ", text, re.MULTILINE)
    try:
        return {f"Gb/s at {size[-1]} bytes": perftest.bandwidth(text)} if size else {}
    except perftest.Failed:
        return {}


def read_first_cause(text: str, state: str = "FAILED", tasks: int = 8) -> Values:
    """Kind and place of the first cause of a job on n0 and n1, started by srun."""
    steps = [Step(nodes := ["n0", "n1"], tasks, "Block", tasks // 2)]
    cause = judged(Job("7", "ann", state, "1:0", nodes, tasks, steps=steps), [Text("job.log", text, 0.0)], {}).cause
    place = cause.node and f"on {cause.node}"
    return {"cause": " ".join(filter(None, (cause.kind, cause.who, place))), "shown words": cause.words}


def read_nothing(text: str) -> Values:
    return {}


READERS: dict[str, Callable[..., Values]] = {
    "nccl_log": read_nccl_log,
    "nccl_tests": read_nccl_tests,
    "topology": read_topology,
    "smi": read_smi,
    "kernel_log": read_kernel_log,
    "launcher": read_launcher,
    "launch_errors": read_launch_errors,
    "slurm_nodes": read_slurm_nodes,
    "slurm_answers": read_slurm_answers,
    "sysfs": read_sysfs,
    "fio": read_fio,
    "ras": read_ras,
    "nccl_inspector": read_inspector,
    "dcgm": read_dcgm,
    "ib_write_bw": read_ib_write_bw,
    "first_cause": read_first_cause,
    "none": read_nothing,
}


def signs_of(text: str) -> frozenset[str]:
    return frozenset(sign.signature for sign in signs.in_lines(signs.numbered(text), "raw/sample.log"))


# --- checks


@dataclass(frozen=True)
class Check:
    sample: Sample
    quantity: str
    right: Any
    reads: Any

    @property
    def outcome(self) -> str:
        if self.quantity == "signs":
            missing = self.right - self.reads
            return "right" if self.right == self.reads else "wrong" if self.reads - self.right or not missing else "not"
        if same(self.quantity, self.right, self.reads):
            return "right"
        return "not" if self.reads is None else "wrong"


def same(quantity: str, right: Any, reads: Any) -> bool:
    """Of what is told in words, the label holds those that count."""
    if quantity in ("no figure because", "shown words"):
        return reads is not None and str(right) in str(reads)
    return type(right) is type(reads) and right == reads


def checks(sample: Sample) -> Iterator[Check]:
    values = READERS[sample.reader](sample.text, **sample.options)
    for quantity, right in sample.says.items():
        yield Check(sample, quantity, right, values.get(quantity))
    yield Check(sample, "signs", sample.signs, signs_of(sample.text))


# --- the page


INTRODUCTION = """# What is read of real output

Output of programs that others posted, or that clusters and machines of this project printed, each with a label: what a
right reader must say about it. Rules: [tests/fixtures/real](../../tests/fixtures/real/README.md); program and source of
each sample: [index.yaml](../../tests/fixtures/real/index.yaml).
Every parser and every signature runs over them in `tests/test_real_output.py`. `make generated` makes this page.

*Wrong*: another value, or a signature too many. *Not recognised*: nothing was said. A check is one value of a label, or
all signatures that a sample bears. Readers were fixed while these samples were known, so the share that is right says
nothing about other output.

Signatures were also searched, once, in 4,635 published logs of MLPerf Training (rounds 4.1, 5.0 and 5.1; 839 MB), 4,610
of them of runs that succeeded. Of these, none bears a first cause that was none. 42 bear `slurm.time-limit`: Slurm had
ended their steps so, after the result.
"""


def page() -> str:
    samples = index()
    done = [check for sample in samples for check in checks(sample)]
    known = "Each is known: the test fails when one is read otherwise, and so when one is read right."
    return "\n".join([INTRODUCTION, *by_kind(samples, done), *("", "## Misses", "", known, ""), *misses(done), ""])


def by_kind(samples: list[Sample], done: list[Check]) -> list[str]:
    rows = []
    for kind in dict.fromkeys(sample.kind for sample in samples):
        rows.append((kind, str(sum(sample.kind == kind for sample in samples)), *tally(done, kind)))
    rows.append(("all", str(len(samples)), *tally(done, None)))
    return table(("kind", "samples", "right", "wrong", "not recognised"), rows)


def tally(done: list[Check], kind: str | None) -> tuple[str, ...]:
    outcomes = [check.outcome for check in done if kind in (None, check.sample.kind)]
    return tuple(str(outcomes.count(outcome)) for outcome in ("right", "wrong", "not"))


def misses(done: list[Check]) -> list[str]:
    rows = []
    for check in done:
        if check.outcome != "right":
            miss = check.sample.misses.get(check.quantity)
            rows.append(
                (
                    check.sample.file.removeprefix("real/"),
                    check.quantity,
                    words(check.right),
                    words(check.reads),
                    miss.why if miss else "not in the index",
                )
            )
    return table(("sample", "quantity", "right", "read", "why"), rows) if rows else ["None."]


def words(value: Any) -> str:
    if isinstance(value, frozenset):
        return ", ".join(sorted(value)) or "none"
    return "nothing" if value is None else str(value)


if __name__ == "__main__":
    write_text(PAGE, page(), replace=True)
