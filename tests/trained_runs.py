"""Folders of finished trainings, around records of real runs of the tiny model, for tests to damage."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from bringup.kernel import judge
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Outcome, Verdict
from bringup.run import open as opening
from runs_for_tests import FIXTURES, opened

STEMS = [stem for stem in PHASES if PHASES[stem].is_training]
RECORDS = FIXTURES / "training"
SECONDS = 20  # that the sampler watched


def run_of(stem: str, results: Path, *, reference: bool = True, name: str | None = None) -> Path:
    """A finished run's folder around the fixture's records."""
    nodes = ["n0", "n1"] if PHASES[stem].min_nodes == 2 else ["n0"]
    ranks = 1 if PHASES[stem].one_gpu else 2
    if reference:
        shutil.copytree(RECORDS / "run_1gpu", results / "run_1gpu-earlier")
    folder = opened(stem, results, nodes=nodes, ranks=ranks, name=name)
    for file in ("run_args.json", "metrics.json"):
        shutil.copyfile(RECORDS / stem / file, folder / file)
    if len(nodes) > 1:  # the records are of one machine, on whose loopback nothing is counted
        change(folder, "metrics.json", transport="tcp:eth0", transport_reason=None)
    for index, node in enumerate(nodes):
        for rank in range(index * ranks, (index + 1) * ranks):
            rank_said(folder, node, rank, state="finished", device="cpu", driver_gpus=0, checkpoint=(0, 0))
    for moment in ("before", "after"):
        (folder / f"raw/counters-{moment}.jsonl").write_text("".join(counted(node, moment) for node in nodes))
    (folder / "raw/monitor.csv").write_text("".join(sampled(node, SECONDS) for node in nodes))
    (folder / "raw/train.seconds").write_text(f"{SECONDS}\n")
    opening.close_run(folder, 0)
    return folder


def sampled(node: str, seconds: int) -> str:
    """What the sampler says of a node without GPUs, once a second."""
    line = "{},{}.000,1.0,1.00,0,0,,,,0.10,,\n"
    return "".join(label(node) + line.format(node, 1_795_400_000 + second) for second in range(seconds))


def counted(node: str, moment: str) -> str:
    """The counters of a node on which nothing happened."""
    common = {"probe": "counters", "at": node, "unit": "count"}
    counters = {"ue_count": "mc0", "ce_count": "mc0"}
    counters |= dict.fromkeys(("xid", "rdma_ports", "tcp_segments", "tcp_segments_again"), "")
    lines: list[dict[str, object]] = [
        common | {"subject": f"{node}/{device}".strip("/"), "quantity": f"load.counter.{moment}.{name}", "value": 0}
        for name, device in counters.items()
    ]
    lines.append({"probe": "counters", "at": node, "end": len(lines)})
    return "".join(f"{label(node)}{json.dumps(line)}\n" for line in lines)


def label(node: str) -> str:
    """What srun puts before a line of a step with one task on each of the nodes n0, n1, …"""
    return f"{int(node.removeprefix('n'))}: "


def rank_said(folder, node, rank, *, checkpoint=None, **facts) -> None:
    """The rank's file with these facts, properly ended. checkpoint: damaged files, tensors that came back different."""
    common = {"probe": "train", "at": node, "subject": f"{node}/rank{rank}", "unit": "text"}
    lines = [
        common
        | {"quantity": f"train.rank.{name}", "value": value, "unit": "text" if isinstance(value, str) else "count"}
        for name, value in facts.items()
    ]
    for name, count in zip(("intact", "resumable"), checkpoint or (), strict=False):
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
        assert key in target or key in ("summary", "parameter_checksums_rehearsed", "ddp_bucket_cap_mb")
        target[key] = value
    path.write_text(json.dumps(data))


def change_speed(folder: Path, tokens_per_s: float) -> None:
    """The run was as fast as that, and all of its numbers say so."""
    metrics = json.loads((folder / "metrics.json").read_text())
    step_s, each = metrics["tokens_per_step"] / tokens_per_s, tokens_per_s / metrics["world_size"]
    change(
        folder,
        "metrics.json",
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_rank=each,
        steps_s=[step_s for _ in metrics["steps_s"]],
        steps_unix_s=[metrics["steps_unix_s"][0] + step_s * number for number in range(len(metrics["steps_unix_s"]))],
        tflops_per_rank=metrics["flops_per_token"] and metrics["flops_per_token"] * each / 1e12,
    )


def bad(folder: Path) -> dict[tuple[str, str], Verdict]:
    verdicts = judge.judge_folder(folder).verdicts.verdicts
    return {(v.gate, v.subject): v for v in verdicts if v.outcome is not Outcome.PASS}


# --- runs that did not finish

LOST = "RuntimeError: [unbound_buffer.cc:129] Timed out waiting 8000ms for send operation to complete"

# as faulthandler wrote it, paths shortened
STACK = """\
Timeout (0:00:04)!
Thread 0x00007f9197fff6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/srv/bringup/training/src/recipe/watch.py", line 84 in _look

Thread 0x00007f91cc073b80 (most recent call first):
  File "{file}", line {line} in {function}
  File "/srv/bringup/training/src/recipe/meter.py", line 77 in on_step_end
  File "/srv/bringup/training/src/train_fsdp_single_node.py", line 21 in <module>
"""
HUNG = {"file": "/srv/bringup/training/injected/rank_faults.py", "line": 96, "function": "after_step"}
WAITING: dict[str, object] = {"line": 4287, "function": "all_gather"}
WAITING["file"] = "/venv/lib/site-packages/torch/distributed/distributed_c10d.py"


def stalled(folder: Path, rank: int, stack: dict[str, object], entered: int | None) -> None:
    stacks = folder / "raw/stacks"
    stacks.mkdir(exist_ok=True)
    (stacks / f"rank{rank}.txt").write_text(STACK.format(**stack))
    if entered is not None:
        record = {"node": "n0", "rank": rank, "step": 3, "quiet_s": 4.1, "entered": entered, "last": "gloo:all_gather"}
        (stacks / f"rank{rank}.json").write_text(json.dumps(record))


def ended(tmp_path: Path, stem: str = "run_ddp_2node", *, silent: Iterable[int] = (), log: str | None = None) -> Path:
    """A run whose step ended with 1. silent: ranks without a word; log: what the launchers said."""
    folder = run_of(stem, tmp_path)
    for rank in silent:
        (folder / f"raw/rank{rank}.jsonl").write_text("")
    if log is not None:
        (folder / "raw/launch.log").write_text(log)
    (folder / "metrics.json").unlink()
    closed = folder / "closed.json"
    closed.write_text(closed.read_text().replace('"exit_code": 0', '"exit_code": 1'))
    return folder
