"""What the guides say to run next runs as pasted: no place is open, bash understands it, every file is there."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from bringup.checks.catalogue import GATES
from bringup.plan.guide import PLACES, Guide

ROOT = Path(__file__).resolve().parents[1]
GUIDES = list(dict.fromkeys(gate.guide for gate in GATES.values()))
KNOWN = {
    "node": "n1",
    "nodes": "n0,n1",
    "node_count": "2",
    "gpus": "8",
    "run": "validation/results/smoke/a run",
    "job": "17",
    "profile": "generic",
}


def test_there_are_guides_and_every_place_is_known_here():
    assert GUIDES
    assert set(KNOWN) == set(PLACES)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.title)
def test_next_is_commands_that_run_as_pasted(guide: Guide):
    assert guide.next or guide.by_hand
    commands = guide.commands(KNOWN)
    assert len(commands) == len(guide.next)
    for command in commands:
        assert "…" not in command
        assert "NODE" not in re.findall(r"\b[A-Z]+\b", command)
        assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0, command
        for word in shlex.split(command, comments=True):
            if re.match(r"(infrastructure-validation|training|validation/profiles)/", word):
                assert (ROOT / word).exists(), f"{command}: {word} is not there"


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.title)
def test_what_a_guide_says_is_whole_sentences(guide: Guide):
    for text in (guide.observes, guide.why, guide.usually_means):
        assert text.endswith((".", "`.")), text
