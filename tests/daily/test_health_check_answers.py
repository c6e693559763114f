"""The health check: what it prints, how it ends, what it writes and what it leaves alone."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from bringup.health.records import Baseline
from bringup.readers.known import xid
from health_for_tests import END, GPUS, LOG, NODE, SLURM, Installed, a_baseline, fact, install, run_install
from loops import case_for_each
from programs import program, ran
from prometheus_client.parser import text_string_to_metric_families

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.fixture
def health(tmp_path: Path) -> Installed:
    made = install(tmp_path / "node", a_baseline(GPUS))
    made.gpus(8)
    return made


def test_a_healthy_node_is_one_line(health: Installed):
    done = health.run("--exit-code")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{NODE}: 1 pass in ")
    assert "PASS     discovery.gpu.count" in health.run("--all").stdout
    assert health.log() == ""
    for count in (8, 7, None):
        health.gpus(count)
        assert health.run().returncode == 0, "it ends with 0 whatever it finds"
    for count in (None, "eight"):  # a text is compared with no number
        health.gpus(count)
        assert health.ended(2).split()[:2] == ["UNKNOWN", "discovery.gpu.count"]


def test_a_fault_is_a_line_with_gate_words_and_action(health: Installed):
    health.gpus(7)
    fault, whole = health.ended(1).splitlines()
    assert fault.split() == ["FAULT", "discovery.gpu.count", "7,", "expected", "8;", "reboot"]
    assert whole.startswith(f"{NODE}: 1 fault in ")


def test_a_fault_beside_what_could_not_be_told_is_a_fault(tmp_path: Path):
    health = install(tmp_path / "node", a_baseline(GPUS, LOG))
    health.gpus(7)
    health.says("20-driver-log", fact("discovery.kernel_log.xid", None, why="it cannot be read"))
    assert health.code() == 1


def test_of_a_node_in_several_runs_the_last_one_counts(tmp_path: Path):
    asked = (GPUS, GPUS.model_copy(update={"limit": 7}))
    groups = [group for entry in asked for group in a_baseline(entry).groups]
    health = install(tmp_path / "node", Baseline(groups=groups, driver_events={}))
    health.gpus(7)
    assert health.code() == 0


def test_json_holds_every_answer(health: Installed):
    health.gpus(7)
    seen = json.loads(health.run("--json", "--exit-code").stdout)
    assert (seen["node"], seen["boot"]) == (NODE, BOOT)
    words = {"gate": "discovery.gpu.count", "outcome": "fault", "words": "7, expected 8", "action": "reboot"}
    assert seen["answers"] == [words]


def test_the_gauges_are_read_by_prometheus(tmp_path: Path):
    (tmp_path / "collector").mkdir()
    health = install(tmp_path / "node", a_baseline(GPUS), "--textfile", tmp_path / "collector")
    health.gpus(7)
    health.check("90-site", "exit 3")
    health.run()
    (file,) = (tmp_path / "collector").iterdir()
    assert file.suffix == ".prom"
    samples = [sample for family in text_string_to_metric_families(file.read_text()) for sample in family.samples]
    shown = {(sample.name, sample.labels.get("gate")): sample.value for sample in samples}
    assert shown["bringup_health_fault", "discovery.gpu.count"] == 1
    assert shown["bringup_health_unknown", "checks.site"] == 1
    assert shown["bringup_health_fault", "checks.site"] == 0
    assert shown["bringup_health_timestamp_seconds", None] > 1_700_000_000


def test_a_fault_is_said_once_and_so_is_its_end(health: Installed):
    for count in (7, 7, 6, None, 8, 8):
        health.gpus(count)
        health.run()
    lines = [line.partition(f" {NODE} ")[2] for line in health.log().splitlines()]
    fault = "fault: discovery.gpu.count: {}, expected 8; reboot"
    assert lines == [fault.format(7), fault.format(6), "passes again: discovery.gpu.count"]


def test_a_check_that_could_not_tell_three_times_in_a_row_is_said_once(health: Installed):
    for count in (None, None, 8, None, None):
        health.gpus(count)
        health.run()
    assert health.log() == ""
    for _ in range(3):
        health.run()
    assert health.log().count("could not tell 3 times in a row: discovery.gpu.count: no answer") == 1


def test_a_baseline_that_cannot_be_read_is_said_once_too(health: Installed):
    (health.folder / "baseline.json").write_text("{")
    for _ in range(5):
        health.run()
    assert health.log().count("could not tell 3 times in a row: baseline: ") == 1


def test_only_some_checks_are_asked_and_what_was_said_of_others_stays(tmp_path: Path):
    health = install(tmp_path / "node", a_baseline(GPUS, LOG))
    health.gpus(7)
    health.says("20-driver-log", fact("discovery.kernel_log.xid", 0))
    health.run()
    assert health.code("--only", "driver-log") == 0
    assert health.code("--only", "gpus") == 1
    assert health.log().count("\n") == 1
    done = health.run("--exit-code", "--only", "gpu")
    assert done.returncode == 2
    assert "no check is called 'gpu'; there are gpus, driver-log" in done.stderr


@pytest.mark.parametrize(("late_s", "budget", "given_s"), [(3, 2, 2), (6, 60, 3.5)])
def test_a_check_gets_its_budget_and_never_more_than_all_together(health, late_s, budget, given_s):
    """It would answer. (A budget that was doubled went unnoticed.)"""
    answer = f"sleep {late_s}; echo '{fact('discovery.gpu.count', 7)}'; echo '{END}'"
    health.check("10-gpus", answer, header=f"# budget: {budget} s")
    (given,) = health.answers()
    assert (given["outcome"], given["words"]) == ("unknown", f"no answer within {given_s:g} s")


def test_a_check_that_hangs_is_ended_with_its_children_and_is_no_fault(health: Installed, tmp_path: Path):
    started = tmp_path / "started"
    body = f"echo x >>'{started}'; trap '' TERM; setsid sleep 30 & exec sleep 30"
    health.check("10-gpus", body, header="# budget: 0.3 s")
    health.ended(2, "no answer within 0.3 s")
    assert started.read_text() == "x\n"


@pytest.mark.parametrize("later", [0, 1])
def test_a_check_whose_process_outlived_its_end_is_waited_for(health: Installed, later: int):
    """A process in the kernel's hands ends when the kernel lets it: another one each time would fill the node. One that
    began later has its number and is another one."""
    with Path("/proc/self/stat").open() as stream:
        pid, _, rest = stream.read().partition(" ")
    started = int(rest.rpartition(")")[2].split()[19])
    hanging = {"gpus": {"pid": int(pid), "started": str(started - later)}}
    health.state.mkdir(exist_ok=True)
    (health.state / f"{NODE}.hanging.json").write_text(json.dumps(hanging))
    (answer,) = health.answers()
    assert ("still hangs" in answer["words"]) is not bool(later)


def test_a_log_of_a_mebibyte_is_put_aside(health: Installed):
    health.gpus(7)
    health.state.mkdir(exist_ok=True)
    log = health.state / f"{NODE}.log"
    log.write_text("x" * 2**20 + "\n")
    health.run()
    assert health.log().count("\n") == 1
    assert log.with_name(f"{NODE}.log.1").stat().st_size == 2**20 + 1


def test_a_part_that_says_nothing_is_no_health(tmp_path: Path):
    ports = {"limit": "4: ACTIVE", "parts": ["mlx5_0:1", "mlx5_1:1"]}
    asked = GPUS.model_copy(update={"quantity": "discovery.rdma.state", **ports})
    health = install(tmp_path / "node", a_baseline(asked))
    health.says("10-gpus", fact("discovery.rdma.state", "4: ACTIVE", f"{NODE}/mlx5_0:1"))
    health.ended(2, "nothing was said of mlx5_1:1")


def test_an_rdma_port_that_has_left_the_node_is_a_fault(tmp_path: Path):
    """rxe0 was deleted on a virtual node: the check could not tell, as if nobody had looked."""
    asked = GPUS.model_copy(update={"quantity": "discovery.rdma.state", "limit": "4: ACTIVE", "parts": ["gone_0:1"]})
    health = install(tmp_path / "node", a_baseline(asked.model_copy(update={"check": "rdma"})))
    shutil.copy(SLURM / "checks.d/50-rdma", health.folder / "checks.d")
    health.ended(1, "absent, expected 4: ACTIVE")


@case_for_each(
    ("echo fault: no licence server", "configure", 1, "FAULT checks.licence no licence server; configure"),
    ("echo fault: a; echo more; echo fault: b", "configure", 1, "FAULT checks.licence a; b; configure"),
    ("echo fault: no licence server", "watch", 0, "WATCH checks.licence no licence server"),
    ("echo no licence server", "configure", 0, ""),
    ("echo no licence server; exit 1", "configure", 2, "UNKNOWN checks.licence 90-licence ended with 1: no"),
    ("echo fault: sick; exit 1", "configure", 2, "UNKNOWN checks.licence 90-licence ended with 1: fault: sick"),
    ("exit 2", "configure", 2, "UNKNOWN checks.licence 90-licence ended with 2: "),
)
def test_a_site_adds_a_check_of_its_own(health: Installed, body: str, action: str, code: int, words: str):
    health.check("90-licence", body, header=f"# action: {action}")
    assert words.strip() in " ".join(health.ended(code).split())


def test_a_finding_reaches_the_log_on_one_line_without_control_letters(health: Installed):
    health.check("90-site", "printf 'fault: a\\033[31m \"b\" $(reboot) `x` %s' " + "y" * 400)
    health.run()
    assert health.log().count("\n") == 1
    assert "\033" not in health.log()
    assert len(health.log()) < 450


@pytest.fixture
def driver(tmp_path: Path) -> Installed:
    """The project's own check of the driver's log, with what the catalogue says of its messages."""
    health = install(tmp_path / "node", a_baseline(LOG).model_copy(update={"driver_events": xid.asked_for()}))
    own_check(health, "20-driver-log")
    probe = health.folder / "probes/kernel_log.py"
    probe.write_text(probe.read_text().replace('KMSG = "/dev/kmsg"', f'KMSG = "{tmp_path / "kmsg"}"'))
    return health


def own_check(health: Installed, name: str) -> None:
    path = health.folder / "checks.d" / name
    path.write_text((SLURM / "checks.d" / name).read_text())
    path.chmod(0o755)


def says(health: Installed, *messages: str, first: int = 0) -> None:
    numbered = enumerate(("Linux version 6", *messages), first)
    records = [f"4,{number},61000000,-;{message}\n" for number, message in numbered]
    (health.folder.parent.parent / "kmsg").write_text("".join(records))


XID = "NVRM: Xid (PCI:0000:c1:00): {}, pid=0, name=python, Ch 0000001e"
SXID = "nvidia-nvswitch0: SXid (PCI:0000:85:00.0): 24007, {}, Link 27 sourcetrack timeout error"


@case_for_each(
    ("usb 1-1: new device", 0, ""),
    (XID.format(79), 1, "xid_79 on PCI:0000:c1:00: reboot the node"),
    (XID.format(31), 0, ""),  # of an application
    (XID.format(998), 2, "no table of this version explains xid_998 on PCI:0000:c1:00"),
    (SXID.format("Fatal"), 1, "sxid_24007"),
    (SXID.format("Non-fatal"), 0, ""),
)
def test_only_what_the_vendors_table_gives_to_the_node_is_a_fault(driver, message, code, words):
    """An unknown number is unknown: a new driver has new ones, also harmless."""
    says(driver, message)
    driver.ended(code, words)


def test_a_fault_of_the_driver_stays_when_its_line_is_gone_until_somebody_repairs_it(driver: Installed):
    """The kernel overwrites its log."""
    says(driver, XID.format(79))
    assert driver.code() == 1
    says(driver)
    kept = "no longer in the log, and not said to be repaired: "
    driver.ended(1, kept, "xid_79 on PCI:0000:c1:00: reboot the node")
    assert driver.run("--repaired").returncode == 0
    assert driver.code() == 0


@case_for_each(
    ((0, 1), 0, ""),  # nothing was said since
    ((0, 2), 0, ""),
    ((0, 3), 2, "1 messages were overwritten since the last look"),
    ((7,), 2, "the log begins with message 7 of this boot"),
)
def test_messages_that_were_overwritten_unread_are_no_health(driver, begins, code, words):
    """The log is looked at each time it begins with that message; it holds two."""
    for first in begins:
        says(driver, "usb 1-1: new device", first=first)
        last = driver.run("--exit-code")
    assert (last.returncode, words in last.stdout) == (code, True), last.stdout


def test_a_gpu_that_nvidia_smi_calls_lost_is_one_that_does_not_answer(tmp_path: Path):
    """It answers for no GPU then."""
    lost = "Unable to determine the device handle for GPU0000:43:00.0"
    smi = program(tmp_path / "tools/nvidia-smi", f"echo '{lost}: GPU is lost.  Reboot the system'; exit 15")
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1"):
        (tmp_path / "dev" / name).symlink_to("/dev/null")
    answering = GPUS.model_copy(update=dict.fromkeys(("gate", "quantity"), "discovery.gpu.answering") | {"limit": 2})
    health = install(tmp_path / "node", a_baseline(answering), tools=smi.parent)
    own_check(health, "10-gpus")
    probe = health.folder / "probes/gpus.py"
    probe.write_text(probe.read_text().replace('Path("/dev")', f'Path("{tmp_path}/dev")'))
    (answer,) = health.answers()
    assert answer["outcome"] == "fault"
    assert answer["words"].startswith(f"1, expected 2 ({lost}")


def test_a_fault_of_the_driver_ends_with_the_boot(driver: Installed):
    says(driver, XID.format(79))
    assert driver.code() == 1
    says(driver)
    kept = driver.state / f"{NODE}.driver-fault.json"
    kept.write_text(kept.read_text().replace(BOOT, "another one"))
    assert driver.code() == 0


def test_a_repair_while_a_check_is_at_work_is_the_last_word_on_the_driver(tmp_path: Path):
    """The check read the log before the repair."""
    health = install(tmp_path / "node", a_baseline(LOG))
    remembered = health.state / f"{NODE}.driver-fault.json"
    fault = fact("discovery.kernel_log.xid", 1)
    repair = f"'{health.folder}/health-check' --repaired >/dev/null"
    health.check("20-driver-log", f"{repair}\necho '{fault}'\necho '{END}'", header="# budget: 5 s")
    assert health.code() == 1
    assert not remembered.exists()
    health.says("20-driver-log", fault)
    health.run()
    assert remembered.exists()


def test_installing_again_keeps_what_a_site_added(tmp_path: Path):
    folder, baseline = tmp_path / "opt", tmp_path / "baseline.json"
    baseline.write_text(a_baseline(GPUS).model_dump_json())
    assert run_install(folder, "--baseline", baseline).returncode == 0
    (folder / "checks.d/90-licence").write_text("#!/bin/sh\n")
    done = run_install(folder, "--baseline", baseline)
    assert done.returncode == 0
    assert f"HealthCheckProgram={folder}/health-check" in done.stdout
    assert (folder / "checks.d/90-licence").exists()


@pytest.mark.parametrize("where", ["relative/opt", "{tmp}/an opt", "{tmp}/taken"])
def test_install_refuses_a_folder_that_is_not_for_it_and_what_is_no_baseline(tmp_path: Path, where: str):
    baseline = tmp_path / "baseline.json"
    baseline.write_text(a_baseline(GPUS).model_dump_json())
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").write_text("somebody's")
    done = run_install(Path(where.format(tmp=tmp_path)), "--baseline", baseline)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["file"]
    baseline.write_text("name: x\n")
    assert "site-baseline" in run_install(tmp_path / "opt", "--baseline", baseline).stderr
    assert not (tmp_path / "opt").exists()


@pytest.mark.parametrize("name", sorted(path.name for path in (SLURM / "checks.d").iterdir()))
def test_every_check_has_a_budget_and_finishes_on_this_machine(tmp_path: Path, name: str):
    """Whatever this machine has: what it cannot tell is unknown, and the last line counts the facts."""
    done = run_check(name, tmp_path, a_baseline(GPUS).model_dump_json())
    assert (done.returncode, done.stderr) == (0, "")
    assert "end" in json.loads(done.stdout.splitlines()[-1])
    assert (SLURM / "checks.d" / name).read_text().splitlines()[1].startswith("# budget: ")


def run_check(name: str, folder: Path, baseline: str) -> subprocess.CompletedProcess[str]:
    (folder / "a baseline.json").write_text(baseline)
    places = {"PROBES": SLURM.parent / "probes", "BASELINE": folder / "a baseline.json", "STATE": folder}
    own = {f"BRINGUP_{name}": str(path) for name, path in places.items()}
    return ran([SLURM / "checks.d" / name], env={"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": NODE, **own})


@pytest.mark.parametrize(("kind", "outcome"), [("autofs", "unknown"), ("tmpfs", "fault"), ("nfs4", "pass")])
def test_an_automount_that_is_not_mounted_now_is_no_fault(tmp_path: Path, kind: str, outcome: str):
    """By the table of mounts, as an automounter leaves it after its time-out. A table is stored here: a mount of autofs
    wants a daemon."""
    home = "/net/home"
    table = "22 1 0:20 / / rw - ext4 /dev/sda1 rw\n36 22 0:47 / {} rw,relatime - {} {} rw\n"
    source = {"autofs": "auto.home", "tmpfs": "tmpfs", "nfs4": "server:/home"}[kind]
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(table.format(home, kind, source))
    names = dict.fromkeys(("gate", "quantity"), "discovery.mount")
    asked = LOG.model_copy(update=names | {"check": "mount", "limit": "nfs4 server:/home", "unit": "text"})
    baseline = a_baseline(asked)
    baseline.groups[0].mounts.append(f"{home}/anna/bringup")
    health = install(tmp_path / "node", baseline)
    probe = health.folder / "probes/software.py"
    probe.write_text(probe.read_text().replace("/proc/self/mountinfo", str(mountinfo)))
    own_check(health, "40-mount")
    (answer,) = health.answers()
    assert answer["outcome"] == outcome, answer["words"]
