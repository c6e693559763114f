"""The phase script of the pairs, from end to end, with a stand-in for srun that answers as the probe does."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from programs import ROOT, program, ran
from scripts_for_tests import JOB, in_job_sh, on_the_path
from tiers import in_test_all
from trained_runs import counted

SRUN = """import json, os, pathlib, sys
if sys.argv[-2].endswith("probes/counters.py"):
    print(pathlib.Path(__file__).with_name(f"counters-{sys.argv[-1]}").read_text())
    sys.exit()
assert sys.argv[-2].endswith("probes/pair.py"), sys.argv
slow, speed = os.environ["SLOW"].split("@")
pairs = [pair.split(",") for pair in sys.stdin.read().split()]
if "dead" in os.environ and len(pairs) > 1 and any(os.environ["dead"] in pair for pair in pairs):
    sys.exit(1)  # a step with a node that cannot be reached does not start
for number, (first, second) in enumerate(pairs):
    task = sorted(name for pair in pairs for name in pair).index(second)
    if os.environ.get("dead") in (first, second):
        continue
    facts = [("pair.latency_p95", f"{first}--{second}", 50.0, "us")]
    for source, target in ((second, first), (first, second)):
        gbps = float(speed) if slow in (source, f"{source}->{target}") else 1.0
        gbps *= 1 + 0.001 * (number % 5)
        facts.append(("pair.bandwidth", f"{source}->{target}", gbps, "GB/s"))
        facts.append(("pair.sent_again", f"{source}->{target}", 0.0, "ratio"))
    for quantity, subject, value, unit in facts:
        fact = dict(probe="pair", at=second, subject=subject, quantity=quantity, value=value, unit=unit)
        print(f"{task}: {json.dumps(fact)}")
    print(f"{task}: {json.dumps(dict(probe='pair', at=second, end=len(facts)))}")
"""

LISTS = """import sys
from bringup.kernel.facts import hostlist
if sys.argv[2] == "hostnames":
    print("\\n".join(hostlist.expand(sys.argv[3])))
elif sys.argv[2] == "hostlist":
    print(hostlist.shortened(open(sys.argv[3]).read().split()))
"""


def measured(place: Path, nodes: int, slow: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    """(what the script said, the run's folder), in a copy of what it needs."""
    for part in ("infrastructure-validation/scripts", "infrastructure-validation/probes", "validation"):
        shutil.copytree(ROOT / part, place / part, ignore=shutil.ignore_patterns("results"))
    answer = place / "bin/srun.py"
    srun = program(place / "bin/srun", f'exec {shlex.quote(sys.executable)} {shlex.quote(str(answer))} "$@"')
    answer.write_text(SRUN)
    # show topology: as where Slurm knows no switches
    (place / "bin/lists.py").write_text(LISTS)
    program(place / "bin/scontrol", f'[[ $2 == topology ]] || "{sys.executable}" "{place}/bin/lists.py" "$@"')
    names = [f"n{number:02}" for number in range(nodes)]
    for moment in ("before", "after"):
        (srun.parent / f"counters-{moment}").write_text("".join(counted(node, moment) for node in names))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "BRINGUP_"))}
    job = JOB | {"SLURM_JOB_NAME": "nccl_pairwise", "SLURM_SUBMIT_DIR": str(place)}
    job |= {"SLURM_JOB_NODELIST": f"n[00-{nodes - 1:02}]", "SLURM_JOB_NUM_NODES": str(nodes), "SLOW": slow}
    job |= {"BRINGUP_PROFILE": "local-cpu", "BRINGUP_PAIR_ENGINE": "tcp", "BRINGUP_RUN_NAME": "stub"}
    job |= {"PYTHONPATH": str(place / "validation"), "PATH": f"{srun.parent}:{os.environ['PATH']}"}
    script = "infrastructure-validation/scripts/nccl_pairwise.sbatch"
    done = ran(["bash", script], cwd=place, env=kept | job | environment)
    return done, place / "validation/results/nccl_pairwise/stub"


def verdicts(run: Path, outcome: str) -> set[tuple[str, str]]:
    recorded = json.loads((run / "verdicts.json").read_text())["verdicts"]
    return {(verdict["gate"], verdict["subject"]) for verdict in recorded if verdict["outcome"] == outcome}


def test_two_rounds_name_a_slow_node_and_every_link_of_a_round_is_judged(tmp_path: Path) -> None:
    done, run = measured(tmp_path, 12, "n05@0.05")
    assert done.returncode == 1, done.stderr
    rounds = (run / "raw/rounds.txt").read_text().splitlines()
    assert len(rounds) == 2
    assert rounds[0] == "n00,n01 n02,n03 n04,n05 n06,n07 n08,n09 n10,n11"
    assert len(rounds[1].split()) == 6
    for repeat in (1, 2):
        for number in (1, 2):
            assert (run / f"raw/pairs-{repeat}-{number}.jsonl").stat().st_size > 0
    assert verdicts(run, "fail") == {("nccl.pair.node", "n05")}
    links = {subject for gate, subject in verdicts(run, "pass") if gate == "nccl.pair.link"}
    assert links == {pair.replace(",", "--") for met in rounds for pair in met.split()}
    assert "n05 sends at 0.05" in done.stderr
    assert "n05 sends at 0.05" in (run / "report.md").read_text()


@in_test_all
def test_a_third_round_tells_a_slow_path_from_its_ends(tmp_path: Path) -> None:
    done, run = measured(tmp_path, 12, "n04->n05@0.05")
    assert done.returncode == 1, done.stderr
    rounds = (run / "raw/rounds.txt").read_text().splitlines()
    assert len(rounds) == 3
    assert "n04,n05" in rounds[0].split() and "n04,n05" in rounds[2].split()
    assert verdicts(run, "fail") == {("nccl.pair.link", "n04--n05")}
    assert "n04->n05 is at 0.05" in done.stderr


@in_test_all
def test_a_node_that_cannot_be_reached_is_asked_pair_by_pair_and_named(tmp_path: Path) -> None:
    done, run = measured(tmp_path, 11, "none@1", dead="n03")
    assert done.returncode == 2, done.stderr
    assert "n03 is at 0.00" in done.stderr
    assert ("nccl.pair.node", "n03") in verdicts(run, "incomplete")
    assert verdicts(run, "fail") == set()


@in_test_all
@pytest.mark.parametrize(("nodes", "asked", "rounds"), [(6, "", 5), (10, "2", 2)])
def test_rounds_that_are_known_in_advance_are_measured_and_no_more(tmp_path, nodes, asked, rounds):
    done, run = measured(tmp_path, nodes, "none@1", BRINGUP_PAIR_ROUNDS=asked)
    assert (done.returncode, len((run / "raw/rounds.txt").read_text().splitlines())) == (0, rounds), done.stderr


def test_a_round_of_more_names_than_an_argument_can_hold_reaches_each_task(tmp_path: Path) -> None:
    """Linux takes 131,071 bytes of one argument; these names have 270,000."""
    names = [f"a-node-of-a-cluster-with-long-names-{number:04}" for number in range(6750)]
    pairs = " ".join(map(",".join, zip(names[::2], names[1::2], strict=True)))
    (tmp_path / "round").write_text(pairs)
    (tmp_path / "raw").mkdir()
    text = (ROOT / "infrastructure-validation/scripts/nccl_pairwise.sbatch").read_text()
    functions = "".join(re.findall(r"^(?:exchange_tcp|of_pairs)\(\) \{.*?^\}\n", text, re.MULTILINE | re.DOTALL))
    path = on_the_path(tmp_path, scontrol="cat >/dev/null; echo short", srun='echo "$*"; cat')
    script = f'{functions}RUN_DIR={tmp_path} SLURM_JOB_ID=7 exchange_tcp stem "$(<{tmp_path}/round)" 1'
    assert in_job_sh(script, PATH=path) == ""
    options, read = (tmp_path / "raw/stem.jsonl").read_text().splitlines()
    assert "--nodes=6750 --nodelist=short --ntasks=6750 " in options
    assert options.endswith(" python3 infrastructure-validation/probes/pair.py 20071")
    assert read == pairs
