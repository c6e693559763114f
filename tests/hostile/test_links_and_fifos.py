"""Links, FIFOs, devices and other people's files where a program of root writes: they change nothing, and it does not
wait for them. What root would run or trust is root's alone."""

import os
import shutil
import stat
import struct
import subprocess
import threading
from pathlib import Path

import folders
import own_files
import pytest
import shared_files
from health_for_tests import GPUS, NODE, Installed, a_baseline, fact, install, run_install
from loops import case_for_each
from programs import program, ran
from tiers import first

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("of root alone\n")
    return path


@pytest.fixture
def planted(tmp_path: Path, victim: Path, request: pytest.FixtureRequest) -> Path:
    """A folder as /tmp, with something under each name that this process could be expected to take."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    for pid in range(os.getpid() - 200, os.getpid() + 200):
        path = folder / f".bringup-n0-{pid}"
        if request.param == "fifo":
            os.mkfifo(path)
        else:
            path.symlink_to({"link": victim, "dangling": tmp_path / "new", "device": "/dev/zero"}[request.param])
    return folder


@pytest.mark.parametrize("planted", ["link", "dangling", "fifo", "device"], indirect=True)
def test_a_folder_works_whatever_users_have_put_into_it(planted: Path, victim: Path):
    before = sorted(planted.iterdir())
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(folders.writes(str(planted), "n0")), daemon=True)
    asking.start()
    asking.join(5)
    assert answers == [folders.WORKS]
    assert victim.read_text() == "of root alone\n"
    assert not (planted.parent / "new").exists()
    assert sorted(planted.iterdir()) == before


def test_a_name_that_is_taken_is_left_and_another_used(tmp_path: Path, victim: Path, monkeypatch):
    names = iter(["taken", "taken", "free"])
    monkeypatch.setattr(own_files.secrets, "token_hex", lambda _: next(names))
    (tmp_path / ".bringup-taken").symlink_to(victim)
    fd, path = own_files.new(tmp_path)
    os.close(fd)
    assert path.name == ".bringup-free"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert victim.read_text() == "of root alone\n"


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_a_file_that_nodes_share_is_a_regular_file_or_an_error(tmp_path: Path, victim: Path, kind: str):
    path = tmp_path / "data"
    {"link": lambda: path.symlink_to(victim), "fifo": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()
    with pytest.raises(OSError):
        shared_files.put(path, "mine")
    assert shared_files.text_of(path) is None
    assert victim.read_text() == "of root alone\n"


@pytest.fixture
def own_folder(tmp_path: Path) -> Path:
    path = tmp_path / "a" / "b"
    path.mkdir(parents=True)
    return path


@case_for_each(
    ("a", 0o777, "everybody"),
    ("a/b", 0o757, "everybody"),
    ("a/b", 0o1777, "everybody"),
    ("a", 0o1777, None),
    ids=["above", "itself", "sticky, itself", "sticky, above"],
)
def test_what_others_can_write_has_one_and_a_sticky_folder_above_has_none(own_folder, path, mode, says):
    assert own_files.objection(own_folder) is None, "what is ours down from the root"
    own_folder.parent.parent.joinpath(path).chmod(mode)
    why = own_files.objection(own_folder)
    assert why is None if says is None else says in str(why)


@as_root
def test_what_belongs_to_somebody_else_has_an_objection_also_behind_a_link(own_folder: Path):
    link = own_folder.parent.parent / "link"
    link.symlink_to(own_folder)
    os.chown(own_folder.parent, NOBODY, 0)
    assert f"{own_folder.parent} belongs to" in str(own_files.objection(link))


@as_root
@pytest.mark.parametrize("way", ["a link of theirs", "through it", "a link to it", "their link in a sticky folder"])
def test_a_link_that_somebody_else_can_turn_has_an_objection_wherever_it_leads(own_folder: Path, way: str):
    theirs = own_folder.parent.parent / "theirs"
    theirs.mkdir()
    link = theirs / "link"
    link.symlink_to(own_folder.parent)
    if way == "their link in a sticky folder":
        theirs.chmod(0o1777)
        os.lchown(link, NOBODY, NOBODY)
    else:
        os.chown(theirs, NOBODY, NOBODY)
    (own_folder / "second").symlink_to(link)
    path = {"through it": link / "b", "a link to it": own_folder / "second"}.get(way, link)
    assert path.exists()
    assert f"{link if 'sticky' in way else theirs} belongs to" in str(own_files.objection(path))


@as_root
def test_what_an_access_list_or_a_group_lets_others_write_has_an_objection(own_folder: Path):
    own_folder.chmod(0o775)
    assert own_files.objection(own_folder) is None  # root's own group
    everybody = 2**32 - 1
    entries = ((1, 7, everybody), (2, 7, NOBODY), (4, 5, everybody), (16, 7, everybody), (32, 5, everybody))
    content = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(own_folder, own_files.ACCESS_LIST, content)  # setfacl -m user:nobody:rwx
    except OSError:
        pytest.skip("this filesystem has no access lists")
    assert "can write" in str(own_files.objection(own_folder))
    os.removexattr(own_folder, own_files.ACCESS_LIST)
    os.chown(own_folder, 0, 100)  # "users": whose first group it is, a directory service need not tell
    own_folder.chmod(0o775)
    assert "can write" in str(own_files.objection(own_folder))


def test_a_loop_of_links_and_what_is_not_there_have_one(tmp_path: Path):
    (tmp_path / "x").symlink_to(tmp_path / "x")
    assert own_files.objection(tmp_path / "x") is not None
    assert "No such file" in str(own_files.objection(tmp_path / "not there"))


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    made = install(tmp_path, a_baseline(GPUS))
    made.gpus(8)
    return made


@as_root
@pytest.mark.parametrize("spoiled", ["owner", "mode", "link"])
def test_a_check_that_somebody_else_can_write_is_not_run_and_is_no_fault(installed, tmp_path, spoiled):
    ran = tmp_path / "ran"
    installed.check("99-mine", f"touch '{ran}'; echo fault: it ran")
    check = installed.folder / "checks.d/99-mine"
    if spoiled == "owner":
        os.chown(check, NOBODY, NOBODY)
    elif spoiled == "mode":
        check.chmod(0o777)
    else:
        os.chown(check.replace(tmp_path / "elsewhere"), NOBODY, NOBODY)
        check.symlink_to(tmp_path / "elsewhere")
    shown = installed.run("--all", "--exit-code")
    assert shown.returncode == 2, shown.stderr
    assert not ran.exists()
    assert "UNKNOWN  checks.mine" in shown.stdout
    assert "99-mine was not run: " in shown.stdout
    assert "PASS     discovery.gpu.count" in shown.stdout


@as_root
@pytest.mark.parametrize("part", [".", "checks.d", "probes"])
def test_a_health_check_in_a_folder_of_somebody_else_runs_nothing_and_says_so(installed: Installed, part: str):
    installed.gpus(7)  # a fault, if it were believed
    os.chown(installed.folder / part, NOBODY, NOBODY)
    assert installed.run().returncode == 0
    installed.ended(2, "belongs to")


@as_root
@pytest.mark.parametrize(
    "spoiled", first(["probe", "checkout", "baseline", "tools", "tool", "state", "textfile", "checks.d", "folder"])
)
def test_install_refuses_what_somebody_else_can_change(tmp_path: Path, spoiled: str):
    source = tmp_path / "checkout/infrastructure-validation"
    checkout = Path(own_files.__file__).resolve().parents[2]
    for part in ("infrastructure-validation/slurm", "infrastructure-validation/probes"):
        shutil.copytree(checkout / part, source.parent / part)
    baseline, tools, folder = tmp_path / "baseline.json", tmp_path / "tools", tmp_path / "opt"
    baseline.write_text(a_baseline(GPUS).model_dump_json())
    program(tools / "nvidia-smi", "")
    (tmp_path / "state").mkdir()
    (tmp_path / "textfile").mkdir()
    folders = ("--state", tmp_path / "state", "--textfile", tmp_path / "textfile")

    def run() -> subprocess.CompletedProcess[str]:
        command = [source / "slurm/install", folder, "--baseline", baseline, *folders]
        return ran(command, env={"PATH": f"{tools}:{os.environ['PATH']}"})

    assert run().returncode == 0
    (folder / "checks.d/99-mine").write_text("#!/bin/sh\n")
    assert run().returncode == 0
    known = {"checkout": source, "probe": source / "probes/facts.py", "baseline": baseline, "folder": folder}
    known |= {"tools": tools, "tool": tools / "nvidia-smi", "checks.d": folder / "checks.d/99-mine"}
    path = known.get(spoiled, tmp_path / spoiled)
    os.chown(path, NOBODY, NOBODY)
    refused = run()
    assert refused.returncode == 2
    assert f"{path} belongs to" in refused.stderr
    assert "only root may change it" in refused.stderr
    os.chown(path, 0, 0)
    path.chmod(0o777)
    assert f"can write {path}" in run().stderr


def test_install_from_a_checkout_of_ones_own_below_a_sticky_folder(tmp_path: Path):
    """As below /tmp: what is there already, only its owner can rename or remove."""
    tmp_path.chmod(0o1777)
    baseline = tmp_path / "baseline.json"
    baseline.write_text(a_baseline(GPUS).model_dump_json())
    (tmp_path / "opt").mkdir()
    done = run_install(tmp_path / "opt/health", "--baseline", baseline)
    assert done.returncode == 0, done.stderr


def test_a_program_of_the_tools_folder_does_not_come_before_the_systems_own(tmp_path: Path):
    tools = tmp_path / "tools"
    for name in ("nvidia-smi", "python3", "cat"):
        program(tools / name, f": >'{tmp_path}/{name}-ran'", by="/bin/sh")
    made = install(tmp_path, a_baseline(GPUS), tools=tools)
    made.check("10-gpus", "cat /dev/null; python3 -c 'print()'; nvidia-smi")
    made.run()
    assert [path.name for path in tmp_path.glob("*-ran")] == ["nvidia-smi-ran"]


def test_a_check_in_python_runs_isolated(installed: Installed, tmp_path: Path):
    (installed.folder / "checks.d/json.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    path = installed.folder / "checks.d/10-gpus"
    path.write_text(
        "#!/usr/bin/env python3\nimport json, sys\nassert sys.flags.isolated\n"
        f"print({fact('discovery.gpu.count', 8)!r})\nprint(json.dumps({{'probe': 'p', 'at': '{NODE}', 'end': 1}}))\n"
    )
    shown = installed.run("--all", PYTHONPATH=str(tmp_path))
    assert "PASS     discovery.gpu.count" in shown.stdout, shown.stdout
    assert not (tmp_path / "ran").exists()


@as_root
def test_install_through_a_link_that_somebody_else_can_turn_is_refused(tmp_path: Path):
    home, baseline = tmp_path / "home", tmp_path / "baseline.json"
    home.mkdir()
    (home / "health").symlink_to(tmp_path)
    os.chown(home, NOBODY, NOBODY)
    baseline.write_text(a_baseline(GPUS).model_dump_json())
    done = run_install(home / "health/opt", "--baseline", baseline)
    assert done.returncode == 2
    assert f"{home} belongs to" in done.stderr


@as_root
def test_checks_do_not_read_a_state_folder_that_others_can_write(installed: Installed):
    """A record of theirs there would call the driver's messages repaired."""
    installed.check("60-own", 'echo "fault: state: ${BRINGUP_STATE-none}"')
    installed.state.mkdir(exist_ok=True)
    assert f"state: {installed.state}" in installed.run().stdout
    os.chown(installed.state, NOBODY, NOBODY)
    assert "state: none" in installed.run().stdout


@as_root
@pytest.mark.parametrize("spoiled", ["owner", "mode"])
def test_a_state_folder_that_others_can_write_is_not_used(installed: Installed, spoiled: str, victim: Path):
    installed.state.mkdir(exist_ok=True)
    (installed.state / f"{NODE}.log").symlink_to(victim)
    (installed.state / f"{NODE}.hanging.json").symlink_to("/dev/zero")
    if spoiled == "owner":
        os.chown(installed.state, NOBODY, NOBODY)
    else:
        installed.state.chmod(0o777)
    installed.gpus(7)
    assert installed.code() == 1
    assert victim.read_text() == "of root alone\n"
    assert sorted(path.name for path in installed.state.iterdir()) == [f"{NODE}.hanging.json", f"{NODE}.log"]


def test_log_and_gauges_are_not_written_through_a_link(installed: Installed, victim: Path):
    installed.state.mkdir(exist_ok=True)
    (installed.state / f"{NODE}.log").symlink_to(victim)
    (installed.state / f"bringup-health.{NODE}.prom").symlink_to(victim)
    installed.gpus(7)
    installed.run()
    assert victim.read_text() == "of root alone\n"
