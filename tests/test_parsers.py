"""Parsers on real output: healthy, degraded, truncated, empty, and not that at all."""

import json

import pytest
from bringup.evidence import facts, monitor, slurm
from bringup.evidence.parsed import Parsed
from bringup.evidence.slurm import gpus_of
from runs_for_tests import FIXTURES

SLURM = FIXTURES / "slurm"


def values(parsed: Parsed, quantity: str) -> dict[str, object]:
    return {one.subject: one.value for one in parsed.observations if one.quantity == quantity}


def test_six_node_states_are_read_with_their_harmful_flags():
    parsed = slurm.nodes((SLURM / "nodes-six-states.txt").read_text(), "f")
    assert values(parsed, "slurm.node.state") == {
        "n0": "MIXED",
        "n1": "MIXED+DRAIN",
        "n2": "IDLE+DRAIN",
        "n3": "DOWN+NOT_RESPONDING",
        "n4": "IDLE+DRAIN+INVALID_REG",
        "n5": "IDLE",
    }
    assert set(values(parsed, "slurm.node.gpus").values()) == {4}
    assert parsed.problems == []


def test_a_reason_with_a_pipe_and_quotes_is_kept_whole():
    parsed = slurm.nodes((SLURM / "nodes-six-states.txt").read_text(), "f")
    assert [one.why for one in parsed.observations if one.subject == "n2" and one.why] == ["rack 7, PDU 'b' | pipe"]


def test_a_reason_that_looks_like_a_state_changes_nothing():
    line = "NodeName=n0 Gres=gpu:8 State=DOWN+DRAIN Reason=said State=IDLE Gres=gpu:1 [root@2026-01-01T00:00:00]"
    parsed = slurm.nodes(line, "f")
    assert values(parsed, "slurm.node.state") == {"n0": "DOWN+DRAIN"}
    assert values(parsed, "slurm.node.gpus") == {"n0": 8}


def test_completing_is_no_fault():
    parsed = slurm.nodes("NodeName=n0 State=IDLE+COMPLETING+PLANNED ThreadsPerCore=1", "f")
    assert values(parsed, "slurm.node.state") == {"n0": "IDLE"}


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("gpu:8", 8),
        ("gpu:h100:8", 8),
        ("gpu:h100:8(S:0-1)", 8),
        ("gpu:a100:4(S:0,1),shard:16", 4),
        ("(null)", 0),
        (None, 0),
        ("nic:2", 0),
        ("gpu:a:1,gpu:b:2", 3),
    ],
)
def test_gpus_are_counted_in_every_spelling_of_gres(gres, count):
    assert gpus_of(gres) == count


@pytest.mark.parametrize("after", ["State=IDLE", "Gres=gpu:h100:4", "NodeName=n0"])
def test_a_node_line_that_is_cut_off_says_no_state(after):
    line = "NodeName=n0 Arch=x86_64 Gres=gpu:h100:4 NodeAddr=10.77.1.10 State=IDLE+DRAIN ThreadsPerCore=1"
    parsed = slurm.nodes(line[: line.index(after) + len(after)], "f")
    assert parsed.observations == []
    assert "not a line" in parsed.problems[0]


@pytest.mark.parametrize("parser", [slurm.nodes, slurm.config, slurm.ping, facts.parse])
def test_an_empty_answer_is_a_problem_and_no_observation(parser):
    parsed = parser("", "f")
    assert parsed.observations == []
    assert parsed.problems != []


@pytest.mark.parametrize("parser", [slurm.nodes, slurm.ping, facts.parse])
def test_something_else_is_a_problem_and_no_observation(parser):
    parsed = parser("slurm_load_node error: Unable to contact slurm controller (connect failure)\n", "f")
    assert parsed.observations == []
    assert parsed.problems != []


def test_the_controller_that_answers_is_up():
    text = (SLURM / "ping.txt").read_text()
    assert values(slurm.ping(text, "f"), "slurm.controller.primary") == {"job": "UP"}
    assert values(slurm.ping(text.replace("UP", "DOWN"), "f"), "slurm.controller.primary") == {"job": "DOWN"}


def test_the_cgroup_section_of_the_configuration_is_read():
    parsed = slurm.config((SLURM / "config.txt").read_text(), "f")
    assert values(parsed, "slurm.config.ConstrainDevices") == {"job": "yes"}


@pytest.mark.parametrize(
    ("file", "field", "value"),
    [
        ("job-exit-code.txt", "ExitCode", "7:0"),
        ("job-out-of-memory.txt", "JobState", "OUT_OF_MEMORY"),
        ("job-failed.txt", "JobState", "FAILED"),
    ],
)
def test_one_field_of_a_job_is_read(file, field, value):
    parsed = slurm.job((SLURM / file).read_text(), "f", quantity="q", field=field)
    assert values(parsed, "q") == {"job": value}


def test_srun_names_the_node_that_could_not_be_reached():
    assert values(slurm.launch_errors((SLURM / "node-off-launch.txt").read_text(), "f"), "slurm.launch.error") == {
        "n3": "Communication connection failure"
    }
    killed = slurm.launch_errors((SLURM / "rank-killed.txt").read_text(), "f").observations
    assert ("n1", "Killed") in {(one.subject, one.value) for one in killed}
    assert slurm.launch_errors("", "f").observations == []


def test_several_tasks_that_srun_names_together_are_named():
    said = slurm.launch_errors(
        "srun: error: n1: tasks 2-3: Killed\nsrun: error: n0: task 0: Exited with exit code 1\n", "f"
    )
    assert [(one.subject, one.why, one.value) for one in said.observations] == [
        ("n1", "tasks 2-3", "Killed"),
        ("n0", "task 0", "Exited with exit code 1"),
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "slurmstepd-n1: error: execve(): /home/u/.venv/bin/python: No such file or directory",
            "execve(): /home/u/.venv/bin/python: No such file or directory",
        ),
        ("torchrun: line 2: exec: torchrun: not found", "torchrun: line 2: exec: torchrun: not found"),
        (
            "no Python environment at /home/u/.venv, seen from n1; is it on a filesystem that all nodes share?",
            "no Python environment at /home/u/.venv",
        ),
        ("ModuleNotFoundError: No module named 'torch'", "ModuleNotFoundError: No module named 'torch'"),
        ("/usr/bin/python3: No module named torch", "/usr/bin/python3: No module named torch"),
        (
            "bash: /home/u/.venv/bin/torchrun: /home/u/.venv/bin/python: bad interpreter: No such file or directory",
            "bash: /home/u/.venv/bin/torchrun: /home/u/.venv/bin/python: bad interpreter: No such file or directory",
        ),
        (
            "/usr/bin/python3: can't open file '/home/u/training/src/a.py': [Errno 2] No such file or directory",
            "/usr/bin/python3: can't open file '/home/u/training/src/a.py': [Errno 2] No such file or directory",
        ),
        (
            "python: error while loading shared libraries: libpython3.11.so.1.0: cannot open shared object file",
            "python: error while loading shared libraries: libpython3.11.so.1.0: cannot open shared object file",
        ),
    ],
)
@pytest.mark.parametrize("label", ["2: ", " 2: "])
def test_a_task_that_could_not_start_says_why_in_its_own_words(label, line, says):
    """Lines of a step on a node without a Python environment; srun pads its labels when there are ten tasks or more."""
    text = (
        f"{label}{line}\nsrun: error: n1: tasks 2-3: Exited with exit code 2\n"
        "srun: launch/slurm: _step_signal: Terminating StepId=3.2\n"
        "0: slurmstepd-n0: error: *** STEP 3.2 ON n0 CANCELLED AT 2026-11-22T09:24:08 ***\n"
        "srun: error: n0: tasks 0-1: Terminated\n"
    )
    assert [(one.subject, one.value) for one in slurm.launch_errors(text, "f").observations] == [
        ("n1", f"Exited with exit code 2; could not start: {says}"),
        ("n0", "Terminated"),
    ]


def test_a_task_that_started_and_raised_is_quoted_and_is_not_called_one_that_could_not_start():
    text = (
        "1: something: not found, and never mind\n1: ValueError: first\n1: RuntimeError: no good\n0: OSError: another's\n"
        "srun: error: n1: task 1: Exited with exit code 1\n"
    )
    assert values(slurm.launch_errors(text, "f"), "slurm.launch.error") == {
        "n1": "Exited with exit code 1; RuntimeError: no good"
    }


def test_facts_of_two_labelled_nodes_are_read():
    parsed = facts.parse((FIXTURES / "inventory-two-nodes.jsonl").read_text(), "f")
    assert values(parsed, "discovery.gpu.count") == {"n0": 2, "n1": 2}
    assert values(parsed, "probe.inventory.finished") == {"n0": True, "n1": True}
    assert parsed.problems == []


def test_an_unknown_keeps_its_reason():
    parsed = facts.parse((FIXTURES / "inventory-two-nodes.jsonl").read_text(), "f")
    driver = next(one for one in parsed.observations if one.quantity == "discovery.gpu.driver")
    assert driver.value is None
    assert driver.why == "nvidia-smi is not installed"


FACT = {"probe": "p", "at": "n0", "subject": "n0", "quantity": "q", "value": 1, "unit": "count"}


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[]",
        '{"probe": "p"}',
        json.dumps(FACT | {"value": None}),
        json.dumps(FACT | {"value": {"a": 1}}),
        json.dumps(FACT | {"more": 1}),
        json.dumps(FACT | {"subject": 3}),
        json.dumps(FACT).replace(": 1", ": NaN"),
        json.dumps(FACT | {"value": [1]}),
        '{"probe": "p", "at": "n0", "end": "1"}',
    ],
)
def test_a_line_that_is_no_fact_is_a_problem(line):
    parsed = facts.parse(line + "\n", "f")
    assert parsed.observations == []
    assert "not a fact" in parsed.problems[0]


def test_a_task_that_lost_a_line_has_not_finished():
    lines = [json.dumps(FACT), json.dumps({"probe": "p", "at": "n0", "end": 2})]
    parsed = facts.parse("\n".join(lines), "f")
    (finished,) = (one for one in parsed.observations if one.quantity == "probe.p.finished")
    assert finished.value is None
    assert "wrote 2 facts, 1 arrived" in parsed.problems[0]


def test_two_tasks_of_one_node_are_counted_apart():
    end = json.dumps({"probe": "p", "at": "n0", "end": 1})
    parsed = facts.parse("\n".join(f"{task}: {line}" for line in (json.dumps(FACT), end) for task in (0, 1)), "f")
    assert parsed.problems == []
    assert len([one for one in parsed.observations if one.quantity == "probe.p.finished"]) == 2


def test_the_monitor_is_judged_on_the_samples_that_the_duration_asks_for():
    text = (FIXTURES / "monitor.csv").read_text()
    assert values(monitor.parse(text, "f", 7.0), "monitor.coverage") == {"n0": 1.0, "n1": 1.0}
    assert values(monitor.parse(text, "f", 71.0), "monitor.coverage") == {"n0": 0.1, "n1": 0.1}
    assert values(monitor.parse(text, "f", None), "monitor.coverage") == {"n0": None, "n1": None}
    assert monitor.parse("", "f", 7.0).problems == ["f: holds no sample"]


def test_a_damaged_sample_is_a_problem_and_no_crash():
    parsed = monitor.parse("0: n0,1.0,abc,1,2,3,,,\n0: n0,1\n", "f", 2.0)
    assert len(parsed.problems) == 3
    assert parsed.observations == []
