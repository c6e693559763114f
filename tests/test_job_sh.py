"""What the phase scripts share: job.sh, and the parts of smoke and of the pairs."""

import re
import shlex
import sys

import pytest
from bringup.kernel.facts import hostlist
from loops import case_for_each, for_each
from programs import program
from scripts_for_tests import bash, in_job_sh, on_the_path, refused


@case_for_each(
    # 16 nodes of a small machine: less than 2000M each
    ("1355\n1400\n", "--mem-per-gpu=508M", "--mem-per-cpu=50M"),
    ("515000\n2063000+\n", "--mem-per-gpu=1000M", "--mem-per-cpu=50M"),
    ("1\n1\n", "", ""),  # RealMemory is not configured
)
def test_smoke_asks_for_no_more_memory_than_its_smallest_node_has(tmp_path, of_nodes, steps, jobs):
    path = on_the_path(tmp_path, sinfo=f"cat <<END\n{of_nodes}END")
    script = """set -euo pipefail
        source infrastructure-validation/scripts/job.sh
        source infrastructure-validation/scripts/smoke_parts.sh
        node_mib=$(least_memory)
        ask_memory 50 --mem-per-cpu
        echo "${memory[@]}"
        ask_memory "$(memory_of_steps)" --mem-per-gpu "$GPUS"
        echo "${memory[@]}"
        """
    done = bash(script, USABLE="n0,n1", GPUS="2", PATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [jobs, steps]


def test_logs_that_cannot_be_kept_are_one_line_and_exit_code_2(tmp_path):
    (tmp_path / "slurm-logs").write_text("a file where the folder should be")
    script = f"""set -euo pipefail
        source infrastructure-validation/scripts/job.sh
        cd {tmp_path}
        keep_log"""
    refused(bash(script), f"training: {tmp_path}/slurm-logs: no folder that can be written, seen from ")


@case_for_each(
    ("mkdir /proc/no", 2), ("no-such-command", 2), ("exit 1", 2), ("exit 2", 2), ("true", 0), ("run_end 0", 1)
)
def test_only_a_verdict_ends_a_phase_script_with_exit_code_1(tmp_path, command, code):
    """1 says that the cluster failed. A command of ours that failed before the verdict says that we cannot tell."""
    python = program(tmp_path / "python", "exit 1")  # `bringup close` that judges: FAIL
    script = "set -euo pipefail; source infrastructure-validation/scripts/job.sh; eval " + repr(command)
    assert bash(script, PYTHON=str(python), RUN_DIR=str(tmp_path)).returncode == code


IN_JOB_SH = {
    # a part that no gate of the run asks for is not run
    "for gate in sweep.dcgm.failed sweep.dcgm fabric.loopback; do ! is_planned $gate || echo $gate; done": (
        ({"PLANNED": "run.closed sweep.dcgm.failed sweep.dcgm.gpus"}, "sweep.dcgm.failed\n"),
        ({"PLANNED": ""}, ""),
    ),
    # SBATCH_EXPORT=NONE puts SLURM_EXPORT_ENV=NONE into a job, and its steps would know nothing of the run
    "echo ${SBATCH_EXPORT-unset} $SLURM_EXPORT_ENV": (
        (dict.fromkeys(["SBATCH_EXPORT", "SLURM_EXPORT_ENV"], "NONE"), "unset ALL\n"),
    ),
    # programs of a run speak English wherever its user is from
    "env | grep -E '^(LC_A|LANGUAGE)' | sort | xargs": (({"LC_ALL": "POSIX", "LANGUAGE": "de"}, "LC_ALL=C.UTF-8\n"),),
    # SLURM_CPUS_ON_NODE is of the batch script's node; srun refuses a step that requests more of another
    **{
        f"cpus_per_rank {ranks}": (
            ({"SLURM_CPUS_ON_NODE": "64", "SLURM_JOB_CPUS_PER_NODE": per_node}, f"{cores}\n"),
            ({"SLURM_CPUS_ON_NODE": "48"}, f"{48 // ranks}\n"),
        )
        for per_node, ranks, cores in (
            *(("64(x2),48", 1, 48), ("64(x2),48", 6, 8)),
            *(("2", 8, 1), ("24,96(x3),32(x2)", 2, 12)),
        )
    },
    # SLURM_UNBUFFEREDIO alone cut lines of facts: 89 checks of 110 were incomplete, and no line named it
    "env | grep -oE '^(SLURM_(UNB|MEM|LAB)|SBATCH)[A-Z_]*'": (
        (
            dict.fromkeys(["SLURM_UNBUFFEREDIO", "SLURM_MEM_PER_CPU", "SBATCH_WAIT", "SLURM_LABELIO"], "1"),
            "SLURM_LABELIO\n",
        ),
    ),
    "sleep 60 & end_within 1 $! || echo ended with $?": (({}, "ended with 143\n"),),  # a sampler that does not end
}


@for_each(*IN_JOB_SH)
def test_what_a_phase_script_gets_from_job_sh(command):
    for environment, printed in IN_JOB_SH[command]:
        assert in_job_sh(command, **environment) == printed


@pytest.mark.parametrize(("listed", "first"), [("n3,n0", "n0"), ("n10,n2", "n2"), ("n2,n10", "n2"), ("n3", "n3")])
def test_the_node_of_rank_0_is_the_first_in_slurms_order_however_the_nodes_are_listed(tmp_path, listed, first):
    """A pair that is measured again may be listed as n3,n0. With n3 as the master, rank 0 on n0 would meet nobody."""
    path = on_the_path(tmp_path, scontrol="echo \"$3\" | tr , '\\n'")
    assert in_job_sh(f"rank0_of {listed}", PATH=path, SLURM_JOB_NODELIST="n0,n2,n3,n10") == f"{first}\n"


def test_eight_thousand_nodes_with_long_names_do_not_fill_an_option_or_a_variable(tmp_path):
    """Linux takes 131,071 bytes of one argument or variable; these names have 229,375. Each line begins a program with
    what the scripts export."""
    names = [f"rack-compute-long-name-{number:04d}" for number in range(8192)]
    (tmp_path / "names").write_text("\n".join(names) + "\n")
    path = on_the_path(tmp_path, scontrol=f"case $2 in hostnames) cat {tmp_path}/names ;; *) wc -l <$3 ;; esac")
    (tmp_path / "raw").mkdir()
    closed = '0: {"probe": "inventory", "at": "%s", "end": 1, "run": "r", "utc": "t"}\n'
    (tmp_path / "facts").write_text("".join(closed % name for name in names[:-1]))
    script = f'''export NODES="rack-compute-long-name-[0000-8191]" RUN_DIR={tmp_path}
        mapfile -t nodes < <(names_of "$NODES")
        rank0_of "$NODES"
        placed inventory 1 "$NODES"
        printf '%s\\n' "${{nodes[@]}}" | short_of
        unfinished inventory {tmp_path}/facts "${{nodes[@]}}"'''
    answer = in_job_sh(script, PATH=path, SLURM_JOB_NODELIST="rack-compute-long-name-[0000-8191]")
    assert answer.split() == [names[0], "8192", names[-1]]
    assert (tmp_path / "raw/inventory.step").read_text() == f"1 {','.join(names)}\n"
    assert len(hostlist.shortened(names)) < 100


def test_only_nodes_without_a_closing_line_are_asked_again(tmp_path):
    closing = '0: {"probe": "inventory", "at": "%s", "end": 33, "run": "r", "utc": "t"}\n'
    fact = '1: {"probe": "inventory", "at": "n1", "subject": "n1", "quantity": "discovery.cpus", "value": 8}\n'
    file = tmp_path / "inventory.jsonl"
    file.write_text(closing % "n0" + fact + closing % "n11" + closing.replace("inventory", "clock") % "n2")
    assert in_job_sh(f"unfinished inventory {file} n0 n1 n2 n11") == "n1\nn2\n"
    assert in_job_sh(f"unfinished inventory {file} n0 n11") == ""


@for_each("1", "1199", "1200", "1999", "4294967295")
def test_ports_are_below_those_that_linux_gives_to_any_connection(job):
    assert all(20000 <= int(port) < 32768 for port in in_job_sh("port 0; port 9; port 16", SLURM_JOB_ID=job).split())


@case_for_each(
    ("exec sleep 30", "RUNNING", 2),
    ("exec sleep 2", "CONFIGURING", 0),
    ("exit 1", "", 0),
    ids=["a firewall", "a node that boots", "refused"],
)
def test_a_login_host_that_hears_nothing_of_its_nodes_says_so(tmp_path, srun, state, code):
    """Each step was silent for its ten minutes, and the cause was said nowhere."""
    path = on_the_path(tmp_path, srun=srun, squeue=f"echo {state}", scancel=":", scontrol="echo Prolog = /none")
    scripts = "infrastructure-validation/scripts"
    stubs = "has_prolog() { false; }; names_of() { tr , '\\n' <<<$1; }; sleep() { command sleep 0.02; }"
    done = bash(f"source {scripts}/job.sh; {stubs}; need_connections n3,n4", PATH=path)
    assert done.returncode == code
    says = "n3 runs a job of srun, and \\S+ heard nothing of it in 20 s: does a firewall stop"
    assert bool(re.search(says, done.stderr)) == (code == 2)


@case_for_each(
    ("--array=0-3", "", 1),
    ("--array=0-3", "620007", 3),
    ("--mem=100M", "", 3),
    ids=["an array larger than what may be submitted", "another job of ours has to end", "a job of one task"],
)
def test_a_job_that_may_not_be_submitted_yet_is_waited_for_and_an_array_that_never_may_is_not(
    tmp_path, options, queued, asked
):
    refusal = f"echo >> {tmp_path}/asked; echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; exit 1"
    path = on_the_path(tmp_path, sbatch=refusal, squeue=f"echo {queued}".rstrip())
    scripts = "infrastructure-validation/scripts"
    done = bash(
        f"source {scripts}/job.sh; source {scripts}/smoke_jobs.sh; "
        f"ONE_GPU_SITE=() others=() raw={tmp_path} patience=2; ask_memory() {{ memory=(); }}; "
        f"unset SECONDS; SECONDS=0; sleep() {{ ((SECONDS += 1)); }}; batch array {options} true",  # no clock counts
        PATH=path,
    )
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "asked").read_text()) == asked
    assert "QOSMaxSubmitJobPerUserLimit" in (tmp_path / "jobs.err").read_text()


def test_a_gpu_request_for_the_whole_job_is_none_for_its_steps():
    """Slurm hands SBATCH_GPUS_PER_NODE on as SLURM_GPUS_PER_NODE. The step that requests no GPU, and looks whether they
    are hidden from it, would see all of them."""
    request = dict.fromkeys(["SLURM_TRES_BIND", "SRUN_TRES_BIND"], "gres/gpu:per_task:1")
    request |= {"SLURM_GPUS_PER_NODE": "8", "SLURM_GPUS": "16", "SLURM_GRES": "gpu:8"}
    request |= {"SLURM_TRES_PER_TASK": "gres/gpu:1", "SLURM_GPU_BIND": "single:1"}
    names = "|".join(sorted({name.partition("_")[2] for name in request}))
    shown = f"env | awk '/^(SLURM|SRUN)_({names})=/ {{n++}} END {{print n + 0}}'; gpus_on_node"
    assert in_job_sh(shown, **request).split() == ["0", "2"]
    outside = "unset SLURM_JOB_ID; source infrastructure-validation/scripts/job.sh; echo $SLURM_GPUS_PER_NODE"
    assert bash(outside, **request).stdout == "8\n"  # what a user says to the srun of a login host


@for_each(
    ("gpu:2", "none"), ("gres:gpu:h100:2,nvme:1", "nvme:1"), ("gpu", "none"), ("gpumem:1", "gpumem:1"), ("", "none")
)
def test_a_command_with_a_gpu_request_of_its_own_is_given_no_other(gres, kept):
    """Slurm 26.05: --gpus-per-node and --gres=gpu are mutually exclusive, also where one is in the environment."""
    request = {"SALLOC_GRES": gres, "SALLOC_GPUS": "2", "SALLOC_GPUS_PER_NODE": "2", "SBATCH_GRES": "gpu:2"}
    shown = "echo ${SALLOC_GRES-none} ${SALLOC_GPUS-none} ${SALLOC_GPUS_PER_NODE-none} $SBATCH_GRES"
    source = "unset SLURM_JOB_ID; source infrastructure-validation/scripts/job.sh; forget_gpu_requests SALLOC; "
    assert bash(source + shown, **request).stdout == f"{kept} none none gpu:2\n"


def test_the_sampler_ends_with_its_standard_input_and_is_waited_for(tmp_path):
    """srun answers SIGTERM with SIGKILL to its tasks."""
    samples = tmp_path / "samples"
    probe = shlex.join([sys.executable, "infrastructure-validation/probes/monitor.py", "until-eof"])
    script = f"""exec {{hold}}> >(exec {probe} >{shlex.quote(str(samples))})
        sampler=$!
        until [[ -s {shlex.quote(str(samples))} ]]; do sleep 0.1; done
        exec {{hold}}>&-
        end_within 20 "$sampler"
        echo ended with $?"""
    assert in_job_sh(script) == "ended with 0\n"
    assert samples.read_text().endswith("\n")


def test_pairs_of_gpus_are_not_waited_for_together_with_what_watches_beside_them(tmp_path):
    """The watcher ends when it is told to. A plain `wait` of bash 5.2 waits for it as well, until the time limit of
    the job."""
    (tmp_path / "raw").mkdir()
    # the watcher reads until its standard input ends; one pair fails, the other does not
    path = on_the_path(tmp_path, srun='case "$*" in *xids*) cat ;; *n2,n3*) exit 1 ;; *) echo fact ;; esac')
    script = """set -euo pipefail
        SCRIPTS=infrastructure-validation/scripts
        source "$SCRIPTS/watchers.sh"
        eval "$(sed -n '/^exchange_collectives()/,/^}/p; /^wait_for()/,/^}/p' "$SCRIPTS/nccl_pairwise.sbatch")"
        end_within() { wait "$2"; }; placed() { :; }; rank0_of() { :; }
        port() { :; }; cpus_per_rank() { echo 1; }
        gpus=2 SRUN_SITE=() CONTAINER=() PYTHON=python3
        start_watcher xids.jsonl 2 xids.py
        exchange_collectives pairs-1-1 "n0,n1 n2,n3" 1
        end_watcher xids.jsonl
        echo ended"""
    done = bash(script, PATH=path, RUN_DIR=str(tmp_path), SLURM_JOB_NUM_NODES="4")
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
    assert (tmp_path / "raw/pairs-1-1-n0-n1.jsonl").read_text() == "fact\n"
