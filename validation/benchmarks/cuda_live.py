#!/usr/bin/env python3
"""What takes a cluster of simulated GPU nodes with CUDA, and too long for `make test`. Each part has one of its own.

cuda_live.py requeue PHASE [NODES]   # a stopped and requeued job has the losses of an unstopped one
cuda_live.py numa                    # ranks bind themselves to the CPUs at their GPU's NUMA node
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests/cluster")]

from harness import CHECKOUT, Cluster, running_cluster, wait_until  # noqa: E402
from playbook import playbook  # noqa: E402
from requeued import goes_on_where_it_was  # noqa: E402

PATIENCE_S = 600
# as many NUMA nodes as there are CPUs here, two at least: one CPU at each
TOPOLOGY = """
    cd /sys/devices/system; mapfile -t cpus < <(seq 0 $(($(nproc --all) - 1)))
    mount -t tmpfs tmpfs node
    for cpu in "${cpus[@]}"; do mkdir "node/node$cpu"; echo "$cpu" >"node/node$cpu/cpulist"; done
"""


def with_cuda(nodes: int) -> tuple[str, ...]:
    return ("--nodes", str(nodes), "--gpus", "2", "--simulate", "h100", "--cuda")


def requeue(phase: str, nodes: int) -> str:
    with running_cluster(*with_cuda(nodes)) as cluster, playbook(cluster) as book:
        step = goes_on_where_it_was(cluster, book, phase, nodes, PATIENCE_S)
    return (
        f"{phase} on {nodes} node(s): stopped after step {step}, requeued, the losses of an unstopped job bit for bit"
    )


def numa() -> str:
    with running_cluster(*with_cuda(1)) as cluster, playbook(cluster) as book:
        made = cluster.on("n0", "bash", "-euc", TOPOLOGY)
        assert made.returncode == 0, made.stderr
        for gpu in ("0", "1"):
            assert cluster.run("gpu", "n0", gpu, f"numa={gpu}").returncode == 0
        bound = {rank: facts for rank, facts in enumerate(placed(cluster, book.name))}
    for rank, facts in bound.items():
        assert facts["train.rank.numa_bound"], (rank, facts)  # of several nodes, so to the one of its GPU
        assert facts["train.cpu.near_gpu"] == 1.0, (rank, facts)
    return f"{len(bound)} ranks bound themselves, each to the CPUs at the NUMA node of its GPU"


def placed(cluster: Cluster, name: str) -> list[dict[str, object]]:
    """What each rank of a training on one node told of its place."""
    command = ("sbatch", "--parsable", "training/slurm/run_ddp_1node.sbatch", "--steps", "4", "--profiled-steps", "0")
    done = cluster.sh(*command, env={"BRINGUP_RUN_NAME": name})
    assert done.returncode == 0, done.stderr
    folder = CHECKOUT / f"training/results/run_ddp_1node-{name}"
    wait_until((folder / "closed.json").exists, "the training is closed", timeout=PATIENCE_S)
    cluster.wait_idle()
    for log in CHECKOUT.glob(f"slurm-logs/run_ddp_1node-{done.stdout.strip()}*.out"):
        log.unlink()
    facts_of_ranks = [map(json.loads, (folder / f"raw/rank{rank}.jsonl").read_text().splitlines()) for rank in (0, 1)]
    return [{fact["quantity"]: fact.get("value") for fact in facts if "quantity" in fact} for facts in facts_of_ranks]


def main(words: list[str]) -> int:
    match words:
        case ["requeue", phase]:
            print(requeue(phase, 1))
        case ["requeue", phase, nodes]:
            print(requeue(phase, int(nodes)))
        case ["numa"]:
            print(numa())
        case _:
            sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
