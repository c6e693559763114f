"""The sampler beside a training: how completely it looked, what it cost, and what GPUs did in the measured steps."""

from bringup.kernel import judge
from bringup.kernel.records import Verdict
from bringup.readers import monitor
from factory import a_run
from loops import case_for_each
from runs_for_tests import FAIL, OPEN, PASS, WARN, about, add_derived
from showing import check, shows_failing
from trained_runs import run_of

NODES = ("n0", "n1", "n2", "n3")
STEPS = {node: (100.0, 110.0) for node in NODES}


def node_line(node: str, at: float, own: float = 0.5) -> str:
    return f"0: {node},{at:.3f},1.0,1.00,0,0,,,,{own:.2f},,\n"


def gpu_line(node: str, at: float, uuid: str, percent: int = 99, mhz: int = 1900, slowed: str = "none") -> str:
    return (
        f"0: #gpu,{node},{at:.3f},{uuid},{percent},650,70,{mhz},{slowed},2619,0x4,61.20,{int(at)},0,{int(at) * 10},0\n"
    )


def watched(mhz: dict[str, int], percent: int = 99, first: int = 95, last: int = 112, slowed: str = "none") -> str:
    """Samples of two GPUs a node; mhz: of its second GPU while the steps are measured."""
    text = ""
    for node, clock in mhz.items():
        for at in range(first, last):
            text += node_line(node, at)
            text += gpu_line(node, at, f"GPU-{node}-a", percent)
            in_steps = 100 <= at <= 110
            text += gpu_line(node, at, f"GPU-{node}-b", percent, clock if in_steps else 300, slowed)
    return text


def verdict(text, gate, node, *, steps=STEPS, duration_s=17.0, gpus=2) -> Verdict:
    run = a_run("run_ddp_2node", list(NODES), profile="generic", gpus=gpus)
    parsed = monitor.parse(text, "raw/monitor.csv", duration_s, "train", steps)
    assert parsed.problems == []
    return about(gate, add_derived(parsed, run), run)[node]


HEALTHY = dict.fromkeys(NODES, 1900)


@case_for_each("train.monitor.overhead", "train.monitor.coverage", "train.monitor.slowdown", "train.gpu.clock")
def test_a_node_that_was_watched_and_whose_gpus_keep_their_clock_passes(gate):
    assert verdict(watched(HEALTHY), gate, "n1").outcome is PASS


@shows_failing("train.gpu.clock")
def test_a_gpu_far_below_the_clock_of_its_peers_warns_on_its_node_and_is_named():
    text = watched(HEALTHY | {"n1": 1200})
    judged_verdict = verdict(text, "train.gpu.clock", "n1")
    assert judged_verdict.outcome is WARN
    assert judged_verdict.observed == "0.632 (GPU-n1-b: 1200 MHz, the median of 8 devices is 1900)"
    assert verdict(text, "train.gpu.clock", "n0").outcome is PASS


def test_a_low_clock_outside_the_measured_steps_does_not_count():
    """GPU b has 300 MHz before and after them."""
    assert verdict(watched(HEALTHY), "train.gpu.clock", "n2").value == 1.0


@case_for_each(
    (watched(HEALTHY, percent=10), STEPS, "in no sample in the measured steps was it 50 % busy"),
    (watched(HEALTHY, last=102), STEPS, "in 2 samples in the measured steps was it 50 % busy, in fewer than 3"),
    (watched(HEALTHY), {}, "in no sample in the measured steps was it 50 % busy"),
)
def test_a_clock_that_was_not_seen_under_load_is_unknown(text, steps, says):
    check(verdict(text, "train.gpu.clock", "n0", steps=steps), OPEN, says)


def test_a_node_whose_gpus_were_not_all_sampled_is_unknown():
    check(verdict(watched(HEALTHY), "train.gpu.clock", "n0", gpus=8), OPEN, "2 of 8 answered")


@shows_failing("train.monitor.slowdown")
def test_a_gpu_that_its_hardware_slowed_down_while_it_trained_fails_its_node():
    text = watched({"n0": 1900}) + watched({"n1": 1900}, slowed="hardware thermal")
    assert verdict(text, "train.monitor.slowdown", "n1").observed == "hardware thermal (GPU-n1-b: in 17 of 17 samples)"
    assert verdict(text, "train.monitor.slowdown", "n1").outcome is FAIL
    assert verdict(text, "train.monitor.slowdown", "n0").outcome is PASS
    assert verdict(text, "train.monitor.slowdown", "n2").outcome is OPEN


@shows_failing("train.monitor.coverage")
def test_a_sampler_that_ended_early_fails_its_node():
    judged_verdict = verdict(watched({"n0": 1900}, last=100), "train.monitor.coverage", "n0")
    assert (judged_verdict.outcome, judged_verdict.value) == (FAIL, 5 / 16)


def test_a_sampler_of_a_large_run_looks_less_often_and_is_judged_by_what_it_says():
    text = "0: #every,n0,8\n" + "".join(node_line("n0", 100.0 + 8 * number) for number in range(10))
    assert verdict(text, "train.monitor.coverage", "n0", duration_s=88.0).outcome is PASS
    assert verdict(text, "train.monitor.coverage", "n0", duration_s=200.0).outcome is FAIL


@shows_failing("train.monitor.overhead")
def test_a_sampler_that_takes_a_core_fails():
    text = "".join(node_line("n0", 100.0 + second, own=48.0) for second in range(17))
    assert verdict(text, "train.monitor.overhead", "n0").outcome is FAIL


def test_the_samples_in_the_folder_of_a_training_are_read(tmp_path):
    folder = run_of("run_ddp_2node", tmp_path)
    text = "".join(node_line(node, 100.0 + second) for node in ("n0", "n1") for second in range(9))
    text = text.replace("0: n1,", "1: n1,")
    (folder / "raw/monitor.csv").write_text(text + "0: #nics,n0,100.000,eth0=5/6,mlx5_0=/\n")
    (folder / "raw/train.seconds").write_text("10.0\n")
    outcome_of = {(v.gate, v.subject): v.outcome for v in judge.judge_folder(folder).verdicts.verdicts}
    for node in ("n0", "n1"):
        assert outcome_of[("train.monitor.coverage", node)] is PASS
        assert outcome_of[("train.monitor.overhead", node)] is PASS
    assert ("train.monitor.slowdown", "n0") not in outcome_of


def test_records_of_older_runs_have_no_marks_of_their_steps(tmp_path):
    folder = run_of("run_ddp_2node", tmp_path)
    (folder / "raw/monitor.csv").write_text(watched({"n0": 1900}))
    verdicts = judge.judge_folder(folder).verdicts
    assert [v.outcome for v in verdicts.verdicts if v.gate == "train.strategy"] == [PASS]
