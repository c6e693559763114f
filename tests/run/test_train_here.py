"""bringup train: what cannot work is one line before a folder is made, and the commands are those of the jobs."""

import importlib.util
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import warm_python
from bringup.cli import main, parser
from bringup.kernel.errors import UsageError
from bringup.kernel.judge import judge_folder
from bringup.kernel.plan import profile as profiles
from bringup.kernel.records import Outcome
from bringup.kernel.results import REPOSITORY
from bringup.run import programs, train_here
from bringup.run.train_here import PROGRAMS, choose_ranks, free_port, launchers
from harness import wait_until
from loops import case_for_each
from tiers import FEWER


@pytest.mark.parametrize("strategy", PROGRAMS)
def test_it_starts_the_program_and_is_judged_as_the_phase_of_the_job_of_this_strategy(strategy):
    program, *own = PROGRAMS[strategy]
    phase = train_here.phase_of(strategy)
    assert phase.strategy == strategy
    job = (REPOSITORY / phase.script).read_text()
    assert f"program=training/src/{program}\n" in job
    options = re.search(r"^strategy=\((.*)\)", job, re.MULTILINE)
    assert options[1].split() == own
    least = choose_ranks(strategy, {"single": 1, "hsdp": 4}.get(strategy, 2), 0)
    assert phase.lacks(phase.min_nodes, least // phase.min_nodes) is None


@case_for_each(
    ("ddp", None, 8, 8),
    ("fsdp", 2, 8, 2),
    ("single", None, 8, 1),
    ("single", None, 0, 1),
    ("hsdp", 4, 0, 4),
    ("ddp", None, 0, "say how many ranks train on the CPU: --ranks 2"),
    ("ddp", 1, 0, "train ddp needs 2 or more; 1 requested"),
    ("fsdp", 4, 2, "torch sees 2 GPUs here, and each rank needs one"),
    ("fsdp", None, 1, "train fsdp needs 2 or more; 1 requested"),
    ("hsdp", 2, 0, "needs an even number of ranks, 4 or more: two groups"),
    ("hsdp", 5, 0, "needs an even number of ranks, 4 or more: two groups"),
    ("single", 2, 8, "train single is one rank, 2 requested"),
)
def test_ranks_are_the_gpus_unless_they_are_named_and_those_that_cannot_train_so_are_refused(
    strategy, wanted, gpus, ranks_or_words
):
    if isinstance(ranks_or_words, int):
        assert choose_ranks(strategy, wanted, gpus) == ranks_or_words
        return
    with pytest.raises(UsageError, match=ranks_or_words) as refused:
        choose_ranks(strategy, wanted, gpus)
    assert "\n" not in str(refused.value)


def test_a_launcher_per_node_and_none_for_one_rank(tmp_path):
    assert launchers("single", 1, tmp_path, ["x.py"], 1) == [[sys.executable, "x.py"]]
    (ddp,) = launchers("ddp", 4, tmp_path, ["x.py", "--steps", "3"], 1)
    assert ddp[-3:] == ["x.py", "--steps", "3"]
    assert "--standalone" in ddp
    assert ddp[ddp.index("--nproc-per-node") + 1] == "4"
    both = launchers("hsdp", 4, tmp_path, ["x.py"], 29400)
    assert [command[command.index("--node-rank") + 1] for command in both] == ["0", "1"]
    assert all(command[command.index("--nproc-per-node") + 1] == "2" for command in both)


def test_where_launchers_meet_is_no_port_that_linux_hands_out_or_that_is_in_use(monkeypatch):
    handed_out = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with socket.create_server(("", free_port())) as listening:
        taken = listening.getsockname()[1]
        offered = iter([taken - 10_000, taken - 10_000, taken - 9_999])
        monkeypatch.setattr(train_here.secrets, "randbelow", lambda below: next(offered))
        assert free_port() == taken + 1 < handed_out


def test_the_second_half_is_trained_again_on_other_ranks(monkeypatch, tmp_path):
    """The same global batch for both, and what cannot train so is refused before the first is started."""
    made: list[train_here.Request] = []
    codes = [0, 0]

    def train(request):
        made.append(request)
        return tmp_path / str(len(made)), codes[len(made) - 1]

    monkeypatch.setattr(train_here, "train", train)
    monkeypatch.setattr(train_here, "_planned", lambda request, ranks: None)
    monkeypatch.setattr(train_here, "gpus", list)
    request = train_here.Request("fsdp", 2, profiles.load("cpu"), "cpu", ["--steps", "8"])
    assert list(train_here.resumed_on(request, 4)) == [(tmp_path / "1", 0), (tmp_path / "2", 0)]
    assert [(each.ranks, each.batch_for) for each in made] == [(2, 4), (4, 4)]
    assert made[0].options == ["--steps", "8", "--save-steps", "half"]
    assert made[1].options == [*made[0].options, "--resume", str(tmp_path / "1")]
    with pytest.raises(UsageError, match="train fsdp needs 2 or more; 1 requested"):
        list(train_here.resumed_on(request, 1))
    made.clear()
    codes[0] = 1
    assert list(train_here.resumed_on(request, 4)) == [(tmp_path / "1", 1)]


class Opened(Exception):
    """A training got so far that its folder would be made."""


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """Ranks of the trainings that would have been made, each of which passes."""
    ranks: list[int | None] = []
    real = train_here.train

    def open_run(*phase, **plan):
        raise Opened

    def train(request):
        with pytest.raises(Opened):
            real(request)
        ranks.append(request.ranks)
        return tmp_path, 0

    monkeypatch.setattr(train_here.opening, "open_run", open_run)
    monkeypatch.setattr(train_here, "train", train)
    monkeypatch.setattr(train_here, "gpus", list)
    monkeypatch.delenv("BRINGUP_TRAIN_RANKS", raising=False)
    return ranks


def test_a_batch_suits_both_numbers_of_ranks_or_is_refused_before_the_first_training(opened):
    request = train_here.Request("fsdp", 4, profiles.load("cpu"), "cpu", ["--global-batch", "32"])
    with pytest.raises(UsageError, match=r"--global-batch 32 is not divisible by 3 rank"):
        list(train_here.resumed_on(request, 3))
    assert opened == []
    assert len(list(train_here.resumed_on(replace(request, options=[]), 3))) == 2
    assert opened == [4, 3]


def test_the_first_training_is_judged_although_the_second_is_refused(monkeypatch, tmp_path, capsys):
    from bringup.report import write

    def resumed_on(request, ranks):
        yield tmp_path, 0
        raise UsageError("the second cannot be made")

    judged: list[Path] = []
    monkeypatch.setattr(train_here, "resumed_on", resumed_on)
    monkeypatch.setattr(write, "judge_and_show", lambda folder, profile: judged.append(folder) or Outcome.PASS)
    assert main(["train", "fsdp", "--ranks", "4", "--resume-on", "2"]) == 2
    assert judged == [tmp_path]
    assert "the second cannot be made" in capsys.readouterr().err


def test_each_launcher_sees_its_part_of_the_gpus_in_sight(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert train_here._gpus_of(1, 2) == {"CUDA_VISIBLE_DEVICES": "6,7"}
    assert train_here._gpus_of(0, 2) == {"CUDA_VISIBLE_DEVICES": "4,5"}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert train_here._gpus_of(0, 1) == {"CUDA_VISIBLE_DEVICES": "0"}


@pytest.fixture
def makes_no_folder() -> Iterator[None]:
    before = sorted((REPOSITORY / "training/results").glob("run_*"))
    yield
    assert sorted((REPOSITORY / "training/results").glob("run_*")) == before


@pytest.mark.usefixtures("makes_no_folder")
def test_an_option_that_the_program_refuses_is_its_own_line_and_no_folder(refused, monkeypatch):
    monkeypatch.setattr(train_here, "gpus", list)
    assert "unrecognized arguments: --nope" in refused("train", "ddp", "--ranks", "2", "--nope")
    assert "the nearest that is: 6" in refused("train", "ddp", "--ranks", "3", "--global-batch", "7")


@pytest.mark.usefixtures("makes_no_folder")
def test_a_torch_that_is_not_there_or_cannot_be_imported_is_one_line(refused, monkeypatch, tmp_path: Path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "torch cannot be used in" in refused("train", "single")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    assert "torch is not installed" in refused("train", "single")


def test_an_option_of_the_program_is_no_abbreviation_of_ours_and_other_verbs_take_none(refused):
    arguments, options = parser().parse_known_args(["train", "ddp", "--r", "2", "--ranks", "4"])
    assert (arguments.ranks, options) == (4, ["--r", "2"])
    assert "bringup judge: no option --steps; see bringup judge --help" in refused("judge", "--steps", "3")


def test_a_launcher_that_does_not_end_is_killed_with_its_ranks():
    deaf = 'trap "" TERM; sleep 60 & echo $!; wait; wait'
    launcher = programs.start(["bash", "-c", deaf], os.environ, stdout=subprocess.PIPE, text=True)
    with launcher.child:
        rank = Path("/proc", launcher.child.stdout.readline().strip(), "stat")
        programs.end(launcher, 0.5)
    wait_until(lambda: not rank.exists() or ") Z " in rank.read_text(), "the rank has ended with its launcher")


def test_trainings_here_are_planned_watched_closed_judged_and_compared(tmp_path, capfd, monkeypatch):
    """Real processes, on the CPU. Each run is stamped with its own name, whatever the shell has, and signed."""
    folders, signed = [], []
    warm_python.stand_in(monkeypatch)
    monkeypatch.setenv("RUN_DIR", str(tmp_path / "another"))
    monkeypatch.setattr(train_here.signature, "sign", lambda path, _: signed.append(path))
    for strategy, ranks in (("single", 1), ("ddp", 2), *(() if FEWER else (("fsdp", 2),))):
        request = train_here.Request(strategy, ranks, profiles.load("cpu"), "cpu", ["--steps", "6"], results=tmp_path)
        folder, code = train_here.train(request)
        assert code == 0, (folder / "raw/launch.log").read_text()[-2000:]
        judged = judge_folder(folder)
        assert [(bad.gate, bad.cause) for bad in judged.verdicts.verdicts if bad.outcome is not Outcome.PASS] == []
        assert {"train.strategy", "train.device", "train.loss.fell"} <= {each.gate for each in judged.verdicts.verdicts}
        head = judged.training.metrics.summary
        assert (head.strategy, head.ranks, head.nodes) == (strategy, ranks, 1)
        assert (head.scaling is None) == (strategy == "single")
        facts = [line for file in (folder / "raw").glob("*.jsonl") for line in file.read_text().splitlines()]
        assert {json.loads(line[line.index("{") :])["run"] for line in facts if '"end"' in line} == {folder.name}
        assert signed.pop() == folder / "closed.json"
        log = (folder / "raw/launch.log").read_text().splitlines()
        assert log
        assert all(line.startswith("0: ") for line in log)
        folders.append(str(folder))
    capfd.readouterr()
    assert main(["compare", *folders]) == 0
    table = capfd.readouterr().out
    assert table.count("PASS") == len(folders)
    two_of_one_size = "Which strategy on 2 ranks of 1 node: cannot tell, because no GPU was at work" in table
    assert two_of_one_size == (len(folders) > 2)


def test_a_sigterm_gives_the_ranks_time_for_a_checkpoint(tmp_path):
    stop, log = tmp_path / "stop", tmp_path / "launch.log"
    ranks = f"until [ -e {shlex.quote(str(stop))} ]; do sleep 0.05; done; echo saved"
    before = signal.getsignal(signal.SIGTERM)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    code = train_here._run([["bash", "-c", ranks]], [dict(os.environ)], log, stop)
    assert (code, log.read_text()) == (0, "0: saved\n")
    assert signal.getsignal(signal.SIGTERM) is before


def test_ranks_that_do_not_stop_are_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(train_here, "SECONDS_TO_SAVE", 0.2)
    (tmp_path / "stop").touch()
    command = ["bash", "-c", "exec sleep 60"]
    train_here._run([command], [dict(os.environ)], tmp_path / "launch.log", tmp_path / "stop")


def test_what_the_arguments_say_is_judged_before_torch_is_asked(monkeypatch):
    def imported() -> list[str]:
        raise AssertionError("torch was imported")

    monkeypatch.setattr(train_here, "gpus", imported)
    wrong = {("--steps", "1.5"): "invalid int value: '1.5'", ("--model", "/nowhere/m"): "no such file"}
    for options, says in wrong.items():
        request = train_here.Request("fsdp", 2, profiles.load("cpu"), "cpu", [*options])
        with pytest.raises(UsageError, match=says):
            train_here.train(request)
    with pytest.raises(UsageError, match="train hsdp needs an even number of ranks"):
        train_here.train(train_here.Request("hsdp", 2, profiles.load("cpu"), "cpu", []))
