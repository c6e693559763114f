"""What other programs read: measured numbers with labels that join, test reports, and rules that name real gauges."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import promql_parser
import pytest
import yaml
from bringup.kernel.judge import Judged
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.records import NotApplicable, Outcome, Verdict
from bringup.kernel.results import REPOSITORY
from bringup.report.collection import Collection
from bringup.report.junit import junit
from bringup.report.prometheus import prometheus
from bringup.report.run_folders import Absent
from bringup.report.text import plain
from factory import a_run, a_verdict, gathered, judged_of, records_in
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families
from trained_runs import RECORDS

MONITORING = REPOSITORY / "validation/monitoring"
VALIDATORS = Path(sys.prefix) / "validators"
EVIL = """<script>alert(1)</script> & "double" \\ \x1b[31m \x00"""
BUSBW, TFLOPS = "nccl.all_reduce.busbw", "smoke.compute.tflops"


def judged(*verdicts: Verdict, phase: str = "discovery", opened_at: str = "2026-01-01T00:00:00Z") -> Judged:
    run = a_run(phase, plan={}).model_copy(update={"opened_at": opened_at, "slurm_job_id": "77"})
    return judged_of(*verdicts, run=run)


def measured(gate: str, subject: str, value: float, limit: float, at: str | None = None) -> Verdict:
    return a_verdict(gate, subject, Outcome.PASS, value=value, limit=limit).model_copy(update={"at": at})


def lines(collection: Collection, name: str) -> list[str]:
    return [line for line in prometheus(collection).splitlines() if line.startswith(f"{name}{{")]


def test_what_was_measured_is_given_with_its_limit_and_the_labels_of_its_place():
    bandwidth, tflops = measured(BUSBW, "2-nodes", 392.5, 380.0, "8GiB"), measured(TFLOPS, "n1/gpu3", 640.0, 600.0)
    run = judged(bandwidth, tflops, phase="smoke")
    place = f'phase="smoke",gate="{BUSBW}",subject="2-nodes",node="",gpu="",at="8GiB",unit="GB/s"'
    assert lines(gathered(run), "bringup_observed")[0] == f"bringup_observed{{{place}}} 392.5"
    assert lines(gathered(run), "bringup_limit")[0] == f"bringup_limit{{{place}}} 380"
    assert 'subject="n1/gpu3",node="n1",gpu="3"' in lines(gathered(run), "bringup_observed")[1]


def test_of_several_runs_of_a_phase_the_last_one_is_measured_and_described_and_a_count_is_no_measurement():
    old = judged(measured(TFLOPS, "n1", 500.0, 600.0), phase="smoke")
    new = judged(measured(TFLOPS, "n1", 640.0, 600.0), phase="smoke", opened_at="2026-02-01T00:00:00Z")
    for order in ((old, new), (new, old)):
        assert [line.split()[-1] for line in lines(gathered(*order), "bringup_observed")] == ["640"]
        assert len(lines(gathered(*order), "bringup_run_info")) == 1
    assert 'slurm_job_id="77"' in lines(gathered(old), "bringup_run_info")[0]
    counted = judged(a_verdict("discovery.gpu.count", "n1", Outcome.PASS, value=8, limit=8))
    assert lines(gathered(counted), "bringup_observed") == []


def trained(phase: str, *, mfu: float | None = 0.41, holds: bool = True) -> Judged:
    records = records_in(RECORDS / phase)
    known = SimpleNamespace(args=records.args, metrics=records.metrics.model_copy(update={"mfu": mfu}))
    outcome = Outcome.PASS if holds else Outcome.INCOMPLETE
    evidence = [a_verdict(gate, "job", outcome) for gate in ("run.closed", "run.evidence")]
    return replace(judged(*evidence, phase=phase), training=known)


def test_a_training_gives_its_speed_step_time_and_mfu_and_one_whose_evidence_is_open_nothing():
    run = trained("run_ddp_2node")
    metrics = run.training.metrics
    workload = f'batch="{run.training.args.global_batch}",length="{run.training.args.sequence_length}",variant="plain"'
    place = f'phase="run_ddp_2node",strategy="ddp",model="{metrics.model}",ranks="4",{workload}'
    gauge = "bringup_train_tokens_per_second"
    assert lines(gathered(run), gauge) == [f"{gauge}{{{place}}} {metrics.tokens_per_s:.15g}"]
    assert lines(gathered(run), "bringup_train_mfu_ratio") == [f"bringup_train_mfu_ratio{{{place}}} 0.41"]
    steps = lines(gathered(run), "bringup_train_step_seconds")
    assert [line.rpartition("percentile=")[2][:4] for line in steps] == ['"50"', '"95"']
    assert lines(gathered(trained("run_ddp_2node", mfu=None)), "bringup_train_mfu_ratio") == []
    assert lines(gathered(trained("run_ddp_2node", holds=False)), "bringup_train_tokens_per_second") == []


def test_alert_rules_and_the_dashboard_name_gauges_and_gates_that_exist():
    text = prometheus(gathered(judged(measured(TFLOPS, "n1", 1.0, 1.0), a_verdict())))
    known = set(re.findall(r"^# TYPE (\S+) gauge$", text, re.MULTILINE))
    assert len(expressions()) >= 15
    for expression in expressions():
        promql_parser.parse(expression)
        names = re.findall(r"bringup_\w+", expression)
        assert names
        assert set(names) <= known, expression
        assert {gate for gate in re.findall(r'gate="([^"]+)"', expression)} <= set(GATES), expression
    with pytest.raises(ValueError, match=r"\w"):
        promql_parser.parse("bringup_observed{ / 2")


def expressions() -> list[str]:
    rules = yaml.safe_load((MONITORING / "bringup.rules.yaml").read_text())["groups"][0]["rules"]
    panels = json.loads((MONITORING / "bringup.dashboard.json").read_text())["panels"]
    return [rule["expr"] for rule in rules] + [panel["targets"][0]["expr"] for panel in panels]


def test_the_reader_of_prometheus_own_client_reads_all_gauges_each_series_once_with_any_text_in_a_label():
    run = judged(measured(TFLOPS, EVIL, 640.0, 600.0), *2 * [a_verdict("discovery.gpu.count", EVIL)])
    again, absent = judged(a_verdict("discovery.gpu.count", EVIL)), (Absent("smoke", "x"),)
    written = prometheus(gathered(again, run, trained("run_ddp_2node"), absent=absent))
    series = [line.rpartition(" ")[0] for line in written.splitlines() if line[0] != "#"]
    assert len(series) == len(set(series))
    families = {family.name: family for family in text_string_to_metric_families(written)}
    assert {family.type for family in families.values()} == {"gauge"}
    assert families["bringup_observed"].samples[0].labels["subject"] == plain(EVIL)
    assert families["bringup_train_mfu_ratio"].samples[0].value == 0.41
    assert len(families) == 12
    labels = {name for family in families.values() for sample in family.samples for name in sample.labels}
    assert not labels & {"quantile", "le"}  # promtool refuses them on a gauge
    for line in (
        'verdicts{phase="discovery",gate="discovery.gpu.count",outcome="fail"} 3',
        'phase_exit_code{phase="discovery"} 1',
        'phase_exit_code{phase="smoke"} 2',
    ):
        assert f"bringup_{line}\n" in written


def test_junit_counts_failures_errors_and_skips_apart_names_a_phase_once_and_takes_any_text():
    warned = ("gpu.persistence", "n0", Outcome.WARN)
    rows = (("kernel", "n1", Outcome.INCOMPLETE), ("kernel", "n0", Outcome.PASS), warned)
    bad = [a_verdict(f"discovery.{gate}", node, outcome) for gate, node, outcome in rows]
    bad = [a_verdict("discovery.gpu.count", "n1", observed=EVIL), *bad]
    left_out = NotApplicable(gate="discovery.gpu.ecc", reason="no GPU")
    runs = [judged_of(*bad, not_applicable=(left_out,)), judged(a_verdict(), phase="smoke")]
    suites = ElementTree.fromstring(junit(gathered(*runs, absent=(Absent("nccl_scaling", EVIL),))).encode())
    suite, smoke, missing, questions = suites
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["5", "1", "1", "1"]
    assert len(suite.findall("testcase")) == 5
    assert "<script>" in suite.find("testcase/failure").get("message")
    names = [case.get("classname") for case in (suite[0], smoke[0])]
    assert names == [f"{at}discovery.gpu.count" for at in ("", "smoke.")]
    assert "<script>" in missing.find("testcase/error").get("message")
    assert questions.get("name") == "the six questions"
    for count in ("tests", "failures", "errors"):
        assert int(suites.get(count)) == sum(int(each.get(count)) for each in suites)
    assert suites.get("skipped") is None  # the schema of Jenkins' plugin refuses it there
    assert int(suites.get("tests")) == len(list(suites.iter("testcase")))


def promtool(*arguments: str, folder: Path | None = None, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [VALIDATORS / "promtool", *arguments]
    return subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not (VALIDATORS / "promtool").exists(), reason="tests/validators/fetch got none")
def test_promtool_accepts_all_gauges_and_no_wrong_label_and_alerts_come_at_the_moments_of_the_rules_test(tmp_path):
    for file in (MONITORING / "bringup.rules.yaml", REPOSITORY / "tests/validators/rules.test.yaml"):
        shutil.copy(file, tmp_path)
    done = promtool("test", "rules", "rules.test.yaml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    written = prometheus(gathered(judged(measured(TFLOPS, "n1", 640.0, 600.0)), trained("run_ddp_2node")))
    assert (done := promtool("check", "metrics", given=written)).returncode == 0, done.stderr
    assert promtool("check", "metrics", given=written.replace("percentile=", "quantile=")).returncode != 0


@pytest.mark.skipif(not (VALIDATORS / "junit-10.xsd").exists(), reason="tests/validators/fetch got none")
def test_the_schema_of_jenkins_plugin_accepts_the_junit_file_and_refuses_what_it_does_not_know():
    import xmlschema  # what make setup has not installed yet must not stop the tests above

    schema = xmlschema.XMLSchema(VALIDATORS / "junit-10.xsd")
    bad = [a_verdict(), a_verdict("discovery.kernel", "n0", Outcome.INCOMPLETE)]
    written = junit(gathered(judged(*bad, a_verdict("discovery.kernel", "n1", Outcome.PASS))))
    schema.validate(written)
    with pytest.raises(xmlschema.XMLSchemaValidationError, match="skipped"):
        schema.validate(written.replace("<testsuites ", '<testsuites skipped="1" ', 1))


def read_by_grafana(dashboard: object) -> object:
    """What Grafana's own types keep of it."""
    return json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))


def missing(written: object, read: object, at: str = "") -> list[str]:
    if isinstance(written, dict) and isinstance(read, dict):
        return [line for key in written for line in missing(written[key], read.get(key), f"{at}.{key}")]
    if isinstance(written, list) and isinstance(read, list):
        pairs = enumerate(zip(written, read, strict=True))
        return [line for index, (a, b) in pairs for line in missing(a, b, f"{at}[{index}]")]
    return [] if written == read else [f"{at}: {written!r}"]


def test_grafanas_own_types_know_every_key_of_the_dashboard():
    dashboard = json.loads((MONITORING / "bringup.dashboard.json").read_text())
    assert missing(dashboard, read_by_grafana(dashboard)) == []
    dashboard["panels"][0]["gridpos"] = {}
    assert missing(dashboard, read_by_grafana(dashboard)) == [".panels[0].gridpos: {}"]
