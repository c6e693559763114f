"""Ways that NCCL is told to go: what its log proves, from real lines and from the stand-in, down to the verdict."""

import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import bench
import collectives
import progress
import pytest
from bringup.cli import for_scripts
from bringup.kernel.facts import facts as facts_file
from bringup.kernel.facts.observations import derive
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.facts.reading import read_raw
from bringup.kernel.plan.subjects import scale_of_file
from bringup.kernel.plan.variants import LOG, VARIANTS
from bringup.kernel.records import Verdict
from bringup.readers import nccl_variant
from bringup.readers.curve import curves
from factory import a_run, the_folder
from facts import Facts
from loops import for_each
from probing import told_by
from programs import STAND_INS, on_path, program
from runs_for_tests import FAIL, FIXTURES, H100, OPEN, PASS, Fact, as_read, in_words, judged, parsed_of
from showing import check, shows_failing

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
    return read_raw(the_folder(folder, a_run("nccl_scaling", [f"n{n}" for n in range(nodes)], gpus=GPUS, profile=H100)))


def of_variant(parsed: Parsed, variant: str, nodes: int = 1) -> tuple[Verdict, Verdict]:
    """Its effect and its speed at that many nodes."""
    by_gate = judged(parsed, "nccl_scaling", [f"n{n}" for n in range(nodes)], gpus=GPUS)
    of_gate, scale = f"nccl.variant.{variant}", scale_of_file(str(nodes))
    effect, speed = (by_gate[f"{of_gate}.{what} {scale}"] for what in ("effect", "busbw"))
    return effect, speed


# --- what a log proves

INFO = "h:1:1 [0] NCCL INFO "
LINES = (
    f"{INFO}8589934592 Bytes -> Algo 1 proto 2 time 86069.968750",
    f"{INFO}AllReduce: 8192 Bytes -> Algo 1 proto 0 time 17.1",
    f"{INFO}AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..15}}",
)
NVLINK = f"{INFO}Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
SHARED = f"{INFO}Channel 00/0 : 1[1] -> 2[2] via SHM/direct/direct"
OF_TWO = [f"{line}\n{line.replace('Algo 1 ', 'Algo 4 ').replace('RING', 'NVLS')}" for line in LINES]
LEVEL = f"{INFO}NCCL_P2P_LEVEL set by environment to {{}}\n{NVLINK}"
ONE_NODE, OVER_IB = ((FIXTURES / "nccl" / name).read_text() for name in ("log-one-node.log", "log-ib-gdr.log"))


@for_each(
    # real logs of the usual ways prove no variant
    ("nvls_off", [OVER_IB], False, ""),
    ("nic", [OVER_IB], False, ""),
    ("nvlink", [ONE_NODE], False, ""),  # there are channels over shared memory
    ("nvls_off", [ONE_NODE], True, "0 nvls channels"),
    ("ring", [OVER_IB], None, "does not say which algorithm"),
    *(("ring", [line], True, "all_reduce took RING 1 times") for line in LINES),
    *(("ring", [both], False, "all_reduce took NVLS 1 times, RING 1 times") for both in OF_TWO),
    # the algorithm of another collective says nothing
    ("ring", [f"{INFO}AllGather: 8192 Bytes -> Algo RING proto LL channel"], None, ""),
    # P2P that was not limited to NVLink proves no NVLink
    ("nvlink", [NVLINK], None, ""),
    ("nvlink", [LEVEL.format("NVL")], True, ""),
    ("nvlink", [LEVEL.format("SYS")], None, ""),
    # some ranks only
    ("nvlink", [NVLINK, SHARED], False, "1 channels via P2P/CUMEM, 1 channels via SHM/direct"),
    ids=lambda value: str(value)[-40:],
)
def test_what_the_log_of_each_rank_proves(variant, logs, value, why):
    proved = effect(variant, *logs)
    assert proved[0] is value
    assert why in proved[1]


def test_a_rank_without_a_log_may_have_gone_another_way(tmp_path):
    proved = effect("nvls_off", f"{INFO}16 coll channels, 0 nvls channels", ranks=8)
    assert proved == (None, "1 of 8 ranks left a log in raw/variant_x-1")
    (tmp_path / "raw/variant_ring-1").mkdir(parents=True)
    check(of_variant(read(tmp_path), "ring")[0], OPEN, "0 of 8 ranks left a log")


# --- from the stand-in to the verdict


@pytest.mark.parametrize(("variant", "nodes"), [*((name, 1) for name in NAMES), *((name, 2) for name in NAMES[1:])])
def test_a_variant_that_took_effect_and_is_fast_passes(tmp_path, variant, nodes):
    parsed = played(tmp_path / "a place", variant, nodes)
    assert curves(parsed.observations) == {}  # it is no part of the usual curve
    assert any(seen.quantity == f"nccl.variant.{variant}.busbw@1GiB" for seen in parsed.observations)
    assert [verdict.outcome for verdict in of_variant(parsed, variant, nodes)] == [PASS, PASS]


SICK = [  # a variant, what is wrong: its effect, its speed, why
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
def test_a_variant_without_effect_fails_its_speed_is_not_judged_and_a_slow_way_fails(tmp_path):
    for number, (variant, state, *outcomes, words) in enumerate(SICK):
        effect, speed = of_variant(played(tmp_path / f"a place {number}", variant, **state), variant)
        assert [effect.outcome, speed.outcome] == outcomes, (variant, state)
        assert words in in_words(speed if effect.outcome is PASS else effect)[1]


# --- what the script is told


def test_the_script_is_told_variants_of_one_node_and_two_with_their_variables(capsys):
    for_scripts.do_variants(SimpleNamespace(nodes="n[0-3]", gpus_per_node=GPUS))  # type: ignore[arg-type]
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    on_two = [(name, "2-nodes", "n0,n1") for name in NAMES if name != "nvlink"]
    assert [(line[0], line[2], line[5]) for line in lines] == [*((name, "1-node", "n0") for name in NAMES), *on_two]
    assert all("NCCL_DEBUG=INFO" in line for line in lines)
    assert "NCCL_ALGO=Ring" in next(line for line in lines if line[0] == "ring")
    assert os.environ.get("NCCL_ALGO") is None


# ---- a rank that hangs or stands still in the collectives is told from those that wait for it

GATES = ("nccl.rank.finished", "nccl.step", "nccl.stall", "nccl.rank.stall")
PLACES = ("n0/rank0", "n0/rank1", "n1/rank2", "n1/rank3")
IN = (90, 89, "in all_to_all@8KiB, at all_to_all_single (distributed_c10d.py:5060)")
BARRIER = (91, 90, "in the barrier before all_to_all@8KiB, at barrier (distributed_c10d.py:5313)")
OUTSIDE = "after the barrier before all_to_all@8KiB, at in_the_middle (faults.py:70)"
EARLY, AFTER = (89, 89, OUTSIDE), (90, 90, OUTSIDE)


def hung(*last_words: tuple[int, int, str] | None, code: int = 1) -> list[Fact]:
    """last_words: (entered, left, where) of each rank; None: nothing."""
    facts: list[Fact] = [("nccl.step.exit_code", "2-nodes", code, None, "raw/collectives-2.rc")]
    for number, (place, words) in enumerate(zip(PLACES, last_words, strict=True), start=1):
        where = f"raw/collectives-2.jsonl:{number}"
        if words is not None:
            facts.append(("nccl.rank.entered", place, words[0], words[2], where))
            facts.append(("nccl.rank.left", place, words[1], None, where))
    return facts


def finished(file: str, *places: str) -> list[Fact]:
    return [("nccl.rank.state", place, "finished", None, f"raw/{file}.jsonl:9") for place in places]


def unhealthy(facts: Parsed | list[Fact], phase: str = "nccl_monitoring") -> dict[str, Verdict]:
    """Subject -> verdict; the gate's name stands before that of another gate than of the ends."""
    parsed = as_read(facts if isinstance(facts, Parsed) else parsed_of(facts))
    by_gate = judged(parsed, phase, ("n0", "n1"), profile_name="local-cpu")
    bad = {which: v for which, v in by_gate.items() if v.gate in GATES and v.outcome is not PASS}
    return {v.subject if v.gate in GATES[:2] else which: v for which, v in bad.items()}


@for_each(
    ((IN, IN, EARLY, IN), {"n1/rank2": "hung"}),  # it never came to the collective
    ((IN, IN, IN, None), {"n1/rank3": "silent"}),
    ((IN, IN, None, None), {"n1/rank2": "silent", "n1/rank3": "silent"}),
    ((BARRIER, IN, IN, None), {"n1/rank3": "silent"}),  # others wait for it in an earlier collective
    # as in a ring, where the neighbours of the rank that hangs wait one collective before the others
    ((BARRIER, IN, AFTER, IN), {"n1/rank2": "hung"}),
    ((IN, IN, IN, IN), {}),
    ((IN, None, None, None), {}),  # their words were lost
)
def test_the_rank_that_hung_or_said_nothing_is_accused_and_nobody_who_waits(ranks, accused):
    by_subject = unhealthy(hung(*ranks))
    assert {place: v.value for place, v in by_subject.items() if place in PLACES and v.outcome is FAIL} == accused
    assert {by_subject[place].outcome for place in PLACES if place not in accused} <= {OPEN}


def test_the_words_of_those_that_waited_say_for_whom():
    by_subject = unhealthy(hung(IN, IN, EARLY, IN))
    assert "had entered 89 collectives, n0/rank0 90" in str(by_subject["n1/rank2"].cause)
    assert f"waited {IN[2]}; first n1/rank2 hung" in str(by_subject["n0/rank1"].cause)
    assert "first n1/rank2 hung: after the barrier before all_to_all@8KiB" in str(by_subject["2-nodes"].cause)
    silent = unhealthy(hung(IN, IN, IN, None))["n1/rank3"]
    assert "it said nothing, while 3 ranks waited: n0/rank0 in all_to_all@8KiB" in str(silent.cause)
    assert "no rank was behind the others" in str(unhealthy(hung(IN, IN, IN, IN))["n0/rank0"].cause)


def test_a_step_that_ended_early_leaves_the_end_of_its_ranks_open_and_a_late_rank_that_came_to_the_end_finished():
    by_subject = unhealthy(hung(None, None, None, None, code=3))
    assert {by_subject[place].outcome for place in PLACES} == {OPEN}
    assert "the step ended with exit code 3" in str(by_subject["n1/rank3"].cause)
    late = unhealthy([*hung(IN, IN, None, IN, code=0), *finished("collectives-2", *PLACES)])
    assert late.keys().isdisjoint({*PLACES, "2-nodes"})
    # the end at one number of nodes says nothing of another
    by_subject = unhealthy(finished("collectives-1", *PLACES[:2]), "nccl_scaling")
    assert {by_subject[place].outcome for place in PLACES} == {OPEN}


@for_each("soon", "0", "1", "-5", "86401", "1.5")
def test_a_patience_that_is_no_number_of_seconds_is_refused(monkeypatch, text):
    monkeypatch.setenv("BRINGUP_HANG_S", text)
    with pytest.raises(ValueError, match=f"BRINGUP_HANG_S={text}: expected seconds, from 2 to 86400"):
        progress.hang_s()
    monkeypatch.setenv("BRINGUP_START_S", "7")  # the patience at the start is another one
    monkeypatch.delenv("BRINGUP_HANG_S")
    assert progress.hang_s() == 120


def test_a_rank_says_what_it_had_entered_and_left_and_where_it_is(monkeypatch):
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    here = progress.Progress()
    here.enter("all_gather@1MiB")
    here.leave()
    here.enter("all_gather@1MiB")
    stream = io.StringIO()
    here.say("2-nodes", 3, Facts("progress", stream))
    entered, left = facts_file.parse(stream.getvalue(), "raw/collectives-2.jsonl").observations[:2]
    assert (entered.quantity, entered.subject, entered.value) == ("nccl.rank.entered", "n1/rank3", 2)
    assert str(entered.why).startswith("in all_gather@1MiB, at ")
    assert (left.quantity, left.value) == ("nccl.rank.left", 1)


def test_a_rank_that_hangs_in_a_pair_of_nodes_is_the_reason_why_the_link_was_not_measured():
    file, where = "raw/pairs-1-1-n0-n1.jsonl", "in all_reduce@1GiB, at run (bench.py:120)"
    facts: list[Fact] = [("nccl.quiet", "n0--n1", 60.2, None, f"{file}:1")]
    facts += [("nccl.rank.entered", place, 40, where, f"{file}:1") for place in PLACES[:3]]
    derived = derive(Seen(as_read(parsed_of(facts)).observations), a_run("nccl_pairwise"))
    (link,) = [observation for observation in derived.observations if observation.quantity == "nccl.pair.link"]
    assert (link.subject, link.value) == ("n0--n1", None)
    assert "first n1/rank3 silent: it said nothing, while 3 ranks waited" in str(link.why)
    assert any(note.startswith(f"{file}: n0--n1: first n1/rank3 silent") for note in derived.problems)


# ---- a pause in the middle of a collective: how long, in which one, and which rank stood still

MEMBERS = [("n0", 0, 11, "a"), ("n0", 1, 12, "b"), ("n1", 2, 13, "a"), ("n1", 3, 14, "b")]
BEATING = (0.0, None, None)
STOPPED = (20.01, "all_to_all@8KiB", 0.02)
EVEN = (0.0, "repetition 1 of broadcast@8KiB took 0.004 s, the median is 0.003 s")
LONG = bench.stall([0.004, 0.004, 20.02, 0.005, 0.004, 0.004, 0.004], "all_to_all@8KiB")


def stalled(standstills: list[tuple[float, str | None, float | None]], *stalls: tuple[float, str]) -> dict[str, str]:
    """`gate subject` -> what is said, of what does not pass."""
    parsed = told_by(lambda probe: collectives.say_stalls(probe, "2-nodes", MEMBERS, list(stalls), standstills))
    return {which: f"{v.observed} {v.cause}" for which, v in unhealthy(parsed).items() if v.gate.endswith(".stall")}


def test_the_longest_repetition_is_told_beyond_the_median_and_one_of_less_than_twice_it_is_no_stall():
    seconds, words = LONG
    assert round(seconds, 3) == 20.016
    assert words == "repetition 3 of all_to_all@8KiB took 20.02 s, the median is 0.004 s"
    assert bench.stall([10.0, 18.0, 10.0], "all_reduce@8GiB")[0] == 0.0


def test_the_rank_that_was_stopped_fails_and_those_that_waited_pass():
    words = stalled([BEATING, BEATING, STOPPED, BEATING], EVEN, LONG)
    assert words.keys() == {"nccl.stall 2-nodes", "nccl.rank.stall n1/rank2"}
    assert "all_to_all@8KiB took 20.02 s" in words["nccl.stall 2-nodes"]
    assert "n1/rank2 stood still" in words["nccl.stall 2-nodes"]
    assert "used 0.02 s of CPU: it was stopped, or got no core" in words["nccl.rank.stall n1/rank2"]
    nobody = stalled([BEATING] * 4, LONG, EVEN)
    assert nobody.keys() == {"nccl.stall 2-nodes"}
    assert "no rank stood still itself" in nobody["nccl.stall 2-nodes"]
    assert stalled([BEATING] * 4, EVEN, EVEN) == {}
