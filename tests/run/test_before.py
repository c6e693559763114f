"""Before anything is queued: `bringup doctor`, and the first site file.

What Slurm says here is what real versions of it printed (tests/fixtures/slurm), with one thing changed at a time.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from bringup.domains.cuda import too_old, way_out
from bringup.kernel.errors import CannotStart, FileError, SlurmError, UsageError
from bringup.kernel.plan import profile as profiles
from bringup.run import site_file as sites
from bringup.run.before import doctor, host, new_site
from bringup.run.before.cluster import Account, read
from bringup.run.before.doctor import Driver, Facts, Finding, findings
from bringup.run.before.host import UNLIMITED, Folder, Host, Torch, torch_of
from bringup.run.site import AtSite
from bringup.run.site_file import Container
from loops import for_each

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures/slurm"
CONFIG = (FIXTURES / "config.txt").read_text()
NODES = (FIXTURES / "nodes-six-states.txt").read_text().replace("gpu:h100:4", "gpu:h100:8")
PARTITIONS = {version: (FIXTURES / f"partitions-{version}.txt").read_text() for version in ("24.11", "26.05")}
NAMED = {  # what is not in the recordings: in the form of the same versions
    "user": "research\n",
    "association": "research||normal,high|normal|\nteaching||low|low|4\n",
    "qos": "normal|||||\n",
}


def answers(changed: Mapping[str, str] | None = None, version: str = "24.11"):
    """A Slurm that prints these texts."""
    texts = {"--version": f"slurm {version}.5", "config": CONFIG, "partition": PARTITIONS[version], "node": NODES}
    texts |= changed or {}

    def ask(*command: str) -> str:
        asked = next((word for word in command if word in {**texts, "user": 0, "association": 0, "qos": 0}), "")
        if asked not in texts:
            raise SlurmError(f"{command[0]}: You are not running a supported accounting_storage plugin")
        return texts[asked]

    return ask


HOST = Host(
    arch="x86_64",
    python="3.11.7",
    venv=Path("/shared/bringup/.venv"),
    interpreter=Path("/usr/bin/python3.11"),
    torch=Torch("2.13.0+cu130", "13.0"),
    nofile=(1048576, 1048576),
    memlock=(UNLIMITED, UNLIMITED),
    folder=Folder(Path("/shared/bringup"), "nfs4", False, "works", 900.0, "/shared/bringup"),
    tools=("dcgmi", "ib_write_bw", "fio", "all_reduce_perf"),
    kernel_log_is_closed=False,
    has_pyxis=False,
)


@pytest.fixture(autouse=True)
def no_variables_of_the_jobs(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("NCCL_", "CUDA_", "TORCH_", "NVIDIA_"))]:
        monkeypatch.delenv(name)


def healthy() -> Facts:
    site = sites.parse("{schema_version: 1, name: lab, partition: main, gpu_request: --gpus-per-node=8}", "lab")
    return Facts(
        host=HOST,
        cluster=read(answers()),
        partition="main",
        site=AtSite(site, Path("/shared/bringup/lab.site.yaml")),
        profile=profiles.load("h100-8x400g"),
        driver=Driver("580.95.05", "NVIDIA H100 80GB HBM3", "validation/results/discovery/1"),
    )


def with_cluster(**changed: object) -> Facts:
    facts = healthy()
    return replace(facts, cluster=replace(facts.cluster, **changed))


def with_host(**changed: object) -> Facts:
    return replace(healthy(), host=replace(HOST, **changed))  # type: ignore[arg-type]


def with_folder(**changed: object) -> Facts:
    return with_host(folder=replace(HOST.folder, **changed))  # type: ignore[arg-type]


def with_site(**changed: object) -> Facts:
    facts = healthy()
    return replace(facts, site=AtSite(facts.site.site.model_copy(update=changed), facts.site.file))


def in_a_container(runtime: str) -> Facts:
    return with_site(container=Container(runtime=runtime, image="a.image"))


def with_settings(**changed: str) -> Facts:
    return with_cluster(settings=healthy().cluster.settings | changed)


def partition(old: str, new: str) -> dict[str, str]:
    """What Slurm says of its partitions, with another value at the first."""
    assert old in PARTITIONS["24.11"]
    return {"partition": PARTITIONS["24.11"].replace(old, new, 1)}


def gres(new: str, old: str = "gpu:h100:8", count: int = -1) -> dict[str, str]:
    return {"node": NODES.replace(old, new, count)}


def with_slurm(changed: Mapping[str, str]) -> Facts:
    return replace(healthy(), cluster=read(answers(changed)))


SHELL = {"nofile": (1024, 1048576), "memlock": (8 * 2**20, 8 * 2**20)}
SHELL_HARD = {"nofile": (1024, 2048)}


def in_a_shell(limits: Mapping[str, tuple[int, int]], propagated: str) -> Facts:
    return replace(with_settings(PropagateResourceLimits=propagated), host=replace(HOST, **limits))  # type: ignore[arg-type]


def test_a_healthy_site_has_nothing_to_do():
    shown = findings(healthy())
    assert {(finding.mark, finding.cure) for finding in shown.values()} == {("PASS", "")}
    assert doctor.exit_code(shown) == 0


FOR_CPUS = with_host(torch=Torch("2.13.0+cpu", None))
OTHER_ACCOUNTS = partition("AllowAccounts=ALL", "AllowAccounts=physics,teaching")
FINDINGS: dict[str, tuple[Facts, str]] = {
    # what differs -> facts; the check: its mark: words of what it says or advises
    "no partition": (replace(healthy(), partition="gpu"), "partition: FAIL: there is no partition gpu; there are main"),
    "no GPU": (with_slurm(gres("(null)")), "partition: FAIL: no GPU"),
    "mixed": (with_slurm(gres("gpu:h100:4", count=1)), "partition: WARN: another Gres: n0"),
    "nobody usable": (
        with_slurm({"node": re.sub(r"State=\S+", "State=DOWN", NODES)}),
        "partition: INCOMPLETE: 0 of 2 nodes usable",
    ),
    "short partition": (with_slurm(partition("MaxTime=UNLIMITED", "MaxTime=00:05:00")), "phases: FAIL: MaxTime"),
    "hooks": (with_settings(Prolog="/etc/slurm/prolog.sh"), "slurm: PASS: Prolog run with every job"),
    "refuses jobs": (
        replace(with_settings(JobSubmitPlugins="lua"), site=None),
        "request: WARN: may refuse jobs without a GPU",
    ),
    "MIG": (with_slurm(gres("gpu:1g.10gb:14")), "request: WARN: MIG"),
    "accounts unread": (
        with_settings(AccountingStorageEnforce="associations,limits"),
        "account: INCOMPLETE: sacctmgr gave no answer",
    ),
    "no account": (with_cluster(accounts=[]), "account: WARN: you have no account"),
    "another account": (
        replace(with_slurm(NAMED), site=with_site(account="physics").site),
        "account: WARN: physics is not one of yours",
    ),
    "a partition for others": (
        with_slurm(NAMED | OTHER_ACCOUNTS),
        "account: FAIL: takes no job of account research (AllowAccounts) -> account: teaching",
    ),
    "few jobs": (
        with_cluster(accounts=[Account("a", "", (), "", 4)], default_account="a"),
        "account: WARN: account a, jobs submitted: at most 4, and a run here asks for 11",
    ),
    "a QOS of few jobs": (
        with_slurm(NAMED | {"qos": "normal|2|1||gres/gpu=8,node=1|\nhigh|1||||\n"}),
        "account: WARN: QOS normal, jobs submitted: at most 2, and a run here asks for 11; "
        "QOS normal, jobs at once: at most 1, and a run here asks for 2; "
        "QOS normal, GPUs: at most 8, and a run here asks for 16; "
        "QOS normal, nodes: at most 1, and a run here asks for 2 -> another QOS",
    ),
    "a QOS of the partition": (
        with_slurm(
            NAMED
            | {"partition": PARTITIONS["24.11"].replace("QoS=N/A", "QoS=small", 1)}
            | {"qos": "normal|||||\nsmall|||cpu=4,gres/gpu=4||gres/gpu=12\n"}
        ),
        "account: WARN: QOS small, GPUs: at most 4, and a run here asks for 16",
    ),
    "limits that are wide": (
        with_slurm(NAMED | {"qos": "normal|40|20|gres/gpu=16||\nhigh|1|1|||\n"}),
        "account: PASS: account research",
    ),
    "login shell": (in_a_shell(SHELL, "ALL"), "limits: WARN: open files 1024 (hard 1048576)"),
    "locked memory": (in_a_shell(SHELL, "ALL"), "limits: WARN: memlock unlimited in /etc/security/limits.conf"),
    "a hard limit": (in_a_shell(SHELL_HARD, "NOFILE"), "limits: WARN: hard nofile 4096 in /etc/security/limits.conf"),
    "not propagated": (in_a_shell(SHELL, "NONE"), "limits: PASS: jobs get those of slurmd instead"),
    "aarch64 trays": (with_slurm(gres("=aarch64", "=x86_64")), "architecture: FAIL: aarch64 on 2 nodes"),
    "nodes without a word": (with_slurm(gres("", "Arch=x86_64 ")), "architecture: INCOMPLETE: no node has told"),
    "no pyxis": (in_a_container("pyxis"), "containers: FAIL: --container-image"),
    "apptainer elsewhere": (in_a_container("apptainer"), "containers: NOT ASKED: nodes may differ"),
    "no environment": (with_host(interpreter=None), "python: FAIL: make venv"),
    "no torch": (with_host(torch=None), "torch: WARN: discovery runs"),
    "old driver": (
        replace(healthy(), driver=Driver("550.90.07", "NVIDIA H100 80GB HBM3", "d/1")),
        "torch: FAIL: TORCH_INDEX=https://download.pytorch.org/whl/cu126 make venv",
    ),
    "driver unknown": (replace(healthy(), driver=None), "torch: NOT ASKED: bringup run discovery"),
    "a build for CPUs": (FOR_CPUS, "torch: WARN: uses no GPU"),
    "a build for CPUs before any run": (replace(FOR_CPUS, driver=None), "torch: WARN: Slurm hands out GPUs"),
    "a build for CPUs where programs compute on the CPU": (
        replace(FOR_CPUS, driver=None, profile=profiles.load("local-cpu")),
        "torch: PASS: no run has seen a GPU driver",
    ),
    "another CUDA": (with_host(torch=Torch("3.0", "15.0")), "torch: INCOMPLETE: not known which driver"),
    "local disk": (with_folder(kind="xfs"), "folder: WARN: a local filesystem"),
    "exported disk": (with_folder(kind="xfs", is_exported=True), "folder: PASS: exports it"),
    "read-only": (with_folder(writes="Read-only file system"), "folder: FAIL: Read-only"),
    "silent folder": (with_folder(kind=None, writes="no answer"), "folder: INCOMPLETE: no answer"),
    "full": (with_folder(space_gib=3.0), "room: WARN: 3 GiB free"),
    "room unknown": (with_folder(space_gib=None, of_space="it does not say"), "room: INCOMPLETE: does not say"),
    "no site file": (replace(healthy(), site=None), "site file: WARN: bringup site --init"),
    "a wrong site file": (replace(healthy(), site=FileError("lab: partitoin: unknown")), "site file: FAIL: partitoin"),
    "a folder that is not there": (with_site(checkpoints="/nowhere/at/all"), "site file: FAIL: no such folder"),
    "no profile": (replace(healthy(), profile=FileError("no profile named 'x'")), "profile: FAIL: no profile named"),
    "generic": (replace(healthy(), profile=profiles.load("generic")), "profile: WARN: unset BRINGUP_PROFILE"),
    "four GPUs a node": (with_slurm(gres("gpu:h100:4")), "profile: WARN: for 8 GPUs a node, and Slurm says 4"),
    "a closed kernel log": (with_host(kernel_log_is_closed=True), "kernel log: NOT ASKED: accept, except"),
    "no tools": (with_host(tools=()), "tools: NOT ASKED: gates of question"),
}


@for_each(*FINDINGS)
def test_each_finding_is_one_line_with_its_cure(name: str):
    facts, expected = FINDINGS[name]
    title, mark, words = expected.split(": ", 2)
    finding = findings(facts)[title]
    assert (finding.mark, words in f"{finding.says} -> {finding.cure}") == (mark, True), finding
    assert bool(finding.cure) == (finding.mark != "PASS"), finding
    assert "\n" not in f"{finding.says}{finding.cure}"


def test_only_what_will_make_a_run_fail_is_exit_code_1_and_what_is_not_known_is_2():
    codes = {mark: {doctor.exit_code(findings(facts)) for facts, says in FINDINGS.values() if f": {mark}: " in says}
             for mark in ("FAIL", "INCOMPLETE")}  # fmt: skip
    assert codes == {"FAIL": {1}, "INCOMPLETE": {2}}
    assert all(doctor.exit_code({"": Finding(mark, "")}) == 0 for mark in ("PASS", "WARN", "NOT ASKED"))


def test_without_slurm_one_line_says_so_for_all_that_only_slurm_knows():
    shown = findings(replace(healthy(), cluster=SlurmError("scontrol is not on the PATH")))
    assert (shown["slurm"].mark, doctor.exit_code(shown)) == ("INCOMPLETE", 2)
    assert "partition, phases, request, account, limits" in shown["slurm"].cure
    assert shown.keys() == {"slurm", *map(doctor.title, doctor.OF_THE_HOST)}


def test_which_build_of_torch_a_driver_runs():
    """NVIDIA's table: CUDA 13 from driver 580 on, CUDA 12 from 525 on."""
    assert [too_old(driver, "13.0") for driver in ("535.216.01", "550.90.07", "570.133.20", "580.65.06")] == [
        True, True, True, False,
    ]  # fmt: skip
    assert [too_old("535.216.01", "12.6"), too_old("470.1", "12.6"), too_old("580", "15.0")] == [False, True, None]
    assert "cu126" in way_out("535.216.01", "NVIDIA H100 80GB HBM3") and "cu126" not in way_out("470.1")
    assert "no code for NVIDIA B200" in way_out("570.133.20", "NVIDIA B200")


def test_the_build_of_torch_is_read_without_importing_it(tmp_path: Path):
    assert torch_of(tmp_path) is None
    folder = tmp_path / "lib/python3.12/site-packages/torch"
    folder.mkdir(parents=True)
    for text, cuda in (("cuda: Optional[str] = '13.0'\n", "13.0"), ("cuda: Optional[str] = None\n", None)):
        written = f"__version__ = '2.13.0+x'\ndebug = False\n{text}hip: Optional[str] = None\n"
        (folder / "version.py").write_text(written)
        assert torch_of(tmp_path) == Torch("2.13.0+x", cuda)


def test_the_folder_is_asked_by_the_probe_of_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    exports = tmp_path / "exports"
    exports.write_text(f'# /none\n"{tmp_path}" *(rw)\n')
    monkeypatch.setattr(host, "_EXPORTS", exports)
    seen = host.folder(tmp_path)
    assert (seen.writes, seen.is_exported, bool(seen.kind)) == ("works", True, True)
    assert isinstance(seen.space_gib, float) and seen.of_space.startswith(str(tmp_path))
    monkeypatch.setattr(host, "_EXPORTS", tmp_path / "none")
    absent = host.folder(tmp_path / "absent")
    assert (absent.writes, absent.is_exported, absent.space_gib) == ("No such file or directory", False, None)


# --- the first site file


def init(changed: Mapping[str, str] | None = None, version: str = "24.11") -> new_site.NewSite:
    return new_site.suggest(read(answers(changed, version)))


@for_each(*PARTITIONS)
def test_a_site_file_from_what_slurm_says(tmp_path: Path, version: str):
    new = init(NAMED, version)
    assert new.site.model_dump(exclude_defaults=True) == {
        "schema_version": 1, "name": "local", "partition": "main", "account": "research",
        "gpu_request": "--gpus-per-node=8",
    }  # fmt: skip
    path = new_site.write(new, str(tmp_path / f"{version}.yaml"))
    assert sites.load(path) == new.site
    assert all(f"# {line}\n" in path.read_text() for line in new.assumed) and len(new.assumed) == 4
    with pytest.raises(UsageError, match="is not overwritten"):
        new_site.write(new, str(path))
    assert sites.load(path) == new.site


ANOTHER_PARTITION = ({"partition": "oversubscribe"}, "the default one has no GPU for you")
EXCLUSIVE = "OverSubscribe=EXCLUSIVE"
OTHERS = {
    "the default partition has no GPU": (partition("Nodes=n[0-1]", "Nodes=n9"), *ANOTHER_PARTITION),
    "types": (gres("gpu:a100:8", count=1), {"gpu_request": "--gres=gpu:a100:8"}, "several types of GPU (a100, h100)"),
    "without types": (gres("gpu:8(S:0-1)"), {"gpu_request": "--gpus-per-node=8"}, "Gres=gpu:8\n"),
    "MIG": (gres("gpu:1g.10gb:14"), {"gpu_request": "none"}, "divided (MIG)"),
    "no accounts": ({}, {"account": None}, "nothing keeps accounts here"),
    "a partition with a QOS": (
        NAMED | partition("AllowQos=ALL", "AllowQos=high,urgent"),
        *({"qos": "high"}, "does not take your default one"),
    ),
    "a QOS that is not yours": (
        NAMED | partition("AllowQos=ALL", "AllowQos=urgent"),
        *({"qos": None}, "takes urgent, and sacctmgr names none of these for you"),
    ),
    "for some accounts": (NAMED | OTHER_ACCOUNTS, {"account": "teaching", "partition": "main"}, "your only one"),
    "for other accounts": (NAMED | partition("AllowAccounts=ALL", "AllowAccounts=physics"), *ANOTHER_PARTITION),
    "whole nodes": (partition("OverSubscribe=NO", EXCLUSIVE), {"partition": "main"}, EXCLUSIVE),
}


@for_each(*OTHERS)
def test_what_differs_between_sites_is_written_and_said(name: str):
    changed, expected, words = OTHERS[name]
    new = init(changed)
    assert {key: getattr(new.site, key) for key in expected} == expected
    assert words in "\n".join(new.assumed)


def test_a_cluster_without_gpus_gets_no_site_file():
    with pytest.raises(CannotStart, match="no partition with GPUs"):
        init(gres("(null)"))


def test_variables_of_the_shell_that_change_the_jobs_are_named(monkeypatch):
    assert findings(healthy())["shell"].mark == "PASS"
    monkeypatch.setenv("SBATCH_WAIT", "1")
    monkeypatch.setenv("SLURM_UNBUFFEREDIO", "1")
    finding = findings(healthy())["shell"]
    assert (finding.mark, finding.says) == ("WARN", "it holds SBATCH_WAIT, SLURM_UNBUFFEREDIO")


@for_each(
    ("NCCL_ALGO", "Ring", "NCCL_ALGO=Ring: NCCL takes this algorithm at every size"),
    ("NCCL_P2P_NET_CHUNKSIZE", "1048576", "gave wrong results (NVIDIA/nccl issue 2408)"),
    ("NCCL_SOCKET_IFNAME", "=ens3", "a node that calls its own otherwise has none"),
    ("NCCL_IB_HCA", "^mlx5_9", "all RDMA devices but these are used"),
    ("NCCL_IB_DISABLE", "1", "a whole path is switched off"),
    ("NCCL_DEBUG", "DEBUG", "NCCL_DEBUG=DEBUG: NCCL prints no error at this word"),
    ("NCCL_DEBUG", "version", "NCCL prints no error at this word"),
    ("NCCL_NVLS_ENABLE", "true", "DISABLE leaves it on, and ENABLE switches it off"),
    ("NCCL_BUFFSIZE", "8M", "NCCL reads the digits alone"),
    ("NCCL_SOCKET_IFNAME", '"eth0"', "NCCL takes quotes, blanks"),
    ("NCCL_IB_HCA", "mlx5_0, mlx5_1", "and finds no device of that name"),
    ("NCCL_IB_GID_IDX", "3", "NCCL_IB_GID_IDX: NCCL reads none so called; NCCL_IB_GID_INDEX is one"),
    ("NCCL_P2P_DISABLED", "0", "NCCL_P2P_DISABLE is one"),
)
def test_variables_that_pin_a_choice_or_that_nccl_does_not_read_are_named_in_the_shell_and_in_the_site_file(
    monkeypatch, variable, value, says
):
    declared = findings(with_site(environment={variable: value}))["variables"]
    assert (declared.mark, says in declared.says) == ("WARN", True)
    with monkeypatch.context() as shell:
        shell.setenv(variable, value)
        assert findings(healthy())["variables"] == declared


@for_each(
    "NCCL_IB_HCA=mlx5_0,mlx5_1", "NCCL_DEBUG=info", "NCCL_DEBUG=", "NCCL_BUFFSIZE=8388608", "NCCL_NVLS_ENABLE=0",
    "NCCL_SOCKET_IFNAME=^lo,docker", "NCCL_VERSION=2.29.7-1", "NCCL_FASTRAK_CTRL_DEV=eth0", "NCCL_SHARP_DISABLE=1",
    "NCCL_TESTS_BIN=/opt/build", "NCCL_ASYNC_ERROR_HANDLING=1", "NCCL_HOME=/usr",
)  # fmt: skip
def test_variables_that_nccl_reads_so_or_that_another_program_reads_are_not_named(setting):
    variable, _, value = setting.partition("=")
    assert findings(with_site(environment={variable: value}))["variables"].mark == "PASS"


def test_a_partition_whose_nodes_are_off_and_hidden_is_no_partition_without_gpus():
    finding = findings(with_cluster(nodes={}))["partition"]
    assert finding.says.startswith("main shows no node now: ")
    assert "PrivateData=cloud" in str(finding.cure)
