"""The monitor: what it reads of RDMA ports, when it samples, how its samples are counted, and samples of older runs."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import transport
from bringup.drill.catalogue import DRILLS
from bringup.kernel.records import Outcome, Verdict
from bringup.readers import monitor
from bringup.report.charts.sampled import SAMPLED, line_of
from factory import a_run
from loops import case_for_each, for_each
from programs import tree
from runs_for_tests import FIXTURES, about, add_derived, values
from showing import check, shows_failing

ROW = "0: n0,{at:.3f},1.0,1.00,{sent},0,,,"
TAIL = ",0.10,,"
GPU_TAIL = ",,,,,,,"


@pytest.fixture
def sampler(monkeypatch):
    """The probe, which has the name of its parser."""
    monkeypatch.syspath_prepend(FIXTURES.parents[1] / "infrastructure-validation/probes")
    monkeypatch.delitem(sys.modules, "monitor", raising=False)
    import monitor as probe

    return probe


def port(root: Path, device: str, state: str = "4: ACTIVE", **files: object) -> Path:
    """A port of an RDMA device in a made-up sysfs; counters__x is counters/x."""
    texts = {name.replace("__", "/"): str(text) for name, text in {"state": state, **files}.items()}
    return tree(root / device / "ports/1", texts)


def words(sent: object, received: object) -> dict[str, object]:
    return {"counters__port_xmit_data": sent, "counters__port_rcv_data": received}


def efa(sent: object, received: object) -> dict[str, object]:
    return {"hw_counters__tx_bytes": sent, "hw_counters__rx_bytes": received}


# ---- RDMA ports


NOT_COUNTED = (None, None)


@case_for_each(
    # InfiniBand counts words of four bytes, EFA bytes; a sum that lacks one active port is no sum
    ({"mlx5_0": words(100, 10), "mlx5_1": words(200, 20)}, (1200, 120)),
    ({"mlx5_0": words(100, 10), "rdmap113s0": efa(7, 5)}, (407, 45)),
    ({"rdmap113s0": {**words("N/A (no PMA)", "N/A (no PMA)"), **efa(7, 5)}}, (7, 5)),
    ({}, NOT_COUNTED),
    ({"mlx5_0": {"state": "1: DOWN", **words(100, 10)}}, NOT_COUNTED),
    ({"mlx5_0": words(100, 10), "rxe0": {}}, NOT_COUNTED),
)
def test_the_bytes_of_all_active_ports_are_summed(tmp_path, ports, total):
    for device, files in ports.items():
        port(tmp_path, device, **files)
    assert transport.total(transport.rdma_reader(tmp_path)()) == total


def test_a_counter_that_goes_away_later_empties_the_cells_and_ends_nothing(tmp_path):
    folder = port(tmp_path, "mlx5_0", **words(100, 10))
    read = transport.rdma_reader(tmp_path)
    (folder / "counters/port_rcv_data").unlink()
    assert transport.total(read()) == (None, None)


# ---- when it samples


def moments(sampler, reading_s: float, until_s: float) -> list[float]:
    """The moments of the samples, where each reading takes so long."""
    due, taken = 1.0, []
    while due < until_s:
        taken.append(due)
        due = sampler.after(due, due + reading_s)
    return taken


def test_a_slow_reading_does_not_shift_the_samples_that_follow(sampler):
    assert moments(sampler, 0.7, 60) == [float(second) for second in range(1, 60)]


def test_moments_that_a_reading_overran_are_left_out_and_not_made_up_for(sampler):
    assert moments(sampler, 2.5, 12) == [1.0, 4.0, 7.0, 10.0]
    assert sampler.after(5.0, 4.999) == 6.0  # woken a moment early


def test_the_columns_are_those_that_the_parser_reads(sampler, monkeypatch, capsys):
    monkeypatch.setattr(sampler, "PERIOD_S", 0.01)
    monkeypatch.setattr(sampler, "rdma_reader", lambda: lambda: {"mlx5_0": (8, 4)})
    monkeypatch.setenv("SLURMD_NODENAME", "n0")
    monkeypatch.setenv("BRINGUP_DRILL", "stop-monitor:n0")
    sampler.main()
    samples = monitor.read(capsys.readouterr().out, "f")
    assert samples.problems == []
    [row] = samples.nodes["n0"]
    assert (row["rdma_tx_bytes"], row["rdma_rx_bytes"]) == ("8", "4")
    assert monitor.cell(row, "own_cpu_percent") is not None


# ---- how completely a node was sampled


def sampled(count: int, *, first: float = 100.0, tail: str = TAIL, sent: int = 0) -> str:
    return "".join(ROW.format(at=first + second, sent=sent * second) + tail + "\n" for second in range(count))


def judged(text: str, duration_s: float) -> Outcome:
    run = a_run("nccl_monitoring", ["n0"], profile="generic")
    return about("nccl.monitor.coverage", monitor.parse(text, "f", duration_s), run)["n0"].outcome


@for_each(
    (3, 4.0, Outcome.PASS),
    (10, 20.0, Outcome.FAIL),
    (1, 1.0, Outcome.PASS),
    (1, 4.0, Outcome.FAIL),
    (16, 20.0, Outcome.PASS),
    (15, 20.0, Outcome.FAIL),
    (240, 300.0, Outcome.PASS),
    (239, 300.0, Outcome.FAIL),
)
def test_three_samples_in_four_seconds_are_enough_and_ten_in_twenty_are_not(count, duration_s, outcome):
    assert judged(sampled(count), duration_s) is outcome


def test_samples_around_the_turn_of_a_second_are_each_counted_and_one_repeated_is_no_second_sample():
    """At 1.999, 3.001, 3.999 and 5.001 two fall into one second of the clock, and one second has none."""

    def shifted(early_s: float) -> str:
        moments = (second + (early_s if second % 2 else 0.001) for second in range(100, 120))
        return "".join(ROW.format(at=at, sent=0) + f"{TAIL}\n" for at in moments)

    assert judged(shifted(0.999), 20.0) is Outcome.FAIL  # every second pair is one sample, taken twice
    assert judged(shifted(-0.001), 20.0) is Outcome.PASS
    assert judged(sampled(10) * 2, 20.0) is Outcome.FAIL
    coverage = values(monitor.parse(sampled(3), "f", None), "nccl.monitor.coverage")
    assert coverage == {"n0": None}, "how long the step took is not known"


# ---- what was sampled


def value_and_why(text: str, quantity: str) -> tuple[object, str | None]:
    (seen,) = [fact for fact in monitor.parse(text, "f", 9.0).observations if fact.quantity == quantity]
    return seen.value, seen.why


def test_what_a_sampler_could_not_count_is_unknown_and_says_why():
    assert value_and_why(sampled(3), "nccl.monitor.overhead")[0] == 0.1
    why = "the sampler did not count its own time"
    assert value_and_why(sampled(3, tail=",,,"), "nccl.monitor.overhead") == (None, why)


def test_a_row_of_another_length_is_no_sample():
    text = sampled(1, tail=",0.10,5") + sampled(1, tail=",0.10,5,5,5") + "0: n0,1.0,abc,1,2,3,,,\n"
    assert len(monitor.read(text, "f").problems) == 4


@for_each("9" * 400, "9" * 5000, "\u0663", "nan", "inf")
def test_a_number_that_nobody_could_have_counted_is_none(digits):
    assert value_and_why(sampled(2, tail=f",{digits},0,0"), "nccl.monitor.overhead")[0] is None
    assert len(monitor.read(ROW.format(at=100.0, sent=digits) + TAIL, "f").problems) == 2


def test_every_column_that_is_drawn_is_drawn_from_its_own_cells():
    text = "".join(ROW.format(at=100 + at, sent=at * 10**6) + f",0.10,{at * 10**7},\n" for at in range(3))
    rows = monitor.read(text, "f").nodes["n0"]
    lines = {title: line_of([0.0, 1.0, 2.0], rows, column) for title, column in SAMPLED.items()}
    assert lines == {
        "CPU, %": [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0)],
        "memory used, GiB": [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0)],
        "busiest GPU, %": [],
        "all GPUs, W": [],
        "sent over network interfaces, MB/s": [(1.0, 1.0), (2.0, 1.0)],
        "sent over RDMA, MB/s": [(1.0, 10.0), (2.0, 10.0)],
    }


def test_the_drill_of_a_sampler_that_ends_is_found_in_a_step_of_three_seconds(sampler):
    drill = next(drill for drill in DRILLS if drill.id == "monitor-stops")
    text = sampled(sampler.DRILL_SAMPLES)
    assert judged(text, 3.0) is Outcome.FAIL
    assert drill.says in str(value_and_why(text, "nccl.monitor.coverage")[1])


def test_a_damaged_sample_is_named_by_the_line_that_grep_gives():
    text = sampled(2).replace("\n", "\r\n") + "torn\rhere\n" + "torn\n"
    assert [problem.partition(": ")[0] for problem in monitor.read(text, "f").problems] == ["f:3", "f:4"]


# ---- one line for the network of a node


def test_the_bytes_of_many_devices_take_several_lines_which_srun_does_not_cut(sampler):
    rows = sampler.in_lines([(f"rdmap{number}s0", (2**63, 2**63)) for number in range(32)] + [("mlx5_9", None)])
    assert [len(row) for row in rows] == [12, 12, 9]
    assert max(len(",".join(row)) for row in rows) < 900
    assert rows[-1][-1] == "mlx5_9=/"


def test_each_active_port_is_counted_by_itself_and_a_second_port_has_its_number(tmp_path):
    port(tmp_path, "mlx5_0", **words(100, 10))
    (tmp_path / "mlx5_0/ports/1").rename(tmp_path / "mlx5_0/ports/2")
    port(tmp_path, "mlx5_0", **words(1, 2))
    port(tmp_path, "rxe0")
    assert transport.rdma_reader(tmp_path)() == {"mlx5_0": (4, 8), "mlx5_0/2": (400, 40), "rxe0": None}


# ---- one line for each GPU


class Nvml:
    """What pynvml answers about two GPUs; the second one does not say its power."""

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM = 0, 1, 2

    class NVMLError(Exception):
        pass

    def __getattr__(self, name: str):
        def answer(gpu: int = 0, *_kind: int):
            if name == "nvmlDeviceGetFieldValues":  # the second one has no NVLink
                fields = enumerate([(0, 7), (0, 8), (0, 9), (0, 10)] if gpu == 0 else [(3, 0), (3, 0), (0, 9), (0, 10)])
                answers = [(code, SimpleNamespace(ullVal=value)) for _, (code, value) in fields]
                return [SimpleNamespace(nvmlReturn=code, value=value) for code, value in answers]
            if name == "nvmlDeviceGetPowerUsage" and gpu == 1:
                raise self.NVMLError
            return {
                "nvmlDeviceGetCount": 2,
                "nvmlDeviceGetHandleByIndex": gpu,
                "nvmlDeviceGetUUID": (b"GPU-a", "GPU-b")[gpu],
                "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=(100, 97)[gpu]),
                "nvmlDeviceGetPowerUsage": 700_400,
                "nvmlDeviceGetTemperature": (61, 88)[gpu],
                "nvmlDeviceGetClockInfo": (1980, 1200)[gpu],
                "nvmlDeviceGetCurrentClocksEventReasons": (0x4, 0x48)[gpu],
                "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=(61 * 2**30, 2**29)[gpu]),
            }[name]

        return answer


def test_each_gpu_is_read_and_a_sum_without_one_of_them_is_no_number(sampler):
    whole, each = sampler.gpu_reader(Nvml())()
    assert whole == [100, "", 88]
    assert [",".join(cells) for cells in each] == [
        "GPU-a,100,700,61,1980,none,1980,0x4,61.00,7,8,9,10",
        "GPU-b,97,,88,1200,hardware slowdown+hardware thermal,1200,0x48,0.50,,,9,10",
    ]


def test_without_nvml_no_gpu_is_listed(sampler, monkeypatch):
    monkeypatch.setattr(sampler, "library", lambda: (None, "not installed"))
    assert sampler.gpu_reader()() == (["", "", ""], [])


def test_a_gpu_that_was_throttled_in_one_sample_is_seen():
    of_gpus = ("1.000,GPU-a,100,700,61,1980,none", "1.000,GPU-b,0,80,40,345,none")
    of_gpus += ("2.000,GPU-a,98,500,88,1200,hardware thermal", "2.000,GPU-b,0,80,40,345,")
    text = sampled(2, first=1.0) + "".join(f"0: #gpu,n0,{cells}{GPU_TAIL}\n" for cells in of_gpus)
    parsed = monitor.parse(text, "raw/monitor.csv", 3.0)
    assert parsed.problems == []
    facts = [each for each in parsed.observations if each.quantity.startswith("monitor.gpu.")]
    seen = {(each.quantity, each.subject): (each.value, each.why) for each in facts}
    assert seen == {
        ("monitor.gpu.slowdown", "n0/GPU-a"): ("hardware thermal", "in 1 of 2 samples"),
        ("monitor.gpu.clock_median", "n0/GPU-a"): (None, "in 2 samples was it 50 % busy, in fewer than 3"),
        ("monitor.gpu.slowdown", "n0/GPU-b"): ("none", "in 0 of 1 samples"),
        ("monitor.gpu.clock_median", "n0/GPU-b"): (None, "in no sample was it 50 % busy"),
    }


def test_a_line_of_a_gpu_that_was_cut_off_is_no_sample():
    parsed = monitor.parse(sampled(1) + "0: #gpu,n0,1.000,GPU-a,10", "raw/monitor.csv", 3.0)
    assert parsed.problems == ["raw/monitor.csv:2: not a sample: '0: #gpu,n0,1.000,GPU-a,10'"]


# ---- what the hardware of GPUs does to protect itself


def of_gpus(*slowdowns: tuple[str, ...]) -> str:
    """Samples of n0, of which each has a cell per GPU."""
    lines = []
    for second, cells in enumerate(slowdowns):
        lines.append(ROW.format(at=100.0 + second, sent=0) + TAIL)
        gpu_line = f"0: #gpu,n0,{100.0 + second},GPU-{{}},99,650,70,1980,{{}}{GPU_TAIL}"
        lines += [gpu_line.format(gpu, cell) for gpu, cell in enumerate(cells)]
    return "".join(f"{line}\n" for line in lines)


@shows_failing("nccl.monitor.slowdown")
def test_a_gpu_that_its_hardware_slowed_down_in_one_sample_fails_its_node_and_is_named():
    verdict = slowdown_of(of_gpus(("none", "none"), ("none", "hardware thermal+hardware power brake")))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.observed == "hardware power brake, hardware thermal (GPU-1: in 1 of 2 samples)"


@case_for_each(
    (of_gpus(("none", "none"), ("none", "none")), Outcome.PASS, "none (GPU-0, GPU-1: in 0 of 2 samples)"),
    (of_gpus(("none", "")), Outcome.INCOMPLETE, "GPU-1: NVML did not say it in any sample"),
    (of_gpus(("none",)), Outcome.INCOMPLETE, "1 of 2 answered"),
    (of_gpus(()), Outcome.INCOMPLETE, "no evidence arrived"),
)
def test_that_no_gpu_was_slowed_down_is_known_only_of_all_gpus(text, outcome, says):
    check(slowdown_of(text), outcome, says)


def slowdown_of(text: str) -> Verdict:
    run = a_run("nccl_monitoring", ["n0"], profile="generic", gpus=2)
    parsed = monitor.parse(text, "raw/monitor.csv", 2.0)
    return about("nccl.monitor.slowdown", add_derived(parsed, run), run)["n0"]
