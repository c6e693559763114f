"""`bringup why` of a job: what Slurm and its nodes are asked, and what could not be seen."""

import io
import json
import os
import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest
from bringup.cli import main
from bringup.readers import jobs as answers
from bringup.readers.known.signatures import SIGNATURES
from loops import case_for_each, for_each
from programs import program
from runs_for_tests import FIXTURES
from test_why import RAISED

REAL = FIXTURES / "slurm"
SHOWN = """\
JobId=7 JobName=x UserId=root(0) StdOut=/etc/shadow
   UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A
   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)
   NodeList=n[0-1]
   NumNodes=2 NumCPUs=4 NumTasks=4 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   Socks/Node=* NtasksPerN:B:S:C=4:0:*:* CoreSpec=*
   Comment=   StdOut=/etc/shadow
   StdErr={log}
   StdIn=/dev/null
   StdOut={log}
"""


def test_a_name_or_comment_of_a_job_changes_no_other_field_and_a_delimiter_stays_in_the_last_column():
    fields = answers.job_fields(SHOWN.format(log="/home/ann/a b.log"))
    assert fields["UserId"] == "ann(1000)"
    assert fields["StdOut"] == "/home/ann/a b.log"
    assert fields["NodeList"] == "n[0-1]"
    table = "JobID|State|WorkDir\n7|CANCELLED by 1000|/home/a|b\nbroken\n"
    assert answers.accounted(table) == [{"JobID": "7", "State": "CANCELLED by 1000", "WorkDir": "/home/a|b"}]


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> Path:
    """A Slurm that answers about job 7, and records what it was asked to do."""
    shown = tmp_path / "shown"
    shown.write_text(SHOWN.format(log=tmp_path / "job.log"))
    programs = {
        "scontrol": f'case "$*" in *job*) cat {shown};; *) echo "NodeName=n1 State=DOWN Reason=Xid 79 [root@x]";; esac',
        "sacct": 'echo "JobID|User|State|ExitCode|NodeList|Start|End|WorkDir"; echo "7|ann|CANCELLED by 1000|0:0||||/"',
        "squeue": 'printf "CANCELLED\\037None\\037\\n"',
    }
    for name in ("scontrol", "sacct", "squeue", "srun", "sbatch", "scancel"):
        put(tmp_path, name, programs.get(name, ""))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
    return tmp_path


def test_the_verb_only_reads_and_says_what_it_could_not_see(slurm, shown):
    answer = json.loads(shown(0, "why", "7", "--json"))
    assert answer["job"]["by"] == "user 1000"
    assert any("No such file" in line for line in answer["not_seen"])
    assert any("--on-nodes" in line for line in answer["not_seen"])
    assert not {line.split()[0] for line in (slurm / "asked").read_text().splitlines()} & {"srun", "sbatch", "scancel"}
    (slurm / "job.log").write_text(RAISED)
    screen = shown(0, "why", "7")
    assert "first cause rank 2 on n1: ValueError: 3 columns" in screen
    assert "node        n1: down: Xid 79" in screen


def test_a_job_of_bringup_is_read_where_its_script_keeps_its_log_and_a_late_one_is_called_late(slurm, capsys):
    """It said "No such file" of a log that lay beside it, and of a job at four times its length that nothing speaks
    against it."""
    begun = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 22 * 60 - 10))
    shown = SHOWN.format(log=slurm / "nccl_pairwise-7.log").replace("JobState=FAILED", "JobState=RUNNING")
    (slurm / "shown").write_text(f"{shown}   StartTime={begun}\n")
    for kept in ("nccl_pairwise-7.out", "slurm-logs/nccl_pairwise-7-r1.out"):  # of bringup run; of sbatch
        (slurm / kept).parent.mkdir(exist_ok=True)
        (slurm / kept).write_text("round 1\n")
        assert main(["why", "7"]) == 0
        screen = capsys.readouterr().out
        assert "No such file" not in screen
        (slurm / kept).unlink()
    # 17 min, but where this checkout ran a playbook on two nodes: then as it took there
    assert re.search(r"first cause it takes longer than this step should: 22 min, overdue since \d+ min\n", screen)
    assert "bringup why 7 --on-nodes" in screen


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small filesystem needs root")
@for_each(
    ("ro", "Read-only file system", "findmnt -T PATH"), ("full", "No space left on device", "df -h"), ("rw", "", "")
)
def test_a_silent_log_that_can_no_longer_be_written_is_said_and_it_is_not_written(slurm, shown, how, words, do):
    """An export that became read-only also took the lines that said so."""
    put(slurm, "sacct", "exit 1")
    folder = slurm / how
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
    try:
        (folder / "job.log").write_text("step 1\n")
        if how == "full":
            (folder / "fill").write_bytes(bytes(15 * 4096))
        subprocess.run(["mount", "-o", f"remount,{'ro' if how == 'ro' else 'rw'}", folder], check=True)
        (slurm / "shown").write_text(SHOWN.format(log=folder / "job.log") + "   ExitCode=1:0\n")
        before = (folder / "job.log").stat()
        screen = " ".join(shown(0, "why", "7").split())
        assert (folder / "job.log").stat().st_mtime_ns == before.st_mtime_ns
    finally:
        subprocess.run(["umount", folder], check=True)
    assert "its script ended with 1" in screen
    assert ("cannot be written here now" in screen) is bool(words)
    assert words in screen
    assert do in screen


STEPS = """case "$*" in
*allocations*) echo "JobID|User|State"; echo "7|ann|FAILED";;
*) echo "JobID|State|NTasks|Layout|NodeList"; echo "7|FAILED|||n[0-1]"
   printf "%s\\n" "7.batch|FAILED|1|Unknown|n0" "7.0|FAILED|8|Block|n[0-1]";;
esac"""


def test_the_accounting_says_on_which_node_a_rank_of_srun_ran(slurm, shown):
    put(slurm, "sacct", STEPS)
    (slurm / "job.log").write_text("[rank4]: Traceback (most recent call last):\n[rank4]: ValueError: 3 columns\n")
    assert "first cause rank 4 on n1: ValueError: 3 columns" in shown(0, "why", "7")
    put(slurm, "sacct", STEPS.replace("Block", "Unknown"))
    screen = shown(0, "why", "7")
    assert "first cause rank 4: ValueError: 3 columns" in screen
    assert "srun --label" in screen


@case_for_each(
    (26, "tree", "", "flat", False),
    (26, "block", "", "flat", False),
    (26, "flat", "", "flat", True),
    (26, "flat", "", "tree", False),
    (26, "tree", ",CR_NO_DIST_TOPO_BLOCK", "flat", True),
    (24, "tree", "", "flat", True),
)
def test_tasks_that_slurm_numbers_along_its_topology_are_at_no_node_of_the_list(
    slurm, shown, year, plugin, option, of_partition, is_known
):
    """Slurm 26.05.5 on n[0-3] with the switches n1,n3 and n0,n2: task 0 ran on n1, and `why` would have named n0. Of a
    tree in topology.yaml its configuration says topology/flat: real answers of `scontrol show topoconf`."""
    config = [
        f"SLURM_VERSION = {year}.05.5",
        f"TopologyPlugin = topology/{plugin}",
        f"SelectTypeParameters = CR_CORE{option}",
    ]
    put(
        slurm,
        "scontrol",
        f"case \"$*\" in *job*) cat {slurm}/shown;; *config) printf '%s\\n' {shlex.join(config)};;"
        f" *topoconf) cat '{REAL}/topoconf-26.05-{of_partition}.txt';; esac",
    )
    put(slurm, "sacct", STEPS)
    (slurm / "job.log").write_text("[rank4]: Traceback (most recent call last):\n[rank4]: ValueError: 3 columns\n")
    screen = shown(0, "why", "7")
    assert f"first cause rank 4{' on n1' * is_known}: ValueError: 3 columns" in screen


def test_of_a_job_that_slurmctld_has_forgotten_the_accounting_knows_the_log(slurm, shown):
    """After five minutes `why` looked for slurm-355006.out, and found nothing: real answers of slurmdbd 26.05.5."""
    table = (REAL / "sacct-26.05-job.txt").read_text().replace("/home/ann", str(slurm))
    (slurm / "table").write_text(table)
    put(slurm, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    put(slurm, "sacct", f'case "$*" in *expand-patterns*) cat {slurm}/table;; esac')
    (slurm / "err-a b-355006.txt").write_text("Traceback (most recent call last):\nValueError: 3 columns\n")
    screen = shown(0, "why", "355006")
    assert re.search(r"first cause .*ValueError: 3 columns", screen)
    assert "err-a b-355006.txt:2" in " ".join(screen.split())
    old = "JobID|JobIDRaw|User|Partition|State|ExitCode|NodeList|Start|End|AllocTRES|WorkDir"
    refuse = "echo 'sacct: unrecognized option: --expand-patterns' >&2; exit 1"
    put(
        slurm,
        "sacct",
        f"case \"$*\" in *expand*) {refuse};; *) echo '{old}'; echo '7|7|ann|main|FAILED|3:0|n0||||{slurm}';; esac",
    )
    (slurm / "slurm-7.out").write_text("Traceback (most recent call last):\nValueError: 4 columns\n")
    assert "ValueError: 4 columns" in shown(0, "why", "7")


def test_a_step_that_ran_out_of_memory_is_the_cause_although_slurm_says_that_its_job_failed(slurm, shown):
    job = (REAL / "sacct-26.05-job.txt").read_text().replace("355006", "355003").replace("3:0", "1:0")
    (slurm / "table").write_text(job)
    put(slurm, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    put(slurm, "sacct", f'case "$*" in *allocations*) cat {slurm}/table;; *) cat "{REAL}/sacct-26.05-steps.txt";; esac')
    screen = shown(0, "why", "355003")
    assert re.search(r"first cause n0: .*memory", " ".join(screen.split()))
    assert "raise --mem" in screen


def put(slurm: Path, name: str, script: str) -> None:
    program(slurm / "bin" / name, f'echo {name} "$*" >>{slurm}/asked\n{script}')


def asked(slurm: Path, name: str) -> list[str]:
    return [line for line in (slurm / "asked").read_text().splitlines() if line.split()[0] == name]


ENDED = "   Partition=gpu OverSubscribe=NO StartTime=2026-11-25T10:00:00 EndTime=2026-11-25T11:00:00\n"
FACT = {"probe": "job_processes", "at": "n0"}
SEEN = {"subject": "n0/PCI:0000:c1:00", "quantity": "job.kernel.xid_79", "value": 1, "unit": "count"}


def on_nodes(slurm: Path, capsys, change: tuple[str, str], seen: dict[str, object]) -> dict:
    """The answer about a failed job on n0 and n1, of which n0 says so much."""
    answer = "".join(f"echo '0: {json.dumps(FACT | rest)}'; " for rest in (seen, {"end": 1}))
    shown = SHOWN.format(log="/dev/null").replace("   NodeList", f"{ENDED}   ExitCode=1:0\n   NodeList")
    (slurm / "shown").write_text(shown.replace(*change) if change[0] else shown)
    node = 'echo "NodeName=n$n State=IDLE Gres=gpu:h100:2 Version=1"'
    put(slurm, "scontrol", f'case "$*" in *job*) cat {slurm}/shown;; *) for n in 0 1; do {node}; done;; esac')
    put(slurm, "sacct", "exit 1")
    put(slurm, "srun", f"{answer} echo 'srun: n1 is away' >&2; exit 1")
    assert main(["why", "7", "--on-nodes", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@for_each(
    (("", ""), "gpu.xid"),
    (("OverSubscribe=NO", "OverSubscribe=OK"), "exit-code"),  # another job's GPU, perhaps
    (("OverSubscribe=NO", "OverSubscribe=NO Exclusive=NO"), "exit-code"),  # every job's words on Slurm 26.05
    (("OverSubscribe=NO", "OverSubscribe=NO Exclusive=NODE"), "gpu.xid"),
    (("OverSubscribe=NO", "OverSubscribe=OK AllocTRES=cpu=4,node=2,gres/gpu=4"), "gpu.xid"),  # all of the nodes'
    (("StartTime=2026-11-25T10:00:00", "StartTime=Unknown"), "exit-code"),
    (("EndTime=2026-11-25T11:00:00", "EndTime=Unknown"), "exit-code"),
    (("JobState=FAILED", "JobState=COMPLETED"), "none"),
)
def test_a_fault_of_a_gpu_is_the_cause_only_where_time_and_gpu_are_the_jobs(slurm, capsys, change, kind):
    answer = on_nodes(slurm, capsys, change, SEEN)
    assert answer["cause"]["kind"] == kind
    assert "Xid 79" in json.dumps(answer)
    assert any("n1: no whole answer" in line for line in answer["not_seen"])
    step = asked(slurm, "srun")[-1]
    assert "--partition=gpu" in step
    if not change[0]:
        assert float(step.split()[-1]) - float(step.split()[-2]) == 3600


@for_each(
    (SIGNATURES["kernel.oom-job"].example, ("", ""), "kernel.oom-job"),
    (SIGNATURES["kernel.nvme"].example, ("", ""), "kernel.nvme"),
    (SIGNATURES["kernel.hung-task"].example, ("", ""), "exit-code"),  # follows from something
    (SIGNATURES["kernel.oom-job"].example, ("OverSubscribe=NO", "OverSubscribe=OK"), "exit-code"),  # of another job?
    (SIGNATURES["kernel.nvme"].example, ("JobState=FAILED", "JobState=COMPLETED"), "none"),
)
def test_a_message_of_the_kernel_in_the_time_of_a_job_is_its_cause_where_nothing_else_says_why(
    slurm, capsys, line, change, kind
):
    answer = on_nodes(slurm, capsys, change, {"subject": "n0", "quantity": "job.kernel", "value": line, "unit": "text"})
    assert answer["cause"]["kind"] == kind
    assert answer["cause"]["node"] == ("n0" if kind.startswith("kernel") else "")
    assert line.split(":")[0] in json.dumps(answer)


def test_a_node_that_is_not_usable_takes_no_step(slurm, shown):
    assert "kernel logs and processes of n1: not usable now" in shown(0, "why", "7", "--on-nodes")
    assert "--nodelist=n0 --nodes=1 " in asked(slurm, "srun")[0]


ARRAY = "JobId={0} ArrayJobId=5 ArrayTaskId={1} JobName=x\n   UserId=ann(1000) JobState=FAILED\n"
ARRAY += "   NodeList=n0 NumTasks=1\n"


def test_an_array_is_asked_for_one_task_at_a_time(slurm, capsys, refused):
    records = [ARRAY.format(7, 1), ARRAY.format(5, 2)]
    (slurm / "shown").write_text("\n".join(records))
    assert "5_1, 5_2" in refused("why", "5")
    (slurm / "shown").write_text(records[0] + f"   StdOut={slurm}/%j-%A-%a.log\n")
    assert main(["why", "5_1", "--on-nodes", "--json"]) == 0
    job = json.loads(capsys.readouterr().out)["job"]
    assert (job["id"], job["number"], job["logs"]) == ("5_1", "7", [f"{slurm}/7-5-1.log"])
    assert "job_processes.py 7 " in asked(slurm, "srun")[0]
    put(slurm, "scontrol", "exit 1")
    put(slurm, "sacct", 'echo "JobID|JobIDRaw|State"; echo "5_1|7|FAILED"; echo "5_2|5|FAILED"')
    assert "5_1, 5_2" in refused("why", "5")


def test_times_are_asked_for_as_they_are_read(slurm, monkeypatch):
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    for name in ("scontrol", "sacct", "squeue"):
        put(slurm, name, f"echo $SLURM_TIME_FORMAT >>{slurm}/formats; exit 1")
    main(["why", "7"])
    assert set((slurm / "formats").read_text().split()) == {"standard"}


def test_a_log_is_asked_about_without_slurm_and_what_is_not_known_is_said(tmp_path, monkeypatch, shown, refused):
    """It said that the file is not a job number."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.chdir(tmp_path)
    for name in ("a log.txt", "4711.out"):  # the second one is no job
        Path(name).write_text(RAISED)
        screen = shown(0, "why", name)
        assert "first cause rank 2 on n1: ValueError: 3 columns" in screen
        assert "not known: --state, --nodes, --tasks" in screen
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"step 1 \xff\n")))  # no UTF-8
    screen = shown(0, "why", "-", "--state", "TIMEOUT", "--nodes", "n[0-1]", "--tasks", "4")
    assert "standard input: timeout, 2 nodes n0,n1\n" in screen
    assert "the job's time limit was reached" in screen
    assert "no-such-file" in refused("why", "no-such-file")


def test_on_a_narrow_terminal_a_line_is_broken_between_words_and_what_is_to_be_run_is_not(tmp_path, monkeypatch, shown):
    (tmp_path / "a.log").write_text("OSError: [Errno 28] No space left on device: '/scratch/a/long/name/of/a/folder'\n")
    monkeypatch.setenv("COLUMNS", "40")
    lines = shown(0, "why", tmp_path / "a.log").splitlines()
    following = [line for line in lines if line.startswith(" ")]
    assert following and all(re.match(r" {12}\S", line) for line in following)
    assert any(len(line) > 40 for line in lines if line.startswith("next "))
    broken = [line for line in lines if not line.startswith(("next ", "seen in"))]
    assert all(len(line) <= 40 or " " not in line.strip() for line in broken)


def test_an_exception_in_colours_is_read_as_one_without(tmp_path, shown):
    """Python 3.13 prints tracebacks so, where FORCE_COLOR is set."""
    head = 'Traceback (most recent call last):\n  File \x1b[35m"a.py"\x1b[0m, line \x1b[35m3\x1b[0m, in f\n'
    head += "\x1b[1;35mOSError\x1b[0m: \x1b[35m[Errno 28] No space left on device: '/scratch/a'\x1b[0m\n"
    (tmp_path / "a.log").write_text(head)
    screen = shown(0, "why", tmp_path / "a.log")
    assert "first cause OSError: [Errno 28] No space left on device: '/scratch/a' (a filesystem is full" in screen
    assert "stack       f (a.py:3)" in screen
