"""Campaigns: healthy rounds, two lanes, faults inside of ranks, and clusters like a site."""

import os
import queue
import re
import runpy
import sys
import threading
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import healthy_rounds
import pytest
from bringup.drill import catalogue as drills
from bringup.drill import environment, perform, suite
from bringup.drill.catalogue import DRILLS, Shape
from bringup.drill.suite import LEFT_TO_ITS_LANE, taken
from bringup.kernel import judge
from bringup.kernel import results as runs
from bringup.kernel.errors import DrillError
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Outcome
from bringup.kernel.results import REPOSITORY
from factory import a_verdict, judged_of
from programs import ran


def test_a_healthy_round_keeps_the_evidence_of_every_phase(tmp_path, monkeypatch):
    """The phases 1 to 3 of one playbook have one name: kept in one folder, each replaced the one before."""
    stems = ("discovery", "smoke")
    homes = {stem: tmp_path / "results" / stem / "d-round-1" for stem in stems}
    for home in homes.values():
        home.mkdir(parents=True)
    monkeypatch.setattr(runs, "PLAYBOOKS", tmp_path / "playbooks")
    monkeypatch.setattr(runs, "attempts", lambda phase, name: [homes[phase.stem]])
    passed = judged_of(a_verdict("discovery.gpu.count", "n1", Outcome.PASS, "1"))
    monkeypatch.setattr(judge, "judge_folder", lambda folder: passed)
    ended = environment.Ended((), 0, "", "")
    here = SimpleNamespace(bringup=lambda *words, environment, phases: ended)
    healthy = healthy_rounds.healthy_round(1, stems, here, tmp_path / "kept", name="d")
    assert (healthy.verdicts, healthy.alarms) == (2, [])
    assert all((tmp_path / "kept/round-1" / stem / "d-round-1").is_dir() for stem in stems)


def test_a_lane_that_is_done_takes_over_from_the_end_of_the_other_one_and_leaves_it_a_few():
    for end in (12, 2 + LEFT_TO_ITS_LANE):
        own, other = deque(DRILLS[:2]), deque(DRILLS[2:end])
        assert list(taken(own, other)) == [*DRILLS[:2], *reversed(DRILLS[2 + LEFT_TO_ITS_LANE : end])]
        assert list(other) == list(DRILLS[2 : 2 + LEFT_TO_ITS_LANE])


def test_two_lanes_perform_every_drill_once():
    works = deque(drill for drill in DRILLS if not drill.waits)
    waits = deque(drill for drill in DRILLS if drill.waits)
    performed: list[str] = []
    lanes = [
        threading.Thread(target=lambda own=own, other=other: performed.extend(d.id for d in taken(own, other)))
        for own, other in ((works, waits), (waits, works))
    ]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    assert sorted(performed) == sorted(drill.id for drill in DRILLS)


def test_an_interrupted_lane_starts_no_further_cluster(tmp_path, monkeypatch):
    started: list[str] = []

    class Cluster:
        def __init__(self, state: Path, shape: Shape) -> None:
            pass

        def start(self) -> None:
            started.append("cluster")

        def end(self) -> None:
            pass

        def heal(self) -> None:
            environment.INTERRUPTED.set()
            raise DrillError("interrupted")

    monkeypatch.setattr(environment, "INTERRUPTED", threading.Event())
    monkeypatch.setattr(suite, "LocalCluster", Cluster)
    ended: suite.Ended = queue.Queue()
    begun: list[str] = []
    suite._lane("works", iter(DRILLS[:3]), tmp_path, ended, begun.append)
    assert started == ["cluster"]
    assert begun == [f"{DRILLS[0].id}: {DRILLS[0].fault}", ""]
    assert list(ended.queue) == [None]


# --- faults inside the ranks of a training are loaded from outside, by drills alone


INJECTED = REPOSITORY / "training/injected"
sys.path.append(str(INJECTED))

TRAINING = [drill for drill in drills.DECLARED.values() if PHASES[drill.phase].is_training]


def test_every_drill_that_asks_a_training_for_a_fault_loads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of/the/user")
    asked = [drill for drill in TRAINING if "BRINGUP_DRILL" in drill.environment]
    assert len(asked) > 20
    for drill in drills.DECLARED.values():  # and no other one
        assert perform._injected(drill) == ({"PYTHONPATH": f"{INJECTED}:/of/the/user"} if drill in asked else {})


def test_every_fault_of_a_drill_is_one_that_can_be_injected(monkeypatch: pytest.MonkeyPatch) -> None:
    import rank_faults

    # by its path: Debian's Python has a module of this name
    of_the_sampler = runpy.run_path(str(Path(INJECTED, "sitecustomize.py")))["OF_THE_SAMPLER"]

    monkeypatch.setattr(rank_faults, "WORLD", 4)
    for drill in TRAINING:
        value = drill.placed(("n0", "n1"), 2).environment.get("BRINGUP_DRILL")
        if value is not None and not value.startswith(of_the_sampler):
            monkeypatch.setenv("BRINGUP_DRILL", value)
            assert value.startswith(rank_faults.from_environment(12, Path()).kind)


def test_what_is_changed_is_there_in_the_training_package() -> None:
    import rank_faults

    for module in rank_faults.CHANGES:
        assert (REPOSITORY / "training/src" / f"{module.replace('.', '/')}.py").is_file(), module


LOADED = "import sys; print('rank_faults' in sys.modules, [f for f in sys.meta_path if 'Faults' in str(f)] != [])"


@pytest.mark.parametrize(("drill", "hooked"), [("", False), ("kill-rank:0@1", True)])
def test_without_the_variable_the_folder_changes_nothing(drill: str, hooked: bool) -> None:
    environment = os.environ | {"PYTHONPATH": str(INJECTED), "BRINGUP_DRILL": drill}
    assert ran([sys.executable, "-c", LOADED], check=True, env=environment).stdout == f"False {hooked}\n"


# --- clusters like a site: what their files say is read


def test_a_line_of_a_site_has_a_verb_that_is_known():
    place = REPOSITORY / "infrastructure-validation/local-cluster"
    script = "".join((place / name).read_text() for name in ("sites.sh", "hosts.sh", "cluster"))
    lines = [line for path in (place / "sites").glob("*.conf") for line in path.read_text().splitlines()]
    read = {"prolog", "epilog"} | set(re.findall(r'site_says "\$\w+" "?([a-z-]+)', script))
    assert {line.split()[0] for line in lines if not line.startswith("#")} <= read
