"""What Slurm's commands answer, and jobs of the smoke phase left: healthy, degraded, cut off, empty, refused, no such
command."""

import time
from functools import partial

import pytest
from bringup.kernel.facts.parser_result import Seen
from bringup.readers import slurm, smoke_jobs, srun
from bringup.readers.slurm import gpus_of
from loops import case_for_each, for_each
from runs_for_tests import FIXTURES, OPEN, PASS, WARN, judged, values
from showing import shows_failing

ended_job = partial(smoke_jobs.ended_job, name="x")
EXIT_CODE, CONSTRAINED = "smoke.x.ExitCode", "slurm.config.ConstrainDevices"
PLUGINS = ["none", "cray_shasta", "pmi2", "pmix_v4"]


def read(name):
    return (FIXTURES / "slurm" / name).read_text()


def value(parser, text, quantity):
    """What the parser saw, None when it saw nothing."""
    values = [observation.value for observation in parser(text, "f").observations if observation.quantity == quantity]
    assert len(values) <= 1
    return values[0] if values else None


@pytest.mark.parametrize(
    ("parser", "file", "quantity", "says"),
    [
        (smoke_jobs.ping, "ping.txt", "smoke.controller", "UP"),
        (slurm.config, "config.txt", "slurm.config.SlurmdTimeout", "12 sec"),
        (ended_job, "job-exit-code.txt", EXIT_CODE, "7:0"),
        (slurm.mpi_list, "mpi-list.txt", "slurm.mpi.plugins", ["pmix", *PLUGINS]),
    ],
)
class TestAnAnswer:
    def test_that_is_whole_is_read(self, parser, file, quantity, says):
        assert value(parser, read(file), quantity) == says
        assert parser(read(file), "f").problems == []

    def test_that_was_cut_off_says_the_same_or_nothing_and_is_a_problem(self, parser, file, quantity, says):
        text = read(file).rstrip() + "\n"
        for end in range(1, len(text) - 1, max(1, len(text) // 200)):
            parsed = parser(text[:end], "f")
            seen = value(parser, text[:end], quantity)
            # whole plugins, the last are missing
            assert seen in (None, says) or (isinstance(seen, list) and set(seen) < set(says))
            assert parsed.problems or text[:end].endswith("\n")

    @case_for_each(
        "",
        "\n",
        "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n",
        "bash: line 1: scontrol: command not found\n",
        "srun: error: Invalid MPI type\n",
        ids=["empty", "a blank line", "refused", "tool absent", "no plugin"],
    )
    def test_that_is_none_is_a_problem_and_no_observation(self, parser, file, quantity, says, text):
        parsed = parser(text, "f")
        assert parsed.observations == []
        assert parsed.problems != []


@case_for_each(
    (smoke_jobs.ping, "ping.txt", "UP", "DOWN", "smoke.controller", "DOWN"),
    (slurm.config, "config.txt", "Devices        = yes", "Devices        = No", CONSTRAINED, "no"),
    (ended_job, "job-exit-code.txt", "ExitCode=7:0", "ExitCode=0:9", EXIT_CODE, "0:9"),
    (slurm.mpi_list, "mpi-list.txt", "\tpmix\n", "", "slurm.mpi.plugins", PLUGINS),
)
def test_a_degraded_answer_is_read_as_it_is(parser, file, old, new, quantity, says):
    text = read(file)
    assert old in text
    assert value(parser, text.replace(old, new, 1), quantity) == says


def test_a_file_of_an_administrator_may_end_without_a_line_feed():
    text = "CgroupPlugin=autodetect\n# nothing\nConstrainDevices=yes"
    assert value(slurm.cgroup_conf, text, "slurm.config.ConstrainDevices") == "yes"


def test_six_node_states_are_read_with_their_harmful_flags():
    parsed = slurm.nodes(read("nodes-six-states.txt"), "f")
    states = ("MIXED", "MIXED+DRAIN", "IDLE+DRAIN", "DOWN+NOT_RESPONDING", "IDLE+DRAIN+INVALID_REG", "IDLE")
    assert values(parsed, "slurm.node.state") == {f"n{number}": state for number, state in enumerate(states)}
    assert set(values(parsed, "slurm.node.gpus").values()) == {4}
    assert {seen.why for seen in parsed.observations if seen.subject == "n2"} == {None, "rack 7, PDU 'b' | pipe"}
    assert parsed.problems == []


def test_who_set_a_reason_and_when_is_no_part_of_it_in_any_format_of_time():
    for moment in ("2026-01-01T00:00:00", "Mon 09:41", "01 Jan 2018"):
        line = f"NodeName=n0 Gres=gpu:8 State=IDLE+DRAIN Reason=fan [rack 3] [op@{moment}] Comment=spare"
        assert values(slurm.nodes(line, "f"), "slurm.node.state") == {"n0": "IDLE+DRAIN"}
        assert {fact.why for fact in slurm.nodes(line, "f").observations if fact.why} == {"fan [rack 3]"}


def test_a_reason_that_looks_like_a_state_changes_nothing():
    line = "NodeName=n0 Gres=gpu:8 State=DOWN+DRAIN Reason=said State=IDLE Gres=gpu:1 [root@2026-01-01T00:00:00]"
    parsed = slurm.nodes(line, "f")
    assert values(parsed, "slurm.node.state") == {"n0": "DOWN+DRAIN"}
    assert values(parsed, "slurm.node.gpus") == {"n0": 8}


@for_each(
    *((gres, 8) for gres in ("gpu:8", "gpu:h100:8", "gpu:h100:8(S:0-1)")),
    *((gres, 0) for gres in ("(null)", None, "nic:2")),
    *(("gpu:a100:4(S:0,1),shard:16", 4), ("gpu:a:1,gpu:b:2", 3)),
)
def test_gpus_are_counted_in_every_spelling_of_gres(gres, count):
    assert gpus_of(gres) == count


@pytest.mark.parametrize("after", ["State=IDLE", "Gres=gpu:h100:4", "NodeName=n0"])
def test_a_node_line_that_is_cut_off_says_no_state(after):
    line = "NodeName=n0 Arch=x86_64 Gres=gpu:h100:4 NodeAddr=10.77.1.10 State=IDLE+DRAIN ThreadsPerCore=1"
    parsed = slurm.nodes(line[: line.index(after) + len(after)], "f")
    assert parsed.observations == []
    assert "not a line" in parsed.problems[0]


@for_each(
    ("job-exit-code.txt", "ExitCode", "7:0"),
    ("job-out-of-memory.txt", "state", "OUT_OF_MEMORY"),
    ("job-failed.txt", "state", "FAILED"),
    ("sacct-out-of-memory.txt", "state", "OUT_OF_MEMORY"),
    ("sacct-out-of-memory.txt", "ExitCode", "0:125"),
    ("sacct-cancelled.txt", "state", "CANCELLED"),
    ("sacct-cancelled.txt", "SubmitTime", "2026-09-03T11:55:02"),
    ("sacct-cancelled.txt", "StartTime", "None"),
)
def test_one_field_of_a_job_is_read(file, field, value):
    assert values(ended_job(read(file), "f"), f"smoke.x.{field}") == {"job": value}


@for_each(
    ("n1: tasks 2-3: Killed", ["n1"], "tasks 2-3", "Killed"),
    ("n0: task 0: Exited with exit code 1", ["n0"], "task 0", "Exited with exit code 1"),
    ("n[0-1]: tasks 0-1: Exited with exit code 127", ["n0", "n1"], "tasks 0-1", "Exited with exit code 127"),
    ("n[0-99999999]: tasks 0-1: Killed", ["n[0-99999999]"], "tasks 0-1", "Killed"),  # no node list: as srun said it
)
def test_nodes_and_tasks_that_srun_names_together_are_each_named(line, nodes, tasks, says):
    seen = srun.launch_errors(f"srun: error: {line}\nsrun: error: Node failure on n[3-4,7]\n", "f").observations
    errors = [(each.subject, each.why, each.value) for each in seen if each.quantity == "slurm.launch.error"]
    assert errors[: len(nodes)] == [(node, tasks, says) for node in nodes]
    assert list(Seen(seen).by_subject("slurm.launch.lost")) == ["n3", "n4", "n7"]


@for_each(
    ("slurmstepd-n1: error: execve(): /u/python: No such file", "execve(): /u/python: No such file"),
    ("no Python environment at /u/.venv, seen from n1; is it shared?", "no Python environment at /u/.venv"),
    *(
        (line, line)
        for line in (
            "torchrun: line 2: exec: torchrun: not found",
            "ModuleNotFoundError: No module named 'torch'",
            "/usr/bin/python3: No module named torch",
            "bash: /u/bin/torchrun: /u/bin/python: bad interpreter: No such file or directory",
            "/usr/bin/python3: can't open file '/u/training/src/a.py': [Errno 2] No such file or directory",
            "python: error while loading shared libraries: libpython3.11.so.1.0: cannot open shared object file",
        )
    ),
)
@for_each("2: ", " 2: ")
def test_a_task_that_could_not_start_says_why_in_its_own_words(line, says, label):
    """Lines of a step on a node without a Python environment; srun pads its labels when there are ten tasks or more."""
    text = (
        f"{label}{line}\nsrun: error: n1: tasks 2-3: Exited with exit code 2\n"
        "srun: launch/slurm: _step_signal: Terminating StepId=3.2\n"
        "0: slurmstepd-n0: error: *** STEP 3.2 ON n0 CANCELLED AT 2026-11-22T09:24:08 ***\n"
        "srun: error: n0: tasks 0-1: Terminated\n"
    )
    seen = srun.launch_errors(text, "f").observations
    not_started = [(each.subject, each.value) for each in seen if each.quantity == "slurm.launch.not_started"]
    assert not_started == [("n1", says)]
    ended = [(each.subject, each.value) for each in seen if each.quantity == "slurm.launch.error"]
    assert ended == [("n1", f"Exited with exit code 2; could not start: {says}"), ("n0", "Terminated")]


def test_a_task_that_started_and_raised_is_quoted_and_is_not_called_one_that_could_not_start():
    text = (
        "1: something: not found, and never mind\n1: ValueError: first\n1: RuntimeError: no good\n"
        "0: OSError: another's\n"
        "srun: error: n1: task 1: Exited with exit code 1\n"
    )
    errors = values(srun.launch_errors(text, "f"), "slurm.launch.error")
    assert errors == {"n1": "Exited with exit code 1; RuntimeError: no good"}


@for_each(slurm.nodes, smoke_jobs.bad_exit, smoke_jobs.requeue)
@for_each(
    "",
    "bash: python3: command not found\n",
    "slurm_load_node error: Unable to contact slurm controller (connect failure)\n",
    f"n0 restarts {'9' * 5000}\n",
)
def test_an_answer_about_no_node_or_job_is_a_problem_and_no_observation(parser, text):
    parsed = parser(text, "f")
    assert parsed.observations == []
    assert parsed.problems != []


@case_for_each(
    "srun: MPI types are...\nsrun: none\nsrun: pmix_v3\nsrun: pmix\n",
    "MPI plugin types are...\n\tpmix\n\tnone\nspecific pmix plugin versions available: pmix_v4\n",
)
def test_both_spellings_of_the_list_are_read(text):
    plugins = slurm.mpi_list(text, "f").observations[0].value
    assert isinstance(plugins, list)
    assert {"none", "pmix"} <= set(plugins)


@for_each("\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028")
def test_lines_are_counted_as_grep_counts_them(mark):
    """A progress bar ends its lines with a carriage return; other marks stand in a Reason that somebody pasted."""
    error = srun.launch_errors(f"10%{mark}20%{mark}30%\nsrun: error: n1: task 1: Killed\n", "f").observations[0]
    assert error.evidence == "f:2"
    parsed = slurm.nodes(f"NodeName=n0 State=DOWN+DRAIN Reason=rack{mark}7\nNodeName=n1 State=IDLE Reason=none\n", "f")
    assert {(seen.subject, seen.evidence) for seen in parsed.observations} == {("n0", "f:1"), ("n1", "f:2")}
    assert parsed.problems == []
    assert smoke_jobs.ping(f"10%{mark}20%\nSlurmctld(primary) at c0 is UP\n", "f").observations[0].evidence == "f:2"
    setting = slurm.cgroup_conf(f"# old{mark}notes\nConstrainDevices=yes\n", "f").observations[0]
    assert setting.evidence == "f:2"


BEGAN = "0: n0 began\n1: n0 began\n2: n1 began\n3: n1 began\n"


@case_for_each(
    (BEGAN, {"n0": 0, "n1": 0}),
    (BEGAN + "3: n1 survived\n", {"n0": 0, "n1": 1}),
    ("0: n0 began\n1: n0 began\n2: n1 began\n", {"n0": 0, "n1": None}),
)
def test_tasks_that_outlive_a_failed_one_are_counted_per_node(text, survivors):
    assert values(smoke_jobs.bad_exit(text, "f"), "smoke.bad_exit") == survivors


@case_for_each(
    ("n0 restarts 0\nslurmstepd-n0: error: *** JOB 47 ON n0 CANCELLED DUE TO JOB REQUEUE ***\nn1 restarts 1\n", 1),
    ("n0 restarts 0\n", 0),
)
def test_a_requeued_job_says_how_often_it_began_again(text, restarts):
    assert values(smoke_jobs.requeue(text, "f"), "smoke.requeue") == {"job": restarts}


@case_for_each(("FAILED", True), ("TIMEOUT", True), ("PREEMPTED", False), ("NODE_FAIL", False))
def test_of_a_job_that_slurm_took_away_no_end_is_known(state, is_known):
    text = f"JobId=7 JobState={state} Reason=None ExitCode=0:15 SubmitTime=2026-11-28T13:00:00 \n"
    parsed = ended_job(text, "f")
    assert values(parsed, EXIT_CODE) == {"job": "0:15" if is_known else None}
    assert is_known or {seen.why for seen in parsed.observations} == {f"Slurm ended the job: {state}"}


def test_what_many_tasks_printed_is_read_once():
    text = "".join(f"{task}: ValueError: {task}\n{task}: step\n" for task in range(3000))
    text += "".join(f"srun: error: n0: task {task}: Exited with exit code 1\n" for task in range(3000))
    begun = time.process_time()
    seen = srun.launch_errors(text, "f").observations
    assert time.process_time() - begun < 2  # many times that, where each task reads all lines again
    assert seen[-1].value == "Exited with exit code 1; ValueError: 2999"


BLOCKS = "BlockName=b0 BlockIndex=0 Nodes=n1,n3 BlockSize=2\nBlockName=b1 BlockIndex=1 Nodes=n0,n2 BlockSize=2\n"
STARTS = "sbatch: Job 141002 to start at 2026-11-30T00:12:04 a using 2 processors on nodes {} in partition main\n"


@shows_failing("smoke.jobs.segment")
def test_a_segment_is_in_one_block_and_where_no_block_has_two_of_the_nodes_it_is_not_asked():
    """The first two answers are real ones of Slurm 26.05.5; the others are as they would be."""
    nodes = ["n0", "n1", "n2", "n3"]
    for text, of, says, outcome in (
        (BLOCKS + STARTS.format("n[1,3]"), nodes, "in one block", PASS),
        (BLOCKS + "allocation failure: Requested node configuration is not available\n", nodes, "refused", WARN),
        (BLOCKS + STARTS.format("n[0-1]"), nodes, "in several blocks", WARN),
        (BLOCKS + STARTS.format("n[0-1]"), ["n0", "n1"], "no such blocks", PASS),
        ("", nodes, "no such blocks", PASS),  # topology/flat
        (BLOCKS + "allocation failure: Job violates accounting/QOS policy\n", nodes, None, OPEN),
    ):
        verdict = judged(smoke_jobs.segment(text, "f", of), "smoke", nodes)["smoke.jobs.segment job"]
        assert (verdict.value, verdict.outcome) == (says, outcome)
