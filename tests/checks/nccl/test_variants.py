"""Ways that NCCL is told to go: what its log proves, from real lines and from the stand-in, down to the verdict."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bringup import judge
from bringup.cli import for_scripts
from bringup.evidence import nccl_variant
from bringup.evidence.curve import curves
from bringup.evidence.reading import read_raw
from bringup.plan import profile
from bringup.plan.subjects import scale_of_file
from bringup.plan.variants import LOG, VARIANTS
from bringup.records import Outcome, Verdict
from factory import a_run
from runs_for_tests import FIXTURES
from showing import shows_failing
from simulated_tools import STAND_INS, on_path

LOGS = FIXTURES / "nccl"
GPUS = 8
NAMES = [variant.name for variant in VARIANTS]
ALL_RANKS = """
import os, sys, nccl_tests
sys.argv = sys.argv[1:]
for rank in range(int(os.environ["SLURM_NTASKS"])):
    process = os.fork()
    if not process:
        os.environ["SLURM_PROCID"] = str(rank)
        nccl_tests.main()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(process, 0)
"""


def effect(variant: str, *logs: str, ranks: int | None = None) -> tuple[object, str]:
    """(value, why) of what the log of one rank each proves."""
    files = {f"nccl.n0.{number}.log": text for number, text in enumerate(logs)}
    parsed = nccl_variant.parse(files, "raw/variant_x-1", "1-node", variant, len(logs) if ranks is None else ranks)
    (effect_observed,) = parsed.observations
    return effect_observed.value, effect_observed.why or ""


def played(place: Path, variant: str, nodes: int = 1, **state: str) -> Path:
    """The folder of a run in which every rank of the stand-in was started as the phase script starts it."""
    stem = place / f"run/raw/variant_{variant}-{nodes}"
    stem.mkdir(parents=True)
    settings = LOG | next(each.settings for each in VARIANTS if each.name == variant)
    settings["NCCL_DEBUG_FILE"] = f"{stem}/nccl.%h.%p.log"
    (place / "bin").mkdir()
    scontrol = place / "bin/scontrol"
    scontrol.write_text('#!/bin/bash\nprintf "%s\\n" ${3//,/ }\n')
    scontrol.chmod(0o755)
    environment = on_path(place, **state) | settings
    environment["PATH"] = f"{scontrol.parent}:{environment['PATH']}"
    environment["SLURM_STEP_NODELIST"] = ",".join(f"n{number}" for number in range(nodes))
    environment["SLURM_NTASKS"] = str(nodes * GPUS)
    arguments = ["all_reduce_perf", "-b", "8K", "-e", "1G", "-f", "131072", "-g", "1"]
    table = subprocess.run(
        [sys.executable, "-c", ALL_RANKS, *arguments],
        env=environment | {"PYTHONPATH": str(STAND_INS.parent)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    Path(f"{stem}.txt").write_text(table)
    return place / "run"


def judged(folder: Path, nodes: int = 1) -> dict[str, Verdict]:
    """Gate -> verdict about that many nodes."""
    run = a_run("nccl_scaling", [f"n{n}" for n in range(nodes)], gpus=GPUS, profile="h100-8x400g")
    parsed = read_raw(folder, run)
    verdicts = judge.judge(run, profile.load("h100-8x400g"), parsed).verdicts
    return {
        verdict.gate: verdict
        for verdict in verdicts
        if "variant" in verdict.gate and verdict.subject == scale_of_file(str(nodes))
    }


# --- what a log proves


def test_real_logs_of_the_usual_ways_prove_no_variant() -> None:
    one_node, over_ib = ((LOGS / name).read_text() for name in ("log-one-node.log", "log-ib-gdr.log"))
    assert effect("nvls_off", over_ib)[0] is False
    assert effect("nic", over_ib)[0] is False
    assert effect("nvlink", one_node)[0] is False  # there are channels over shared memory
    assert effect("nvls_off", one_node) == (True, "0 nvls channels")
    value, why = effect("ring", over_ib)
    assert value is None
    assert "does not say which algorithm" in why


@pytest.mark.parametrize(
    "line",
    [
        "h:1:1 [0] NCCL INFO 8589934592 Bytes -> Algo 1 proto 2 time 86069.968750",
        "h:1:1 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo 1 proto 0 time 17.1",
        "h:1:1 [0] NCCL INFO AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}",
    ],
)
def test_the_algorithm_is_read_from_each_form_of_the_line(line: str) -> None:
    assert effect("ring", line) == (True, "all_reduce took RING 1 times")
    other = line.replace("Algo 1 ", "Algo 4 ").replace("RING", "NVLS")
    assert effect("ring", f"{line}\n{other}") == (False, "all_reduce took NVLS 1 times, RING 1 times")


def test_the_algorithm_of_another_collective_says_nothing() -> None:
    assert effect("ring", "h:1:1 [0] NCCL INFO AllGather: 8192 Bytes -> Algo RING proto LL channel")[0] is None


def test_p2p_that_was_not_limited_to_nvlink_proves_no_nvlink() -> None:
    channel = "h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
    assert effect("nvlink", channel)[0] is None
    assert effect("nvlink", f"h:1:1 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to NVL\n{channel}")[0] is True
    assert effect("nvlink", f"h:1:1 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to SYS\n{channel}")[0] is None


def test_a_rank_without_a_log_may_have_gone_another_way() -> None:
    value, why = effect("nvls_off", "h:1:1 [0] NCCL INFO 16 coll channels, 0 nvls channels", ranks=8)
    assert (value, why) == (None, "1 of 8 ranks left a log in raw/variant_x-1")


# --- from the stand-in to the verdict


@pytest.mark.parametrize(("variant", "nodes"), [*((name, 1) for name in NAMES), *((name, 2) for name in NAMES[1:])])
def test_a_variant_that_took_effect_and_is_fast_passes(tmp_path: Path, variant: str, nodes: int) -> None:
    by_subject = judged(played(tmp_path / "a place", variant, nodes), nodes)
    for what in ("effect", "busbw"):
        verdict = by_subject[f"nccl.variant.{variant}.{what}"]
        assert verdict.outcome is Outcome.PASS, verdict


@shows_failing(*(f"nccl.variant.{name}.effect" for name in NAMES))
def test_a_variant_without_effect_is_said_and_its_speed_not_judged(tmp_path: Path) -> None:
    for number, (variant, state, says) in enumerate(
        (
            ("nvlink", {"nccl_nvlink": "broken", "nccl_shm": "ignored"}, "via SHM/direct"),
            ("nic", {"nccl_p2p": "ignored"}, "via P2P/CUMEM"),
            ("nic", {"nccl_net": "Socket"}, "which is TCP"),
            ("ring", {"nccl_ring": "ignored"}, "all_reduce took NVLS 2 times"),
            ("nvls_off", {"nccl_nvls": "ignored"}, "16 nvls channels"),
        )
    ):
        by_subject = judged(played(tmp_path / f"a place {number}", variant, **state))
        verdict = by_subject[f"nccl.variant.{variant}.effect"]
        assert verdict.outcome is Outcome.FAIL, verdict
        assert says in verdict.observed
        assert by_subject[f"nccl.variant.{variant}.busbw"].outcome is Outcome.INCOMPLETE


def test_where_there_is_no_nvlink_the_step_ends_and_the_log_shows_no_way(tmp_path: Path) -> None:
    verdict = judged(played(tmp_path, "nvlink", nccl_nvlink="broken"))["nccl.variant.nvlink.effect"]
    assert verdict.outcome is Outcome.INCOMPLETE
    assert "the log shows no channel" in (verdict.cause or "")


def test_a_node_whose_nvlinks_are_used_by_some_ranks_only_fails() -> None:
    nvlink = "h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
    shared = "h:1:2 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[2] via SHM/direct/direct"
    assert effect("nvlink", nvlink, shared) == (False, "1 channels via P2P/CUMEM, 1 channels via SHM/direct")


@shows_failing(*(f"nccl.variant.{name}.busbw" for name in NAMES))
def test_a_slow_way_fails_where_it_was_really_taken(tmp_path: Path) -> None:
    for variant in NAMES:
        by_subject = judged(played(tmp_path / f"a place {variant}", variant, nccl_speed="0.5"))
        assert by_subject[f"nccl.variant.{variant}.effect"].outcome is Outcome.PASS
        speed = by_subject[f"nccl.variant.{variant}.busbw"]
        assert speed.outcome is Outcome.FAIL
        assert "GB/s" in speed.observed


def test_what_a_variant_measured_is_no_part_of_the_usual_curve(tmp_path: Path) -> None:
    run = a_run("nccl_scaling", ["n0"], gpus=GPUS, profile="h100-8x400g")
    parsed = read_raw(played(tmp_path / "a place", "ring"), run)
    assert [
        observation for observation in parsed.observations if observation.quantity == "nccl.variant.ring.busbw@1GiB"
    ]
    assert curves(parsed.observations) == {}


def test_wrong_values_leave_a_speed_unknown(tmp_path: Path) -> None:
    speed = judged(played(tmp_path / "a place", "ring", nccl_wrong="3"))["nccl.variant.ring.busbw"]
    assert speed.outcome is Outcome.INCOMPLETE
    assert "nccl.wrong_values" in (speed.cause or "")


def test_without_any_log_a_variant_is_incomplete(tmp_path: Path) -> None:
    (tmp_path / "raw/variant_ring-1").mkdir(parents=True)
    verdict = judged(tmp_path)["nccl.variant.ring.effect"]
    assert verdict.outcome is Outcome.INCOMPLETE
    assert "0 of 8 ranks left a log" in (verdict.cause or "")


# --- what the script is told


def test_the_script_is_told_variants_of_one_node_and_two_with_their_variables(capsys) -> None:
    class Arguments:
        nodes, gpus_per_node = "n[0-3]", GPUS

    for_scripts.do_variants(Arguments)  # type: ignore[arg-type]
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [(line[0], line[2], line[5]) for line in lines] == [
        *((name, "1-node", "n0") for name in NAMES),
        *((name, "2-nodes", "n0,n1") for name in NAMES if name != "nvlink"),
    ]
    assert all("NCCL_DEBUG=INFO" in line for line in lines)
    assert "NCCL_ALGO=Ring" in next(line for line in lines if line[0] == "ring")
    assert os.environ.get("NCCL_ALGO") is None
