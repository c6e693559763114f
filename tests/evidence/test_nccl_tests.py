"""The table of nccl-tests, healthy and not."""

import pytest
from bringup.kernel.facts.parser_result import Parsed
from bringup.readers import nccl_tests
from loops import case_for_each, for_each
from runs_for_tests import FIXTURES

FOLDER = FIXTURES / "nccl"


def read(name: str, binary: str = "all_reduce_perf") -> Parsed:
    return nccl_tests.parse((FOLDER / name).read_text(), name, binary, "2-nodes")


def value(parsed: Parsed, quantity: str) -> object:
    return next(observation.value for observation in parsed.observations if observation.quantity == quantity)


@pytest.mark.parametrize("name", ["tests-healthy.txt", "tests-per-iteration.txt"])
def test_every_format_gives_the_same_observations(name):
    parsed = read(name)
    assert value(parsed, "nccl.all_reduce.busbw@8GiB") == pytest.approx(442.53, abs=0.01)  # in place, the slower one
    assert value(parsed, "nccl.all_reduce.time@8KiB") == pytest.approx(30.3)
    assert [value(parsed, f"nccl.{what}") for what in ("ranks", "hosts", "devices", "wrong_values")] == [16, 2, 16, 0]
    assert parsed.problems == []


def test_wrong_values_are_counted_and_unchecked_is_not_right():
    assert value(read("tests-wrong.txt"), "nccl.wrong_values") == 96
    assert value(read("tests-unchecked.txt"), "nccl.wrong_values") is None


def test_a_half_in_place_that_is_never_checked_leaves_the_checked_half_its_word():
    parsed = read("tests-alltoall.txt", "alltoall_perf")
    assert parsed.problems == []
    assert [value(parsed, f"nccl.{what}") for what in ("ranks", "hosts", "devices", "wrong_values")] == [8, 1, 8, 0]
    assert value(parsed, "nccl.all_to_all.busbw@4MiB") == pytest.approx(61.84)
    assert value(read("tests-alltoall.txt", "sendrecv_perf"), "nccl.wrong_values") == 0


@pytest.mark.parametrize(("instead", "wrong_values"), [("N/A", None), (" 12", 12)])  # one of three sizes: neither half
def test_a_size_of_which_no_half_was_checked_is_unchecked_and_a_wrong_checked_half_is_wrong(instead, wrong_values):
    text = (FOLDER / "tests-alltoall.txt").read_text()
    assert text.count(" 31.14       0") == 1
    changed = text.replace(" 31.14       0", f" 31.14     {instead}")
    assert value(nccl_tests.parse(changed, "f", "alltoall_perf", "1-node"), "nccl.wrong_values") == wrong_values


def test_what_is_cut_off_proves_no_right_results_and_wrong_values_before_the_cut_stay_wrong():
    cut_off = read("tests-truncated.txt")
    assert cut_off.problems
    assert value(cut_off, "nccl.wrong_values") is None
    text = (FOLDER / "tests-wrong.txt").read_text().partition("# Out of bounds")[0]
    parsed = nccl_tests.parse(text, "f", "all_reduce_perf", "2-nodes")
    assert int(str(value(parsed, "nccl.wrong_values"))) > 0
    assert "did not finish" in " ".join(parsed.problems)


OLD = """#   Rank  0 Pid 41 on c1 device  0 [0x1a] A100
#   Rank  1 Pid 41 on c1 device  1 [0x1b] A100
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
        1024           256   float             36.0    0.03    0.04  0e+00     35.7    0.03    0.05  1e-07
     4194304       1048576   float     sum    112.0   37.44   65.52  0e+00    110.2   38.06   66.60    N/A
# Out of bounds values : 0 OK
"""


def test_a_table_of_before_2_11_is_read_by_its_end_and_its_wrong_values_by_its_last_line():
    parsed = nccl_tests.parse(OLD, "f", "all_reduce_perf", "1-node")
    assert parsed.problems == []
    assert [value(parsed, f"nccl.all_reduce.busbw@{size}") for size in ("1KiB", "4MiB")] == [0.04, 65.52]
    assert value(parsed, "nccl.wrong_values") == 0
    assert nccl_tests.parse(OLD.replace("0 OK", "3 FAILED"), "f", "all_reduce_perf", "").observations[-1].value == 3
    unchecked = OLD.replace("0e+00", "N/A").replace("1e-07", "N/A")
    assert value(nccl_tests.parse(unchecked, "f", "all_reduce_perf", "1-node"), "nccl.wrong_values") is None
    cut = nccl_tests.parse(OLD.partition("    N/A")[0], "f", "all_reduce_perf", "1-node")
    assert [seen.quantity for seen in cut.observations if "4MiB" in seen.quantity] == []
    assert "not a row" in cut.problems[0]


def of_guests(numbers: list[int]) -> Parsed:
    """nccl-tests before 2.17 on one guest: the bus alone, which is the same for all GPUs there."""
    ranks = (
        f"#  Rank {rank:2} Group  0 Pid  {100 + rank} on   h1 device {number:2} [0x00] NVIDIA A100\n"
        for rank, number in enumerate(numbers)
    )
    return nccl_tests.parse("".join(ranks), "x.txt", "all_reduce_perf", "1-node")


def test_gpus_of_a_guest_are_told_apart_by_their_number():
    """Sixteen GPUs of two guests were counted as two."""
    assert value(of_guests([0, 1, 2, 3]), "nccl.devices") == 4
    assert value(of_guests([0, 1, 2, 2]), "nccl.devices") == 3
    assert value(of_guests([0, 0, 1, 2]), "nccl.devices") == 3


def test_ranks_that_see_one_gpu_each_are_not_told_apart_by_a_bus_alone():
    seen = next(seen for seen in of_guests([0, 0, 0, 0]).observations if seen.quantity == "nccl.devices")
    assert seen.value is None
    assert "PCI bus alone" in str(seen.why)


def test_several_ranks_zero_are_several_communicators():
    parsed = read("tests-separate.txt")
    assert value(parsed, "nccl.ranks") == 1
    assert "4 communicators" in str(parsed.observations[0].why)


@for_each("", "{}", "bash: all_reduce_perf: command not found\n")
def test_something_else_is_a_problem(text):
    parsed = nccl_tests.parse(text, "f", "all_reduce_perf", "2-nodes")
    assert parsed.problems
    assert not [observation for observation in parsed.observations if observation.value is not None]
    # unknown, and said so: beside our own right results it is incomplete
    assert value(parsed, "nccl.wrong_values") is None


HEALTHY_TEXT = (FOLDER / "tests-healthy.txt").read_text()
ROW = next(line for line in HEALTHY_TEXT.splitlines() if line.split()[:1] == ["8192"])
DIGITS = "9" * 5000


@case_for_each(
    HEALTHY_TEXT.replace("Rank  0", f"Rank  {DIGITS}", 1),
    HEALTHY_TEXT.replace("\n        8192 ", f"\n {DIGITS} "),
    HEALTHY_TEXT.replace("\n        8192 ", "\n ² "),
    ids=["rank", "size", "superscript"],
)
def test_numbers_that_no_test_could_have_printed_are_read_without_an_error(text):
    """What is lost is said, or leaves fewer results; nothing is made up."""
    assert text != HEALTHY_TEXT
    parsed = nccl_tests.parse(text, "f", "all_reduce_perf", "2-nodes")
    seen = {observation.quantity: observation.value for observation in parsed.observations}
    assert parsed.problems or seen["nccl.ranks"] == 15 or "nccl.all_reduce.busbw@8KiB" not in seen


def test_nan_is_no_measurement():
    parsed = nccl_tests.parse(HEALTHY_TEXT.replace(ROW.split()[7], "nan", 1), "f", "all_reduce_perf", "2-nodes")
    assert len(parsed.problems) == 1
    assert "8KiB" not in " ".join(observation.quantity for observation in parsed.observations)


def test_wrong_values_without_a_number_that_can_be_read_are_one_at_least():
    text = HEALTHY_TEXT.replace("# Out of bounds values : 0 OK", f"# Out of bounds values : {DIGITS} FAILED")
    assert text != HEALTHY_TEXT
    facts = nccl_tests.parse(text, "f", "all_reduce_perf", "2-nodes").observations
    (last,) = [seen for seen in facts if seen.why and "bounds" in seen.why]
    assert (last.quantity, last.value) == ("nccl.wrong_values", 10**18 - 1)


@for_each(
    (8 * 2**30, "8GiB"),
    (8589934560, "8GiB"),  # 24 ranks do not divide it
    (8184, "8KiB"),
    (6000, "6000B"),
    (3 * 2**20, "3MiB"),
    (8, "8B"),
    (1, "1B"),
)
def test_a_size_that_ranks_do_not_divide_has_the_name_of_the_one_that_was_meant(size, name):
    assert nccl_tests.named(size) == name


def test_evidence_names_the_line_that_grep_gives_behind_a_carriage_return():
    text = HEALTHY_TEXT.replace("\n", "\r\n").replace("# nThread", "at 10 %\rat 20 %\u2028# nThread")
    parsed = nccl_tests.parse(text, "f", "all_reduce_perf", "2-nodes")
    first = next(seen for seen in parsed.observations if seen.quantity == "nccl.all_reduce.busbw@8KiB")
    assert first.evidence == f"f:{HEALTHY_TEXT.splitlines().index(ROW) + 1}"
    assert parsed.problems == []
