"""NCCL's RAS service. NCCL 2.26.2 printed the samples of text: of 32 ranks two are ahead; of 256 ranks an all_reduce
had timed out. The sample of JSON is that of NCCL's user guide (2.29.1)."""

import json
import socket
import threading
from pathlib import Path
from typing import Any

import collectives
import pytest
import ras
from bringup.readers import ras as reader
from loops import case_for_each, for_each

REAL = Path(__file__).resolve().parents[1] / "fixtures/real"


def test_what_ranks_had_launched_differently_is_a_note():
    parsed = reader.parse((REAL / "ras/mismatch-2.26.txt").read_text(), "raw/nccl-4/ras.rank0.txt")
    assert parsed.observations == []
    assert parsed.problems == [
        "raw/nccl-4/ras.rank0.txt: NCCL's RAS service: RUNNING MISMATCH: #0-0 (fa93daea854b060b) MISMATCH; "
        "Communicator ranks have different AllGather operation counts; 30 ranks have launched up to operation 640; "
        "2 ranks have launched up to operation 641; "
        "Rank 12 -- GPU 4 managed by process 323032 on node 10.0.0.4; "
        "Rank 13 -- GPU 5 managed by process 323033 on node 10.0.0.4"
    ]


def test_a_job_that_it_calls_healthy_is_not_called_healthy():
    (note,) = reader.parse((REAL / "ras/healthy-2.26.txt").read_text(), "raw/nccl-32/ras.rank0.txt").problems
    assert note.endswith("RUNNING OK: it reports no fault, which alone proves nothing")


def test_a_rank_that_does_not_answer_is_named_from_json():
    (note,) = reader.parse((REAL / "ras/missing-2.29.json").read_text(), "raw/nccl-2/ras.rank0.txt").problems
    assert note == (
        "raw/nccl-2/ras.rank0.txt: NCCL's RAS service: 1 communicator: communicator 0xae94423cfbb2ef4a of 2 ranks: "
        "does not answer: rank 1 (GPU 1 of 172.16.64.245)"
    )


def as_json(*ranks: dict[str, Any]) -> str:
    """An answer in the form of that sample, of one communicator. Each rank: what differs from a healthy one."""
    answer = json.loads((REAL / "ras/missing-2.29.json").read_text())
    communicator = answer["communicators"][0]
    (healthy,) = communicator["ranks"]
    communicator |= {"size": len(ranks), "ranks_count": len(ranks), "missing_ranks": [], "missing_ranks_count": 0}
    communicator["ranks"] = [
        healthy
        | {"rank": index, "cuda_dev": index, "status": healthy["status"] | rank.get("status", {})}
        | {"collective_counts": healthy["collective_counts"] | rank.get("counts", {})}
        for index, rank in enumerate(ranks)
    ]
    return json.dumps(answer)


def launched(name: str, *counts: int) -> list[dict[str, Any]]:
    return [{"counts": {name: count}} for count in counts]


@for_each(
    ([{}, {}], "it reports no fault, which alone proves nothing"),
    (launched("AllReduce", 641, 641, 641, 640), "AllReduce, 641 times on 3 ranks: rank 3 (GPU 3 of 172.16.64.245) 640"),
    (launched("AllGather", 7, 6), "AllGather, 7 times on 1 rank: rank 1 (GPU 1 of 172.16.64.245) 6"),
    ([{}, {"status": {"async_error": 6}}], "failed: rank 1 (GPU 1 of 172.16.64.245)"),
    ([{}, {"status": {"async_error": 7}}], "it reports no fault, which alone proves nothing"),
    ([{"status": {"abort_flag": True}}, {}], "aborted: rank 0 (GPU 0 of 172.16.64.245)"),
    ([{"status": {"init_state": 7}}, {}], "not initialised: rank 0 (GPU 0 of 172.16.64.245)"),
)
def test_ranks_with_a_fault_are_named_from_json(ranks, expected):
    (note,) = reader.parse(as_json(*ranks), "raw/nccl-4/ras.rank0.txt").problems
    assert note.startswith("raw/nccl-4/ras.rank0.txt: NCCL's RAS service: 1 communicator: ")
    assert note.endswith(f": {expected}")


def test_of_many_ranks_that_are_behind_four_are_named():
    ranks = launched("AllReduce", *[2] * 512, *[1] * 256)
    (note,) = reader.parse(as_json(*ranks), "raw/nccl-96/ras.rank0.txt").problems
    assert ": AllReduce, 2 times on 512 ranks: rank 512 (GPU 512" in note
    assert note.endswith("1 and 252 more")


NO_ANSWERS = ["", "ERROR: Unknown command\n", "\x00\xff" * 50, "=\n=\n", "{", "{}", '{"communicators": 3}']


@for_each(*NO_ANSWERS, '{"communicators": [{"hash": "<b>"}]}', as_json({}, {})[:-40])
def test_what_is_not_an_answer_of_it_is_said(text):
    (note,) = reader.parse(text, "raw/nccl-4/ras.rank0.txt").problems
    assert note.startswith("raw/nccl-4/ras.rank0.txt: not an answer of NCCL's RAS service: ")


def serve(listening: socket.socket, answers: list[bytes], heard: list[bytes]) -> None:
    """As NCCL does: a line is answered with a line, and the status with all of it and the end of the connection."""
    connection, _ = listening.accept()
    with connection, connection.makefile("rb") as stream:
        for answer in answers:
            heard.append(stream.readline())
            connection.sendall(answer)


@case_for_each(
    ([b"SERVER PROTOCOL 2\n", b"OK\n", b"NCCL version 2\n" * 9000], b"NCCL version 2\n" * 9000),
    ([b"SERVER PROTOCOL 2\n", b"OK\n", b""], None),
    ([b"SERVER PROTOCOL 2\n", b"ERROR: no\n"], None),
    ([b"HTTP/1.1 400 Bad Request\r\n"], None),
)
def test_an_answer_is_kept_and_anything_else_is_not(tmp_path, monkeypatch, capsys, answers, kept):
    heard: list[bytes] = []
    file = tmp_path / "nccl-2" / "ras.rank0.txt"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("NCCL_RAS_ADDR", f"127.0.0.1:{listening.getsockname()[1]}")
        serving = threading.Thread(target=serve, args=(listening, answers, heard))
        serving.start()
        ras.keep(file)
        serving.join()
    assert heard[0] == b"CLIENT PROTOCOL 2\n"
    output = capsys.readouterr().err
    if kept is None:
        assert not file.exists()
        assert output.startswith("NCCL's RAS service did not answer: ")
        assert output.count("\n") == 1
    else:
        assert heard[1:] == [b"TIMEOUT 5\n", b"VERBOSE STATUS\n"]
        assert (file.read_bytes(), output) == (kept, "")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "[::1]:x"])
def test_where_nobody_listens_nothing_is_kept(tmp_path, monkeypatch, address):
    monkeypatch.setenv("NCCL_RAS_ADDR", address)
    ras.keep(tmp_path / "ras.rank0.txt")
    assert list(tmp_path.iterdir()) == []


def test_the_first_rank_of_the_first_and_of_the_last_node_ask():
    asks = [(node, local) for node in range(4) for local in range(2) if ras.is_witness(node, 4, local)]
    assert asks == [(0, 0), (3, 0)]


@pytest.mark.parametrize(("cuda", "node", "asked"), [(True, 0, 1), (True, 1, 0), (True, 2, 1), (False, 0, 0)])
def test_a_rank_that_hangs_asks_only_where_nccl_runs(tmp_path, monkeypatch, cuda, node, asked):
    files: list[str] = []
    here = collectives.Place(task=8, local=0, rank=8, world=24, node=node, nodes=3)
    monkeypatch.setattr(ras, "keep", files.append)
    collectives.keep_words(object(), cuda, str(tmp_path), here)
    assert files == [f"{tmp_path}/ras.rank8.txt"] * asked
