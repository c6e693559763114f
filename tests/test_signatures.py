"""Each known fault is told from its line, in a run's logs, in the report, and by `bringup explain`."""

import re
import subprocess
from pathlib import Path

import pytest
from bringup import generated as failure_modes
from bringup import judge
from bringup import results as runs
from bringup.checks import catalogue as gates
from bringup.cli import main
from bringup.known_faults import signs
from bringup.known_faults.signatures import SIGNATURES
from bringup.records import Outcome
from bringup.report import explain
from bringup.report import text as report
from factory import a_verdict
from runs_for_tests import discovery

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize("signature", SIGNATURES.values(), ids=lambda one: one.id)
def test_a_line_as_the_program_prints_it_bears_the_signature(signature):
    found = signs.match(signature.example)
    assert found is not None
    assert found.id == signature.id


@pytest.mark.parametrize(
    ("line", "signature"),
    [
        ("srun: error: Unable to allocate resources: Requested nodes are busy", "slurm.busy"),
        ("salloc: error: Job submit/allocate failed: Requested nodes are busy", "slurm.busy"),
        ("srun: error: Memory specification can not be satisfied", "slurm.not-placeable"),
        ("srun: error: Unable to create step for job 7: Memory required by task is not available", "slurm.not-placeable"),
        ("srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification", "slurm.not-placeable"),
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", "slurm.refused"),
        (
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size "
            "and/or time limits)",
            "slurm.refused",
        ),
        ("srun: error: Task launch for StepId=5.0 failed on node n1: Job credential expired", "slurm.munge"),
        ("srun: error: Task launch for StepId=5.0 failed on node n1: Communication connection failure", "slurm.node-unreachable"),
        ("srun: error: Unable to allocate resources: Zero Bytes were transmitted or received", "slurm.not-started"),
    ],
)  # fmt: skip
def test_the_reason_counts_and_not_the_frame_in_which_slurm_says_it(line, signature):
    found = signs.match(line)
    assert found is not None
    assert found.id == signature


def test_a_step_that_waits_for_the_one_before_it_is_no_fault():
    assert signs.match("srun: Job 3 step creation temporarily disabled, retrying (Requested nodes are busy)") is None


@pytest.mark.parametrize("path", sorted((FIXTURES / "nccl").glob("log-[eiost]*.log")), ids=lambda path: path.name)
def test_a_healthy_log_bears_none(path):
    assert signs.in_lines(enumerate(path.read_text().splitlines(), start=1), path.name) == []


def test_every_signature_says_a_cause_a_next_step_and_a_source():
    for one in SIGNATURES.values():
        assert one.cause and one.do and one.source, one.id
        assert re.fullmatch(r"[a-z]+\.[a-z0-9-]+", one.id)


def test_a_sign_is_counted_and_names_its_first_line():
    lines = ["fine", "cat: x: Stale file handle", "fine", "cat: y: Stale file handle"]
    (sign,) = signs.in_lines(enumerate(lines, start=1), "raw/a.err")
    assert (sign.signature, sign.evidence, sign.count) == ("host.stale", "raw/a.err:2", 2)


def test_of_a_very_long_log_beginning_and_end_are_searched_with_true_line_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(signs, "_END_BYTES", 200)
    folder = discovery(tmp_path, monkeypatch)
    log = folder / "raw/launch.log"
    log.write_text("No space left on device\n" + "quiet\n" * 1000 + "Input/output error\n")
    found = {sign.signature: sign.evidence for sign in signs.in_run(folder, runs.load(folder))}
    assert found == {"host.no-space": "raw/launch.log:1", "host.io-error": "raw/launch.log:1002"}


def test_a_victims_words_come_after_the_cause(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    (folder / "raw/launch.err").write_text(
        "Connection closed by peer [10.9.0.2]:21011\n  exitcode   : -9 (pid: 4711)\n"
    )
    assert [sign.signature for sign in signs.in_run(folder, runs.load(folder))] == ["torch.killed", "gloo.remote-gone"]


@pytest.fixture
def broken(tmp_path, monkeypatch) -> Path:
    """A discovery in which n1 has a GPU too few, and somebody met a stale file."""
    folder = discovery(tmp_path, monkeypatch)
    facts = folder / "raw/inventory.jsonl"
    text = facts.read_text()
    healthy = '"subject": "n1", "quantity": "discovery.gpu.count", "value": 2'
    assert healthy in text
    facts.write_text(text.replace(healthy, healthy.replace('value": 2', 'value": 1')))
    (folder / "raw/inventory.err").write_text("cat: run.json: Stale file handle <script>\n")
    return folder


def test_the_report_and_the_screen_show_the_sign(broken):
    verdicts = judge.judge_folder(broken).verdicts
    run = runs.load(broken)
    assert "host.stale" in report.screen(broken, run, verdicts)
    written = report.markdown(run, verdicts)
    assert "raw/inventory.err:1" in written
    assert SIGNATURES["host.stale"].do in written.replace("\\", "")
    assert "<script>" not in written


def test_explain_names_the_first_cause_the_sign_and_the_next_command(broken, capsys):
    assert main(["explain", str(broken)]) == 1
    said = capsys.readouterr().out
    assert "FAIL discovery.gpu.count [n1]: observed 1" in said
    assert "next: findmnt" not in said  # that is another sign's
    assert SIGNATURES["host.stale"].do in said
    section = [line for line in said.splitlines() if line.startswith("  next ")]
    assert section, said
    assert "NODE" not in section[0]


def test_a_host_name_with_metacharacters_is_quoted_in_the_commands(broken):
    verdicts = judge.judge_folder(broken).verdicts
    bad = next(verdict for verdict in verdicts.verdicts if verdict.gate == "discovery.gpu.count")
    run = runs.load(broken).model_copy(update={"nodes": ["n0", "n1;reboot"]})
    commands = explain.next_commands([bad.model_copy(update={"subject": "n1;reboot"})], broken, run)
    assert any("'n1;reboot'" in line for line in commands), commands
    assert not any(" n1;reboot" in line for line in commands)


def test_without_a_sign_it_says_so(broken, capsys):
    (broken / "raw/inventory.err").unlink()
    assert main(["explain", str(broken)]) == 1
    assert "no line in the logs bears" in capsys.readouterr().out


def test_a_run_that_passed_has_nothing_to_explain(tmp_path, monkeypatch):
    text, outcome = explain.run(discovery(tmp_path, monkeypatch))
    assert outcome is Outcome.PASS
    assert "nothing to explain" in text


def test_the_page_of_failure_modes_is_what_the_catalogues_say():
    for path, text in failure_modes.pages().items():
        assert path.read_text() == text, f"{path.name}: run `make generated`"
    assert SIGNATURES["nccl.duplicate-gpu"].cause in failure_modes.PAGE.read_text()


@pytest.mark.parametrize("gate", [gate.id for gate in gates.GATES.values() if gate.guide is None], ids=str)
def test_every_gate_has_something_to_do_next(gate):
    guide = gates.GATES[gate].guide
    if guide is not None:
        assert guide.next
        return
    page, _, anchor = gates.GATES[gate].fix.partition("#")
    lines = explain._next_block((Path(__file__).parents[1] / page).read_text(), anchor)
    assert lines, f"{page}#{anchor} says nothing behind **Next**"
    assert not any(line.startswith(("#", "**")) for line in lines if not line.startswith("# "))


GUIDED = {gate.guide.title: gate for gate in gates.GATES.values() if gate.guide is not None}


@pytest.mark.parametrize("title", GUIDED)
def test_the_commands_of_a_guide_run_as_pasted(title, broken):
    """The places are filled, the shell can read them, and no command is prose or output."""
    gate = GUIDED[title]
    run = runs.load(broken).model_copy(update={"slurm_job_id": "7"})
    verdict = a_verdict(gate.id, "n1")
    commands = explain.next_commands([verdict], broken, run)
    assert len(commands) == len(gate.guide.next)
    assert commands or gate.guide.by_hand
    for command in commands:
        assert not re.search(r"\{(node|nodes|node_count|gpus|run|job|profile)\}|…|\b(NODE|RUN|JOBID)\b", command), (
            command
        )
        subprocess.run(["bash", "-n", "-c", command], check=True)
