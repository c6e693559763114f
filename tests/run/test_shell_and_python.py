"""What the phase scripts ask Python: in one call, quoted for the shell."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from bringup import cli
from bringup.kernel.facts import hostlist
from bringup.kernel.plan import subjects
from bringup.kernel.plan.phases import PHASES
from bringup.run import nodes, slurm
from bringup.run import site as at_site
from bringup.run.site import AtSite
from bringup.run.site_file import Site
from loops import case_for_each, for_each
from programs import ROOT, program, ran

NODES = "".join(f"NodeName=n{number} Gres=gpu:2 State={{}} Version=23.11\\n" for number in range(3))


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fake commands of Slurm that note how they were called; n1 is drained."""
    calls = tmp_path / "calls"
    answers = {"sinfo": "printf 'main*\\037n[0-2]\\n'", "scontrol": f"printf '{NODES.format('IDLE', 'DRAIN', 'IDLE')}'"}
    for name, answer in answers.items():
        program(tmp_path / name, f'echo "$0 $*" >>"{calls}"\n{answer}', by="/bin/sh")
    for name in ("SBATCH_PARTITION", "SLURM_PARTITION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return calls


def sourced(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-euc", f"source infrastructure-validation/scripts/job.sh; {script}"]
    return ran(command, cwd=ROOT, env={**os.environ, "PYTHON": sys.executable, **environment})


def test_one_call_and_one_look_at_the_nodes_say_all_that_a_phase_needs(commands: Path):
    """It was three starts of Python and seven questions to Slurm."""
    done = sourced('choose_nodes; echo "$NODES $NODE_COUNT $GPUS $USABLE $USABLE_COUNT"')
    assert (done.returncode, done.stdout) == (0, "n0,n1,n2 3 2 n0,n2 2\n"), done.stderr
    assert [line.split()[0].rpartition("/")[2] for line in commands.read_text().splitlines()] == ["sinfo", "scontrol"]


def test_nodes_by_name_need_no_question_about_the_partition(commands: Path):
    done = sourced("choose_nodes --nodelist n[0-1]; env | grep ^USABLE=")
    assert (done.returncode, done.stdout) == (0, "USABLE=n0\n"), done.stderr
    assert len(commands.read_text().splitlines()) == 1


@pytest.mark.parametrize(("version", "whole"), [("24.11", "no"), ("26.05", "yes")])
def test_smoke_asks_whether_two_jobs_can_share_a_node(commands: Path, monkeypatch, version, whole):
    """Slurm 26.05 shows Exclusive=NODE, and OverSubscribe=NO beside it."""
    monkeypatch.setenv("SBATCH_PARTITION", "exclusive-topo")
    (commands.parent / "sinfo").write_text("#!/bin/sh\nprintf 'exclusive-topo\\037n[0-2]\\n'\n")
    scontrol = commands.parent / "scontrol"
    fixture = ROOT / f"tests/fixtures/slurm/partitions-{version}.txt"
    answer = f"case $* in *partition*) exec cat '{fixture}';; esac\n"
    scontrol.write_text(scontrol.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{answer}"))
    done = sourced('choose_nodes --sharing; echo "$USABLE $WHOLE_NODES"')
    assert (done.returncode, done.stdout) == (0, f"n0,n2 {whole}\n"), done.stderr


@case_for_each(
    ("Gres=gpu:2", "Gres=(null)", "no GPU configured on n0,n1,n2"),
    ("State=IDLE", "State=DOWN", "none of n0,n1,n2 is usable"),
)
def test_nodes_without_gpus_or_that_cannot_be_used_end_the_phase_with_one_line(commands: Path, old, new, says):
    scontrol = commands.parent / "scontrol"
    scontrol.write_text(scontrol.read_text().replace(old, new))
    done = sourced("choose_nodes; echo not reached")
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_names_and_values_are_data_for_the_shell_and_no_commands(monkeypatch, capsys, tmp_path: Path):
    """Slurm allows no such name; what stands in an answer is not run in any case."""
    evil = f"n0;touch {tmp_path}/evil;$(touch {tmp_path}/evil)`touch {tmp_path}/evil`'"
    monkeypatch.setattr(nodes, "requested_nodes", lambda *_: {evil: slurm.Node("IDLE", None, 2)})
    assert cli.main(["nodes"]) == 0
    of_site = AtSite(Site(schema_version=1, name="lab", environment={"NCCL_IB_HCA": evil}), tmp_path / "lab.yaml")
    lines = at_site.assignments(of_site, PHASES["discovery"], tmp_path)
    script = "\n".join([capsys.readouterr().out, *lines, 'printf "%s\\n" "$NODES" "$NCCL_IB_HCA"'])
    assert ran(["bash", "-c", script], check=True).stdout == f"{evil}\n{evil}\n"
    assert not (tmp_path / "evil").exists()


@for_each(1, 8)
@for_each(1, 2, 3, 4, 7, 16)
def test_the_scales_that_are_run_are_those_that_are_planned(capsys, gpus: int, nodes: int):
    """They were listed by a loop in the shell and by another one in Python."""
    names = [f"n{number}" for number in range(nodes)]
    assert cli.main(["scales", "--nodes", ",".join(names), "--gpus-per-node", str(gpus)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    planned = subjects.scales(nodes, gpus)
    assert [(name, int(count), int(count) * int(ranks)) for _, name, count, ranks, _ in lines] == planned
    assert [subjects.scale_of_file(suffix) for suffix, *_ in lines] == [scale.name for scale in planned]
    assert all(hostlist.expand(here) == names[: int(count)] for _, _, count, _, here in lines)
    assert cli.main(["scales", "--whole", "--nodes", ",".join(names), "--gpus-per-node", str(gpus)]) == 0
    assert capsys.readouterr().out.split()[1] == planned[-1].name


@pytest.mark.parametrize("log", ["discovery-5.out", "slurm-logs/discovery-5.log"])
def test_a_run_keeps_the_screen_of_its_own_job(tmp_path: Path, log: str):
    """A log in slurm-logs is found by a job's number only, which comes again with every new cluster.

    log: where Slurm writes it, by hand and as `bringup run` submits.
    """
    (tmp_path / "raw").mkdir()
    (tmp_path / "slurm-logs").mkdir()
    job = {"SLURM_JOB_NAME": "discovery", "SLURM_JOB_ID": "5", "SLURM_RESTART_COUNT": "1"}
    script = f"""cd {shlex.quote(str(tmp_path))}
        echo screen >{log}
        keep_log
        RUN_DIR=$PWD PYTHON=true
        run_end 0"""
    done = sourced(script, **job)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "raw/batch.log").read_text() == "screen\n"
    assert (tmp_path / "slurm-logs/discovery-5-r1.out").read_text() == "screen\n"
