"""Two lanes share the drills of a campaign: none is left out, and none is performed twice."""

import queue
import threading
from collections import deque
from pathlib import Path

from bringup.drill import environment, suite
from bringup.drill.suite import LEFT_TO_ITS_LANE, taken
from bringup.errors import DrillError
from bringup.plan.catalogue import DRILLS
from bringup.plan.drill import Shape


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
