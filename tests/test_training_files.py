"""The launch files: their shape, what they launch, and that accelerate reads its own."""

import re

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from loops import for_each
from programs import ROOT, ran

TRAINING = ROOT / "training"
LAUNCHES = {
    "run_1gpu": "train_single_gpu",
    "run_ddp_1node": "train_ddp_single_node",
    "run_ddp_2node": "train_ddp_multi_node",
    "run_fsdp_1node": "train_fsdp_single_node",
    "run_fsdp_2node": "train_fsdp_multi_node",
    "run_hsdp_2node": "train_fsdp_multi_node",
}
YAML = {"ddp_1node_8gpu": (8, 1), "fsdp_1node_8gpu": (8, 1), "hsdp_2node_16gpu": (16, 2)}  # ranks, nodes


def test_the_tables_here_name_every_file():
    assert {path.stem for path in (TRAINING / "slurm").glob("*.sbatch")} == set(LAUNCHES)
    assert {path.stem for path in (TRAINING / "accelerate").glob("*.yaml")} == set(YAML)


@for_each(*LAUNCHES)
def test_script_names_its_phase_and_the_entrypoint_of_its_name_and_hands_over(stem):
    text = (TRAINING / "slurm" / f"{stem}.sbatch").read_text()
    lines = text.splitlines()
    assert {f"phase={stem}", f"program=training/src/{LAUNCHES[stem]}.py"} <= set(lines)
    assert ("--hsdp" in text) == (stem == "run_hsdp_2node")
    assert lines[-1].startswith("source training/slurm/_train.sh")
    assert {"#SBATCH --requeue", "#SBATCH --signal=B:USR1@120"} <= {line.split("  ")[0] for line in text.splitlines()}


def test_what_the_scripts_share_launches_with_one_srun_and_judges():
    text = (TRAINING / "slurm/_train.sh").read_text()
    assert len(re.findall(r"^srun ", text, re.MULTILINE)) == 1
    assert '"$program" --run-dir "$RUN_DIR" --resume auto' in text
    assert "--kill-on-bad-exit=1" in text
    assert text.rstrip().endswith('end_attempt "$rc"')


def sourced(*commands: str, **environment: str) -> str:
    script = "\n".join(["source training/env.sh", *commands])
    own = {"PATH": "/usr/local/sbin:/usr/sbin:/usr/bin:/bin"} | environment
    done = ran(["bash", "-euc", script], cwd=ROOT, env=own)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_environment_keeps_what_is_set_and_fills_in_what_is_not():
    show = 'echo "$NCCL_DEBUG $HF_HUB_OFFLINE ${NCCL_DEBUG_FILE-unset} ${GLOO_SOCKET_IFNAME-unset}"'
    assert sourced(show, NCCL_DEBUG_FILE="x") == "WARN 1 unset unset\n"
    assert sourced(show, NCCL_DEBUG="INFO", GLOO_SOCKET_IFNAME="ib0", MASTER_ADDR="192.0.2.1") == "INFO 1 unset ib0\n"


def test_nccl_s_inspector_writes_into_the_run_folder_where_it_is_on():
    show = 'echo "${NCCL_INSPECTOR_DUMP_DIR-unset}"'
    assert sourced(show, RUN_DIR="/run-1") == "unset\n"
    assert sourced(show, RUN_DIR="/run-1", NCCL_INSPECTOR_ENABLE="1") == "/run-1/raw/inspector\n"
    assert sourced(show, RUN_DIR="/run-1", NCCL_INSPECTOR_ENABLE="1", NCCL_INSPECTOR_DUMP_DIR="/mine") == "/mine\n"


def test_loopback_is_never_chosen_for_other_nodes():
    assert sourced('echo "${GLOO_SOCKET_IFNAME-unset}"', MASTER_ADDR="127.0.0.1") == "unset\n"


@pytest.mark.filterwarnings("default")
@for_each(*YAML)
def test_accelerate_reads_its_configuration(stem):
    path = str(TRAINING / "accelerate" / f"{stem}.yaml")
    config = load_config_from_file(path)
    assert (config.num_processes, config.num_machines) == YAML[stem]
    # as accelerate launch resolves it: a key it does not know would stay without effect
    options = ["--config_file", path, "--main_process_ip", "n0", "program.py"]
    launch, _, _ = _validate_launch_command(launch_command_parser().parse_args(options))
    strategy = stem.split("_")[0]
    assert launch.use_fsdp == (strategy != "ddp")
    assert launch.multi_gpu == (strategy == "ddp")
    if strategy != "ddp":
        assert (launch.fsdp_version, launch.fsdp_reshard_after_forward) == (2, True)
    if strategy == "hsdp":
        assert launch.parallelism_config_dp_replicate_size * launch.parallelism_config_dp_shard_size == 16
        assert launch.parallelism_config_dp_replicate_size == YAML[stem][1]
    known = set(vars(launch))
    assert set(config.fsdp_config) <= known
    assert set(config.parallelism_config) <= known


def test_the_sharded_configurations_differ_in_the_mesh_and_the_machines():
    import yaml

    def settings(stem: str) -> dict[str, object]:
        return yaml.safe_load((TRAINING / "accelerate" / f"{stem}.yaml").read_text())

    one_node, hybrid = settings("fsdp_1node_8gpu"), settings("hsdp_2node_16gpu")
    differing = {key for key in {**one_node, **hybrid} if hybrid.get(key) != one_node.get(key)}
    assert differing == {"parallelism_config", "num_machines", "num_processes", "machine_rank"}


def test_the_launcher_of_the_jobs_is_torchrun_or_accelerate(tmp_path):
    text = (TRAINING / "slurm/_train.sh").read_text()
    for kind in {stem.split("_")[1] for stem in LAUNCHES} - {"1gpu"}:
        assert len(list((TRAINING / "accelerate").glob(f"{kind}_*.yaml"))) == 1
    assert '--config_file training/accelerate/"${kind%%_*}"_*.yaml --num_machines "$nodes"' in text
