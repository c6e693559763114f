"""Which version of cgroups the local cluster uses, what Slurm is told of it, and what is said where it cannot."""

import os
import shlex
from pathlib import Path

import pytest
from loops import case_for_each
from programs import ROOT, program, ran, tree

CONFINEMENT = ROOT / "infrastructure-validation/local-cluster/confinement.sh"
LIBRARY = "libslurmfull.so => {folder}/libslurmfull.so (0x00007fd8e7600000)"
QUOTA = "cpu/n1/cpu.cfs_quota_us"
V1 = {f"{hierarchy}/cgroup.procs": "1\n" for hierarchy in ("cpuset", "memory", "devices", "freezer")}
V2 = {
    "cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n",
    "cgroup.subtree_control": "memory pids\n",
    "cgroup.procs": "1\n2\n",
}


def machine(folder: Path, files: dict[str, str]) -> Path:
    """What a machine shows where its cgroups are mounted."""
    return tree(folder / "cgroups of it", {name: text.encode() for name, text in files.items()})


def slurm(folder: Path, ldd: str, plugins: tuple[str, ...]) -> dict[str, str]:
    """The environment in which there is a slurmd with these plugins."""
    status = int("=>" not in ldd)
    programs = {"slurmd": "echo slurm 27.05.0", "ldd": f"echo {shlex.quote(ldd.format(folder=folder))}; exit {status}"}
    for name, script in programs.items():
        program(folder / name, script)
    for plugin in plugins:
        (folder / f"cgroup_{plugin}.so").touch()
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def output_of(root: Path, script: str, environment: dict[str, str] | None = None) -> list[str]:
    """The lines that the shell code prints on a machine with these cgroups."""
    sourced = f'set -euo pipefail; CGROUP_ROOT=$1; source "$2"; {script}'
    done = ran(["bash", "-c", sourced, "bash", root, CONFINEMENT], env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@case_for_each(
    (V1, "v1", None),
    (V2, "v2", None),
    # systemd's hybrid: the controllers are on v1, and v2 is for its own use
    (V1 | {"unified/cgroup.controllers": "hugetlb\n"}, "v1", None),
    (V1 | {"cgroup.controllers": "cpu io\n"}, "v2", "has no controller cpuset: a v1 hierarchy has it"),
    (V2 | {"cgroup.controllers": "cpuset cpu io pids\n"}, "v2", "has no controller memory: a v1 hierarchy has it"),
    (V2 | {"cgroup.type": "domain\n"}, "v2", "holds processes (a container?), so it cannot hand on"),
    (V2 | {"cgroup.type": "domain\n", "cgroup.procs": ""}, "v2", None),
    ({}, "v1", "no cgroup v1 hierarchy at {root}/cpuset, and no cgroup v2 at {root}"),
    ({"cpuset/cgroup.procs": ""}, "v1", "no cgroup v1 hierarchy at {root}/memory"),
    ids=["v1", "v2", "hybrid", "v2 over v1", "memory on v1", "container", "delegated", "none", "v1 without memory"],
)
def test_the_version_follows_from_the_machine_and_a_lack_is_one_line(tmp_path, files, version, lack):
    root = machine(tmp_path, files)
    chosen, *lacks = output_of(root, 'echo "$CGROUP_VERSION"; hierarchy_lack')
    assert chosen == version
    assert len(lacks) == (lack is not None)
    assert all(lack.format(root=root) in each for each in lacks)


@case_for_each(
    (V1, ["CgroupPlugin=cgroup/v1"]), (V2, ["CgroupPlugin=cgroup/v2", "IgnoreSystemd=yes"]), ids=["v1", "v2"]
)
@case_for_each("yes", "no")
def test_slurm_is_told_the_version_and_what_to_confine(tmp_path, files, settings, cores):
    root = machine(tmp_path, files)
    constraints = ["ConstrainDevices=yes", "ConstrainRAMSpace=yes", f"ConstrainCores={cores}"]
    assert output_of(root, f"CORES={cores}; cgroup_conf confined") == settings + constraints


@pytest.mark.parametrize("files", [V1, V2], ids=["v1", "v2"])
@case_for_each(
    (LIBRARY, ("v1", "v2"), "cgroup/v1"),
    (LIBRARY, ("v2",), "disabled"),
    ("\tnot a dynamic executable", (), "cgroup/v1"),
    ids=["with cgroup/v1", "without it", "not known"],
)
def test_an_unconfined_cluster_starts_without_any_hierarchy(tmp_path, files, ldd, plugins, idle):
    """cgroup/v1 does not look for one until it has to; autodetection and cgroup/v2 do."""
    root = machine(tmp_path, files)
    assert output_of(root, "cgroup_conf unconfined", slurm(tmp_path, ldd, plugins)) == [f"CgroupPlugin={idle}"]


@case_for_each(
    (V1, ("v1",), None),
    (V2, ("v2",), None),
    (V1, ("v2",), "cgroup/v1"),
    (V2, ("v1",), "cgroup/v2"),  # Slurm 21.08, and later ones that were built without it
)
def test_a_slurm_without_the_plugin_of_this_machine_confines_nothing(tmp_path, files, plugins, lacking):
    lacks = output_of(machine(tmp_path, files), "confinement_lack", slurm(tmp_path, LIBRARY, plugins))
    if os.geteuid() != 0:
        assert lacks == ["not run by root"]
    else:
        assert lacks == ([f"this Slurm (slurm 27.05.0) has no plugin {lacking}"] if lacking else [])


@case_for_each(
    ({QUOTA: "-1\n", "cpu/n1/cpu.cfs_period_us": "100000\n"}, {QUOTA: ("4000", "-1")}),
    (V2 | {"n1/cpu.max": "max 100000\n"}, {"n1/cpu.max": ("4000 100000", "max 100000")}),
    ids=["v1", "v2"],
)
def test_a_node_is_held_to_a_share_of_one_core(tmp_path, files, limits):
    root = machine(tmp_path, files)
    for file, (held, free) in limits.items():
        for share, expected in (("4", held), ("off", free)):
            assert output_of(root, f"inner_throttle n1 {share}") == []
            assert (root / file).read_text().strip() == expected
