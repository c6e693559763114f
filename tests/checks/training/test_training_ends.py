"""When many ranks end, the culprit is named, and the victims are not."""

import json
from pathlib import Path

import pytest
from bringup.records import Outcome
from trained_runs import HUNG, LOST, WAITING, bad, change, ended, rank_said, run_of, stalled


def finished(folder: Path) -> dict[str, tuple[Outcome, str]]:
    return {
        subject: (v.outcome, f"{v.observed} {v.cause}")
        for (gate, subject), v in bad(folder).items()
        if gate == "train.rank.finished"
    }


def failing(ranks: dict[str, tuple[Outcome, str]]) -> set[str]:
    return {subject for subject, (outcome, _) in ranks.items() if outcome is Outcome.FAIL}


def test_the_hung_rank_is_who_began_fewer_collectives_and_its_frame_is_said(tmp_path):
    folder = ended(tmp_path)
    rank_said(folder, "n0", 0, state="raised", error=LOST)
    for rank in (1, 2, 3):  # ended by the launcher before they could say a word
        (folder / f"raw/rank{rank}.jsonl").write_text("")
    for rank in (0, 1, 3):
        stalled(folder, rank, WAITING, 74)
    stalled(folder, 2, HUNG, 73)
    ranks = finished(folder)
    ranks.pop("n1/rank2")
    verdict = bad(folder)["train.rank.finished", "n1/rank2"]
    assert verdict.outcome is Outcome.FAIL
    assert (
        "hung after step 3 in after_step (training/injected/rank_faults.py:96): it had begun 73 collectives, others 74"
        in verdict.observed
    )
    assert verdict.evidence == "raw/stacks/rank2.txt:7"
    assert {outcome for outcome, _ in ranks.values()} == {Outcome.INCOMPLETE}
    assert "waited after step 3 in all_gather (torch/distributed/distributed_c10d.py:4287)" in ranks["n1/rank3"][1]
    assert "first n1/rank2 hung" in str(bad(folder)["train.exit_code", "job"].cause)


@pytest.mark.parametrize(
    "words",
    [  # of gloo, as its ranks said them when a peer had hung or was killed
        LOST,
        "RuntimeError: Application timeout caused pair closure",
        "RuntimeError: Read error [10.77.1.11]:7315: Connection reset by peer",
        "RuntimeError: Connection closed by peer [10.77.1.10]:59805",
        "Late: 1 of 4 ranks did not arrive within 8 s: rank 2 (n1); BRINGUP_START_S sets how long to wait",
        "Late: nobody answered within 8 s at n0:20010, the node of rank 0: the client socket has timed out",
    ],
)
def test_who_lost_its_peers_is_no_culprit(tmp_path, words):
    folder = ended(tmp_path)
    rank_said(folder, "n1", 3, state="raised", error=words)
    assert finished(folder)["n1/rank3"][0] is Outcome.INCOMPLETE


def test_a_rank_that_did_not_arrive_fails_and_not_who_waited_for_it(tmp_path):
    """Its node is known to nobody where no rank of the node came; its number is."""
    folder = ended(tmp_path)
    words = "2 of 4 ranks did not arrive within 8 s: rank 2 (n1), rank 3 (host unknown); BRINGUP_START_S sets …"
    for rank in (0, 1):
        rank_said(folder, "n0", rank, state="raised", error=f"Late: {words}")
    for rank in (2, 3):
        (folder / f"raw/rank{rank}.jsonl").write_text("")
    missed = [
        {"probe": "train", "at": "n0", "subject": subject, "quantity": "train.rank.late", "value": 8, "unit": "s"}
        | {"why": words}
        for subject in ("n1/rank2", "unknown/rank3")
    ]
    lines = [*missed, {"quantity": "train.rank.state", "value": "raised", "unit": "text"}]
    lines += [{"quantity": "train.rank.error", "value": f"Late: {words}", "unit": "text"}]
    common = {"probe": "train", "at": "n0", "subject": "n0/rank0"}
    text = "".join(f"{json.dumps(common | line)}\n" for line in lines)
    (folder / "raw/rank0.jsonl").write_text(text + json.dumps({"probe": "train", "at": "n0", "end": len(lines)}) + "\n")
    ranks = finished(folder)
    assert failing(ranks) == {"n1/rank2", "n1/rank3"}
    assert {ranks[f"n0/rank{rank}"][0] for rank in (0, 1)} == {Outcome.INCOMPLETE}
    assert "rank 2 (n1), rank 3 (host unknown)" in ranks["n1/rank3"][1]
    assert "first n1/rank2 late" in str(bad(folder)["train.exit_code", "job"].cause)


def test_ranks_whose_launcher_did_not_start_are_late_and_the_others_are_not_blamed(tmp_path):
    folder = ended(tmp_path)
    for rank in range(4):
        (folder / f"raw/rank{rank}.jsonl").unlink()
    message = "1 of 2 launchers did not start in time: n1; BRINGUP_START_S sets how long to wait (Timed out …)"
    (folder / "raw/launch.log").write_text(f"0: {message}\nsrun: error: n0: task 0: Exited with exit code 1\n")
    ranks = finished(folder)
    assert failing(ranks) == {"n1/rank2", "n1/rank3"}
    assert {ranks[f"n0/rank{rank}"][0] for rank in (0, 1)} == {Outcome.INCOMPLETE}
    assert message[:60] in ranks["n1/rank2"][1]
    assert "first n1/rank2 late" in ranks["n0/rank0"][1]


def test_where_nobody_is_behind_nobody_is_named(tmp_path):
    folder = ended(tmp_path, silent=range(4))
    for rank in range(4):
        stalled(folder, rank, WAITING, 74)
    assert {outcome for outcome, _ in finished(folder).values()} == {Outcome.INCOMPLETE}


def test_a_stack_without_progress_accuses_nobody(tmp_path):
    folder = ended(tmp_path, silent=(2,))
    stalled(folder, 2, HUNG, None)
    outcome, words = finished(folder)["n1/rank2"]
    assert outcome is Outcome.INCOMPLETE
    assert "how far it was is not known" in words


@pytest.mark.parametrize("text", ["", "Timeout (0:00:04)!\n", "Thread 0x00 (most recent call first):\n", "\x00\xff"])
def test_a_stack_file_without_a_stack_is_no_evidence(tmp_path, text):
    folder = ended(tmp_path, silent=(2,))
    stalled(folder, 2, HUNG, 73)
    (folder / "raw/stacks/rank2.txt").write_text(text)
    assert "no evidence" in finished(folder)["n1/rank2"][1]


def test_a_rank_that_was_healthy_to_its_end_is_not_accused_by_an_early_stack(tmp_path):
    folder = run_of("run_ddp_2node", tmp_path)
    stalled(folder, 2, HUNG, 3)
    stalled(folder, 1, WAITING, 4)
    assert finished(folder) == {}


def test_the_loss_that_was_nan_first_fails_and_the_norms_it_spoilt_do_not(tmp_path):
    folder = ended(tmp_path)
    for rank, node in enumerate(("n0", "n0", "n1")):
        rank_said(
            folder,
            node,
            rank,
            state="raised",
            error="NotFinite: step 4: the gradient norm is nan, the loss of this rank was finite",
        )
    rank_said(
        folder,
        "n1",
        3,
        state="raised",
        error="NotFinite: step 4: the loss of this rank is nan; a faulty GPU or bad rows",
    )
    ranks = finished(folder)
    assert ranks.pop("n1/rank3")[0] is Outcome.FAIL
    assert {outcome for outcome, _ in ranks.values()} == {Outcome.INCOMPLETE}


def failures_of(ranks: dict[int, int]) -> str:
    return "".join(
        f"{rank // 2}:   rank      : {rank} (local_rank: {rank % 2})\n"
        f"{rank // 2}:   exitcode  : {code} (pid: 7{rank})\n"
        for rank, code in ranks.items()
    )


def test_a_rank_that_exited_without_a_word_is_named_when_its_launcher_saw_it_first(tmp_path):
    """A program that fails before its first line writes no file of its own."""
    folder = ended(tmp_path, silent=range(4))
    first = "Root Cause (first observed failure):\n"
    log = failures_of({3: -15}) + f"1: {first}" + failures_of({2: 1})
    log += f"0: [rank0]: {LOST}\n" + f"0: {first}" + failures_of({0: 1})
    (folder / "raw/launch.log").write_text(log)
    ranks = finished(folder)
    assert ranks["n1/rank2"][0] is Outcome.FAIL
    assert ranks["n1/rank2"][1].startswith("exited with code 1")
    assert failing(ranks) == {"n1/rank2"}
    assert "lost its peers" in ranks["n0/rank0"][1]
    assert "first n1/rank2 exited with code 1" in ranks["n1/rank3"][1]


def test_a_rank_that_ended_with_code_zero_and_left_no_word_was_killed_by_no_signal(tmp_path):
    folder = ended(tmp_path, silent=(3,), log=failures_of({3: 0}))
    assert finished(folder)["n1/rank3"][0] is Outcome.INCOMPLETE


def test_a_rank_killed_for_memory_says_so_with_its_node(tmp_path):
    folder = ended(tmp_path, silent=(3,))
    (folder / "raw/launch.log").write_text(
        failures_of({3: -9})
        + "slurmstepd-n1: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been "
        "OOM Killed.\nsrun: error: n1: task 1: Out Of Memory\n"
    )
    outcome, words = finished(folder)["n1/rank3"]
    assert outcome is Outcome.FAIL
    assert "killed by signal 9" in words
    assert "out of memory on n1" in words
    assert "first n1/rank3 killed by signal 9 (out of memory on n1" in str(bad(folder)["train.exit_code", "job"].cause)


def test_a_rank_killed_on_one_node_is_not_blamed_on_the_memory_of_another(tmp_path):
    folder = ended(tmp_path, silent=(3,), log=failures_of({3: -9}) + "srun: error: n0: task 0: Out Of Memory\n")
    assert "out of memory" not in finished(folder)["n1/rank3"][1]


# the words of torch 2.6, from a public report (LlamaFactory issue 7396), shortened
WATCHDOG = (
    "1: [rank2]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 2] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=60000) ran for 60004 "
    "milliseconds before "
    "timing out.\n"
)


def test_a_rank_that_nccls_watchdog_ended_is_a_victim(tmp_path):
    ranks = finished(ended(tmp_path, silent=(2, 3), log=WATCHDOG + failures_of({2: -6, 3: -6})))
    assert ranks["n1/rank2"][0] is Outcome.INCOMPLETE
    assert "Watchdog caught collective operation timeout" in ranks["n1/rank2"][1]
    assert ranks["n1/rank3"][0] is Outcome.FAIL  # an abort that nothing explains


def test_two_watchdogs_on_one_line_excuse_both_ranks(tmp_path):
    """Only the first one was read: the other was called killed by signal 6."""
    folder = ended(tmp_path, silent=(2, 3))
    second = WATCHDOG.removeprefix("1: ").replace("[rank2]", "[rank3]").replace("[Rank 2]", "[Rank 3]")
    (folder / "raw/launch.log").write_text(WATCHDOG.rstrip("\n") + second + failures_of({2: -6, 3: -6}))
    ranks = finished(folder)
    assert [ranks[f"n1/rank{rank}"][0] for rank in (2, 3)] == [Outcome.INCOMPLETE] * 2


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (  # torch 2.3 and later: a second thread watches the watchdog (DEIM issue 105)
            "1: [rank2]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 2] Heartbeat monitor timed out! Process will be "
            "terminated after dumping debug info. workMetaList_.size()=103\n",
            -6,
        ),
        (
            "1: [rank2]:[F ProcessGroupNCCL.cpp:1169] [PG 0 Rank 2] ProcessGroupNCCL's watchdog got stuck "
            "for 600 seconds without making progress in monitoring enqueued collectives.\n",
            -6,
        ),
        (WATCHDOG.replace("[Rank 2]", "[PG ID 1 PG GUID 3 Rank 0]"), -6),
        (WATCHDOG.replace("[Rank 2]", "[Rank 0]"), -6),
        (WATCHDOG.replace("[rank2]:", ""), -6),
        (
            "1: [rank2]:[E321 02:07:09.1 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank 0] "
            "Process group watchdog thread terminated with exception: NCCL error: remote process exited "
            "or there was a network error\n",
            -6,
        ),
        (
            "1: [rank2]:[E321 02:07:09.1 ProcessGroupNCCL.cpp:552] [Rank 2] Collective WorkNCCL(SeqNum=9) raised the "
            "following async exception: NCCL error: ncclRemoteError: A call failed possibly due to a network error\n",
            -11,
        ),
    ],
)
def test_a_rank_that_said_it_lost_its_peers_is_a_victim_whatever_its_number_in_a_smaller_group(tmp_path, line, code):
    """In front of a line stands the rank of the job; behind it, the rank in the process group, which may be another."""
    folder = ended(tmp_path, "run_hsdp_2node", silent=(0, 2))
    (folder / "raw/launch.log").write_text(line + failures_of({2: code}) + failures_of({0: code}))
    ranks = finished(folder)
    assert ranks["n1/rank2"][0] is Outcome.INCOMPLETE
    assert "lost its peers" in ranks["n1/rank2"][1]
    assert ranks["n0/rank0"][0] is Outcome.FAIL  # it ended by the same signal, and said nothing of its peers


def test_the_ranks_of_a_lost_node_are_lost_with_it(tmp_path):
    ranks = finished(ended(tmp_path, silent=(2, 3), log="srun: error: Node failure on n1\n"))
    assert failing(ranks) == {"n1/rank2", "n1/rank3"}
    assert "lost with its node" in ranks["n1/rank2"][1]


DOWN = (
    "NodeName=n0 Arch=x86_64 Gres=gpu:placeholder:2 State=IDLE ThreadsPerCore=1\n"
    "NodeName=n1 Arch=x86_64 Gres=gpu:placeholder:2 State=DOWN+NOT_RESPONDING ThreadsPerCore=1\n"
)


def test_srun_that_was_ended_before_it_named_the_lost_node_leaves_it_to_the_states_of_the_nodes(tmp_path):
    folder = ended(tmp_path, silent=range(4))
    (folder / "raw/launch.log").write_text(
        "0: slurmstepd-n0: error: *** STEP 616044.0 ON n0 CANCELLED AT 2026-11-22T17:22:06 "
        "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"
    )
    (folder / "raw/scontrol-node.txt").write_text(DOWN)
    ranks = finished(folder)
    assert failing(ranks) == {"n1/rank2", "n1/rank3"}
    assert "lost with its node (Slurm says DOWN+NOT_RESPONDING)" in ranks["n1/rank2"][1]
    assert "Slurm ended the step: node failure" in ranks["n0/rank0"][1]


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("monitor.err", "srun: error: Node failure on n1\n", "lost with its node (node failure)"),
        (
            "scontrol-job.txt",
            "JobId=9 JobName=x JobState=NODE_FAIL Reason=NodeDown\n",
            "lost with its node (Slurm says",
        ),
    ],
)
def test_ranks_that_lost_their_peers_before_slurm_noticed_do_not_hide_the_lost_node(tmp_path, file, text, says):
    """A launcher ended by its own ranks leaves nothing about the node in the words of its step."""
    folder = ended(tmp_path)
    for rank in (0, 1):
        rank_said(
            folder, "n0", rank, state="raised", error="RuntimeError: Connection closed by peer [10.77.1.11]:19134"
        )
    for rank in (2, 3):
        (folder / f"raw/rank{rank}.jsonl").write_text("")
    (folder / "raw/launch.log").write_text("srun: error: n0: task 0: Exited with exit code 1\n")
    (folder / "raw/scontrol-node.txt").write_text(DOWN)
    if file == "scontrol-job.txt":
        (folder / "closed.json").unlink()  # Slurm ended the job before its script could close the run
    (folder / "raw" / file).write_text(text)
    ranks = finished(folder)
    assert failing(ranks) == {"n1/rank2", "n1/rank3"}
    assert says in ranks["n1/rank3"][1]


def test_of_a_node_without_python_the_words_of_the_launcher_come_before_those_of_the_sampler(tmp_path):
    folder = ended(tmp_path)
    for rank in (2, 3):
        (folder / f"raw/rank{rank}.jsonl").unlink()
    (folder / "raw/launch.log").write_text(
        "1: no Python environment at /data/.venv, seen from n1; is it on a filesystem that all nodes share?\n"
        "srun: error: n1: task 1: Exited with exit code 2\n"
    )
    (folder / "raw/monitor.err").write_text(
        "1: slurmstepd-n1: error: execve(): /data/.venv/bin/python: No such file or directory\n"
        "srun: error: n1: task 1: Exited with exit code 2\n"
    )
    outcome, words = finished(folder)["n1/rank2"]
    assert outcome is Outcome.FAIL
    assert "no Python environment at /data/.venv" in words


def test_the_first_of_those_that_raised_is_said_with_its_time(tmp_path):
    folder = ended(tmp_path)
    for rank, second in ((1, 1795287798), (3, 1795287790)):
        file = f"raw/torchrun/none_x/attempt_0/{rank}/error.json"
        (folder / file).parent.mkdir(parents=True)
        (folder / file).write_text(json.dumps({"message": {"message": "x", "extraInfo": {"timestamp": str(second)}}}))
        rank_said(
            folder,
            "n0" if rank < 2 else "n1",
            rank,
            error_file=file,
            state="raised",
            error=f"ValueError: of rank {rank}",
        )
    words = bad(folder)["train.exit_code", "job"].cause
    assert words == "first n1/rank3 raised (ValueError: of rank 3) at 19:03:10 UTC; and 1 more rank"


@pytest.mark.parametrize("file", ["../../../etc/passwd", "/etc/passwd", "raw/torchrun/none", "raw/rank0.jsonl"])
def test_an_error_file_that_is_none_or_elsewhere_gives_no_time(tmp_path, file):
    folder = ended(tmp_path)
    rank_said(folder, "n0", 0, error_file=file, state="raised", error="ValueError: x")
    assert bad(folder)["train.exit_code", "job"].cause == "first n0/rank0 raised (ValueError: x)"


@pytest.mark.parametrize(
    ("step", "fetch", "forward", "says"),
    [
        (1.0, 0.001, [0.01, 0.01, 0.4, 0.01], "forward 0.4 s, the median is 0.01 s"),
        (0.01, 0.0001, [0.0004, 0.0004, 0.0009, 0.0004], None),  # less than a millisecond more is no slowdown
    ],
)
def test_a_rank_that_works_much_longer_than_its_peers_fails_and_says_in_what(tmp_path, step, fetch, forward, says):
    folder = run_of("run_ddp_2node", tmp_path)
    alike = dict.fromkeys(("step_p50", "step_p95", "step_max"), [step] * 4)
    times = alike | {"fetch": [fetch] * 4, "forward": forward, "optimizer": [fetch] * 4}
    change(folder, "metrics.json", rank_times_s=times)
    slow = {subject: v for (gate, subject), v in bad(folder).items() if gate == "train.straggler"}
    assert [*slow] == (["n1/rank2"] if says else [])
    assert all(v.outcome is Outcome.FAIL and str(says) in v.observed for v in slow.values())


REFUSED = "--model /nowhere/model: no such file or folder, seen from n0"


def refused_by_ranks(folder: Path) -> None:
    state = {"quantity": "train.rank.state", "value": None, "unit": "text", "why": f"refused: {REFUSED}"}
    for rank, node in enumerate(("n0", "n0", "n1", "n1")):
        common = {"probe": "train", "at": node}
        lines = [common | {"subject": f"{node}/rank{rank}"} | state, common | {"end": 1}]
        (folder / f"raw/rank{rank}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def refused_by_programs(folder: Path) -> None:
    for file in (folder / "raw").glob("rank*.jsonl"):
        file.unlink()
    (folder / "raw/launch.log").write_text(f"0: train_ddp_multi_node.py: {REFUSED}\n")


@pytest.mark.parametrize("refuse", [refused_by_ranks, refused_by_programs])
def test_what_ranks_refuse_is_no_fault_of_the_cluster(tmp_path, refuse):
    folder = ended(tmp_path)
    refuse(folder)
    ranks = finished(folder)
    assert {subject: outcome for subject, (outcome, _) in ranks.items()} == dict.fromkeys(ranks, Outcome.INCOMPLETE)
    assert len(ranks) == 4
    assert all(f"refused: {REFUSED}" in words for _, words in ranks.values())
    job = bad(folder)["train.exit_code", "job"]
    assert (job.outcome, job.cause) == (Outcome.INCOMPLETE, f"not found out: exit code 1: refused: {REFUSED}")
    assert Outcome.FAIL not in {verdict.outcome for verdict in bad(folder).values()}


def test_a_rank_that_was_killed_counts_although_others_refused(tmp_path):
    folder = ended(tmp_path)
    refused_by_ranks(folder)
    rank_said(folder, "n1", 3, state="raised", error="RuntimeError: of its own")
    assert finished(folder)["n1/rank3"][0] is Outcome.FAIL
    assert bad(folder)["train.exit_code", "job"].outcome is Outcome.FAIL
