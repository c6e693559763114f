"""What a site file does: to Slurm's variables, to the command lines of the scripts, and to what a run keeps.

The scripts run in a copy of the repository, with srun, salloc, scontrol and apptainer that note how they were called.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Run, SiteUsed, read_record
from bringup.run.site_file import load
from loops import case_for_each
from programs import ROOT, program, ran
from tiers import first, in_test_all

LAB = """
schema_version: 1
name: lab
partition: gpu
account: research
time_limits: {default: "30", nccl_scaling: "02:00:00"}
gpu_request: --gres=gpu:h100:8
srun: ["--mpi=pmix", "--comment=it's $HOME"]
salloc: ["--comment=of salloc"]
sbatch: ["--comment=of sbatch"]
environment: {NCCL_IB_HCA: "mlx5_0,mlx5_1", NCCL_DEBUG: "TRACE"}
"""
CONTAINER = 'container: {{runtime: {}, image: "{}", mounts: ["/data:/data:ro"]}}\n'
JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[0-1]", "SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_ON_NODE": "2"}
JOB |= {"SLURM_CPUS_ON_NODE": "4", "SLURM_NODEID": "0", "SLURM_PROCID": "0"}
NOTE = """note() { printf '%s\\n' "${*//$'\\n'/ }" >>"$CALLS/${0##*/}"; }
"""
STUBS = {
    # with RUNS the command after the options runs, so that what stands there is seen to be one
    "srun": 'note "$@"; while [[ $1 == -* ]]; do shift; done; [[ ! -v RUNS ]] || exec "$@"',
    "salloc": """note "limit $SALLOC_TIMELIMIT:" "$@"; while [[ $1 == -* ]]; do shift; done
        export SLURM_JOB_ID=8 SLURM_JOB_NUM_NODES=2 SLURM_CPUS_ON_NODE=4 SLURM_JOB_NODELIST=n[0-1]; exec "$@" """,
    "scontrol": """case $* in
        "show hostnames"*) printf 'n0\\nn1\\n' ;;
        "show hostlist"*) cat >/dev/null; echo 'n[0-1]' ;;
        *"show node"*) printf 'NodeName=%s Gres=gpu:2 State=IDLE Version=23.11\\n' n0 n1 ;;
        *) exit 1 ;;
    esac""",
    "sinfo": "printf 'gpu*\\037n[0-1]\\n'",
    # the image has a PATH of its own; what comes with the prefix wins inside
    "apptainer": """note "$@"; while [[ $1 != *.sif ]]; do shift; done; shift
        export PATH=$IMAGE:/usr/bin:/bin PYTHONPATH=$APPTAINERENV_PYTHONPATH; exec "$@" """,
}
IMAGE = {
    "torchrun": 'note "$@"; env >"$CALLS/environment"',
    "python": '[[ $1 != -c ]] || exit "${LACKING:-0}"; note "$@"; env >"$CALLS/environment"',
}


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "lab.site.yaml"
    path.write_text(LAB)
    return path


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository, so that results of these tests are not among those of the checkout."""
    tree = tmp_path_factory.mktemp("copy") / "bring up"
    for name in ("infrastructure-validation", "training", "validation"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("results", "__pycache__"))
    return tree


Called = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def call(copy: Path, tmp_path: Path, lab: Path) -> Called:
    """Runs `script` by bash in the copy, with the site and the stubs."""
    for folder, programs in (("bin", STUBS), ("image", IMAGE)):
        for name, text in programs.items():
            program(tmp_path / folder / name, f"{NOTE}{text}")
    (tmp_path / "calls").mkdir()
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "BRINGUP_", "SBATCH_"))}
    own = {
        "BRINGUP_SITE": str(lab),
        "BRINGUP_VENV": str(Path(sys.executable).parent.parent),
        "BRINGUP_RUN_NAME": "x",
        "PYTHONPATH": str(copy / "validation"),
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "IMAGE": str(tmp_path / "image"),
    }

    def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        for phase in PHASES.values():
            shutil.rmtree(copy / phase.results, ignore_errors=True)
        command = ["bash", "-euo", "pipefail", "-c", script, "bash", *arguments]
        return ran(command, cwd=copy, env=keep | own | environment)

    return run


def noted(tmp_path: Path, name: str) -> list[str]:
    path = tmp_path / "calls" / name
    return path.read_text().splitlines() if path.is_file() else []


def opened(copy: Path, phase: str) -> tuple[Path, Run]:
    folder = next((copy / PHASES[phase].results).glob("*/run.json")).parent
    return folder, read_record(folder / "run.json", Run)


def site_of(copy: Path, phase: str) -> SiteUsed:
    return opened(copy, phase)[1].site


BEGIN = "source infrastructure-validation/scripts/job.sh; need_repository; source training/env.sh\n"


def begin(phase: str) -> str:
    return f"{BEGIN} run_begin {phase} --nodes n0,n1 --gpus-per-node 2 >/dev/null\n"


def test_slurms_commands_and_the_scripts_get_what_the_file_says(call: Called, copy: Path):
    done = call(begin("nccl_scaling") + 'env; printf "<%s>" "${SRUN_SITE[@]}" "${SALLOC_SITE[@]}" "${CONTAINER[@]}"')
    assert done.returncode == 0, done.stderr
    assert {
        *(f"{command}_PARTITION=gpu" for command in ("SBATCH", "SALLOC", "SLURM")),
        *(f"{command}_ACCOUNT=research" for command in ("SBATCH", "SALLOC", "SLURM")),
        *(f"{command}_{key}" for command in ("SBATCH", "SALLOC") for key in ("TIMELIMIT=02:00:00", "GRES=gpu:h100:8")),
        *("NCCL_IB_HCA=mlx5_0,mlx5_1", "NCCL_DEBUG=TRACE"),
    } <= set(done.stdout.splitlines())  # fmt: skip
    assert "SLURM_TIMELIMIT" not in done.stdout, "it would be the limit of every step"
    assert done.stdout.endswith("<--mpi=pmix><--comment=it's $HOME><--comment=of salloc>")
    assert site_of(copy, "nccl_scaling").otherwise == {}


def test_what_the_user_set_wins_and_the_run_says_so(call: Called, copy: Path):
    """NCCL_DEBUG was set by nobody but training/env.sh, which is not a user."""
    done = call(begin("nccl_scaling") + "env", SALLOC_PARTITION="debug", NCCL_IB_HCA="mlx5_7")
    assert done.returncode == 0, done.stderr
    lines = {"SALLOC_PARTITION=debug", "SBATCH_PARTITION=gpu", "NCCL_IB_HCA=mlx5_7", "NCCL_DEBUG=TRACE"}
    assert lines <= set(done.stdout.splitlines())
    assert site_of(copy, "nccl_scaling").otherwise == {"SALLOC_PARTITION": "debug", "NCCL_IB_HCA": "mlx5_7"}


def test_inside_a_job_slurm_says_which_partition_it_was(call: Called, copy: Path):
    """Submitted by hand, without the site's variables: the report must not say that it was the site's partition."""
    done = call(begin("discovery") + "env", **JOB, SLURM_JOB_PARTITION="main", SLURM_JOB_ACCOUNT="Research")
    assert done.returncode == 0, done.stderr
    assert site_of(copy, "discovery").otherwise == {"partition": "main"}
    assert "SBATCH_PARTITION" not in done.stdout
    assert "NCCL_IB_HCA=mlx5_0,mlx5_1" in done.stdout


def test_steps_inside_a_job_are_not_asked_for_the_jobs_constraint(call: Called):
    """srun takes one feature there: with `a&b` every step would fail."""
    assert call(BEGIN + "echo ${SLURM_CONSTRAINT-none}", **JOB, SLURM_CONSTRAINT="a&b").stdout == "none\n"
    assert call(BEGIN + "echo ${SLURM_CONSTRAINT-none}", SLURM_CONSTRAINT="a&b").stdout == "a&b\n"


def test_smokes_small_jobs_do_not_ask_for_all_gpus(call: Called):
    show = "echo ${SBATCH_GRES-none} ${ONE_GPU_SITE[@]} ${SBATCH_SITE[@]}"
    assert call(begin("smoke") + show).stdout == "none --gres=gpu:h100:1 --comment=of sbatch\n"
    assert call(begin("smoke") + show, SBATCH_GRES="gpu:h100:8").stdout.startswith("none ")
    assert call(begin("smoke") + show, SBATCH_GRES="gpu:2").stdout.startswith("gpu:2 "), "the user's own stays"


@pytest.mark.parametrize("form", first(["SALLOC_GPUS_PER_NODE=8", "SALLOC_GPUS=16", "SALLOC_GRES=gpu:2,nvme:1"]))
def test_a_gpu_request_of_the_user_replaces_that_of_the_site(call: Called, form: str):
    """Slurm 26.05: --gpus-per-node and --gres=gpu are mutually exclusive."""
    name, _, value = form.partition("=")
    done = call(begin("nccl_scaling") + "env | grep -E '^(SALLOC|SBATCH)_(GPUS|GRES)' | sort", **{name: value})
    assert done.stdout.splitlines() == [form, "SBATCH_GRES=gpu:h100:8"], done.stderr


def test_without_a_site_file_nothing_changes(call: Called, copy: Path):
    script = begin("discovery") + 'env; echo "${#SRUN_SITE[@]}${#CONTAINER[@]}${#CHECKPOINTS_SITE[@]}"'
    done = call(script, BRINGUP_SITE="")
    assert done.stdout.endswith("\n000\n"), done.stderr
    assert "SBATCH_" not in done.stdout.replace("SRUN_SITE", "")
    folder, run = opened(copy, "discovery")
    assert run.site is None
    assert sorted(path.name for path in folder.iterdir()) == ["private", "profile.yaml", "raw", "run.json"]


def test_the_run_keeps_a_copy_that_loads_again(call: Called, copy: Path, lab: Path):
    assert call(begin("discovery")).returncode == 0
    folder, run = opened(copy, "discovery")
    assert load(folder / "site.yaml") == load(lab)
    assert run.site.says["environment"] == {"NCCL_IB_HCA": "mlx5_0,mlx5_1", "NCCL_DEBUG": "TRACE"}
    assert run.site.says["srun"] == ["--mpi=pmix", "--comment=it's $HOME"]


# ---- modules, and the setup file


MODULES = """
module() {
  [[ $2 == cuda/* ]] || return "$CODE"
  export PATH=$IMAGE:$PATH CUDA=$2 LOADEDMODULES=$2 NCCL_IB_HCA=theirs
}
export -f module
"""


def test_modules_and_the_setup_file_come_before_the_variables_and_the_python_stays_ours(call, lab, tmp_path):
    (tmp_path / "setup.sh").write_text('echo "$NOT_SET" >/dev/null; export FROM_SETUP="$CUDA" NCCL_DEBUG=theirs\n')
    lab.write_text(f"{LAB}modules: [cuda/12.8]\nsetup: {tmp_path}/setup.sh\n")
    done = call(MODULES + begin("discovery") + 'echo "$FROM_SETUP $NCCL_IB_HCA $NCCL_DEBUG $(command -v python)"')
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"cuda/12.8 mlx5_0,mlx5_1 TRACE {Path(sys.executable).parent}/python\n"


NO_MODULE = "modules: [cuda/12.8, nccl/2.0]"


@case_for_each(
    ("discovery", "partitoin: gpu", "0", "bringup: {lab}:12: partitoin: there is no such key; did you ", False),
    ("run_1gpu", "checkpoints: /nowhere/c", "0", "site lab: checkpoints: /nowhere/c: no such folder, ", False),
    ("discovery", "setup: /nowhere/s", "0", "site lab: setup: /nowhere/s: no such file, seen from ", False),
    # Environment Modules before version 5 ends with 0 then
    ("discovery", NO_MODULE, "0", "module load nccl/2.0 loaded nothing on ", True),
    ("discovery", NO_MODULE, "1", "module load nccl/2.0 failed on ", True),
    ("discovery", "setup: {place}/setup.sh", "0", "setup.sh, the setup file of the site, ended with 3", True),
)
def test_a_file_that_cannot_be_used_ends_the_phase_with_one_line(
    call, copy, lab, tmp_path, phase, line, code, says, is_opened
):
    """Before a run is opened, or on the node that lacks what the file names."""
    (tmp_path / "setup.sh").write_text("return 3\n")
    lab.write_text(f"{LAB}{line.format(place=tmp_path)}\n")
    done = call(MODULES + BEGIN + f"run_begin {phase} --nodes n0 --gpus-per-node 2; echo not reached", CODE=code)
    assert (done.returncode, done.stdout) == (2, "")
    assert says.format(lab=lab) in done.stderr
    assert done.stderr.count("\n") == 1
    assert any((copy / PHASES[phase].results).glob("*/run.json")) is is_opened


# ---- command lines, and containers


COUNTERS = "infrastructure-validation/probes/counters.py"
MONITOR = "infrastructure-validation/probes/monitor.py"
XIDS = "infrastructure-validation/probes/xids.py"
SITE_OPTIONS = "--mpi=pmix --comment=it's $HOME "


def batch(call: Called, stem: str, **environment: str) -> subprocess.CompletedProcess[str]:
    place = {"SLURM_JOB_NODELIST": "n0", "SLURM_JOB_NUM_NODES": "1"} if PHASES[stem].max_nodes == 1 else {}
    job = JOB | {"SLURM_JOB_NAME": Path(PHASES[stem].script).stem} | place | environment
    return call('exec bash "$@"', PHASES[stem].script, **job)


TRAININGS = ("run_1gpu", "run_ddp_1node", "run_hsdp_2node")  # one of each way to launch; all hand over to _train.sh


@pytest.mark.parametrize("stem", first(TRAININGS))
def test_a_training_runs_in_the_container_of_pyxis(call: Called, copy: Path, tmp_path: Path, lab: Path, stem: str):
    (tmp_path / "checkpoints").mkdir()
    lab.write_text(f"{LAB}{CONTAINER.format('pyxis', 'nvcr.io#nvidia/pytorch')}checkpoints: {tmp_path}/checkpoints\n")
    done = batch(call, stem)
    assert done.returncode == 2, done.stderr  # nothing trained: incomplete
    steps = noted(tmp_path, "srun")
    beside = [step for step in steps if MONITOR in step or XIDS in step]  # none where the training ended first
    assert all(SITE_OPTIONS in step and "--container" not in step for step in beside), "a probe runs on the node itself"
    before, line, after, last = (step for step in steps if step not in beside)
    assert before.endswith(f"{SITE_OPTIONS}python3 {COUNTERS} before")
    assert after.endswith(f"{SITE_OPTIONS}python3 {COUNTERS} after")
    options, _, command = line.partition(SITE_OPTIONS)
    assert options.startswith("--label ")
    container, _, trained = command.partition("NCCL_IB_HCA,NCCL_DEBUG ")
    name = f"bringup-{opened(copy, stem)[0].name}"
    assert last.endswith(f"{SITE_OPTIONS}enroot remove --force pyxis_{name}"), "a named container outlives the job"
    assert container == (
        f"--container-image=nvcr.io#nvidia/pytorch --container-name={name} "
        f"--container-mounts={copy},{tmp_path}/checkpoints,/data:/data:ro "
        f"--container-workdir={copy} --container-env=PYTHONPATH,"
    )
    assert trained.split()[0] in ("python", "torchrun", "bash")
    # what the user gives comes later, and wins
    assert f"--checkpoint-dir {tmp_path}/checkpoints --global-batch" in trained


def test_the_folder_of_checkpoints_goes_to_trainings_alone(call: Called, tmp_path: Path, lab: Path):
    show = 'echo "${CHECKPOINTS_SITE[*]}"'
    lab.write_text(f"{LAB}scratch: /fast\ncheckpoints: {tmp_path}\n")
    assert call(begin("discovery") + show).stdout == "\n"
    assert call(begin("run_ddp_2node") + show, BRINGUP_RUN_NAME="again").stdout == f"--checkpoint-dir {tmp_path}\n"


@in_test_all
@pytest.mark.parametrize("stem", first(TRAININGS))
def test_a_training_runs_in_the_container_of_apptainer(call: Called, copy: Path, tmp_path: Path, lab: Path, stem: str):
    lab.write_text(LAB + CONTAINER.format("apptainer", "/images/torch.sif"))
    batch(call, stem, RUNS="", NCCL_IB_HCA="mlx5_7")
    (line,) = noted(tmp_path, "apptainer")
    assert line.startswith(f"exec --nv --bind {copy},/data:/data:ro --pwd {copy} /images/torch.sif ")
    (inside,) = noted(tmp_path, "python")
    assert f"training/src/{'train_single_gpu' if stem == 'run_1gpu' else 'train_'}" in inside
    environment = noted(tmp_path, "environment")
    assert f"PYTHONPATH={copy}/validation" in environment
    assert "APPTAINERENV_NCCL_IB_HCA=mlx5_7" in environment
    assert "APPTAINERENV_NCCL_DEBUG=TRACE" in environment


@in_test_all
def test_an_image_that_cannot_train_says_so_in_one_line(call: Called, copy: Path, tmp_path: Path, lab: Path):
    lab.write_text(LAB + CONTAINER.format("apptainer", "/images/torch.sif"))
    done = batch(call, "run_ddp_2node", RUNS="", LACKING="1", SLURMD_NODENAME="n1")
    says = "the container on n1 cannot train: its image needs python and torchrun on the PATH, with torch, "
    assert says in done.stdout
    assert noted(tmp_path, "python") == noted(tmp_path, "torchrun") == []


def test_probes_stay_outside_of_the_container_and_collectives_go_into_it(call: Called, tmp_path: Path, lab: Path):
    lab.write_text(LAB + CONTAINER.format("apptainer", "/images/torch.sif"))
    batch(call, "discovery")
    lines = [line for line in noted(tmp_path, "srun") if "--mpi=list" not in line]
    assert len(lines) == 3
    assert all(f" {SITE_OPTIONS}python3 infrastructure-validation/probes/" in line for line in lines)
    batch(call, "nccl_pairwise", BRINGUP_PAIR_ENGINE="collectives", BRINGUP_PAIR_REPEATS="1")
    *steps, after = noted(tmp_path, "srun")
    assert after.endswith(f"{SITE_OPTIONS}python3 {COUNTERS} after")
    *_, pairs, rails = steps
    assert f" {SITE_OPTIONS}python3 infrastructure-validation/probes/rails.py " in rails
    assert f" {SITE_OPTIONS}apptainer exec --nv " in pairs
    assert "/images/torch.sif python infrastructure-validation/probes/collectives.py n0--n1 " in pairs


@in_test_all
@pytest.mark.parametrize("stem", first(["nccl_scaling", "nccl_monitoring"]))
def test_an_allocation_gets_the_sites_options_and_its_script_knows_the_arrays(call, tmp_path, lab, stem):
    lab.write_text(LAB + CONTAINER.format("apptainer", "/images/torch.sif"))
    call('exec bash "$@"', PHASES[stem].script)
    (allocation,) = noted(tmp_path, "salloc")
    limit = {"nccl_scaling": "02:00:00"}.get(stem, "30")
    assert allocation.startswith(f"limit {limit}: ")
    assert " --comment=of salloc bash " in allocation
    # smoke-answer: asked before the site's words are read
    lines = [line for line in noted(tmp_path, "srun") if "smoke-answer" not in line]
    assert all(SITE_OPTIONS in line for line in lines)
    inside = [line for line in lines if "collectives.py" in line or "scaling.py" in line]
    assert inside
    assert all(f" {SITE_OPTIONS}apptainer exec --nv " in line and ".sif python infra" in line for line in inside)
    assert not any("apptainer" in line for line in lines if "monitor.py" in line or "clock.py" in line)


@in_test_all
def test_an_allocation_without_a_site_file_has_its_own_time_limit(call: Called, tmp_path: Path):
    call('exec bash "$@"', PHASES["nccl_scaling"].script, BRINGUP_SITE="")
    assert noted(tmp_path, "salloc")[0].startswith("limit 60: ")
    call('exec bash "$@"', PHASES["nccl_scaling"].script, BRINGUP_SITE="", SALLOC_TIMELIMIT="5")
    assert noted(tmp_path, "salloc")[1].startswith("limit 5: ")


def test_nodes_are_those_of_the_sites_partition(call: Called, tmp_path: Path):
    (tmp_path / "bin/sinfo").write_text("#!/bin/sh\nprintf 'main*\\037n[7-9]\\ngpu\\037n[0-1]\\n'\n")
    done = call(BEGIN + 'choose_nodes; echo "$NODES"')
    assert (done.returncode, done.stdout) == (0, "n0,n1\n"), done.stderr


def test_what_a_user_sources_before_sbatch_is_the_same_for_slurm(call: Called, lab: Path):
    done = call('source <("$BRINGUP_VENV/bin/python" -m bringup site --export); env; echo "${SBATCH_SITE[@]}"')
    says = {"PARTITION=gpu", "ACCOUNT=research", "TIMELIMIT=30", "GRES=gpu:h100:8"}
    lines = {f"SBATCH_{line}" for line in says} | {f"BRINGUP_SITE={lab.resolve()}"}
    assert lines <= set(done.stdout.splitlines()), done.stderr
    assert done.stdout.endswith("--comment=of sbatch\n")
