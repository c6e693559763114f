"""When many ranks end, the culprit is named, and the victims are not."""

import json
from pathlib import Path
from typing import Any

import pytest
from bringup.kernel.records import Outcome
from loops import case_for_each, for_each
from programs import tree
from trained_runs import HUNG, LOST, WAITING, bad, change, ended, rank_said, run_of, stalled


def finished(folder: Path) -> dict[str, tuple[Outcome, str]]:
    of_ranks = {subject: v for (gate, subject), v in bad(folder).items() if gate == "train.rank.finished"}
    return {subject: (v.outcome, f"{v.observed} {v.cause} {v.evidence}") for subject, v in of_ranks.items()}


def failing(ranks: dict[str, tuple[Outcome, str]]) -> set[str]:
    return {subject for subject, (outcome, _) in ranks.items() if outcome is Outcome.FAIL}


def failures_of(ranks: dict[int, int]) -> str:
    line = "{0}:   rank      : {1} (local_rank: {2})\n{0}:   exitcode  : {3} (pid: 7{1})\n"
    return "".join(line.format(rank // 2, rank, rank % 2, code) for rank, code in ranks.items())


# the words of torch 2.6, from a public report (LlamaFactory issue 7396), shortened
WATCHDOG = (
    "1: [rank2]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 2] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=60000) ran for 60004 "
    "milliseconds before "
    "timing out.\n"
)
VICTIMS_OF_NCCL = [
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
]
DOWN = "NodeName=n0 Arch=x86_64 Gres=gpu:placeholder:2 State=IDLE ThreadsPerCore=1\n"
DOWN += DOWN.replace("n0", "n1").replace("IDLE", "DOWN+NOT_RESPONDING")
AT_74 = {rank: (WAITING, 74) for rank in range(4)}
OF_N1 = {"n1/rank2", "n1/rank3"}
LATE = "1 of 2 launchers did not start in time: n1; BRINGUP_START_S sets how long to wait"
NORM = "NotFinite: step 4: the gradient norm is nan, the loss of this rank was finite"
BY_SLURM = "*** STEP 616044.0 ON n0 CANCELLED AT 2026-11-22T17:22:06 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***"
OOM = "Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed."
FIRST = "Root Cause (first observed failure):\n"
EXITED, CODE_1 = "Exited with exit code", "exited with code 1"
NODE_FAILURE = "srun: error: Node failure on n1\n"
BEFORE_SLURM_NOTICED = {  # a launcher ended by its own ranks leaves nothing about the node in the words of its step
    "raised": {0: LOST, 1: LOST},
    "silent": (2, 3),
    "log": f"srun: error: n0: task 0: {EXITED} 1\n",
    "fails": OF_N1,
}
CASES: list[dict[str, Any]] = [
    # hung: who began fewer collectives, with its frame. The launcher ended ranks 1 to 3 before they could say a word
    {
        "raised": {0: LOST},
        "silent": (1, 2, 3),
        "stacks": AT_74 | {2: (HUNG, 73)},
        "fails": {"n1/rank2"},
        "words": {
            "n1/rank2": "hung after step 3 in after_step (training/injected/rank_faults.py:96): it had begun 73 "
            "collectives, others 74 raw/stacks/rank2.txt:7",
            "n1/rank3": "waited after step 3 in all_gather (torch/distributed/distributed_c10d.py:4287)",
            "job": "first n1/rank2 hung",
        },
    },
    # where nobody is behind, nobody is named
    {"silent": range(4), "stacks": AT_74, "words": dict.fromkeys(("n0/rank0", "n1/rank3"), "")},
    {"silent": (2,), "stacks": {2: (HUNG, None)}, "words": {"n1/rank2": "how far it was is not known"}},
    *(  # a file without a stack is no evidence
        {"silent": (2,), "stacks": {2: (HUNG, 73)}, "stacks/rank2.txt": text, "words": {"n1/rank2": "no evidence"}}
        for text in ("", "Timeout (0:00:04)!\n", "Thread 0x00 (most recent call first):\n", "\x00\xff")
    ),
    *(  # who lost its peers is no culprit. Of gloo, as its ranks said them when a peer had hung or was killed
        {"raised": {3: words}, "words": {"n1/rank3": ""}}
        for words in (
            LOST,
            "RuntimeError: Application timeout caused pair closure",
            "RuntimeError: Read error [10.77.1.11]:7315: Connection reset by peer",
            "RuntimeError: Connection closed by peer [10.77.1.10]:59805",
            "Late: 1 of 4 ranks did not arrive within 8 s: rank 2 (n1); BRINGUP_START_S sets how long to wait",
            "Late: nobody answered within 8 s at n0:20010, the node of rank 0: the client socket has timed out",
        )
    ),
    # ranks whose launcher did not start are late
    {
        "gone": range(4),
        "log": f"0: {LATE} (Timed out …)\nsrun: error: n0: task 0: {EXITED} 1\n",
        "fails": OF_N1,
        "words": {"n1/rank2": LATE, "n0/rank0": "first n1/rank2 late", "n0/rank1": ""},
    },
    # the loss that was NaN first, and not the norms that it spoilt
    {
        "raised": dict.fromkeys(range(3), NORM) | {3: "NotFinite: step 4: the loss of this rank is nan; a faulty GPU"},
        "fails": {"n1/rank3"},
        "words": dict.fromkeys(("n0/rank0", "n0/rank1", "n1/rank2"), ""),
    },
    # a program that fails before its first line writes no file: its launcher saw it first
    {
        "silent": range(4),
        "log": failures_of({3: -15}) + f"1: {FIRST}" + failures_of({2: 1}) + f"0: [rank0]: {LOST}\n0: {FIRST}"
        f"{failures_of({0: 1})}",
        "fails": {"n1/rank2"},
        "words": {"n1/rank2": CODE_1, "n0/rank0": "lost its peers", "n1/rank3": f"first n1/rank2 {CODE_1}"},
    },
    # code zero and no word: no signal killed it
    {"silent": (3,), "log": failures_of({3: 0}), "words": {"n1/rank3": ""}},
    {
        "silent": (3,),
        "log": f"{failures_of({3: -9})}slurmstepd-n1: error: {OOM}\nsrun: error: n1: task 1: Out Of Memory\n",
        "fails": {"n1/rank3"},
        "words": {"job": "first n1/rank3 killed by signal 9 (out of memory on n1"},
    },
    {  # not the memory of another node
        "silent": (3,),
        "log": failures_of({3: -9}) + "srun: error: n0: task 0: Out Of Memory\n",
        "fails": {"n1/rank3"},
        "words": {"n1/rank3": "killed by signal 9 None"},
    },
    {  # NCCL's watchdog ended rank 2; the abort of rank 3 is explained by nothing
        "silent": (2, 3),
        "log": WATCHDOG + failures_of({2: -6, 3: -6}),
        "fails": {"n1/rank3"},
        "words": {"n1/rank2": "Watchdog caught collective operation timeout"},
    },
    {  # two watchdogs on one line excuse both: only the first one was read, the other was called killed by signal 6
        "silent": (2, 3),
        "log": WATCHDOG.rstrip("\n")
        + WATCHDOG.removeprefix("1: ").replace("[rank2]", "[rank3]").replace("[Rank 2]", "[Rank 3]")
        + failures_of({2: -6, 3: -6}),
        "words": dict.fromkeys(OF_N1, ""),
    },
    *(  # in front of a line stands the rank of the job; behind it, the rank in the process group, which may be another
        {
            "stem": "run_hsdp_2node",
            "silent": (0, 2),
            "log": line + failures_of({2: code}) + failures_of({0: code}),
            "fails": {"n0/rank0"},  # it ended by the same signal, and said nothing of its peers
            "words": {"n1/rank2": "lost its peers"},
        }
        for line, code in VICTIMS_OF_NCCL
    ),
    # the ranks of a lost node are lost with it
    {"silent": (2, 3), "log": NODE_FAILURE, "fails": OF_N1, "words": {"n1/rank2": "lost with its node"}},
    {  # srun was ended before it named the node: its state does
        "silent": range(4),
        "log": f"0: slurmstepd-n0: error: {BY_SLURM}\n",
        "scontrol-node.txt": DOWN,
        "fails": OF_N1,
        "words": {
            "n1/rank2": "lost with its node (Slurm says DOWN+NOT_RESPONDING)",
            "n0/rank0": "Slurm ended the step: node failure",
        },
    },
    BEFORE_SLURM_NOTICED
    | {
        "scontrol-node.txt": DOWN,
        "monitor.err": NODE_FAILURE,
        "words": {"n1/rank3": "lost with its node (node failure)"},
    },
    BEFORE_SLURM_NOTICED
    | {
        "scontrol-node.txt": DOWN,
        "scontrol-job.txt": "JobId=9 JobName=x JobState=NODE_FAIL Reason=NodeDown\n",
        "closed": False,  # Slurm ended the job before its script could close the run
        "words": {"n1/rank3": "lost with its node (Slurm says"},
    },
    # of a node without Python the words of the launcher come before those of the sampler
    {
        "gone": (2, 3),
        "log": f"1: no Python environment at /data/.venv, seen from n1; is it on a filesystem that all nodes share?\n"
        f"srun: error: n1: task 1: {EXITED} 2\n",
        "monitor.err": "1: slurmstepd-n1: error: execve(): /data/.venv/bin/python: No such file or directory\n"
        f"srun: error: n1: task 1: {EXITED} 2\n",
        "fails": OF_N1,
        "words": {"n1/rank2": "no Python environment at /data/.venv"},
    },
]
OPTIONS = ("stem", "silent", "raised", "stacks", "gone", "log", "closed", "fails", "words")


@for_each(*CASES, ids=lambda case: f"{case.get('fails', 'nobody')} {case['words']}")
def test_the_culprit_fails_and_who_it_took_along_does_not(tmp_path_factory, case):
    stem, log = case.get("stem", "run_ddp_2node"), case.get("log")
    folder = ended(tmp_path_factory.mktemp("run"), stem, silent=case.get("silent", ()), log=log)
    for rank, error in case.get("raised", {}).items():
        rank_said(folder, f"n{rank // 2}", rank, state="raised", error=error)
    for rank, (stack, entered) in case.get("stacks", {}).items():
        stalled(folder, rank, stack, entered)
    for rank in case.get("gone", ()):
        (folder / f"raw/rank{rank}.jsonl").unlink()
    for file in set(case) - set(OPTIONS):
        (folder / "raw" / file).write_text(case[file])
    if not case.get("closed", True):
        (folder / "closed.json").unlink()
    ranks, fails = finished(folder), case.get("fails", set())
    assert failing(ranks) == fails
    assert {outcome for subject, (outcome, _) in ranks.items() if subject not in fails} <= {Outcome.INCOMPLETE}
    words = {subject: words for subject, (_, words) in ranks.items()}
    words["job"] = str(bad(folder)["train.exit_code", "job"].cause)
    assert {subject: words[subject] for subject, says in case["words"].items() if says not in words[subject]} == {}


def test_a_rank_that_did_not_arrive_fails_and_not_who_waited_for_it(tmp_path):
    """Its node is known to nobody where no rank of the node came; its number is."""
    folder = ended(tmp_path, silent=(2, 3))
    words = "2 of 4 ranks did not arrive within 8 s: rank 2 (n1), rank 3 (host unknown); BRINGUP_START_S sets …"
    for rank in (0, 1):
        rank_said(folder, "n0", rank, state="raised", error=f"Late: {words}")
    late = {"probe": "train", "at": "n0", "quantity": "train.rank.late", "value": 8, "unit": "s", "why": words}
    missed = [late | {"subject": subject} for subject in ("n1/rank2", "unknown/rank3")]
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


def test_a_rank_that_was_healthy_to_its_end_is_not_accused_by_an_early_stack(tmp_path):
    folder = run_of("run_ddp_2node", tmp_path)
    stalled(folder, 2, HUNG, 3)
    stalled(folder, 1, WAITING, 4)
    assert finished(folder) == {}


@for_each(
    # the oldest error file is first
    ({1: 1795287798, 3: 1795287790}, [], "first n1/rank3 raised (ValueError) at 19:03:10 UTC; and 1 more rank"),
    # who was killed left none, and was earlier than who raised
    ({0: 1795287790}, [3], "first n1/rank3 killed by signal 9; and 1 more rank"),
    ({3: 0}, [], "first n1/rank3 raised (ValueError)"),  # a time that is no date
)
def test_the_first_of_those_that_failed_is_named_with_its_time(tmp_path_factory, seconds, killed, words):
    log = "".join(failures_of({rank: -9}) for rank in killed)
    folder = ended(tmp_path_factory.mktemp("run"), silent=killed, log=log)
    for rank, second in seconds.items():
        file = f"raw/torchrun/none_x/attempt_0/{rank}/error.json"
        message = {"message": "x", "extraInfo": {"timestamp": str(second)}}
        tree(folder, {file: json.dumps({"message": message})})
        rank_said(folder, f"n{rank // 2}", rank, error_file=file, state="raised", error="ValueError")
    assert bad(folder)["train.exit_code", "job"].cause == words


@pytest.mark.parametrize("file", ["../../../etc/passwd", "/etc/passwd", "raw/torchrun/none", "raw/rank0.jsonl"])
def test_an_error_file_that_is_none_or_elsewhere_gives_no_time(tmp_path, file):
    folder = ended(tmp_path)
    rank_said(folder, "n0", 0, error_file=file, state="raised", error="ValueError: x")
    assert bad(folder)["train.exit_code", "job"].cause == "first n0/rank0 raised (ValueError: x)"


@case_for_each(
    (1.0, 0.001, [0.01, 0.01, 0.4, 0.01], "forward 0.4 s, the median is 0.01 s"),
    (0.01, 0.0001, [0.0004, 0.0004, 0.0009, 0.0004], None),  # less than a millisecond more is no slowdown
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


def test_a_job_that_got_sigterm_is_no_fault_of_the_cluster(tmp_path):
    """srun kills the ranks when it gets SIGTERM too: scancel --signal=TERM --full."""
    folder = ended(tmp_path, silent=range(4), log="")
    (folder / "raw/sigterm.txt").write_text("n0\n")
    assert {outcome for outcome, _ in finished(folder).values()} == {Outcome.INCOMPLETE}
    job = bad(folder)["train.exit_code", "job"]
    why = "not found out: exit code 1: the job got SIGTERM, so its ranks ended"
    assert (job.outcome, job.cause) == (Outcome.INCOMPLETE, why)


def test_a_rank_that_was_killed_counts_although_others_refused(tmp_path):
    folder = ended(tmp_path)
    refused_by_ranks(folder)
    rank_said(folder, "n1", 3, state="raised", error="RuntimeError: of its own")
    assert finished(folder)["n1/rank3"][0] is Outcome.FAIL
    assert bad(folder)["train.exit_code", "job"].outcome is Outcome.FAIL
