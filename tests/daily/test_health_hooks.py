"""The health check, prolog and epilog: what they say, what they tell Slurm, and what they leave alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from bringup.report import reason
from hooks_for_tests import END, GPUS, LOG, NODE, SLURM, Installed, a_baseline, a_slurm, fact, install, run_install

OF_A_RUN = "bringup: sweep.load.wrong_values; replace (2026-11-23T02:00Z, run 20261123-020000-abc)"
OUR_DRAIN = "bringup: discovery.gpu.count 7, expected 8; reboot (2026-11-23T02:00Z, health-check)"


@pytest.fixture
def health(tmp_path: Path) -> Installed:
    made = install(tmp_path / "node", a_baseline(GPUS), "--drain")
    made.gpus(8)
    return made


@pytest.fixture
def shadow(tmp_path: Path) -> Installed:
    made = install(tmp_path / "node", a_baseline(GPUS))
    made.gpus(7)
    return made


def test_a_healthy_node_is_left_alone_and_slurm_is_asked_once_a_boot(health: Installed):
    assert health.run().returncode == 0
    (health.slurm / "away").touch()  # it would be noticed
    assert health.run().returncode == 0
    assert health.calls() == []
    assert health.log() == ""


def test_a_fault_drains_with_owner_finding_action_date_and_finder(health: Installed):
    health.gpus(7)
    assert health.run().returncode == 0  # an old slurmd does not register until its health check ends with 0
    (call,) = health.calls()
    assert call.startswith(
        f"update NodeName={NODE} State=DRAIN Reason=bringup: discovery.gpu.count 7, expected 8; reboot ("
    )
    given = reason.read(call.partition("Reason=")[2])
    assert given is not None
    assert (given.gates, given.action, given.by) == (["discovery.gpu.count"], "reboot", "health-check")


def test_a_fault_is_told_once(health: Installed):
    health.gpus(7)
    health.run()
    health.node_is("drained", OUR_DRAIN)
    health.run()
    health.run()
    assert len(health.calls()) == 1
    assert health.log().count("\n") == 1


def test_a_fault_that_slurm_could_not_be_told_is_told_at_the_next_call(health: Installed):
    health.gpus(7)
    (health.slurm / "away").touch()
    assert health.run().returncode == 0
    assert "could not tell Slurm" in health.log()
    (health.slurm / "away").unlink()
    health.run()
    assert len(health.calls()) == 1


@pytest.mark.parametrize("state", ["drained", "draining", "down*"])
@pytest.mark.parametrize("given", ["fan is loud", "Prolog error", OF_A_RUN])
def test_what_somebody_else_keeps_out_keeps_its_reason(health: Installed, state: str, given: str):
    """Another prolog of the site, and a run whose gates nobody has asked again, are somebody else."""
    health.node_is(state, given)
    health.gpus(7)
    health.run()
    assert health.calls() == []
    assert f"somebody else keeps the node out ({given})" in health.log()


def an_hour_passes(health: Installed) -> None:
    file = health.state / f"{NODE}.told.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps(record | {"at": record["at"] - 3601}))


def test_a_node_that_was_resumed_with_its_fault_is_drained_again_after_an_hour(health: Installed):
    health.gpus(7)
    health.run()
    health.node_is("idle")
    health.run()
    assert len(health.calls()) == 1
    an_hour_passes(health)
    health.run()
    assert len(health.calls()) == 2


def test_a_node_that_is_still_drained_after_an_hour_keeps_the_date_of_its_reason(health: Installed):
    health.gpus(7)
    health.run()
    health.node_is("drained", OUR_DRAIN)
    an_hour_passes(health)
    health.run()
    assert len(health.calls()) == 1


def test_what_passes_again_says_so_and_stays_drained(health: Installed):
    health.node_is("drained", OUR_DRAIN)
    health.run()
    (call,) = health.calls()
    assert "State=" not in call
    given = reason.read(call.partition("Reason=")[2])
    assert given is not None
    assert given.passes_since is not None
    assert given.finding == "discovery.gpu.count 7, expected 8"
    health.node_is("drained", call.partition("Reason=")[2])
    health.run()
    assert len(health.calls()) == 1


def test_a_check_that_was_silent_after_the_repair_says_that_the_node_passes_once_it_answers(health: Installed):
    """On a busy node a check was ended by its limit; the node then waited for an hour."""
    health.gpus(7)
    health.run()
    health.gpus(None)
    health.run()
    assert len(health.calls()) == 1
    health.gpus(8)
    health.run()
    assert "Reason=bringup: passes again " in health.calls()[-1]


@pytest.mark.parametrize(
    "given",
    [
        "fan is loud",
        OF_A_RUN,
        "Prolog error",  # and no prolog of ours refused the node
    ],
)
def test_what_the_health_check_did_not_drain_is_not_said_to_pass(health: Installed, given: str):
    health.node_is("drained", given)
    health.run()
    assert health.calls() == []


def test_a_repair_while_a_hook_is_at_work_is_the_last_word_on_the_driver(tmp_path: Path):
    """The hook read the log before the repair, and drains for it after."""
    health = install(tmp_path / "node", a_baseline(LOG), "--drain")
    remembered = health.state / f"{NODE}.driver-fault.json"
    fault = fact("discovery.kernel_log.xid", 1)
    repair = f"'{health.folder}/health-check' --repaired"
    health.check("10-log", f"{repair}\necho '{fault}'\necho '{END}'", header="# budget: 5 s")
    health.run()
    assert "State=DRAIN" in health.calls()[0]
    assert not remembered.exists()
    health.says("10-log", fault)
    health.node_is("idle")
    (health.state / f"{NODE}.told.json").unlink()
    health.run()
    assert remembered.exists()


def test_what_could_not_be_told_neither_drains_nor_passes(health: Installed):
    health.node_is("drained", OUR_DRAIN)
    health.gpus(None)
    health.run()
    assert health.calls() == []
    assert "could not be told" in health.log()


def test_a_check_that_hangs_drains_nothing_and_is_not_started_again(health: Installed, tmp_path: Path):
    started = tmp_path / "started"
    health.check(
        "10-gpus", f"echo x >>'{started}'; trap '' TERM; setsid sleep 30 & exec sleep 30", header="# budget: 0.3 s"
    )
    assert health.run().returncode == 0
    (answer,) = json.loads((health.state / f"{NODE}.health-check.json").read_text())["answers"]
    assert (answer["outcome"], answer["words"]) == ("unknown", "no answer within 0.3 s")
    assert health.calls() == []
    assert started.read_text() == "x\n"


def test_a_check_whose_process_outlived_its_end_is_waited_for(health: Installed):
    """A process in the kernel's hands ends when the kernel lets it: another one each time would fill the node."""
    with Path("/proc/self/stat").open() as stream:
        pid, _, rest = stream.read().partition(" ")
    hanging = {"gpus": {"pid": int(pid), "started": rest.rpartition(")")[2].split()[19]}}
    health.state.mkdir(exist_ok=True)
    (health.state / f"{NODE}.hanging.json").write_text(json.dumps(hanging))
    health.run()
    (answer,) = json.loads((health.state / f"{NODE}.health-check.json").read_text())["answers"]
    assert "still hangs" in answer["words"]


@pytest.mark.parametrize("body", ["exit 3", 'echo \'{"probe": "p"\'', f"echo '{fact('discovery.gpu.count', 8)}'"])
def test_a_check_that_did_not_finish_is_no_answer(health: Installed, body: str):
    health.check("10-gpus", body)
    assert health.run("health-check", "--show").returncode == 2


def test_a_part_that_says_nothing_is_no_health(tmp_path: Path):
    asked = GPUS.model_copy(
        update={"quantity": "discovery.rdma.state", "limit": "4: ACTIVE", "parts": ["mlx5_0:1", "mlx5_1:1"]}
    )
    health = install(tmp_path / "node", a_baseline(asked))
    health.says("10-gpus", fact("discovery.rdma.state", "4: ACTIVE", f"{NODE}/mlx5_0:1"))
    done = health.run("health-check", "--show")
    assert done.returncode == 2
    assert "nothing was said of mlx5_1:1" in done.stdout


@pytest.mark.parametrize("hook", ["prolog", "epilog"])
def test_a_fault_at_a_job_drains_the_node_and_ends_the_hook_with_1(health: Installed, hook: str):
    (health.slurm / "away").touch()  # it would be noticed
    assert health.run(hook).returncode == 0
    assert health.log() == ""
    (health.slurm / "away").unlink()
    health.node_is("allocated")
    health.gpus(7)
    done = health.run(hook)
    assert done.returncode == 1
    (call,) = health.calls()
    assert call.startswith(
        f"update NodeName={NODE} State=DRAIN Reason=bringup: discovery.gpu.count 7, expected 8; reboot ("
    )
    assert call.endswith(f", {hook})")
    assert done.stderr.strip() == f"drained: {call.partition('Reason=')[2]}"


def test_a_job_that_meets_a_node_which_is_drained_for_its_fault_is_refused_too(health: Installed):
    health.gpus(7)
    health.run()
    assert health.run("prolog").returncode == 1
    assert len(health.calls()) == 1


def test_the_health_check_says_once_what_a_prolog_has_drained(health: Installed):
    health.gpus(7)
    health.run("prolog")
    health.run()
    assert len(health.calls()) == 1


def test_a_fault_that_only_a_prolog_saw_is_said_to_pass_again(health: Installed):
    health.run()
    health.gpus(7)
    health.run("prolog")
    health.gpus(8)
    health.run()
    given = reason.read(health.calls()[1].partition("Reason=")[2])
    assert given is not None
    assert given.passes_since is not None
    assert (given.gates, given.by) == (["discovery.gpu.count"], "prolog")


@pytest.mark.parametrize("hook", ["prolog", "epilog"])
def test_what_could_not_be_told_refuses_no_job(health: Installed, hook: str):
    health.gpus(None)
    assert health.run(hook).returncode == 0
    health.check("10-gpus", "exit 7")
    assert health.run(hook).returncode == 0
    (health.folder / "baseline.json").write_text("{")
    assert health.run(hook).returncode == 0


@pytest.mark.parametrize("hook", ["health-check", "prolog", "epilog"])
def test_shadow_mode_says_and_does_nothing(shadow: Installed, hook: str):
    done = shadow.run(hook)
    assert done.returncode == 0
    assert shadow.calls() == []
    assert "shadow: would" in shadow.log()
    assert "discovery.gpu.count 7, expected 8" in shadow.log()


def test_shadow_mode_is_what_is_installed_without_a_word(shadow: Installed):
    assert json.loads((shadow.folder / "settings.json").read_text())["mode"] == "shadow"


def test_a_fault_that_shadow_mode_has_said_is_acted_on_once_the_mode_is_changed(shadow: Installed):
    shadow.run()
    settings = shadow.folder / "settings.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"mode": "drain"}))
    shadow.run()
    assert len(shadow.calls()) == 1


def test_only_the_checks_of_the_occasion_are_asked(health: Installed):
    health.check("10-gpus", "exit 7", occasions="idle")
    assert health.run("prolog").returncode == 0
    answers = json.loads((health.state / f"{NODE}.prolog.json").read_text())["answers"]
    assert answers == []


@pytest.mark.parametrize(
    ("body", "action", "drains"),
    [
        ("echo no licence server; exit 1", "configure", True),
        ("echo no licence server; exit 1", "watch", False),
        ("exit 0", "configure", False),
        ("exit 2", "configure", False),
    ],
)
def test_a_site_adds_a_check_of_its_own(health: Installed, body: str, action: str, drains: bool):
    health.check("90-licence", body, header=f"# action: {action}")
    health.run()
    assert bool(health.calls()) is drains
    if drains:
        assert "Reason=bringup: checks.licence no licence server; configure (" in health.calls()[0]


def test_what_a_sites_check_no_longer_finds_passes_again(health: Installed):
    health.check("90-licence", "exit 0")
    health.node_is("drained", "bringup: checks.licence no server; configure (2026-11-23T02:00Z, health-check)")
    health.run()
    assert "Reason=bringup: passes again " in health.calls()[0]
    assert "PASS     checks.licence" in health.run("health-check", "--show").stdout


def test_a_finding_reaches_slurm_in_harmless_letters(health: Installed):
    health.check("90-site", "printf 'a\\033[31m \"b\" $(reboot) `x` \\\\n%s' " + "y" * 400 + "; exit 1")
    health.run()
    (call,) = health.calls()
    assert len(call.partition("Reason=")[2]) <= reason.MOST
    assert not set(call) & set("\"'`$\\\033")
    assert call.endswith("health-check)")


def test_a_node_without_a_baseline_is_not_judged(tmp_path: Path):
    health = install(tmp_path / "node", a_baseline(GPUS, nodes=("n7",)), "--drain")
    health.gpus(0)
    assert health.run().returncode == 0
    assert health.run("prolog").returncode == 0
    assert health.calls() == []
    assert "no run in it passed on a node called n1" in health.log()


def test_slurm_is_not_asked_where_it_says_itself_that_the_node_is_healthy(health: Installed):
    """SLURM_NODE_IS_HEALTHY, from Slurm 26.11."""
    (health.slurm / "sinfo").unlink()
    health.run("health-check", SLURM_NODE_IS_HEALTHY="yes")
    assert health.log() == ""


def test_the_worst_action_of_several_faults_is_named(tmp_path: Path):
    health = install(tmp_path / "node", a_baseline(LOG, GPUS), "--drain")
    health.gpus(7)
    health.says("20-log", fact("discovery.kernel_log.xid", 1, why="Xid 95"))
    health.run()
    (call,) = health.calls()
    assert "=bringup: discovery.gpu.count and discovery.kernel_log.xid 1, expected 0 (Xid 95); reboot (" in call


def test_installing_again_changes_the_mode_and_keeps_what_a_site_added(tmp_path: Path):
    folder, baseline = tmp_path / "opt", tmp_path / "baseline.json"
    baseline.write_text(a_baseline(GPUS).model_dump_json())
    assert run_install(folder, "--baseline", baseline, slurm=a_slurm(tmp_path / "bin")).returncode == 0
    (folder / "checks.d/90-licence").write_text("#!/bin/sh\n")
    done = run_install(folder, "--baseline", baseline, "--drain", slurm=a_slurm(tmp_path / "bin"))
    assert done.returncode == 0
    assert f"HealthCheckProgram={folder}/health-check" in done.stdout
    assert (folder / "checks.d/90-licence").exists()
    assert json.loads((folder / "settings.json").read_text())["mode"] == "drain"


@pytest.mark.parametrize("where", ["relative/opt", "{tmp}/an opt", "{tmp}/taken"])
def test_install_refuses_a_folder_that_is_not_for_it(tmp_path: Path, where: str):
    baseline = tmp_path / "baseline.json"
    baseline.write_text(a_baseline(GPUS).model_dump_json())
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").write_text("somebody's")
    done = run_install(Path(where.format(tmp=tmp_path)), "--baseline", baseline, slurm=a_slurm(tmp_path / "bin"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["file"]


def test_install_refuses_what_is_no_baseline(tmp_path: Path):
    (tmp_path / "profile.yaml").write_text("name: x\n")
    done = run_install(tmp_path / "opt", "--baseline", tmp_path / "profile.yaml", slurm=a_slurm(tmp_path / "bin"))
    assert done.returncode == 2
    assert "site-baseline" in done.stderr
    assert not (tmp_path / "opt").exists()


@pytest.mark.parametrize("name", sorted(path.name for path in (SLURM / "checks.d").iterdir()))
def test_every_check_says_when_it_runs_and_finishes_on_this_machine(tmp_path: Path, name: str):
    """Whatever this machine has: what it cannot tell is unknown, and the last line counts the facts."""
    baseline = tmp_path / "a baseline.json"
    baseline.write_text(a_baseline(GPUS).model_dump_json())
    done = subprocess.run(
        [str(SLURM / "checks.d" / name)],
        env={
            "PATH": "/usr/bin:/bin",
            "SLURMD_NODENAME": NODE,
            "BRINGUP_PROBES": str(SLURM.parent / "probes"),
            "BRINGUP_BASELINE": str(baseline),
            "BRINGUP_STATE": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "end" in json.loads(done.stdout.splitlines()[-1])
    header = (SLURM / "checks.d" / name).read_text().splitlines()[1:3]
    assert header[0].startswith("# occasions: idle")
    assert header[1].startswith("# budget: ")
