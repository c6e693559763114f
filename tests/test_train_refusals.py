"""`bringup train` while it runs: what asks it to end, and what is said before torch is asked."""

import os
import shlex
import signal
import threading

import pytest
from bringup.errors import UsageError
from bringup.plan import profile as profiles
from bringup.run import train_here


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
    for options, says in (
        (["--steps", "1.5"], "invalid int value: '1.5'"),
        (["--model", "/nowhere/m"], "no such file"),
    ):
        request = train_here.Request("fsdp", 2, profiles.load("cpu"), "cpu", options)
        with pytest.raises(UsageError, match=says):
            train_here.train(request)
    with pytest.raises(UsageError, match="train hsdp needs an even number of ranks"):
        train_here.train(train_here.Request("hsdp", 2, profiles.load("cpu"), "cpu", []))
