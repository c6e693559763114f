"""Which layer "where the bandwidth goes" names, with one layer of a local cluster slowed at a time.

    python validation/benchmarks/slowed_layers.py FILE [CASE…] >docs/results/layers.md      # some 10 minutes a case

FILE: a line of JSON for each case, added when it ends. The page shows all of them, so that a run can be continued.
Each of two nodes has two ports: interfaces of their own, on switches of their own, as fast as tc lets them be. The
stand-in for ib_write_bw sends over them, and what collectives send is dealt out to both, packet by packet, as NCCL uses
all NICs. Inside a node it is the loopback that tc limits. Run it as root, and before other work: nice -n -15.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import cases
from bringup.drill import environment as environments
from bringup.drill.catalogue import Shape
from bringup.drill.environment import LocalCluster
from bringup.drill.perform import INJECTED
from bringup.kernel import judge
from bringup.kernel import results as runs
from bringup.kernel.errors import DrillError
from bringup.kernel.plan.phases import PHASES
from bringup.report import layers, text
from bringup.run import open as opening

BETWEEN, ALONE = ("nccl_pairwise", "nccl_scaling", "run_ddp_2node"), ("node_sweep", "nccl_pairwise")
FOLDER = environments.RESULTS / "slowed-layers"  # all nodes see it
SHAPE = Shape(2, 2, simulate="h100")
PORTS, UNUSED = (1, 2), range(2, 8)  # mlx5_0 is eth1, mlx5_1 is eth2
MBIT, INSIDE_MBIT, SLOW_MBIT = 160, 1280, 40
# gradients of 13 MB and few tokens: the network is busy for most of a step
MODEL = """{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 512,
"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 2048,
"max_position_embeddings": 4096, "tie_word_embeddings": false, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
"""
ARGUMENTS = "--sequence-length 16 --global-batch 4 --steps 6 --no-rehearse-resume"
PROFILE = f"""schema_version: 1
name: ports-of-tc
description: the simulated H100 nodes of this benchmark, whose inside is the loopback
extends: simulated-h100
machine:
  nvlink_busbw: {{value: {INSIDE_MBIT / 16000}, source: half of what tc allows the loopback}}
"""
PORT, TOGETHER = "the slowest port alone, times their number", "the same while all ports work"
PAIR, STEP = "NCCL on the slowest pair of nodes", "the same with the wait for ranks that come late"
NODE = "all_reduce in the slowest node"


@dataclass(frozen=True)
class Case:
    """inject: verbs of the local cluster. between, inside: the layer that has to be named; None: no layer."""

    name: str
    about: str
    inject: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    between: str | None = None
    inside: str | None = None
    phases: tuple[str, ...] = BETWEEN
    shape: Shape = SHAPE


def shaped(node: str, interface: str, mbit: int) -> str:
    return f"on {node} tc qdisc replace dev {interface} root tbf rate {mbit}mbit burst 512kb latency 50ms"


SHARED = (  # n1 sends no more than this to other nodes, over whichever port
    "on n1 nft 'table inet slowed { chain out { type filter hook output priority 0; "
    "ip daddr { 10.77.1.10, 10.77.2.10, 10.77.3.10 } limit rate over 10 mbytes/second burst 256 kbytes drop; }; }'"
)
CASES = (
    Case("healthy", "nothing", phases=("node_sweep", *BETWEEN)),
    Case("one-port", f"one port of n1: {SLOW_MBIT} Mbit/s", (shaped("n1", "eth1", SLOW_MBIT),), between=PORT),
    Case(
        "all-ports",
        f"each port of n1: {SLOW_MBIT} Mbit/s",
        tuple(shaped("n1", f"eth{port}", SLOW_MBIT) for port in PORTS),
        between=PORT,
    ),
    Case("ports-together", "all ports of n1 together: 10 MB/s", (SHARED,), between=TOGETHER),
    Case("inside", "loopback of n1: 160 Mbit/s", (shaped("n1", "lo", 160),), between=PAIR, inside=NODE, phases=ALONE),
    Case("cpu", "all that n1 runs has 4 % of a core", ("throttle n1 4",), between=PAIR, inside=NODE, phases=ALONE),
    Case(
        "slow-rank",
        "rank 1 of the training waits 0.5 s in each block",
        environment={"BRINGUP_DRILL": "slow-rank:1", "BRINGUP_DRILL_SIZE": "0.5", "PYTHONPATH": str(INJECTED)},
        between=STEP,
    ),
)


@dataclass
class Score:
    case: str
    named: dict[str, list[str]]  # title of a waterfall -> the layer that it names, what that keeps, and the owner
    rows: dict[str, list[list[str]]]
    load: float


def lay_ports(cluster: LocalCluster) -> None:
    """Give each node its ports, deal out to them what it sends to other nodes, and tell the stand-in of perftest."""
    made: list[str] = [f"sh bash -c 'ip link add br{port} type bridge && ip link set br{port} up'" for port in PORTS]
    for number, node in enumerate(SHAPE.names):
        for port in PORTS:
            cable, mac = f"p{port}{node}", f"02:00:00:00:00:{number:02x}"  # of eth0, whose packets it carries
            made += [
                f"sh ip link add {cable} type veth peer name q{cable} address {mac}",
                f"sh ip link set {cable} master br{port} up",
                f"""sh bash -c 'read -r pid _ <"$BRINGUP_CLUSTER/run/{node}" &&"""
                f" ip link set q{cable} netns $pid name eth{port}'",
                f"on {node} ip addr add 10.77.{port + 1}.{10 + number}/24 dev eth{port}",
                f"on {node} ip link set eth{port} up",
                f"on {node} bash -c 'echo 0 >/proc/sys/net/ipv4/conf/eth{port}/rp_filter'",
                f"port {node} mlx5_{port - 1} 'rate={MBIT / 1000:g} Gb/sec (1X)'",
                f"gpu {node} rail.mlx5_{port - 1}.interface=eth{port}",
                shaped(node, f"eth{port}", MBIT),
            ]
        dealt = "ip daddr 10.77.1.0/24 fwd to numgen inc mod 2 map { 0 : eth1, 1 : eth2 };"
        rules = f"table netdev ports {{ chain out {{ type filter hook egress device eth0 priority 0; {dealt} }}; }}"
        made += [f"port {node} mlx5_{unused} down" for unused in UNUSED]
        made += [f"on {node} bash -c 'echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter'", f"on {node} nft '{rules}'"]
        made.append(shaped(node, "lo", INSIDE_MBIT))
    cluster.make(tuple(tuple(shlex.split(words)) for words in made))


def perform(case: Case, cluster: LocalCluster) -> Score:
    """Run the phases that measure a layer, each by itself: none waits for what another one finds."""
    cluster.end()
    cluster.start()
    lay_ports(cluster)
    shutil.rmtree(FOLDER / case.name, ignore_errors=True)
    (FOLDER / case.name).mkdir(parents=True)
    (FOLDER / "profile.yaml").write_text(PROFILE)
    (FOLDER / "model.json").write_text(MODEL)
    name = f"{opening.default_name()}-{case.name}"
    environment = {
        "BRINGUP_RUN_NAME": name,
        "BRINGUP_PAIR_REPEATS": "1",
        "BRINGUP_PROFILE": str(FOLDER / "profile.yaml"),
        "BRINGUP_TRAIN_ARGS": f"--model {FOLDER / 'model.json'} {ARGUMENTS}",
    }
    cluster.make(tuple(tuple(shlex.split(words)) for words in case.inject))
    load = os.getloadavg()[0]
    for phase in case.phases:
        more = dict(case.environment) if PHASES[phase].is_training else {}
        done = cluster.bringup("run", phase, environment=environment | more, phases=3)
        if not runs.attempts(PHASES[phase], name):
            raise DrillError(f"{phase} did not run: {environments.last_word(done)}")
        environments.keep(name, (phase,), FOLDER / case.name / phase)
    return scored(case, load)


def scored(case: Case, load: float) -> Score:
    folders = [seal.parent for seal in sorted((FOLDER / case.name).glob(f"*/*/{runs.CLOSED}"))]
    known = layers.waterfalls([judge.judge_folder(folder) for folder in folders])
    named = {each.title: each.worst[1] for each in known if each.worst is not None}
    return Score(
        case.name,
        {title: [layer.name, f"{100 * (layer.kept or 0):.0f} %", layer.owner] for title, layer in named.items()},
        {each.title: [list(row) for row in each.rows] for each in known},
        round(load, 1),
    )


ABOUT = f"""# Which layer is named

By `nice -n -15 python validation/benchmarks/slowed_layers.py FILE` on a local cluster: 2 nodes with 2 ports of
{MBIT} Mbit/s each, which carry what perftest's stand-in, collectives and training send. Right: *where the bandwidth
goes* names the slowed layer, or none. Two cores carry ports, nodes and ranks: under load a healthy rank or node alone
loses a fifth at times, and with less CPU ports and node cannot be distinguished.
"""
HEADER = ("slowed", "named between nodes", "named inside a node", "right", "load")


def page(scores: Mapping[str, Score]) -> str:
    rows = []
    for case in (case for case in CASES if case.name in scores):
        score = scores[case.name]
        worst = [score.named.get(title, []) for title in ("Between nodes", "Inside a node")]
        right = [named[:1] for named in worst] == [[layer] if layer else [] for layer in (case.between, case.inside)]
        words = ["{}, {}: {}".format(*named) if named else "none" for named in worst]
        rows.append((case.about, *words, "yes" if right else "no", str(score.load)))
    return "\n".join([ABOUT, *text.table(HEADER, rows)])


def main() -> None:
    results, names = Path(sys.argv[1]), sys.argv[2:]
    cases.perform_some([case for case in CASES if case.name in names or not names], results, perform)
    print(page(cases.read(results, Score)))


if __name__ == "__main__":
    main()
