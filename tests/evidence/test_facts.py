"""Lines that probes print: whole, damaged, cut off, there twice, and not that at all."""

import json
import re
import tarfile
from pathlib import Path

import pytest
from bringup.kernel.facts import facts
from bringup.readers import files
from loops import for_each
from runs_for_tests import FIXTURES, values


@pytest.mark.parametrize("text", ["", "bash: python3: command not found\n"], ids=["empty", "something else"])
def test_a_file_without_a_fact_is_a_problem_and_no_observation(text):
    parsed = facts.parse(text, "f")
    assert parsed.observations == []
    assert parsed.problems != []


FACT = {"probe": "p", "at": "n0", "subject": "n0", "quantity": "q", "value": 1, "unit": "count"}


def test_facts_of_two_labelled_nodes_are_read():
    parsed = facts.parse((FIXTURES / "inventory-two-nodes.jsonl").read_text(), "f")
    assert values(parsed, "discovery.gpu.count") == {"n0": 2, "n1": 2}
    assert values(parsed, "probe.inventory.finished") == {"n0": True, "n1": True}
    assert parsed.problems == []


def test_evidence_names_the_line_that_grep_gives_behind_a_carriage_return():
    parsed = facts.parse(f"10%\r20%\u2028\x0b\n{json.dumps(FACT)}\ntorn\rhere\n", "f")
    assert [observation.evidence for observation in parsed.observations if observation.quantity == "q"] == ["f:2"]
    assert [problem.partition(": ")[0] for problem in parsed.problems[:2]] == ["f:1", "f:3"]


def test_an_unknown_keeps_its_reason():
    parsed = facts.parse((FIXTURES / "inventory-two-nodes.jsonl").read_text(), "f")
    driver = next(observation for observation in parsed.observations if observation.quantity == "discovery.gpu.driver")
    assert driver.value is None
    assert driver.why == "nvidia-smi is not installed"
    empty = [FACT | {"value": ""}, {"probe": "p", "at": "n0", "end": 1}]
    assert values(facts.parse("\n".join(map(json.dumps, empty)), "f"), "q") == {"n0": None}


CHANGES = ({"value": None}, {"value": {"a": 1}}, {"value": [1]}, {"more": 1}, {"subject": 3})


@for_each(
    *("not json", "[]", '{"probe": "p"}', '{"probe": "p", "at": "n0", "end": "1"}'),
    *(json.dumps(FACT | change) for change in CHANGES),
    json.dumps(FACT).replace(": 1", ": NaN"),
)
def test_a_line_that_is_no_fact_is_a_problem(line):
    parsed = facts.parse(line + "\n", "f")
    assert parsed.observations == []
    assert "not a fact" in parsed.problems[0]


def test_a_task_that_lost_a_line_has_not_finished():
    parsed = facts.parse("\n".join([json.dumps(FACT), json.dumps({"probe": "p", "at": "n0", "end": 2})]), "f")
    (finished,) = (observation for observation in parsed.observations if observation.quantity == "probe.p.finished")
    assert finished.value is None
    assert "wrote 2 facts, 1 arrived" in parsed.problems[0]


def test_two_tasks_of_one_node_are_counted_apart():
    end = json.dumps({"probe": "p", "at": "n0", "end": 1})
    parsed = facts.parse("\n".join(f"{task}: {line}" for line in (json.dumps(FACT), end) for task in (0, 1)), "f")
    assert parsed.problems == []
    assert len([observation for observation in parsed.observations if observation.quantity == "probe.p.finished"]) == 2


@for_each(((1,),), ((2, 2),), ((1, 2),), ((3,),))
def test_facts_count_only_where_one_closing_line_tells_their_number(ends):
    """A probe that began again, or whose lines were doubled, is not one that finished."""
    closing = [json.dumps({"probe": "p", "at": "n0", "end": end}) for end in ends]
    parsed = facts.parse("\n".join([*[json.dumps(FACT)] * 2, *closing]), "f")
    assert values(parsed, "probe.p.finished") == values(parsed, "q") == {"n0": None}
    end = {"probe": "p", "at": "n0", "end": 1}
    assert facts.parse(f"{json.dumps(FACT)}\n{json.dumps(end)}", "f").problems == []


# ---- the table of readers: each file of raw/ has one, or none on purpose


NOT_READ = re.compile(  # shown to people, searched for known faults, read by a probe, or read together with others
    r"progress\.jsonl|.+\.log|nvidia-smi-q-.+\.txt|(shared_fs|storage|launchers|inspector|pair-logs-.+)/.+"
    r"|nccl-(1gpu|\d+)/.+|(torchrun|stacks)/.+|reference\..+\.json|.+\.seconds|rounds-again\.txt|bad-exit\.stderr"
    r"|scontrol-(partition|job)\.txt|job-array\.txt"
)


def test_every_recorded_file_has_one_reader_or_none_on_purpose():
    names: set[str] = set()
    for recording in (Path(__file__).parents[1] / "golden/recordings").glob("*.tar.xz"):
        with tarfile.open(recording) as tar:
            names |= {member.name.partition("/raw/")[2] for member in tar if member.isfile() and "/raw/" in member.name}
    names |= {f"variant_ring-2.{suffix}" for suffix in ("jsonl", "txt", "err")} | {"variant_ring-1gpu.rc"}
    names |= {"all_reduce_perf-1gpu.txt", "collectives-1gpu.jsonl", "nccl-2/ras.rank0.txt"}
    names |= {"not-opened.txt", "stacks/rank0.json", "job-warning.txt", "scontrol-topology.txt", "parts-left-out.txt"}
    names |= {"sigterm.txt", "starts.txt", "launches.txt", "segment.txt"}
    readers = {name: [pattern for pattern in files.FILES if re.fullmatch(pattern, name)] for name in names}
    assert {name: matching for name, matching in readers.items() if len(matching) > 1} == {}
    assert {name for name, matching in readers.items() if not matching and not NOT_READ.fullmatch(name)} == set()
    assert {pattern for matching in readers.values() for pattern in matching} == set(files.FILES)
