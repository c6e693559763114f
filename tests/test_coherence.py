"""What nodes see of each other's files: the probe itself, a process per node, on folders of this machine."""

import importlib
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from bringup.evidence import facts
from bringup.evidence.parsed import Parsed
from bringup.plan import rounds as tournament

PROBE = Path(__file__).resolve().parents[1] / "infrastructure-validation/probes/coherence.py"
STEPS = ("write", "read", "change", "see")
FLAGS = ("write", "attributes", "lock_refused", "append", "rename", "unlink")


def performed(
    folders: dict[str, Path], usable: list[str] | None = None, between: dict[str, Callable[[], object]] | None = None
) -> Parsed:
    """All steps, each on all usable nodes at once. folders: what each node takes for the shared one. between: before a step."""
    names, parsed = list(folders), Parsed()
    usable = usable or names
    rounds = ",".join(str(number) for number in tournament.circle_rounds(names))
    for step in STEPS:
        (between or {}).get(step, lambda: None)()
        running = [
            subprocess.Popen(
                [sys.executable, PROBE, step, folders[node], ",".join(names), ",".join(usable), rounds],
                env={**os.environ, "SLURMD_NODENAME": node},
                stdout=subprocess.PIPE,
                text=True,
            )
            for node in usable
        ]
        for process in running:
            parsed.add(facts.parse(process.communicate()[0], step))
            assert process.returncode == 0
    assert parsed.problems == []
    return parsed


def flags(parsed: Parsed, case: str) -> dict[str, object]:
    return {one.subject: one.value for one in parsed.observations if one.quantity == f"smoke.fs.pair.{case}"}


def test_on_one_folder_every_ordered_pair_sees_everything(tmp_path):
    names = ["n0", "n1", "n2"]
    parsed = performed(dict.fromkeys(names, tmp_path))
    pairs = {f"{writer}->{reader}" for writer, reader in tournament.ordered_pairs(names)}
    assert len(pairs) == 6
    for case in FLAGS:
        assert flags(parsed, case) == dict.fromkeys(pairs, True)
    late = flags(parsed, "late_lookup_s")
    assert set(late) == pairs
    made = [one.subject for one in parsed.observations if one.quantity == "smoke.fs.pair.created" and one.value is True]
    assert sorted(made) == sorted(pairs)  # of each pair, one


def test_a_node_with_a_folder_of_its_own_fails_with_all_of_its_partners_and_no_other_pair(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    parsed = performed({"n0": tmp_path, "n1": own, "n2": tmp_path})
    bad = {pair for pair, seen in flags(parsed, "write").items() if seen is not True}
    assert bad == {"n0->n1", "n2->n1", "n1->n0", "n1->n2"}
    assert {pair for pair, seen in flags(parsed, "append").items() if seen is True} == {"n0->n2", "n2->n0"}


def test_a_file_that_cannot_be_read_costs_its_pair_and_no_other(tmp_path):
    """Bytes that are no text, and a name that leads nowhere, once ended all answers of a node."""
    names = ["n0", "n1", "n2"]
    parsed = performed(
        dict.fromkeys(names, tmp_path), between={"read": lambda: (tmp_path / "n1.data").write_bytes(b"\xff\xfe")}
    )
    wrong = {pair for pair, seen in flags(parsed, "write").items() if seen is not True}
    assert wrong == {"n1->n0", "n1->n2"}
    assert {flags(parsed, "append")[pair] for pair in ("n0->n2", "n2->n0", "n0->n1")} == {True}


def test_a_slow_starter_gets_no_lock_that_was_let_go(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(PROBE.parent))
    coherence = importlib.import_module("coherence")
    stream = io.StringIO()
    circle = coherence.Circle(
        SimpleNamespace(
            at="n0",
            saw=lambda *fact: stream.write(f"{fact[0]} {fact[1]}\n"),
            unknown=lambda quantity, *fact: stream.write(f"{quantity} unknown: {fact[1]}\n"),
        ),
        tmp_path,
        ["n0", "n1"],
        ["n0", "n1"],
        [1],
    )
    (tmp_path / "n1.lock").touch()
    coherence.try_lock(circle, "n1", tmp_path / "n1.held")  # it has ended: held is gone
    assert stream.getvalue() == "smoke.fs.pair.lock_refused unknown: n1 had let go of its lock\n"
    (tmp_path / "n1.held").touch()
    coherence.try_lock(circle, "n1", tmp_path / "n1.held")
    assert stream.getvalue().endswith("smoke.fs.pair.lock_refused False\n")


def test_a_node_that_does_not_run_leaves_its_pairs_without_evidence(tmp_path):
    parsed = performed(dict.fromkeys(("n0", "n1", "n2"), tmp_path), usable=["n0", "n2"])
    for case in FLAGS:
        assert set(flags(parsed, case)) == {"n0->n2", "n2->n0"}


def test_one_node_says_that_it_can_write_and_has_no_pair(tmp_path):
    parsed = performed({"n0": tmp_path})
    assert {one.quantity for one in parsed.observations if ".pair." in one.quantity} == set()
    assert next(one.value for one in parsed.observations if one.quantity == "smoke.fs.write_error") == "none"


@pytest.mark.parametrize(
    "arguments", [(), ("write", "/tmp", "n0"), ("look", "/tmp", "n0", "n0", "1"), ("write", "/tmp", "n1", "n1", "1")]
)
def test_a_wrong_call_says_how(arguments):
    done = subprocess.run(
        [sys.executable, PROBE, *arguments], env={**os.environ, "SLURMD_NODENAME": "n0"}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "usage: coherence.py" in done.stderr or "n0 is none of n1" in done.stderr
