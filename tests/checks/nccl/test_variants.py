"""Ways that NCCL is told to go: what its log proves, from real lines and from the stand-in, down to the verdict."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from bringup.cli import for_scripts
from bringup.evidence import nccl_variant
from bringup.evidence.curve import curves
from bringup.evidence.parsed import Parsed
from bringup.evidence.reading import read_raw
from bringup.plan.subjects import scale_of_file
from bringup.plan.variants import LOG, VARIANTS
from bringup.records import Outcome, Verdict
from factory import a_run
from loops import for_each
from programs import program
from runs_for_tests import FAIL, FIXTURES, H100, OPEN, PASS, in_words, judged
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


def played(place: Path, variant: str, nodes: int = 1, **state: str) -> Parsed:
    """The evidence of a run in which every rank of the stand-in was started as the phase script starts it."""
    stem = place / f"run/raw/variant_{variant}-{nodes}"
    stem.mkdir(parents=True)
    settings = LOG | next(each.settings for each in VARIANTS if each.name == variant)
    scontrol = program(place / "bin/scontrol", 'printf "%s\\n" ${3//,/ }')
    environment = on_path(place, **state) | settings
    environment |= {
        "NCCL_DEBUG_FILE": f"{stem}/nccl.%h.%p.log",
        "PATH": f"{scontrol.parent}:{environment['PATH']}",
        "PYTHONPATH": str(STAND_INS.parent),
        "SLURM_STEP_NODELIST": ",".join(f"n{number}" for number in range(nodes)),
        "SLURM_NTASKS": str(nodes * GPUS),
    }
    arguments = ["all_reduce_perf", "-b", "8K", "-e", "1G", "-f", "131072", "-g", "1"]
    command = [sys.executable, "-c", ALL_RANKS, *arguments]
    table = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    Path(f"{stem}.txt").write_text(table)
    return read(place / "run", nodes)


def read(folder: Path, nodes: int = 1) -> Parsed:
    return read_raw(folder, a_run("nccl_scaling", [f"n{n}" for n in range(nodes)], gpus=GPUS, profile=H100))


def of_variant(parsed: Parsed, variant: str, nodes: int = 1) -> tuple[Verdict, Verdict]:
    """Its effect and its speed at that many nodes."""
    by_gate = judged(parsed, "nccl_scaling", [f"n{n}" for n in range(nodes)], gpus=GPUS)
    effect, speed = (
        by_gate[f"nccl.variant.{variant}.{what} {scale_of_file(str(nodes))}"] for what in ("effect", "busbw")
    )
    return effect, speed


# --- what a log proves

INFO = "h:1:1 [0] NCCL INFO "
LINES = (
    f"{INFO}8589934592 Bytes -> Algo 1 proto 2 time 86069.968750",
    f"{INFO}AllReduce: 8192 Bytes -> Algo 1 proto 0 time 17.1",
    f"{INFO}AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..15}}",
)
NVLINK, SHARED = (
    f"{INFO}Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    f"{INFO}Channel 00/0 : 1[1] -> 2[2] via SHM/direct/direct",
)
LEVEL = f"{INFO}NCCL_P2P_LEVEL set by environment to {{}}\n{NVLINK}"
ONE_NODE, OVER_IB = ((LOGS / name).read_text() for name in ("log-one-node.log", "log-ib-gdr.log"))


@for_each(
    ("variant", "logs", "value", "why"),
    [
        # real logs of the usual ways prove no variant
        ("nvls_off", [OVER_IB], False, ""),
        ("nic", [OVER_IB], False, ""),
        ("nvlink", [ONE_NODE], False, ""),  # there are channels over shared memory
        ("nvls_off", [ONE_NODE], True, "0 nvls channels"),
        ("ring", [OVER_IB], None, "does not say which algorithm"),
        *(("ring", [line], True, "all_reduce took RING 1 times") for line in LINES),
        *(
            (
                "ring",
                [f"{line}\n{line.replace('Algo 1 ', 'Algo 4 ').replace('RING', 'NVLS')}"],
                False,
                "all_reduce took NVLS 1 times, RING 1 times",
            )
            for line in LINES
        ),
        # the algorithm of another collective says nothing
        ("ring", [f"{INFO}AllGather: 8192 Bytes -> Algo RING proto LL channel"], None, ""),
        # P2P that was not limited to NVLink proves no NVLink
        ("nvlink", [NVLINK], None, ""),
        ("nvlink", [LEVEL.format("NVL")], True, ""),
        ("nvlink", [LEVEL.format("SYS")], None, ""),
        # some ranks only
        ("nvlink", [NVLINK, SHARED], False, "1 channels via P2P/CUMEM, 1 channels via SHM/direct"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_what_the_log_of_each_rank_proves(variant, logs, value, why) -> None:
    proved = effect(variant, *logs)
    assert proved[0] is value
    assert why in proved[1]


def test_a_rank_without_a_log_may_have_gone_another_way(tmp_path: Path) -> None:
    proved = effect("nvls_off", f"{INFO}16 coll channels, 0 nvls channels", ranks=8)
    assert proved == (None, "1 of 8 ranks left a log in raw/variant_x-1")
    (tmp_path / "raw/variant_ring-1").mkdir(parents=True)
    outcome, cause = in_words(of_variant(read(tmp_path), "ring")[0])
    assert outcome is OPEN
    assert "0 of 8 ranks left a log" in cause


# --- from the stand-in to the verdict


@pytest.mark.parametrize(("variant", "nodes"), [*((name, 1) for name in NAMES), *((name, 2) for name in NAMES[1:])])
def test_a_variant_that_took_effect_and_is_fast_passes(tmp_path: Path, variant: str, nodes: int) -> None:
    parsed = played(tmp_path / "a place", variant, nodes)
    assert curves(parsed.observations) == {}  # it is no part of the usual curve
    assert any(seen.quantity == f"nccl.variant.{variant}.busbw@1GiB" for seen in parsed.observations)
    assert [verdict.outcome for verdict in of_variant(parsed, variant, nodes)] == [PASS, PASS]


SICK: list[
    tuple[str, dict[str, str], Outcome, Outcome, str]
] = [  # a variant, what is wrong: its effect, its speed, why
    ("nvlink", {"nccl_nvlink": "broken", "nccl_shm": "ignored"}, FAIL, OPEN, "via SHM/direct"),
    ("nvlink", {"nccl_nvlink": "broken"}, OPEN, OPEN, "the log shows no channel"),  # the step ends
    ("nic", {"nccl_p2p": "ignored"}, FAIL, OPEN, "via P2P/CUMEM"),
    ("nic", {"nccl_net": "Socket"}, FAIL, OPEN, "which is TCP"),
    ("ring", {"nccl_ring": "ignored"}, FAIL, OPEN, "all_reduce took NVLS 2 times"),
    ("nvls_off", {"nccl_nvls": "ignored"}, FAIL, OPEN, "16 nvls channels"),
    *((name, {"nccl_speed": "0.5"}, PASS, FAIL, "GB/s") for name in NAMES),
    ("ring", {"nccl_wrong": "3"}, PASS, OPEN, "nccl.wrong_values"),
]


@shows_failing(*(f"nccl.variant.{name}.{what}" for name in NAMES for what in ("effect", "busbw")))
def test_a_variant_without_effect_fails_its_speed_is_not_judged_and_a_slow_way_fails(tmp_path: Path) -> None:
    for number, (variant, state, *outcomes, words) in enumerate(SICK):
        effect, speed = of_variant(played(tmp_path / f"a place {number}", variant, **state), variant)
        assert [effect.outcome, speed.outcome] == outcomes, (variant, state)
        assert words in in_words(speed if effect.outcome is PASS else effect)[1]


# --- what the script is told


def test_the_script_is_told_variants_of_one_node_and_two_with_their_variables(capsys) -> None:
    for_scripts.do_variants(SimpleNamespace(nodes="n[0-3]", gpus_per_node=GPUS))  # type: ignore[arg-type]
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [(line[0], line[2], line[5]) for line in lines] == [
        *((name, "1-node", "n0") for name in NAMES),
        *((name, "2-nodes", "n0,n1") for name in NAMES if name != "nvlink"),
    ]
    assert all("NCCL_DEBUG=INFO" in line for line in lines)
    assert "NCCL_ALGO=Ring" in next(line for line in lines if line[0] == "ring")
    assert os.environ.get("NCCL_ALGO") is None
