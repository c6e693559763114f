"""One start of ranks that measures several scales: whose each line and bad end is, and NCCL's log of each scale."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nccl_files
import parts
import warm_python
from bringup.readers import nccl_log
from loops import case_for_each, for_each
from programs import PROBES, ROOT, begun, free_port

SCALES = ["collectives-1gpu:1-gpu:1:0", "collectives-1:1-node:2:0", "collectives-2:2-nodes:2:0-1"]
ENDED_1GPU = ["0: begin collectives-1gpu", "0: of one", "0: end collectives-1gpu"]
ENDED_1 = ["0: begin collectives-1", "0: of a node", "1: of a node, too", "0: end collectives-1"]
ALL = [*ENDED_1GPU, *ENDED_1, "0: begin collectives-2", "3: of two", "0: end collectives-2"]
GROUPS = ["0: begin groups-2", "0: of groups", "0: end groups-2", "0: begin collectives-2"]
SLURM_ENDS_N1 = ["srun: error: n1: task 2: Exited with exit code 3", "srun: error: n0: tasks 0-1: Killed"]


def shared_out(raw: Path, lines: list[str], scales: list[str] = SCALES) -> dict[str, str]:
    """The files of a step that printed these lines, without their last newlines."""
    parts.out(raw, [parts.scale_of(scale) for scale in scales], [f"{line}\n" for line in lines])
    return {path.name: path.read_text().strip() for path in raw.iterdir() if not path.name.endswith(".err")}


def ended(raw: Path, lines: list[str], code: int) -> list[int]:
    (raw / "all").write_text("".join(f"{line}\n" for line in lines))
    return parts.errors(raw, raw / "all", code, [parts.scale_of(scale) for scale in SCALES])


def test_each_scale_has_the_files_that_a_step_of_its_own_would_write(tmp_path):
    files = shared_out(tmp_path, [*ALL[:-1], "0: end collectives-2", *GROUPS, "0: end collectives-2"])
    assert files == {
        "collectives-1gpu.jsonl": "0: of one",
        "collectives-1gpu.rc": "0",
        "collectives-1.jsonl": "0: of a node\n1: of a node, too",
        "collectives-1.rc": "0",
        "collectives-2.jsonl": "3: of two",
        "collectives-2.rc": "0",
        "groups-2.jsonl": "0: of groups",
    }


def test_what_has_ended_is_there_while_the_step_goes_on(tmp_path):
    """A hang leaves it there, and so does the end of the job."""
    assert "collectives-1.rc" in shared_out(tmp_path, [*ENDED_1GPU, *ENDED_1, "0: begin collectives-2"])
    assert not (tmp_path / "collectives-2.rc").exists()
    shared_out(tmp_path, ["0: begin collectives-2", "0: end collectives-2", "0: begin groups-2"])
    assert (tmp_path / "collectives-2.rc").exists()
    shared_out(tmp_path, ["0: begin collectives-2"])  # behind the groups, when it leaves its communicator
    assert not (tmp_path / "collectives-2.rc").exists()


def test_who_is_not_in_the_scale_that_is_measured_speaks_of_the_widest(tmp_path):
    lines = ["3: a banner", *ENDED_1GPU[:2], "1: waits", "srun: of nobody", "2: begin collectives-2"]
    files = shared_out(tmp_path, lines)
    assert files["collectives-1gpu.jsonl"] == "0: of one\nsrun: of nobody"
    assert files["collectives-2.jsonl"] == "3: a banner\n1: waits\n2: begin collectives-2"


def test_tasks_are_numbered_as_in_a_step_of_the_scale_alone(tmp_path):
    """Slurm's order may begin with a node that the smaller scale does not have."""
    scales = ["collectives-1:1-node:2:1", "collectives-2:2-nodes:2:0-1"]
    assert shared_out(tmp_path, ["2: begin collectives-1", "2: of a node", "3: too"], scales) == {
        "collectives-1.jsonl": "0: of a node\n1: too"
    }
    assert parts.scale_of("collectives-4:4-nodes:8:0,2-3,9").rank(9, 1) == 25


@for_each(
    (ALL, 0, [], None),
    ([*ENDED_1GPU, *ENDED_1[:2], "srun: error: n0: task 1: Exited with exit code 3"], 3, [2], "collectives-1"),
    ([*ENDED_1GPU, *ENDED_1[:2], *SLURM_ENDS_N1], 3, [1], "collectives-2"),  # of a node that only waited
    ([*ENDED_1GPU, *ENDED_1, "0: begin collectives-2", *SLURM_ENDS_N1], 3, [], "collectives-2"),
    ([*ALL, *SLURM_ENDS_N1], 3, [], "collectives-2"),  # all was measured, and the end was bad
    (["2: ImportError: libnccl.so.2", *SLURM_ENDS_N1], 1, [0, 1], "collectives-2"),
    (["srun: error: Unable to create step for job 8: Invalid node"], 1, [0, 1], "collectives-2"),
    ([*ENDED_1GPU, "0: begin collectives-1"], 0, [2], "collectives-1"),  # a rank left without a word
    ([*ALL, *GROUPS[:2], *SLURM_ENDS_N1], 3, [], None),  # groups have no exit code
    ([*ENDED_1GPU, *ENDED_1, "0: begin groups-1", *SLURM_ENDS_N1], 3, [1], "collectives-2"),
)
def test_a_bad_end_is_that_of_the_scale_of_the_task_that_ended_first(tmp_path, lines, code, left, failed):
    for file in tmp_path.iterdir():
        file.unlink()
    assert ended(tmp_path, lines, code) == left
    assert {file.stem: file.read_text() for file in tmp_path.glob("*.rc")} == ({failed: f"{code}\n"} if failed else {})


def test_the_words_of_a_bad_end_are_beside_the_facts_of_its_scale(tmp_path):
    ended(tmp_path, [*ENDED_1GPU[:2], "2: ImportError: libnccl.so.2", *SLURM_ENDS_N1], 1)
    assert (tmp_path / "collectives-1gpu.err").read_text() == "0: of one\nsrun: error: n0: tasks 0-1: Killed\n"
    assert (tmp_path / "collectives-2.err").read_text() == f"2: ImportError: libnccl.so.2\n{SLURM_ENDS_N1[0]}\n"
    assert not (tmp_path / "all").exists()


# ---- the ranks


def start_of(
    tmp_path: Path, ranks: int, scales: list[str], *options: str, **environment: str
) -> list[tuple[int, str, str]]:
    """(exit code, standard output, standard error) of each rank on one node."""
    slurm = {"SLURM_NTASKS": f"{ranks}", "SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0", "SLURMD_NODENAME": "n0"}
    slurm |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{free_port()}", "GLOO_SOCKET_IFNAME": "lo"}
    for scale in scales:
        (tmp_path / parts.scale_of(scale).logs()).mkdir()
    command = [warm_python.python(), PROBES / "scaling.py", *options, tmp_path, *scales]
    started = [
        begun(command, env=os.environ | slurm | environment | {"SLURM_PROCID": f"{rank}", "SLURM_LOCALID": f"{rank}"})
        for rank in range(ranks)
    ]
    answers = [rank.communicate(timeout=300) for rank in started]
    return [(rank.returncode, *words) for rank, words in zip(started, answers, strict=True)]


def test_a_rank_that_hangs_at_a_scale_costs_none_of_the_smaller_ones(tmp_path):
    """Rank 1 waits for its scale, measures there, and hangs; rank 0 has said all of the one before."""
    (code, out, err), (_, other, _) = start_of(
        tmp_path, 2, SCALES[:2], "--only", "all_reduce", BRINGUP_DRILL="exit-rank:1", BRINGUP_HANG_S="20"
    )
    assert code != 0
    begun = [line for line in out.splitlines() if not line.startswith("{")]
    assert begun == ["begin collectives-1gpu", "end collectives-1gpu", "begin collectives-1"]
    assert [line for line in err.splitlines() if line.startswith(("begin", "end"))] == begun
    facts = [json.loads(line) for line in out.split("end collectives-1gpu")[0].splitlines() if line.startswith("{")]
    assert {fact["value"] for fact in facts if fact.get("quantity") == "nccl.ranks"} == {1}
    assert [fact["end"] for fact in facts if "end" in fact] == [len(facts) - 1]
    times = {fact["quantity"]: fact["value"] for fact in facts if fact.get("quantity", "").startswith("nccl.time.")}
    assert times.keys() == {"nccl.time.start", "nccl.time.measure"}
    assert all(0 < value < 300 for value in times.values())
    assert other == ""


# ---- NCCL's log

HEAD = "n0:7:7 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>\n"
COMMUNICATOR = "n0:7:7 [0] NCCL INFO Using network {}\nn0:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via {}\n"
WRITES = """
import os, sys
sys.path.insert(0, {probes!r})
import nccl_files
log = nccl_files.Log()
files = []
def says(words):
    if not files:  # as NCCL: once, with the first communicator
        files.append(open(os.environ["NCCL_DEBUG_FILE"].replace("%h", "n0").replace("%p", str(os.getpid())), "w", 1))
    files[0].write(words)
for folder, words in {messages!r}:
    log.begin(folder) if folder else log.silence()
    says(words)
"""


def written(tmp_path: Path, messages: list[tuple[str, str]], **environment: str) -> None:
    for folder, _ in messages:
        (tmp_path / folder).mkdir(exist_ok=True)
    there = [(folder and str(tmp_path / folder), words) for folder, words in messages]
    program = WRITES.format(probes=str(PROBES), messages=there)
    plain = {name: text for name, text in os.environ.items() if not name.startswith("NCCL_")}
    subprocess.run([sys.executable, "-c", program], env=plain | environment, check=True)


def judged_log(folder: Path) -> dict[str, object]:
    [file] = folder.iterdir()
    parsed = nccl_log.parse({file.name: file.read_text()}, folder.name, folder.name, "INFO", 1)
    return {seen.quantity: seen.value for seen in parsed.observations}


def test_the_transport_of_each_scale_is_told_from_what_nccl_said_of_it_alone(tmp_path):
    """The NICs, too, which NCCL names once for a process."""
    messages = [
        ("nccl-1", HEAD + COMMUNICATOR.format("IB", "P2P/CUMEM")),
        ("nccl-2", "".join(COMMUNICATOR.format("IB", f"NET/IB/{nic}/GDRDMA") for nic in (0, 1))),
        ("", COMMUNICATOR.format("Socket", "NET/Socket/0")),  # of the groups
        ("nccl-4", COMMUNICATOR.format("Socket", "NET/Socket/0")),
    ]
    written(tmp_path, messages)
    small, middle, large = (judged_log(tmp_path / name) for name in ("nccl-1", "nccl-2", "nccl-4"))
    assert (small["nccl.transport"], small["nccl.gdr"]) == ("rdma-verbs", None)
    assert (middle["nccl.transport"], middle["nccl.gdr"], middle["nccl.nics"]) == ("rdma-verbs", 1.0, 2)
    assert (large["nccl.transport"], large["nccl.gdr"]) == ("sockets", 0.0)


def test_a_file_that_the_user_names_is_left_to_him(tmp_path):
    own = tmp_path / "own.log"
    written(tmp_path, [("nccl-1", "one\n"), ("", "none\n"), ("nccl-2", "two\n")], NCCL_DEBUG_FILE=str(own))
    assert own.read_text() == "one\nnone\ntwo\n"
    assert not [*tmp_path.glob("nccl-*/*")]


@case_for_each(*sorted((ROOT / "tests/fixtures/real/nccl").glob("*.log")), ids=lambda path: path.stem)
def test_what_is_copied_of_a_real_log_tells_its_nics_and_of_no_network(log):
    copied = nccl_files.before_communicators(log.read_text())
    assert not nccl_files.OF_A_COMMUNICATOR.search(copied)
    assert nccl_log.CHANNEL.search(copied) is None


def test_the_folder_of_a_node_is_made_by_each_of_its_ranks(tmp_path, monkeypatch):
    monkeypatch.setattr(nccl_files, "node_name", lambda: "n0")
    assert [nccl_files.of_this_node(tmp_path) for _ in range(2)] == [tmp_path / "n0"] * 2
    assert nccl_files.of_this_node(tmp_path / "gone") == tmp_path / "gone"
