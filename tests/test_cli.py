"""Bad input: one clear line, exit code 2, nothing lost."""

import errno
import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
from unittest.mock import Mock

import pytest
from bringup import registry
from bringup.cli import parser
from bringup.cli.verbs import VERBS
from loops import case_for_each, for_each
from programs import ran
from runs_for_tests import discovery, reseal


@for_each(
    "judge nowhere",
    "judge a-folder-with-'quotes'",
    "judge --no-such-flag x",
    "no-such-verb",
    "compare one",
    "compare nowhere neither",
    "open discovery --nodes n[ --gpus-per-node 2",
    "open nonsense --nodes n0 --gpus-per-node 2",
    "open discovery --nodes n0 --gpus-per-node two",
    "open discovery --nodes n0 --gpus-per-node 2 --profile nowhere",
    "open run_ddp_2node --nodes n0 --gpus-per-node 2",
    "open run_1gpu --nodes n[0-1] --gpus-per-node 2",
    "close nowhere --exit-code 0",
    "run no_such_phase",
)
def test_bad_input_is_one_line_and_exit_code_2(refused, arguments):
    assert "Traceback" not in refused(*arguments.split())


def test_a_run_outside_a_cluster_says_what_is_missing(refused, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "sinfo is not on the PATH" in refused("run", "discovery")


@pytest.mark.parametrize("file", ["run.json", "profile.yaml"])
@pytest.mark.parametrize("damage", ["", "{", "\x00\xff", "[1, 2]"])
def test_a_damaged_run_is_refused_and_left_as_it_is(tmp_path, monkeypatch, refused, file, damage):
    folder = discovery(tmp_path, monkeypatch)
    (folder / file).write_text(damage)
    before = sorted(path.name for path in folder.rglob("*"))
    assert file in refused("judge", folder)
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_judge_writes_its_report_and_says_where(tmp_path, monkeypatch, shown):
    folder = discovery(tmp_path / "with a space", monkeypatch)
    out = shown(0, "judge", folder)
    assert out.startswith("PASS")
    assert str(folder / "report.md") in out
    report = (folder / "report.md").read_text()
    assert "names.unresolved, names.differ, names.own, names.reachable, names.slowest" in report
    assert "placeholder GPUs have no driver" in report
    first = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
    shown(0, "judge", folder)
    assert first == {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}, "judged again"


def test_a_failed_gate_is_exit_code_1_and_missing_evidence_2(tmp_path, monkeypatch, shown):
    folder = discovery(tmp_path, monkeypatch)
    inventory = folder / "raw/inventory.jsonl"
    text = inventory.read_text()
    inventory.write_text(text.replace('"discovery.gpu.count", "value": 2', '"discovery.gpu.count", "value": 1'))
    assert "FAIL       discovery.gpu.count" in shown(1, "judge", reseal(folder))
    inventory.write_text("".join(line for line in text.splitlines(True) if '"discovery.shm"' not in line))
    assert "FAIL" not in shown(2, "judge", reseal(folder))
    inventory.unlink()
    assert "no evidence arrived" in shown(2, "judge", reseal(folder))


def test_a_run_cannot_be_closed_twice(tmp_path, monkeypatch, refused):
    assert "already closed" in refused("close", discovery(tmp_path, monkeypatch), "--exit-code", "1")


def test_a_requeued_job_writes_into_a_folder_of_its_own(tmp_path, monkeypatch, shown):
    monkeypatch.setenv("BRINGUP_RUN_NAME", "again")
    options = f"open discovery --nodes n0 --gpus-per-node 2 --profile local-cpu --results {tmp_path}".split()
    shown(0, *options)
    shown(2, *options)  # the same attempt must not write there again
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    shown(0, *options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "again-r1"]


def test_judging_needs_neither_torch_nor_slurm(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    copy = tmp_path / "copy"
    shutil.move(folder, copy)
    program = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'accelerate', 'psutil', 'pynvml'): sys.modules[name] = None\n"
        f"from bringup.cli import main\nsys.exit(main(['judge', {str(copy)!r}]))"
    )
    done = ran([sys.executable, "-c", program], env=os.environ | {"PATH": "/nonexistent"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PASS")


def test_the_verbs_that_list_things_list_them(shown):
    for words, least in (("gates", 30), ("drill --list", 6), ("drill --list --only node-flaps", 3)):
        lines = shown(0, *words.split()).splitlines()
        assert len(lines) >= least, words
    assert [line.split()[0] for line in lines[2:]] == ["node-flaps"]


def test_a_profile_that_was_changed_since_the_run_was_opened_is_refused(tmp_path, monkeypatch, shown, refused):
    folder = discovery(tmp_path, monkeypatch)
    profile = folder / "profile.yaml"
    profile.write_text(profile.read_text().replace("name: local-cpu", "name: local-cpu\nextends: generic"))
    assert "changed since the run was opened" in refused("judge", folder)
    shown(0, "judge", folder, "--profile", "local-cpu")


@pytest.mark.parametrize(("hangup", "code"), [(signal.SIG_DFL, 2), (signal.SIG_IGN, 0)], ids=["a terminal", "nohup"])
def test_a_closed_terminal_ends_a_run_unless_it_was_started_with_nohup(hangup, code):
    """The verb closes its own terminal (SIGHUP) while it works. The tests themselves may run under nohup."""
    script = (
        "import os, signal, sys\n"
        "from bringup import cli\n"
        "from bringup.drill import result\n"
        "result.listed = lambda drills: os.kill(os.getpid(), signal.SIGHUP) or 'done'\n"
        "sys.exit(cli.main(['drill', '--list']))\n"
    )
    done = ran([sys.executable, "-c", script], preexec_fn=lambda: signal.signal(signal.SIGHUP, hangup))
    assert (done.returncode, done.stdout, done.stderr) == (
        (0, "done\n", "") if code == 0 else (128 + signal.SIGHUP, "", "bringup: interrupted\n")
    )


@case_for_each(
    (("run", "nosuchphase"), "no phase is called 'nosuchphase'; there are discovery"),
    (("why", "abc"), "'abc' is not a job number"),
    (("pairs",), "--nodes n0,n1"),
    (("drill", "--list", "--only", "node-flap"), "did you mean node-flaps"),
)
def test_arguments_are_looked_at_before_slurm_is_asked(refused, monkeypatch, arguments, says):
    monkeypatch.setenv("PATH", "/nonexistent")  # where there is no Slurm
    assert says in refused(*arguments)


def test_a_page_that_may_not_be_written_beside_its_run_says_where_else(tmp_path, monkeypatch, refused):
    """As root may write everywhere, the folder of another user is a file system that refuses."""
    folder = discovery(tmp_path, monkeypatch)
    refuse = PermissionError(errno.EACCES, "Permission denied", str(folder / "report.html"))
    monkeypatch.setattr("bringup.kernel.records.files.write", Mock(side_effect=refuse))
    says = f"bringup: {folder}/report.html: Permission denied; -o FILE writes it elsewhere\n"
    assert refused("report", folder) == says


def test_the_version_is_told(shown):
    assert shown(0, "--version").startswith("bringup 0.")


def test_verbs_that_only_scripts_call_are_listed_apart(shown):
    helps = [shown(0, option).splitlines() for option in ("--help", "--help-scripts")]
    listed = [{line.split()[0] for line in lines if re.match(r"  (?:  )?\w", line)} for lines in helps]
    assert {"run", "judge", "why"} <= listed[0] and {"open", "close", "pairs"} <= listed[1]
    assert not {"open", "close", "pairs"} & listed[0] and not {"run", "judge"} & listed[1]


@for_each("bash", "zsh")
def test_completion_is_a_script_that_its_shell_reads_with_verbs_for_people_and_phases(shown, shell):
    out = shown(0, "completion", shell)
    assert {"doctor", "nccl_scaling", "--dry-run"} <= set(re.findall(r"[\w-]+", out))
    assert not re.search(r"\bpairs-again\b", out)
    if program := shutil.which(shell):
        assert subprocess.run([program, "-n"], input=out, text=True, check=False).returncode == 0


def test_the_help_loads_neither_the_records_nor_the_catalogue():
    script = "import sys\nfrom bringup.cli import parser\nparser().format_help()\nprint(*sys.modules)"
    loaded = ran([sys.executable, "-c", script], check=True).stdout.split()
    assert not {"pydantic", "yaml", "jinja2", "bringup.kernel.records", "bringup.kernel.plan.catalogue"} & set(loaded)


def test_every_verb_is_done_by_the_file_that_the_table_names_and_reads_the_arguments_that_it_takes():
    known = next(action.choices for action in parser()._actions if isinstance(action.choices, dict))
    for name, verb in VERBS.items():
        code = inspect.getsource(registry.called(verb.does))
        taken = {action.dest for action in known[name]._actions}
        assert set(re.findall(r"\barguments\.(\w+)", code)) <= taken, name


def test_a_verb_that_starts_scripts_says_that_it_needs_a_checkout(tmp_path, monkeypatch, refused):
    """As pipx installs it: `doctor` once ended as a fault of bringup itself."""
    monkeypatch.setattr("bringup.kernel.results.REPOSITORY", tmp_path)
    needed = {"preflight": ["--nodes", "2", "--", "true"]}
    for verb in (name for name, known in VERBS.items() if known.verb.starts_scripts):
        assert "starts scripts of a checkout" in refused(verb, *needed.get(verb, [])), verb
