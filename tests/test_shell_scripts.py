"""Shell scripts where no cluster is: what they refuse, in one line and with exit code 2."""

import os
import re
import shutil
import socket

import pytest
from loops import for_each
from programs import ROOT, program, ran
from scripts_for_tests import bash, chosen, on_the_path, refused
from tiers import first

SETUP = ROOT / "infrastructure-validation/local-cluster/setup.sh"


@pytest.mark.parametrize("lacking", [None, "shellcheck"])
def test_setup_looks_for_the_commands_where_there_is_no_dpkg(tmp_path, lacking):
    """A system without apt-get and dpkg (Rocky): what was installed by hand is enough."""
    commands = "slurmctld slurmd sinfo munged ip tc nft unshare flock hostname shellcheck faketime bindfs gcc g++"
    for name in commands.split():
        if name != lacking:
            (tmp_path / name).touch(mode=0o755)
    done = ran([shutil.which("bash") or "/bin/bash", SETUP], env={**os.environ, "PATH": str(tmp_path)})
    if lacking is None:
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert done.returncode == 2
        assert done.stderr.startswith(f"setup: not found: {lacking}; ")
        assert done.stderr.count("\n") == 1
        assert {"bindfs", "util-linux", "hostname", "tc", "3.11"} <= set(re.findall(r"[\w.-]*\w", done.stderr))


TRAININGS = sorted((ROOT / "training/slurm").glob("*.sbatch"))


@for_each(*first([(3, 2), (1, 1), (2, 2), (5, 8), (6, 8), (12, 8), (16, 8), (32, 8)]))
def test_the_default_batch_suits_any_number_of_ranks_and_all_runs_of_a_playbook_have_the_same(nodes, gpus):
    batches = {chosen(ranks, BRINGUP_TRAIN_RANKS=str(nodes * gpus)).stdout.strip() for ranks in (1, gpus, nodes * gpus)}
    assert len(batches) == 1
    option, batch = batches.pop().split()
    assert option == "--global-batch"
    assert 32 <= int(batch) < 64 + nodes * gpus
    assert int(batch) % (nodes * gpus) == 0


def test_a_script_by_itself_takes_a_batch_for_its_own_ranks_and_a_batch_that_is_given_wins():
    assert chosen(6).stdout == "--global-batch 36\n"
    batch = "--global-batch 12 --steps 5"
    assert chosen(6, BRINGUP_TRAIN_ARGS=batch).stdout == f"--global-batch 36 {batch}\n"
    assert chosen(6, "--global-batch", "12").returncode == 0


IN_32_PARTS = ("--gradient-accumulation", "32")


@for_each(
        (6, ("--global-batch", "64"), "not divisible by 6 rank(s) x 1 accumulation step(s); the nearest that is: 66"),
        (6, ("--global-batch", "61"), "the nearest that is: 60"),
        (6, ("--global-batch", "2"), "the nearest that is: 6"),
        (4, IN_32_PARTS, "divisible by 4 rank(s) x 32 accumulation step(s); the nearest that is: 128"),
        (4, ("--no-such-option",), "unrecognized arguments: --no-such-option"),
)  # fmt: skip
def test_a_workload_that_cannot_work_is_one_line_and_exit_code_2(ranks, options, says):
    refused(chosen(ranks, *options), says)


@pytest.mark.parametrize("script", first(TRAININGS), ids=lambda path: path.stem)
def test_a_training_that_cannot_work_is_refused_before_srun_and_leaves_no_run(tmp_path, script):
    path = on_the_path(tmp_path, srun=f"touch {tmp_path}/started")
    done = bash('exec bash "$@"', str(script), "--steps", "none", BRINGUP_PROFILE="generic", PATH=path)
    refused(done, "argument --steps: invalid int value: 'none'")  # run_begin would have printed the folder
    assert not (tmp_path / "started").exists()


SBATCH = sorted([*TRAININGS, *(ROOT / "infrastructure-validation/scripts").glob("*.sbatch")])


@for_each(*SBATCH, ids=lambda path: path.stem)
@for_each("elsewhere", "nowhere", None)
def test_a_batch_script_outside_of_the_repository_or_not_submitted_is_refused_in_one_line(tmp_path, script, folder):
    (tmp_path / "elsewhere").mkdir(exist_ok=True)
    if folder is None:
        refused(bash('unset "${!SLURM_@}"; exec bash "$@"', str(script)), "submit it: sbatch ")
    else:
        done = bash('exec bash "$@"', str(script), SLURM_SUBMIT_DIR=str(tmp_path / folder))
        says = f"{tmp_path / folder}, seen from {socket.gethostname()}, is not the root of the bringup repo"
        refused(done, says, "; cd there and submit again\n")


@pytest.mark.parametrize("lacking", ["nothing", "all", "torchrun", "torch", "the files of torch"])
def test_a_node_whose_python_environment_cannot_be_used_says_so_in_one_line(tmp_path, lacking):
    packages = tmp_path / "packages"
    for name in ("torch", "transformers", "accelerate", "datasets"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").touch()
    if lacking == "torch":
        shutil.rmtree(packages / "torch")
    if lacking == "the files of torch":  # an empty folder: something is mounted over it
        (packages / "torch/__init__.py").unlink()
    (tmp_path / "bin").mkdir()
    if lacking != "all":
        program(tmp_path / "bin/python", f'PYTHONPATH={packages} exec /usr/bin/env python3 -S "$@"')
        if lacking != "torchrun":
            (tmp_path / "bin/torchrun").touch(mode=0o755)
    rank_1 = {"SLURM_PROCID": "1", "SLURMD_NODENAME": "n1", "MASTER_ADDR": "127.0.0.1"}
    done = bash("source training/env.sh || exit 2; echo started", **rank_1, BRINGUP_VENV=str(tmp_path))
    if lacking == "nothing":
        assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")
    else:
        refused(done, f"no Python environment at {tmp_path}", ", seen from n1; ")


@pytest.mark.parametrize("script", ["nccl_scaling.sh", "nccl_run_with_monitoring.sh", "nccl_pairwise.sbatch"])
def test_collectives_meet_at_the_node_of_rank_0_and_ranks_follow_the_node_list(script):
    """Slurm 26.05.5 with topology/tree: task 0 was on n1, MASTER_ADDR was n0, and all ranks waited for ten minutes."""
    text = (ROOT / "infrastructure-validation/scripts" / script).read_text()
    meet = text.count("MASTER_ADDR=")
    assert meet == text.count("MASTER_ADDR=$(rank0_of ") >= 1
    in_order = r'MASTER_ADDR=\$\(rank0_of [^#]*? srun [^#]*?--ntasks-per-node="(\$\w+)" --distribution="plane=\1" '
    assert len(re.findall(in_order, text)) == meet


@for_each(*sorted((ROOT / "infrastructure-validation/scripts").glob("*.sh")), ids=lambda path: path.stem)
def test_a_sites_time_limit_for_salloc_counts(script):
    """An option on the command line would win over SALLOC_TIMELIMIT."""
    calls = [line for line in script.read_text().splitlines() if line.startswith("salloc ")]
    assert not [line for line in calls if "--time" in line]


def test_the_allocator_grows_its_segments_unless_somebody_set_it():
    script = "source training/env.sh; env | grep ALLOC_CONF"
    for own, expected in (
        ({}, "PYTORCH_ALLOC_CONF=expandable_segments:True"),
        ({"PYTORCH_ALLOC_CONF": "backend:native"}, "PYTORCH_ALLOC_CONF=backend:native"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}, "PYTORCH_CUDA_ALLOC_CONF=backend:native"),
    ):
        given = {name: value for name, value in os.environ.items() if "ALLOC_CONF" not in name}
        assert ran(["bash", "-c", script], env=given | own, cwd=ROOT).stdout == f"{expected}\n"


def test_the_patience_at_the_start_reaches_the_ranks_and_one_that_is_no_number_is_refused():
    script = "source training/env.sh; env | grep BRINGUP_START_S"
    assert bash(script).stdout == "BRINGUP_START_S=600\n"
    assert bash(script, BRINGUP_START_S="30").stdout == "BRINGUP_START_S=30\n"
    refused(bash(script, BRINGUP_START_S="soon"), "BRINGUP_START_S=soon: expected a number of seconds\n")


def test_a_node_whose_driver_never_answers_cannot_hold_discovery_past_its_time_limit():
    """A process inside the driver cannot be killed: discovery waited for its step until its own time was over."""
    text = (ROOT / "infrastructure-validation/scripts/discover-environment.sbatch").read_text()
    [limit] = re.findall(r"^#SBATCH --time=00:(\d\d):00$", text, re.M)
    [patience] = re.findall(r"^PATIENCE_S=(\d+)", text, re.M)
    [again] = re.findall(r'--nodelist="\$node" .*--time=(\d+) ', text)
    assert 'timeout --foreground --kill-after=10 "$PATIENCE_S" srun --label' in text
    assert int(patience) + 60 * int(again) < 60 * int(limit) / 1.5


NEWER_THAN_BASH_44 = re.compile(
    r"\b(EPOCHREALTIME|EPOCHSECONDS|BASH_ARGV0|SRANDOM|BASH_MONOSECONDS|BASH_TRAPSIG|GLOBSORT)\b"
    r"|\bwait (-\w )*-p\b|\blocal -I\b|\$\{\w+@[UuLKk]\}|\$\{ "
    r"|shopt -s \S*(assoc_expand_once|localvar_inherit|globskipdots|patsub_replacement|varredir_close)"
)


def test_scripts_need_nothing_newer_than_bash_44():
    """RHEL, Rocky and Alma 8 have it; under set -u a variable that it does not know ends the script."""
    listed = ran(["git", "ls-files", "-z"], cwd=ROOT, check=True)
    paths = [ROOT / name for name in listed.stdout.split("\0") if name and not name.startswith("docs/results/")]
    scripts = [path for path in paths if path.is_file() and b"bash" in path.read_bytes()[:64].split(b"\n")[0]]
    assert len(scripts) > 30
    newer = {
        f"{path.relative_to(ROOT)}:{number}": line.strip()
        for path in scripts
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if NEWER_THAN_BASH_44.search(line.partition(" #")[0])
    }
    assert newer == {}
