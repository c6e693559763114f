"""A verdict never gets better when evidence is taken away: a fact of a device, the answers of the other nodes.

Recorded runs, with one fact that is never said (the probe finished, and its closing line counts what is left), or with
another value. What stays a pass has to be built from what the other devices and nodes said.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from bringup.kernel import judge, results
from bringup.kernel.records import Outcome
from bringup.kernel.run_folder import RunFolder
from loops import case_for_each
from runs_for_tests import unpacked

GPU_1 = "GPU-00000000-0000-8575-9a7a-461ee90213dc"  # of n1
INVENTORY = "raw/inventory.jsonl"
EVERYTHING = "*"


class Less(NamedTuple):
    """What is never said: this quantity of these subjects (devices, or nodes whose facts all go)."""

    folder: str
    quantity: str
    of: str = GPU_1
    gate: str = ""  # empty: the quantity is judged
    node: str = "n1"
    recording: str = "h100-faults"


KERNEL_LOG = "discovery.kernel_log"
DEVICES = [
    Less("gpu-other-model", "discovery.gpu.model"),
    Less("nvlink-down", "discovery.gpu.nvlinks"),
    Less("nvlink-replays", "discovery.gpu.nvlink_replays"),
    Less("gpu-replaced-rows", "discovery.gpu.remapped_uncorrected"),
    Less("gpu-ecc", "discovery.gpu.ecc"),
    Less("gpu-hot", "discovery.gpu.slowdown"),
    Less("xid-79", f"{KERNEL_LOG}.xid_79", "n1", f"{KERNEL_LOG}.xid", recording="local-faults"),
    Less("xid-nonfatal", f"{KERNEL_LOG}.xid_145_nonfatal", "n1", f"{KERNEL_LOG}.nonfatal"),
    Less("gpu-twice", "discovery.gpu.model", "n1", "discovery.gpu.distinct", "n0"),
    Less("gpu-twice", "discovery.gpu.model", "n0", "discovery.gpu.distinct", "n1"),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("recorded")
    for name in ("h100-faults", "local-faults", "h100-healthy", "local-healthy"):
        unpacked(name, place / name)
    return place


@pytest.fixture
def copied(recorded, tmp_path) -> Callable[[str, str], Path]:
    """Gives a copy of a recorded run: copied("h100-healthy", "discovery")."""

    def copy(recording: str, folder: str) -> Path:
        [run] = [path.parent for path in (recorded / recording).glob("**/run.json") if f"/{folder}/" in str(path)]
        return shutil.copytree(run, tmp_path / "run")

    return copy


def reseal(run: Path) -> None:
    """By the stored record, which may be older than what a record has to have."""
    closed = run / results.CLOSED
    closed.write_text(json.dumps(json.loads(closed.read_text()) | {"files": RunFolder(run).checksums()}))


def change(run: Path, file: str, quantity: str, of: str, value: object = ...) -> int:
    """Never said by `of`, a subject, its end behind the node, or a node that said it; or said with this value. Returns
    how many facts were changed."""
    lost, lines, changed, path = Counter[tuple[str | None, str]](), [], 0, run / file
    for line in path.read_text().splitlines():
        matched = re.fullmatch(r"(\d+: )?(.*)", line)
        label, fact = matched[1], json.loads(matched[2])
        if quantity == EVERYTHING and fact.get("at") == of:
            changed += 1
            continue
        if fact.get("quantity") == quantity and of in (fact["at"], fact["subject"], fact["subject"].partition("/")[2]):
            changed += 1
            if value is ...:
                lost[label, fact["at"]] += 1
                continue
            fact["value"] = value
        if "end" in fact:
            fact["end"] -= lost[label, fact["at"]]
        lines.append(f"{label or ''}{json.dumps(fact)}\n")
    path.write_text("".join(lines))
    reseal(run)
    return changed


def outcomes(run: Path) -> dict[tuple[str, str], tuple[Outcome, str]]:
    return {(v.gate, v.subject): (v.outcome, v.cause or v.observed) for v in judge.judge_folder(run).verdicts.verdicts}


@pytest.mark.parametrize("less", DEVICES, ids=lambda less: f"{less.folder}-{less.of[:6]}")
def test_a_device_that_says_nothing_never_makes_a_verdict_a_pass(copied, less: Less):
    run = copied(less.recording, less.folder)
    judged = less.gate or less.quantity, less.node
    before = outcomes(run)[judged]
    assert before[0] in (Outcome.FAIL, Outcome.WARN)
    assert change(run, INVENTORY, less.quantity, less.of) > 0
    after = outcomes(run)[judged]
    assert after[0] in (before[0], Outcome.INCOMPLETE), after


@pytest.mark.parametrize("name", ("ecc", "remap_failed", "nvlinks", "slowdown", "pcie", "memory", "model", "mig"))
def test_a_gpu_that_never_says_it_is_not_known_beside_one_that_is_healthy(copied, name: str):
    run = copied("h100-healthy", "discovery")
    gate = f"discovery.gpu.{name}"
    assert outcomes(run)[gate, "n1"][0] is Outcome.PASS
    assert change(run, INVENTORY, gate, GPU_1) > 0
    outcome, why = outcomes(run)[gate, "n1"]
    assert (outcome, why) == (Outcome.INCOMPLETE, "not found out: 1 of 2 answered")


@case_for_each(
    ("node_sweep", "raw/sweep.jsonl", "sweep.inside.busbw", 0.0123, "sweep.inside.peers"),
    ("discovery", INVENTORY, "inventory.memory", 1.0, "discovery.memory"),
    ("discovery", "raw/clock.jsonl", "discovery.clock.behind_reference", 5.0, "discovery.clock.offset"),
)
def test_a_node_is_never_compared_with_itself_alone(copied, phase, file, quantity, sick, gate):
    """The sick one of two went on as healthy when the healthy one fell silent."""
    run = copied("local-healthy", phase)
    assert change(run, file, quantity, "n1", sick) > 0
    assert outcomes(run)[gate, "n1"][0] is Outcome.FAIL
    assert change(run, file, EVERYTHING, "n0") > 0
    outcome, why = outcomes(run)[gate, "n1"]
    assert outcome is Outcome.INCOMPLETE
    assert "no other node was there to compare with" in why


def test_of_two_clocks_each_has_the_whole_difference_unless_one_is_known_to_drift(copied):
    """It was half of it: 0.19 s passed a limit of 0.1 s on both nodes."""
    run = copied("local-healthy", "discovery")
    assert change(run, "raw/clock.jsonl", "discovery.clock.behind_reference", "n1", 0.8) > 0
    assert [outcomes(run)["discovery.clock.offset", node][0] for node in ("n0", "n1")] == [Outcome.FAIL, Outcome.FAIL]
    for node, is_held in (("n0", True), ("n1", False)):
        assert change(run, INVENTORY, "discovery.clock.synchronised", node, is_held) > 0
    assert [outcomes(run)["discovery.clock.offset", node][0] for node in ("n0", "n1")] == [Outcome.PASS, Outcome.FAIL]
