"""Where the bandwidth goes: with one layer slowed at a time, that layer is named, and no other one."""

import json

import predictors
import pytest
from bringup.report import layers
from factory import a_run, a_verdict, judged_of, observed, records_in
from loops import for_each
from programs import ROOT
from runs_for_tests import PASS

PORTS, GBPS = 8, 400
NODES = ("n0", "n1")
RUNS = ROOT / "docs/results/local"


def ports(one_by_one: float = 390, together: float = 0.97, slow: float | None = None):
    """Facts of rails between two nodes; slow: Gb/s of one port of n1 towards n0."""
    facts = []
    for port in range(PORTS):
        facts += [observed(f"rail.rate@mlx5_{port}:1", node, GBPS, "Gb/s") for node in NODES]
        for way in ("n0->n1", "n1->n0"):
            is_slow = slow is not None and (port, way) == (3, "n1->n0")
            facts.append(observed(f"rail.bandwidth@mlx5_{port}:1", way, slow if is_slow else one_by_one, "Gb/s"))
        facts.append(observed(f"rail.together@mlx5_{port}:1", "n0->n1", together, "share"))
    return facts


def runs(facts=(), pair: float = 370.0, scale: float = 360.0, step: float = 150.0, late: float = 1.0):
    """Pairs, collectives on 2 nodes with a curve, and a recorded training whose busbw is `step`. late: of rank 2."""
    slowest = a_verdict("nccl.pair.slowest", "job", PASS, "", value=pair)
    pairs = judged_of(slowest, run=a_run("nccl_pairwise", NODES, plan={}), observations=tuple(facts))
    curve = [("64KiB", scale / 50), ("64MiB", scale)]
    collectives = judged_of(
        a_verdict("nccl.all_reduce.busbw", "2-nodes", PASS, "", value=scale),
        run=a_run("nccl_scaling", NODES, plan={}),
        observations=tuple(observed(f"nccl.all_reduce.busbw@{size}", "2-nodes", busbw) for size, busbw in curve),
    )
    return [pairs, collectives, training(step, late)]


@pytest.fixture(autouse=True)
def folder_of_a_training(tmp_path):
    training.folder = tmp_path


def training(busbw: float, late: float):
    """The recorded DDP on two nodes, whose gradients went at this bandwidth, in messages of 32 MiB."""
    metrics = json.loads((RUNS / "run_ddp_2node/metrics.json").read_text())
    metrics["communication"]["total_s"] = [late, late, 1.0, late]
    for collective in metrics["communication"]["collectives"]:
        collective |= {"busbw_gb_per_s": busbw, "message_bytes": 32 * 2**20}
    (training.folder / "metrics.json").write_text(json.dumps(metrics))
    (training.folder / "run_args.json").write_text((RUNS / "run_ddp_2node/run_args.json").read_text())
    records = records_in(training.folder)
    assert records.are_whole, records.problems
    return judged_of(run=a_run("run_ddp_2node", NODES, plan={}), training=records)


ALONE = "the slowest port alone, times their number. It has"
ALL_AT_ONCE = "the same while all ports work. It has"


@for_each(
    ({}, {"step": 340.0}, "No layer keeps less than 80 % of the one above it."),
    ({"slow": 40, "together": 0.1}, {"pair": 39, "scale": 38, "step": 35}, f"{ALONE} 40 … at mlx5_3:1 from n1: c"),
    (
        {"one_by_one": 200, "together": 0.49},
        {"pair": 190.0, "scale": 185.0, "step": 170.0},
        f"{ALONE} 200 of the 400 GB/s … Look at mlx5_0:1 from n0, mlx5_0:1 from n1, mlx5_1:1 from n0 and 13 more: c",
    ),
    ({"together": 0.5}, {"pair": 195.0, "scale": 190.0, "step": 170.0}, f"{ALL_AT_ONCE} 200 of … n0 and 5 more: PCIe"),
    ({}, {"pair": 13.0, "scale": 12.5, "step": 11.0}, "NCCL on the slowest pair of nodes. It has 13 of the 388 GB/s"),
    ({}, {"scale": 120.0, "step": 100.0}, "all_reduce on 2-nodes. It has 120 of the 370 GB/s"),
    ({}, {"step": 60.0}, "the same inside a step: DDP across nodes. It has 60 of the"),
    ({}, {"step": 340.0, "late": 3.0}, "ranks that come late. It has 136 of the 340 … Look at rank 2, for which"),
)
def test_the_layer_that_loses_most_is_named(facts, numbers, says):
    (between,) = layers.waterfalls(runs(ports(**facts), **numbers))
    assert all(part in between.says for part in says.split(" … ")), between.rows


def test_layers_that_were_not_measured_say_what_measures_them_and_ports_that_no_node_has_are_no_layer():
    by = "measured by: Pairs of nodes: which one, or which link, is slow"
    assert [row[1:] for row in layers.waterfalls(runs()[1:])[0].rows[:4]] == [("not measured", "", "", by)] * 4
    of_pair = layers.waterfalls(runs([fact for fact in ports() if "together" not in fact.quantity]))[0].layers[3]
    assert of_pair.kept == 370 / 390  # of the layer above that was measured
    no_port = layers.waterfalls(runs([observed("rail.ports", node, 0, "count") for node in NODES]))[0]
    assert next(row[0] for row in no_port.rows) == "NCCL on the slowest pair of nodes"
    assert layers.waterfalls(runs()[:1]) == []


def test_what_is_usual_stands_beside_a_share_alone_and_a_share_is_written_as_elsewhere():
    no_port = layers.waterfalls(runs([observed("rail.ports", node, 0, "count") for node in NODES]))[0].rows
    assert [row[2:4] for row in no_port[:2]] == [("", ""), ("97 %", "")]
    assert layers.waterfalls(runs(ports()))[0].rows[3][2:4] == ("95 %", layers.USUAL)


def test_usual_are_the_shares_of_the_published_results():
    rows = predictors.known("busbw", list[predictors.BusBandwidth])
    shares = [share for row in rows if (share := row.share())]
    assert (len(rows), round(min(shares), 2), round(max(shares), 2)) == (layers.PUBLISHED, layers.LITTLE, layers.MOST)
    assert layers.USUAL.startswith("80 to 101 %")


@for_each(0.0, -1.0, float("nan"), float("inf"))
def test_a_layer_above_that_carried_nothing_makes_no_other_layer_the_one_that_loses(pair):
    assert layers.waterfalls(runs(pair=pair)[:2]) == []
    [with_ports] = layers.waterfalls(runs(ports(), pair=0.0)[:2])
    assert "NCCL on the slowest pair of nodes. It has 0 of the 388 GB/s" in with_ports.says
