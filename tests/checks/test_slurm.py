"""Gates of Slurm: how it is configured, and what it does with jobs. Every gate without a drill is shown failing."""

import os
import time

import pytest
import scheduler
from bringup import judge
from bringup.evidence import slurm
from bringup.evidence.parsed import Parsed
from bringup.plan import profile
from bringup.records import Outcome, Run
from factory import a_run
from loops import for_each
from probing import told_by
from runs_for_tests import FIXTURES, about, add_derived, discovery, reseal, values
from showing import shows_failing

# ---- its configuration

FAIL, WARN = Outcome.FAIL, Outcome.WARN
CONFIG, NODES, MPI = "scontrol-config.txt", "scontrol-node.txt", "mpi-list.txt"
NEGATIVE = [
    ("discovery.slurm.version", NODES, "Version=22.05.8", "Version=21.08.1", WARN),
    ("discovery.slurm.gres_types", CONFIG, "GresTypes               = gpu", "GresTypes               = nic", FAIL),
    ("discovery.slurm.mpi_default", CONFIG, "MpiDefault              = none", "MpiDefault              = pmi9", FAIL),
    (
        "discovery.slurm.pmix",
        MPI,
        "\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n",
        "\tnone\n\tpmi2\n",
        WARN,
    ),
    ("discovery.slurm.kill_on_bad_exit", CONFIG, "", "", WARN),
    ("discovery.slurm.health_check", CONFIG, "", "", WARN),
    ("discovery.slurm.prolog", CONFIG, "", "", WARN),
    ("discovery.slurm.epilog", CONFIG, "", "", WARN),
]


@pytest.mark.parametrize(
    ("gate", "file", "good", "bad", "outcome"),
    [pytest.param(*row, marks=shows_failing(row[0]), id=row[0]) for row in NEGATIVE],
)
def test_a_gate_without_a_drill_fails_on_bad_evidence(tmp_path, monkeypatch, gate, file, good, bad, outcome):
    folder = discovery(tmp_path, monkeypatch)
    path = folder / "raw" / file
    text = path.read_text()
    assert good in text
    path.write_text(text.replace(good, bad, 1))
    verdicts = judge.judge_folder(reseal(folder), profile.load("generic")).verdicts.verdicts
    assert {verdict.outcome for verdict in verdicts if verdict.gate == gate} == {outcome}


class TestPrologsOfNewerVersions:
    """They are numbered there; without any there is no line."""

    def audit(self, *, prolog):
        lines = [
            line
            for line in (FIXTURES / "slurm/config.txt").read_text().splitlines()
            if not line.startswith(("Prolog  ", "Epilog  "))
        ]
        at = next(number for number, line in enumerate(lines) if line.startswith("PrologEpilogTimeout"))
        parsed = slurm.config("\n".join([*lines[:at], *prolog, *lines[at:], ""]), "f")
        add_derived(parsed)
        return {observation.quantity: observation.value for observation in parsed.observations}

    def test_a_numbered_one_is_read_and_the_first_stands_for_all(self):
        facts = self.audit(
            prolog=["Prolog[0]               = /etc/slurm/prolog.d/*", "Prolog[1]               = /etc/slurm/second"]
        )
        assert facts["slurm.config.Prolog"] == "/etc/slurm/prolog.d/*"
        assert facts["discovery.slurm.prolog"] is True

    def test_none_is_none_and_no_missing_answer(self):
        facts = self.audit(prolog=[])
        assert facts["discovery.slurm.prolog"] is False
        assert facts["discovery.slurm.epilog"] is False

    def test_an_answer_without_that_part_says_nothing(self):
        parsed = slurm.config("ClusterName = x\n", "f")
        add_derived(parsed)
        assert [seen.quantity for seen in parsed.observations if seen.quantity.startswith("discovery.slurm.")] == []


@for_each(
    ("default", "is_there"),
    [("none", True), ("(null)", True), ("pmix", True), ("pmix_v4", True), ("pmix_v5", False), ("pmi9", False)],
)
def test_a_default_mpi_plugin_is_there_when_it_is_listed_or_a_version_of_pmix_or_no_plugin(default, is_there):
    """Slurm 23.11 and later print (null) for none; versions of pmix stand on a line of their own."""
    parsed = slurm.config(f"MpiDefault              = {default}\n", "f")
    parsed.add(slurm.mpi_list((FIXTURES / "slurm/mpi-list.txt").read_text(), "g"))
    add_derived(parsed)
    assert {observation.quantity: observation.value for observation in parsed.observations}[
        "discovery.slurm.mpi_default"
    ] is is_there


def test_confinement_that_one_of_two_sources_denies_is_not_there(tmp_path, monkeypatch):
    """cgroup.conf on disk and what scontrol prints may differ until Slurm is restarted."""
    folder = discovery(tmp_path, monkeypatch)
    (folder / "raw/cgroup.conf").write_text("ConstrainDevices=no\n")
    verdicts = judge.judge_folder(reseal(folder)).verdicts.verdicts
    confined = next(verdict for verdict in verdicts if verdict.gate == "discovery.slurm.confines_devices")
    assert (confined.outcome, confined.value) == (Outcome.FAIL, "no")


def test_a_configuration_is_judged_by_discovery_and_by_no_other_phase():
    parsed = slurm.config((FIXTURES / "slurm/config.txt").read_text(), "f")
    add_derived(parsed, a_run("nccl_scaling"))
    assert not any(seen.quantity.startswith("discovery.slurm.") for seen in parsed.observations)


def test_a_node_with_a_gpu_more_than_slurm_knows_fails():
    """Nothing keeps two jobs from one that is not in Gres."""
    parsed = Parsed()
    for node, devices in (("n0", 8), ("n1", 7)):
        parsed.saw("slurm.node.gpus", node, 7, "count", "raw/scontrol-node.txt:1")
        parsed.saw("discovery.gpu.count", node, devices, "count", "raw/inventory.jsonl:1")
    run = a_run()
    add_derived(parsed, run)
    by_node = about("discovery.slurm.gres", parsed, run, "generic")
    assert {node: (verdict.outcome, verdict.value) for node, verdict in by_node.items()} == {
        "n0": (Outcome.FAIL, -1),
        "n1": (Outcome.PASS, 0),
    }


# ---- what it does with jobs


def derived(run: Run, *facts: tuple) -> Parsed:
    parsed = Parsed()
    for index, (quantity, subject, value) in enumerate(facts):
        parsed.saw(quantity, subject, value, "count", f"f:{index}", "said" if value is None else None)
    return add_derived(parsed, run)


@pytest.fixture
def run() -> Run:
    return a_run("smoke", ["n0", "n1", "n2"])


def test_a_lost_task_of_an_array_is_missing_in_the_list(run):
    facts = [("smoke.array.index", "job", str(index)) for index in (3, 0, 1)]
    assert values(derived(run, *facts), "smoke.array") == {"job": "0 1 3"}


@pytest.mark.parametrize(
    ("end", "start", "waited"),
    [
        ("2026-01-01T00:00:05", "2026-01-01T00:00:06", 1.0),
        ("2026-01-01T00:00:05", "2026-01-01T00:00:03", -2.0),
        ("2026-01-01T00:00:05", "Unknown", None),
    ],
)
def test_a_dependent_job_waits_for_the_end_of_the_other(run, end, start, waited):
    ended, started = ("smoke.before.EndTime", "job", end), ("smoke.after.StartTime", "job", start)
    assert values(derived(run, ended, started), "smoke.dependency.waits") == {"job": waited}
    for one_alone in (ended, started):
        assert values(derived(run, one_alone), "smoke.dependency.waits") == {}


@pytest.mark.parametrize(
    ("code", "warnings_seen", "warned"), [("0:10", (), [True]), ("0:0", (), []), ("0:10", (False,), [False])]
)
def test_a_signal_that_ended_a_script_before_it_began_had_come(run, code, warnings_seen, warned):
    parsed = derived(
        run,
        ("smoke.warning.ExitCode", "job", code),
        *(("smoke.time_limit.warned", "job", value) for value in warnings_seen),
    )
    assert [
        observation.value for observation in parsed.observations if observation.quantity == "smoke.time_limit.warned"
    ] == warned


@pytest.mark.parametrize(
    ("quantity", "value", "gate", "outcome"),
    [
        ("smoke.exit_code.ExitCode", "7:0", "smoke.exit_code", Outcome.PASS),
        ("smoke.exit_code.ExitCode", "0:0", "smoke.exit_code", Outcome.FAIL),
        ("smoke.memory.state", "OUT_OF_MEMORY", "smoke.memory.enforced", Outcome.PASS),
        ("smoke.memory.state", "COMPLETED", "smoke.memory.enforced", Outcome.FAIL),
        ("smoke.never.state", "CANCELLED", "smoke.dependency.never", Outcome.PASS),
        ("smoke.never.state", "COMPLETED", "smoke.dependency.never", Outcome.FAIL),
    ],
)
def test_how_a_job_ended_is_judged(run, quantity, value, gate, outcome):
    parsed = Parsed()
    parsed.saw(quantity, "job", value, "text", "raw/job.txt:1")
    verdicts = about(gate, add_derived(parsed, run), run, "generic").values()
    assert {verdict.outcome for verdict in verdicts} == {outcome}


# ---- the probe of the warning before a time limit


@for_each(
    ("arrived", "late_s", "warned"),
    [
        (True, 0, True),
        (True, 60, True),
        (False, 0, False),
        (False, 14, False),
        (False, 17, None),  # no script was there when it could come: from 15 s on
        (False, 60, None),
    ],
)
@for_each("has_variable", [True, False])  # Slurm before 23.02 has none
def test_a_signal_that_was_due_before_the_script_began_is_not_known(
    monkeypatch, tmp_path, arrived, late_s, warned, has_variable
):
    """A busy machine or a prolog failed the gate: the job's clock begins before its script."""
    began = str(int(time.time()) - late_s)
    if has_variable:
        monkeypatch.setenv("SLURM_JOB_START_TIME", began)
    else:
        monkeypatch.delenv("SLURM_JOB_START_TIME", raising=False)
        command = tmp_path / "scontrol"
        command.write_text(f'#!/bin/sh\n[ "$SLURM_TIME_FORMAT" = %s ] && echo "JobId=7 StartTime={began} EndTime=9"\n')
        command.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(scheduler.signal, "sigtimedwait", lambda signals, seconds: arrived or None)
    facts = told_by(lambda facts: scheduler.warning(facts, 45.0), "n0").observations
    values = [(fact.value, fact.why) for fact in facts if fact.quantity == "smoke.time_limit.warned"]
    assert [value for value, _ in values] == [warned]
    if warned is None:
        assert f"its script began {late_s // 10}" in str(values[0][1])
