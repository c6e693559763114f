"""NCCL's Inspector plugin: bus bandwidth of collectives while a training runs."""

import json
from pathlib import Path

from bringup.readers import nccl_inspector

SAMPLE = Path(__file__).resolve().parents[1] / "fixtures/real/nccl/inspector-4.0.log"


def a_line(rank: int, number: int, busbw: float, size: int = 2**20, ranks: int = 2) -> str:
    header = {"id": "0xabc", "rank": rank, "n_ranks": ranks, "nnodes": 1}
    done = {"coll": "AllGather", "coll_sn": number, "coll_msg_size_bytes": size, "coll_busbw_gbs": busbw}
    return json.dumps({"header": header, "metadata": {}, "coll_perf": done}) + "\n"


def test_of_a_call_the_rank_that_waited_least_counts_and_of_the_calls_the_median():
    files = [
        ("a", a_line(0, 1, 10.0) + a_line(0, 2, 40.0) + a_line(0, 3, 50.0)),
        ("b", a_line(1, 1, 30.0) + a_line(1, 2, 20.0) + a_line(1, 3, 5.0)),
    ]
    (observation,) = nccl_inspector.parse(files).observations
    assert (observation.quantity, observation.value, observation.unit) == ("inspector.all_gather.busbw", 40.0, "GB/s")
    assert (observation.subject, observation.why) == ("2 ranks on 1 node", "1 MiB, 3 calls")


def test_sizes_are_kept_apart_and_a_communicator_of_one_rank_sends_nothing():
    text = a_line(0, 1, 10.0) + a_line(0, 2, 20.0, size=2**21) + a_line(0, 3, 99.0, ranks=1)
    parsed = nccl_inspector.parse([("a", text)])
    seen = [(each.value, each.why) for each in parsed.observations]
    assert seen == [(20.0, "2 MiB, 1 call"), (10.0, "1 MiB, 1 call")]
    assert parsed.problems == []


def test_what_is_not_such_a_line_is_a_problem_and_a_last_line_that_was_cut_off_is_not():
    text = a_line(0, 1, 10.0) + "nonsense\n" + a_line(0, 2, 20.0)[:40]
    parsed = nccl_inspector.parse([("raw/inspector/a.log", text)])
    assert parsed.problems == ["raw/inspector/a.log: 1 line are not as NCCL's Inspector writes them"]
    assert [observation.value for observation in parsed.observations] == [10.0]


def test_an_infinite_bandwidth_is_no_line_of_it_and_one_of_zero_is_where_its_clock_saw_no_time():
    parsed = nccl_inspector.parse([("a", a_line(0, 1, float("inf")))])
    assert (parsed.observations, len(parsed.problems)) == ([], 1)
    parsed = nccl_inspector.parse([("a", a_line(0, 1, 0.0))])
    assert (parsed.observations, parsed.problems) == ([], [])


def test_the_published_sample_is_read():
    parsed = nccl_inspector.parse([("a", SAMPLE.read_text())])
    busbw = {each.quantity: each.value for each in parsed.observations}
    assert busbw == {"inspector.all_reduce.busbw": 485.119, "inspector.reduce_scatter.busbw": 366.135}
    assert parsed.problems == []
