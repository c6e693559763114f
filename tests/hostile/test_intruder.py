"""Somebody who reaches the port where ranks meet, and comes as rank 1 before the real one: no code of his runs, and
where the run has a secret no data of his is used.

All are processes on the loopback. Rank 0 and the real rank 1 do what collectives.py does; the intruder knows torch, and
what the ranks write into the store.
"""

import os
import subprocess
from pathlib import Path

import arrival
import bench
import pytest
import warm_python
from programs import PROBES, begun, free_port

RANK = """
import datetime, os, sys, time
import torch, torch.distributed as dist
import arrival, bench
rank = int(sys.argv[1])
try:
    store = arrival.meet(dist, rank, 2, 1, f"n{rank}", rank == 0, 20)
except arrival.Late as late:
    time.sleep(arrival.LINGER_S)
    sys.exit(f"Late: {late}")
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=20))
ranks = bench.Bench(torch, dist, torch.device("cpu"), rank, 2)
try:
    print(ranks.gather((rank, float("inf"), "x" * rank)), flush=True)
except RuntimeError as error:  # os._exit: threads of gloo that still run abort an ordinary exit now and then
    print(error, file=sys.stderr, flush=True)
    os._exit(1)
bench.exchange.MOST_BYTES = 100
try:
    ranks.gather("x" * 100 * rank)
except RuntimeError as error:
    print(error, flush=True)
os._exit(0)
"""
INTRUDER = """
import datetime, os, sys
import torch.distributed as dist
class Pickled:
    def __reduce__(self):
        return open, (sys.argv[1], "w")
port = int(os.environ["MASTER_PORT"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], port, is_master=False, wait_for_workers=False)
store.set("bringup/here/1", "n66")
store.add("bringup/count", 1)
store.compare_set("bringup/outcome", "", "complete")
print("in", flush=True)
dist.init_process_group("gloo", store=store, rank=1, world_size=2, timeout=datetime.timedelta(seconds=10))
dist.all_gather_object([None, None], Pickled())
"""


def started(program: str, *arguments: object, run: Path | None = None) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "RUN_DIR"}
    own = {"PYTHONPATH": str(PROBES)} | ({} if run is None else {"RUN_DIR": str(run)})
    return begun([warm_python.python(), "-c", program, *map(str, arguments)], env=environment | own)


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=100)
    finally:
        process.kill()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    (tmp_path / "run/private").mkdir(parents=True)
    (tmp_path / "run" / arrival.SECRET).write_text("of this run")
    return tmp_path / "run"


def test_an_intruder_runs_no_code_where_there_is_no_secret(run: Path, tmp_path: Path) -> None:
    first, intruder = started(RANK, 0), started(INTRUDER, tmp_path / "ran")
    _, error = ended(first)
    ended(intruder)
    assert not (tmp_path / "ran").exists()
    assert first.returncode == 1, error


def test_bytes_that_are_not_json_are_one_line_with_the_rank() -> None:
    for data in (b"\x80\x04.", b"{"):
        with pytest.raises(RuntimeError, match=f"rank 3 sent {len(data)} bytes that are not JSON: "):
            bench._of_json(data, 3)


def test_an_intruder_is_refused_by_name_and_so_is_the_run_that_he_spoilt(run: Path, tmp_path: Path) -> None:
    first, intruder = started(RANK, 0, run=run), started(INTRUDER, tmp_path / "ran")
    out, error = ended(first)
    ended(intruder)
    assert not (tmp_path / "ran").exists()
    assert (out, first.returncode) == ("", 1)
    late = "Late: rank 1, which calls itself 'n66', does not know this run's secret: "
    assert error.splitlines()[-1].startswith(late)


def test_a_rank_that_lacks_the_secret_is_refused_by_all(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "private").mkdir(parents=True)
    (other / arrival.SECRET).write_text("of another run")
    first, second = started(RANK, 0, run=run), started(RANK, 1, run=other)
    errors = [ended(first)[1], ended(second)[1]]
    assert [first.returncode, second.returncode] == [1, 1]
    assert all(" does not know this run's secret: " in error.splitlines()[-1] for error in errors), errors


def test_ranks_of_one_run_meet_and_tell_each_other_any_number_and_not_too_much(run: Path) -> None:
    first, second = started(RANK, 0, run=run), started(RANK, 1, run=run)
    for process in (first, second):
        out, error = ended(process)
        assert process.returncode == 0, error
        answers = ["[[0, inf, ''], [1, inf, 'x']]", "rank 1 has 102 bytes to tell, expected 1 to 100"]
        assert out.splitlines() == answers
