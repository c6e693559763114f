"""Gates of Slurm: how it is configured, and what it does with jobs. Every gate without a drill is shown failing."""

import json
import time

import pytest
import scheduler
from bringup.domains.blame import _PART_OF, blame
from bringup.kernel import judge
from bringup.kernel.facts import facts, reading
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.plan import profile
from bringup.kernel.plan.catalogue import of_phase
from bringup.kernel.records import Kind, Run, Verdict
from bringup.readers import slurm, srun
from factory import a_run, the_folder
from loops import for_each
from probing import answers_of
from programs import program
from runs_for_tests import FAIL, FIXTURES, OPEN, PASS, WARN, add_derived, discovery, judged, parsed_of, reseal
from showing import check, shows_failing

# ---- its configuration

CONFIG, NODES, MPI = "scontrol-config.txt", "scontrol-node.txt", "mpi-list.txt"
CONFIGURED = (FIXTURES / "slurm/config.txt").read_text()
LISTED = (FIXTURES / "slurm/mpi-list.txt").read_text()
PMIX = "\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n"
NEGATIVE = [
    ("version", NODES, "Version=22.05.8", "Version=21.08.1", WARN),
    ("gres_types", CONFIG, "GresTypes               = gpu", "GresTypes               = nic", FAIL),
    ("mpi_default", CONFIG, "MpiDefault              = none", "MpiDefault              = pmi9", FAIL),
    ("pmix", MPI, PMIX, "\tnone\n\tpmi2\n", WARN),
    *((gate, CONFIG, "", "", WARN) for gate in ("kill_on_bad_exit", "health_check", "prolog", "epilog")),
    # cgroup.conf on disk and what scontrol prints may differ until Slurm is restarted: one that denies it is enough
    ("confines_devices", "cgroup.conf", "", "ConstrainDevices=no\n", FAIL),
]


@shows_failing(*(f"discovery.slurm.{row[0]}" for row in NEGATIVE))
def test_a_gate_without_a_drill_fails_on_bad_evidence(tmp_path, monkeypatch):
    healthy = discovery(tmp_path, monkeypatch)
    for gate, file, good, bad, outcome in NEGATIVE:
        path = healthy / "raw" / file
        text = path.read_text() if path.exists() else ""
        assert good in text
        path.write_text(text.replace(good, bad, 1))
        verdicts = judge.judge_folder(reseal(healthy), profile.load("generic")).verdicts.verdicts
        assert {v.outcome for v in verdicts if v.gate == f"discovery.slurm.{gate}"} == {outcome}, gate
        path.write_text(text)


def audited(text: str, phase: str = "discovery", listed: str = "") -> dict[str, object]:
    parsed = slurm.config(text, "f")
    if listed:
        parsed.add(slurm.mpi_list(listed, "g"))
    return {seen.quantity: seen.value for seen in add_derived(parsed, a_run(phase)).observations}


def test_an_answer_without_a_part_says_nothing_of_it_and_another_phase_judges_no_configuration():
    for answers in (audited("ClusterName = x\n"), audited(CONFIGURED, "nccl_scaling")):
        assert not [name for name in answers if name.startswith("discovery.slurm.")]


@for_each(
    # Slurm 23.11 and later print (null) for none, and number prologs; without any there is no line
    *(("MpiDefault", plugin, "mpi_default", True) for plugin in ("none", "(null)", "pmix", "pmix_v4")),
    *(("MpiDefault", plugin, "mpi_default", False) for plugin in ("pmix_v5", "pmi9")),
    *(("TaskPlugin", listed, "task_plugin", listed[-1] == "p") for listed in ("task/a,task/cgroup", "task/cgroups")),
    *(("SlurmdTimeout", f"9{unit}", "slurmd_timeout", s) for unit, s in (("", 9), (" sec", 9), (" min", None))),
    *((key, "/a", key[:6].lower(), key[-1] == "]") for key in ("Prolog[0]", "PrologFlags", "EpilogMsgTime")),
    *(("HealthCheckProgram", text, "health_check", text == "/bin/x") for text in ("/bin/x", "None", "(null)")),
)
def test_a_line_of_the_configuration_says_whether_it_is_set_or_lists_a_word_or_its_number(key, text, gate, value):
    assert audited(f"{key:23} = {text}\n", listed=LISTED)[f"discovery.slurm.{gate}"] == value


def test_a_line_that_shows_that_a_setting_was_asked_counts_only_where_the_setting_has_no_line():
    assert audited("Prolog[0] = /a\nPrologFlags = Alloc\n")["discovery.slurm.prolog"] is True


def test_a_node_with_a_gpu_more_than_slurm_knows_fails():
    """Nothing keeps two jobs from one that is not in Gres."""
    facts = [("slurm.node.gpus", node, 7) for node in ("n0", "n1")]
    by_gate = judged([*facts, ("discovery.gpu.count", "n0", 8), ("discovery.gpu.count", "n1", 7)], nodes=("n0", "n1"))
    verdicts = [by_gate[f"discovery.slurm.gres {node}"] for node in ("n0", "n1")]
    assert [(verdict.outcome, verdict.value) for verdict in verdicts] == [(FAIL, -1), (PASS, 0)]


def blamed(parsed: Parsed, run: Run) -> dict[str, Verdict]:
    """Gate -> its verdict, with the cause beside it."""
    verdicts = judge.judge(run, profile.load("local-cpu"), parsed)
    return {verdict.gate: verdict for verdict in blame(verdicts, Seen(parsed.observations), run).verdicts}


def promised(text: str, cpus: int | None, memory: float | None, overrides: bool = False) -> Verdict:
    parsed = slurm.nodes(f"NodeName=n0 Arch=x86_64 {text} State=IDLE Partitions=main\n", "x")
    parsed.add(slurm.config(f"SlurmdParameters = {'config_overrides' if overrides else '(null)'}\n", "x"))
    facts = (("discovery.cpu.count", "n0", cpus), ("inventory.memory", "n0", memory))
    parsed.add(parsed_of([fact for fact in facts if fact[2] is not None]))
    return judged(parsed, nodes=("n0",))["discovery.slurm.hardware n0"]


WHOLE = "CPUTot=128 RealMemory=2063000"


@shows_failing("discovery.slurm.hardware")
@for_each(
    (WHOLE, 128, 2015.3, False, PASS, "0 (CPUTot 128 of 128; RealMemory 2063000 of 2063668)"),
    (WHOLE, 256, 2015.3, False, PASS, "0 (CPUTot"),  # slurm.conf counts cores, and the kernel threads
    ("CPUTot=128 RealMemory=2063668", 128, 2015.3, False, PASS, "0 (CPUTot"),
    (WHOLE, 96, 2015.3, False, WARN, "1 (CPUTot 128 of 96)"),
    (WHOLE, 128, 1889.5, False, WARN, "1 (RealMemory 2063000 of 1934849)"),
    (WHOLE, 96, 1889.5, False, WARN, "2 (CPUTot 128 of 96; RealMemory 2063000 of 1934849)"),
    (WHOLE, 96, 2015.3, True, PASS, "0 (CPUTot 128 of 96;"),
    (WHOLE, None, 1889.5, False, WARN, "1 (RealMemory"),
    (WHOLE, None, 2015.3, False, OPEN, "did not say its CPUs, or its memory"),
    ("CPUTot=128", 128, 2015.3, False, OPEN, "did not say"),
    ("", 128, 2015.3, False, OPEN, "no evidence"),
)
def test_a_node_with_fewer_cpus_or_less_memory_than_slurm_hands_out_warns(text, cpus, memory, overrides, outcome, says):
    """Slurm compares them when slurmd registers, and drains the node then; what is lost later it does not see."""
    check(promised(text, cpus, memory, overrides), outcome, says)


# ---- what it does with jobs

ENDED, STARTED = "smoke.before.EndTime", "smoke.after.StartTime"
AT = "2026-01-01T00:00:0"


@for_each(
    ([("smoke.array.index", str(index)) for index in (3, 0, 1)], "smoke.array", ["0 1 3"]),  # 2 is lost
    ([(ENDED, f"{AT}5"), (STARTED, f"{AT}6")], "smoke.dependency.waits", [1.0]),
    ([(ENDED, f"{AT}5"), (STARTED, f"{AT}3")], "smoke.dependency.waits", [-2.0]),
    ([(ENDED, f"{AT}5"), (STARTED, "Unknown")], "smoke.dependency.waits", [None]),
    ([(ENDED, f"{AT}5")], "smoke.dependency.waits", []),
    ([(STARTED, f"{AT}6")], "smoke.dependency.waits", []),
    # a signal that ended a script before it began had come
    ([("smoke.warning.ExitCode", "0:10")], "smoke.time_limit.warned", [True]),
    ([("smoke.warning.ExitCode", "0:0")], "smoke.time_limit.warned", []),
    ([("smoke.warning.ExitCode", "0:10"), ("smoke.time_limit.warned", False)], "smoke.time_limit.warned", [False]),
)
def test_what_follows_from_what_slurm_says_of_a_job(facts, quantity, expected):
    parsed = parsed_of((name, "job", value) for name, value in facts)
    seen = add_derived(parsed, a_run("smoke", ["n0", "n1", "n2"])).observations
    assert [observation.value for observation in seen if observation.quantity == quantity] == expected


@for_each(
    ("exit_code.ExitCode", "7:0", "exit_code", PASS),
    ("exit_code.ExitCode", "0:0", "exit_code", FAIL),
    ("memory.state", "OUT_OF_MEMORY", "memory.enforced", PASS),
    ("memory.state", "COMPLETED", "memory.enforced", FAIL),
    ("never.state", "CANCELLED", "dependency.never", PASS),
    ("never.state", "COMPLETED", "dependency.never", FAIL),
)
def test_how_a_job_ended_is_judged(fact, value, gate, outcome):
    by_gate = judged([(f"smoke.{fact}", "job", value)], "smoke", profile_name="generic")
    assert by_gate[f"smoke.{gate} job"].outcome is outcome


QOS = """\
sbatch: error: QOSMaxSubmitJobPerUserLimit
sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, …)
"""
BUSY = "srun: error: Unable to allocate resources: Requested nodes are busy\n"
PREEMPTED = "slurmstepd-n0: error: *** STEP 7.0 ON n0 CANCELLED AT 2026-11-28T13:04:42 DUE TO PREEMPTION ***\n"


@for_each(
    ({}, ""),
    ({"jobs": QOS}, "; Slurm refused a step: QOSMaxSubmitJobPerUserLimit (raw/jobs.err)"),
    (
        {"second-job": BUSY, "third": BUSY},
        "; Slurm refused a step: Unable to allocate resources: Requested nodes are busy "
        "(raw/second-job.err, and in 1 more file)",
    ),
    ({"compute": PREEMPTED}, "; Slurm ended a step: preemption (raw/compute.err)"),
    ({"compute": f"0: {BUSY}"}, ""),  # what a task printed
)
def test_a_check_without_evidence_has_the_words_of_slurm_beside_it(files, words):
    parsed, run = Parsed(), a_run("smoke", ("n0", "n1"))
    for name, text in files.items():
        parsed.add(srun.launch_errors(text, f"raw/{name}.err"))
    verdict = blamed(parsed, run)["smoke.array"]
    assert (verdict.kind, verdict.cause) == (Kind.ABSENT, f"no evidence arrived{words}")


def test_a_part_of_smoke_that_was_left_out_by_hand_is_the_reason_and_not_what_slurm_said_of_another_part(tmp_path):
    """Checks of parts that were not wanted had `no evidence arrived; Slurm refused a step: …` of a part that was."""
    run, parsed = a_run("smoke", ("n0", "n1")), srun.launch_errors(QOS, "raw/jobs.err")
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/parts-left-out.txt").write_text("compute\nwarning\n")
    parsed.add(reading.read_raw(the_folder(tmp_path, run)))
    causes = {gate: verdict.cause for gate, verdict in blamed(parsed, run).items()}
    says = "parts of smoke that were left out by hand (BRINGUP_SMOKE_PARTS): compute, warning"
    assert causes["smoke.time_limit.warned"] == causes["smoke.compute.device"] == says
    refused = "Slurm refused a step: QOSMaxSubmitJobPerUserLimit (raw/jobs.err)"
    assert causes["smoke.array"] == f"no evidence arrived; {refused}"


def test_each_check_of_smoke_alone_belongs_to_one_part():
    of_smoke = [gate.id for gate in of_phase("smoke") if gate.id.startswith("smoke.")]
    parts = {gate: [part for begin, part in _PART_OF.items() if gate.startswith(begin)] for gate in of_smoke}
    assert {gate for gate, part in parts.items() if len(part) != 1} == {"smoke.controller"}, "scontrol ping is of none"


def test_a_probe_that_slurm_ended_has_the_words_of_slurm_beside_what_it_had_said():
    fact = {"probe": "scheduler", "at": "n0", "subject": "job", "quantity": "smoke.array", "value": "0", "unit": "text"}
    parsed, run = facts.parse(json.dumps(fact), "raw/compute.jsonl"), a_run("smoke", ("n0", "n1"))
    parsed.add(srun.launch_errors(PREEMPTED, "raw/compute.err"))
    cause = "did not finish; it had said 0; Slurm ended a step: preemption (raw/compute.err)"
    assert str(blamed(parsed, run)["smoke.array"].cause).endswith(cause)


# ---- the probe of the warning before a time limit


@for_each(
    (True, 0, True),
    (True, 60, True),
    (False, 0, False),
    (False, 14, False),
    (False, 17, None),  # no script was there when it could come: from 15 s on
    (False, 60, None),
)
@pytest.mark.parametrize("has_variable", [True, False])  # Slurm before 23.02 has none
def test_a_signal_that_was_due_too_early_is_not_known(monkeypatch, tmp_path, arrived, late_s, warned, has_variable):
    """A busy machine or a prolog failed the gate: the job's clock begins before its script."""
    began = str(int(time.time()) - late_s)
    monkeypatch.delenv("SLURM_JOB_START_TIME", raising=False)
    if has_variable:
        monkeypatch.setenv("SLURM_JOB_START_TIME", began)
    line = f"JobId=7 StartTime={began} EndTime=9"
    program(tmp_path / "scontrol", f'[ "$SLURM_TIME_FORMAT" = %s ] && echo "{line}"', "/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(scheduler.signal, "sigtimedwait", lambda signals, seconds: arrived or None)
    value, why = answers_of(lambda facts: scheduler.warning(facts, 45.0))["smoke.time_limit.warned"]
    assert value == warned
    assert warned is not None or f"its script began {late_s // 10}" in why
