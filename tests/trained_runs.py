"""Folders of finished trainings, around records of real runs of the tiny model, for tests to damage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from bringup import judge
from bringup.plan import profile
from bringup.plan.phases import PHASES
from bringup.records import Outcome, Verdict
from bringup.run import open as opening
from runs_for_tests import FIXTURES

STEMS = [stem for stem in PHASES if PHASES[stem].is_training]
RECORDS = FIXTURES / "training"


def run_of(stem: str, results: Path, *, reference: bool = True) -> Path:
    """A finished run's folder around the fixture's records."""
    nodes = ["n0", "n1"] if PHASES[stem].min_nodes == 2 else ["n0"]
    ranks = 1 if PHASES[stem].one_gpu else 2
    if reference:
        shutil.copytree(RECORDS / "run_1gpu", results / "run_1gpu-earlier")
    folder = opening.open_run(
        PHASES[stem],
        nodes=nodes,
        gpus_per_node=2,
        ranks_per_node=ranks,
        profile=profile.load("local-cpu"),
        argv=[],
        results=results,
    )
    for file in ("run_args.json", "metrics.json"):
        shutil.copyfile(RECORDS / stem / file, folder / file)
    if len(nodes) > 1:  # the records are of one machine, on whose loopback nothing is counted
        change(folder, "metrics.json", transport="tcp:eth0", transport_reason=None)
    for index, node in enumerate(nodes):
        for rank in range(index * ranks, (index + 1) * ranks):
            rank_said(folder, node, rank, state="finished", device="cpu", driver_gpus=0, checkpoint=(0, 0))
    opening.close_run(folder, 0)
    return folder


def rank_said(
    folder: Path, node: str, rank: int, *, checkpoint: tuple[int, int] | None = None, **facts: str | int
) -> None:
    """The rank's file with these facts, properly ended. checkpoint: its damaged files, and its tensors that came back different."""
    common = {"probe": "train", "at": node, "subject": f"{node}/rank{rank}", "unit": "text"}
    lines = [
        common
        | {"quantity": f"train.rank.{name}", "value": value, "unit": "text" if isinstance(value, str) else "count"}
        for name, value in facts.items()
    ]
    for name, count in zip(("damaged", "differing"), checkpoint or (), strict=False):
        lines.append(common | {"quantity": f"train.checkpoint.{name}", "value": count, "unit": "count"})
    lines.append({"probe": "train", "at": node, "end": len(lines)})
    (folder / f"raw/rank{rank}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def change(folder: Path, file: str, **fields: object) -> None:
    path = folder / file
    data = json.loads(path.read_text())
    for name, value in fields.items():
        target, key = (
            (data["observed"], name.removeprefix("observed_")) if name.startswith("observed_") else (data, name)
        )
        assert key in target
        target[key] = value
    path.write_text(json.dumps(data))


def bad(folder: Path) -> dict[tuple[str, str], Verdict]:
    return {
        (v.gate, v.subject): v for v in judge.judge_folder(folder).verdicts.verdicts if v.outcome is not Outcome.PASS
    }
