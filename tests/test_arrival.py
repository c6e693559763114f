"""Ranks that start minutes apart meet; one that does not come in time is named, and who waited for it is not.

Ranks are threads here, each with a connection of its own to a real store of torch.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

import arrival
import collectives
import pytest
import torch
import torch.distributed as dist
import warm_python
from bringup.readers import launcher
from factory import a_run
from loops import case_for_each
from programs import PROBES, ROOT, begun, free_port, program, ran


@pytest.fixture(autouse=True)
def master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


def met(delays: dict[int, float], *, world: int = 4, patience: int = 3, gpus: str = "") -> dict[int, object]:
    """What each rank got: a store, or Late. delays: seconds that a rank starts late; who is not in it never comes.
    gpus: a letter for each rank, its GPU."""
    got: dict[int, object] = {}

    def rank_of(rank: int) -> None:
        time.sleep(delays[rank])
        try:
            got[rank] = arrival.meet(dist, rank, world, 2, f"n{rank // 2}", rank == 0, patience, gpus[rank : rank + 1])
        except arrival.Late as late:
            got[rank] = late

    ranks = [threading.Thread(target=rank_of, args=(rank,)) for rank in delays]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join()
    return got


def words(got: dict[int, object]) -> dict[int, str]:
    return {rank: str(end) for rank, end in got.items() if isinstance(end, arrival.Late)}


@case_for_each(
    ({0: 0.5, 1: 0, 2: 0, 3: 1}, ""),
    ({0: 0, 1: 0, 2: 0, 3: 0}, "abab"),
    ({0: 0, 1: 0}, ""),
    ids=["apart", "GPUs of two hosts may have one name", "two"],
)
def test_ranks_meet(delays, gpus):
    got = met(delays, world=len(delays), gpus=gpus)
    assert words(got) == {}
    assert len(got) == len(delays)


def test_all_who_waited_name_the_rank_that_did_not_come_and_its_host():
    got = met({0: 0, 1: 0.3, 2: 0.6})
    message = "1 of 4 ranks did not arrive within 3 s: rank 3 (n1); BRINGUP_START_S sets how long to wait"
    assert words(got) == dict.fromkeys((0, 1, 2), message)
    assert [late.late for late in got.values() if late.late] == [[(3, "n1")]]  # one rank tells it


def test_a_rank_that_comes_too_late_says_so_of_itself():
    got = met({0: 0, 1: 0, 2: 0, 3: 4})
    assert words(got)[3] == "rank 3 on n1 came when the others had given up: they had waited 3 s for it"
    assert "rank 3 (n1)" in words(got)[1]


def test_two_ranks_of_a_host_that_have_one_gpu_are_named_to_all():
    got = met({0: 0, 1: 0, 2: 0, 3: 0.2}, gpus="abcc")
    shared = "4 ranks, 3 different GPU(s): c of n1 is that of ranks 2, 3; start no more ranks than GPUs, each with a "
    assert words(got) == dict.fromkeys(range(4), f"{shared}LOCAL_RANK of its own")
    assert [type(end) for end in got.values()] == [arrival.Shared] * 4
    assert [end.gpus for end in got.values() if isinstance(end, arrival.Shared)] == [3] * 4


@pytest.mark.parametrize("rank", [0, 1])
def test_no_rank_ends_before_rank_0_has_written_that_ranks_share_a_gpu(rank, monkeypatch, capfd):
    """srun ends all with the first."""
    ends: list[float] = []

    def shares(*_: object, **__: object) -> None:
        raise arrival.Shared("2 ranks, 1 different GPU(s)", 1)

    def ended(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(arrival, "meet", shares)
    monkeypatch.setattr(collectives.time, "sleep", ends.append)
    monkeypatch.setattr(os, "_exit", ended)
    here = collectives.Place(task=rank, local=rank, rank=rank, world=2, node=0, nodes=1)
    with pytest.raises(SystemExit):
        collectives.start(dist, torch.device("cpu"), "1-node", "GPU-0", here)
    assert ends == [arrival.PAUSE_S]
    assert ('"nccl.devices"' in capfd.readouterr().out) == (rank == 0)


def test_a_rank_that_is_late_is_named_by_host_where_others_have_gpus():
    assert "rank 3 (n1);" in words(met({0: 0, 1: 0, 2: 0}, patience=1, gpus="abc"))[0]


def slurm_of_three_nodes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(folder / "scontrol", "printf 'n0\\nn1\\nn2\\n'")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("SLURM_STEP_NODELIST", "n[0-2]")


def test_where_nobody_of_a_node_came_slurm_says_its_name(tmp_path, monkeypatch):
    slurm_of_three_nodes(tmp_path, monkeypatch)
    got = met({0: 0, 1: 0}, world=6, patience=1)
    late = "rank 2 (n1), rank 3 (n1), rank 4 (n2), rank 5 (n2);"
    assert f"4 of 6 ranks did not arrive within 1 s: {late}" in words(got)[0]


def test_without_slurm_the_name_of_such_a_node_is_not_known(monkeypatch):
    monkeypatch.delenv("SLURM_STEP_NODELIST", raising=False)
    assert "rank 2 (host unknown), rank 3 (host unknown)" in words(met({0: 0, 1: 0}, patience=1))[1]


def test_many_late_ranks_are_counted_and_some_of_them_named():
    late = [(rank, "n1") for rank in range(8, 40)]
    assert arrival.say(late, 40, 600).startswith("32 of 40 ranks did not arrive within 600 s: rank 8 (n1), ")
    assert arrival.say(late, 40, 600).count("rank ") == 8
    assert "rank 15 (n1) and 24 more;" in arrival.say(late, 40, 600)


def test_a_first_rank_that_does_not_come_is_named_too():
    got = met({1: 0, 2: 0}, patience=2)
    assert all("nobody answered within 2 s at 127.0.0.1:" in message for message in words(got).values())
    assert all("the node of rank 0" in message for message in words(got).values())
    assert len(words(got)) == 2


def test_the_patience_is_one_variable_and_none_is_refused(monkeypatch):
    for text, seconds in (("", 600), ("30", 30)):
        monkeypatch.setenv("BRINGUP_START_S", text)
        assert arrival.patience_s() == seconds
    for text in ("0", "-1", "soon", "1.5", "1e9", "100000"):
        monkeypatch.setenv("BRINGUP_START_S", text)
        with pytest.raises(ValueError, match=f"BRINGUP_START_S={text}: expected seconds"):
            arrival.patience_s()


def test_collectives_end_with_the_names_of_the_ranks_that_did_not_come(tmp_path):
    """Three of 4 ranks on 2 nodes start. The rank of n0 that looks tells it; all end."""
    slurm = {"SLURM_NTASKS": "4", "SLURM_STEP_NUM_NODES": "2", "BRINGUP_START_S": "8"}
    ranks = []
    for rank in (0, 1, 2):
        own = {"SLURM_PROCID": f"{rank}", "SLURM_LOCALID": f"{rank % 2}", "SLURMD_NODENAME": f"n{rank // 2}"}
        command = [warm_python.python(), PROBES / "collectives.py", "2-nodes", tmp_path]
        ranks.append(begun(command, env=os.environ | slurm | own))
    answers = [rank.communicate(timeout=200) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1, 1]
    facts = [json.loads(line) for out, _ in answers for line in out.splitlines()]
    late = next(fact for fact in facts if "value" in fact)
    assert (late["quantity"], late["subject"]) == ("nccl.rank.late", "n1/rank3")
    for _, err in answers:
        assert "1 of 4 ranks did not arrive within 8 s: rank 3 (n1); " in err, err


def test_collectives_refuse_a_patience_that_is_none(tmp_path):
    environment = {**os.environ, "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "BRINGUP_START_S": "soon"}
    done = ran([sys.executable, PROBES / "collectives.py", "1-node", tmp_path], env=environment)
    assert done.stderr == "collectives.py: BRINGUP_START_S=soon: expected seconds, from 1 to 86400\n"


def test_the_first_launcher_names_the_nodes_whose_launcher_did_not_start(tmp_path, monkeypatch):
    """torchrun alone says: Timed out after 3 seconds waiting for clients. 1/3 clients joined."""
    slurm_of_three_nodes(tmp_path, monkeypatch)
    (tmp_path / "raw/launchers").mkdir(parents=True)
    (tmp_path / "raw/launchers/n2").touch()
    port = os.environ["MASTER_PORT"]
    command = [sys.executable, ROOT / "training/src/launcher.py", "--nnodes", "3", "--node-rank", "0"]
    command += ["--master-addr", "127.0.0.1", "--master-port", port, "--rdzv-conf", "timeout=2", "no-program.py"]
    done = ran(command, env={**os.environ, "RUN_DIR": str(tmp_path), "SLURMD_NODENAME": "n0"})
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith("1 of 3 launchers did not start in time: n1; BRINGUP_START_S sets how long to wait (")
    (seen,) = launcher.log(f"0: {line}\n", "raw/launch.log", a_run("run_ddp_2node")).observations
    assert (seen.quantity, seen.subject, str(seen.value)[:38]) == ("launcher.late", "n1", line[:38])
