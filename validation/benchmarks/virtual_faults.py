"""Faults that only machines with kernels of their own can have, made on virtual nodes, and whether they are found.

    infrastructure-validation/local-cluster/cluster up --virtual --nodes 2
    python validation/benchmarks/virtual_faults.py            # hours on busy cores; or some rounds: storage jobs
    python validation/benchmarks/virtual_faults.py --write    # docs/results/virtual.md, from what was stored

A round makes its faults together, each of other gates, asks once, and undoes them. What a healthy round says is no
finding. A new line that no fault of its round explains is a false alarm.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from bringup.kernel import judge
from bringup.kernel.records import Outcome

REPOSITORY = Path(__file__).parents[2]
CLUSTER = REPOSITORY / "infrastructure-validation/local-cluster/cluster"
TABLE = Path(__file__).with_suffix(".yaml")
KEPT = REPOSITORY / "validation/results/virtual.json"
PAGE = REPOSITORY / "docs/results/virtual.md"
BELOW = "<!-- made by validation/benchmarks/virtual_faults.py -->\n"
SCRIPTS = {
    "discovery": "sbatch --wait --nodes={nodes} infrastructure-validation/scripts/discover-environment.sbatch",
    "smoke": "bash infrastructure-validation/scripts/smoke_test.sh",
}
LIMIT_S = 1500
Lines = dict[str, str]
"""`gate subject` -> what was said."""


def cluster(*words: str, most: int = 2) -> str:
    """Run a verb of the cluster and return what it printed. most: its exit code. Raises subprocess.SubprocessError."""
    done = subprocess.run([CLUSTER, *words], capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    if done.returncode > most:
        raise subprocess.SubprocessError(f"{' '.join(words)[:80]}: {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def on(node: str, script: str, most: int = 2) -> str:
    """Run a script as root on a node. `off` and `boot` are verbs of the cluster; `reset` is both."""
    if script in ("off", "boot", "reset"):
        for verb in ("off", "boot") if script == "reset" else (script,):
            cluster(verb, node)
        # Slurm keeps a node that rebooted by itself down (ReturnToService=1)
        return "" if script == "off" else cluster("on", "n0", "scontrol", "update", f"nodename={node}", "state=resume")
    return cluster("on", node, "bash", "-c", script, most=most) if script else ""


def of_phase(phase: str, parts: str, nodes: Sequence[str]) -> Lines:
    """Run a phase's script there and judge its folder here, which is quicker; return what did not pass."""
    name = f"v{int(time.time())}"
    environment = [f"BRINGUP_RUN_NAME={name}", "BRINGUP_JUDGE_LATER=1", f"BRINGUP_SMOKE_PARTS={parts}"]
    environment.append("BRINGUP_STORAGE_MIB=16")  # emulated disks are slow
    cluster("sh", "env", *environment, *SCRIPTS[phase].format(nodes=len(nodes)).split())
    with tempfile.TemporaryDirectory() as place:
        copy = f"'{CLUSTER}' sh tar c -C validation/results/{phase} {name} | tar x -C {place}"
        subprocess.run(copy, shell=True, check=True, stdin=subprocess.DEVNULL)
        verdicts = judge.judge_folder(Path(place) / name).verdicts.verdicts
    failed = [verdict for verdict in verdicts if verdict.outcome is not Outcome.PASS]
    return {f"{each.gate} {each.subject}": f"{each.outcome}: {each.cause or each.observed}" for each in failed}


def of_job(fault: Mapping[str, str]) -> Lines:
    """Submit the fault's job, make the fault while it runs, and ask `why` when it has ended."""
    on(fault["node"], fault.get("before", ""))
    options = ["--parsable", "--no-requeue", "--output=slurm-logs/%j.out", *fault.get("options", "").split()]
    job = cluster("sh", "sbatch", *options, "--wrap", fault["job"]).strip()
    until = time.monotonic() + 600
    while _state(job) == "PENDING" and time.monotonic() < until:
        time.sleep(3)
    time.sleep(5)
    on(fault["node"], fault.get("make", ""), most=0)
    while _state(job) in ("RUNNING", "COMPLETING", "PENDING") and time.monotonic() < until:
        time.sleep(5)
    on(fault["node"], fault.get("undo", ""))
    answer = json.loads(cluster("sh", ".venv/bin/bringup", "why", "--json", job))
    cause = answer["cause"]
    return {f"{cause['kind']} {cause['node'] or 'job'}": f"{answer['job'].get('state')}: {json.dumps(cause)}"}


def _state(job: str) -> str:
    state = re.search(r"JobState=(\w+)", cluster("sh", "scontrol", "show", "job", job))
    return state[1] if state else ""


def judged(fault: Mapping[str, str], new: Lines) -> tuple[str, list[str]]:
    """Return found, missed or quiet (nothing should be said), and the lines that are this fault's."""
    own = [key for key, words in new.items() if re.search(fault["finds"], f"{key} {words}")] if fault["finds"] else []
    if not fault["finds"]:
        return "quiet", []
    return ("found" if own else "missed"), own


def play(name: str, entry: Mapping, nodes: Sequence[str], kept: dict) -> None:
    """Make the faults of a round, ask, undo them, and keep what was said."""
    kind, begun = entry["asks"], time.monotonic()
    if kind == "why":
        for fault in entry["faults"]:
            begun = time.monotonic()
            answers = of_job(fault)
            mark, own = judged(fault, answers)
            _keep(kept, name, fault, mark, own or list(answers), answers, begun, [])
        return
    usual = kept.get("healthy", {}).get(kind, {})
    made = []
    try:
        for fault in entry["faults"]:
            made.append(fault)
            on(fault["node"], fault["make"], most=0)  # one that was not made would count as missed
        answers = of_phase(kind, entry.get("parts", ""), nodes)
    finally:
        for fault in reversed(made):
            on(fault["node"], fault.get("undo", ""))
    new = {key: words for key, words in answers.items() if usual.get(key, "").split(":")[0] != words.split(":")[0]}
    if not entry["faults"]:
        kept.setdefault("healthy", {})[kind] = answers
    explained = {key for fault in entry["faults"] for key in judged(fault, new)[1]}
    follows = [fault["also"] for fault in entry["faults"] if "also" in fault]
    explained |= {key for key in new if any(re.search(pattern, key) for pattern in follows)}
    false = [key for key in new if key not in explained] if entry["faults"] else []
    for fault in entry["faults"]:
        mark, own = judged(fault, new)
        _keep(kept, name, fault, mark, own, {key: new[key] for key in (*own, *false)}, begun, false)


def _keep(
    kept: dict, name: str, fault: Mapping, mark: str, own: list[str], words: Lines, begun: float, false: list[str]
) -> None:
    minutes = round((time.monotonic() - begun) / 60, 1)
    entry = {"round": name, "mark": mark, "by": own, "words": words, "minutes": minutes, "false": false}
    kept.setdefault("faults", {})[fault["fault"]] = entry
    print(f"{mark:<8} {fault['fault']}: {'; '.join(own) or '-'} ({minutes} min)")
    print(*(f"  false alarm: {key}: {words[key]}\n" for key in false), sep="", end="", flush=True)


def page(kept: Mapping) -> str:
    rows = ["| fault | found by, on | minutes |", "|---|---|---|"]
    for fault, entry in kept.get("faults", {}).items():
        checks = ", ".join(dict.fromkeys(f"`{key.split()[0]}`" for key in entry["by"]))
        of = ", ".join(dict.fromkeys(key.split()[-1] for key in entry["by"]))
        mark = f"{checks} {of}" if entry["mark"] == "found" else f"**{entry['mark']}** {checks}".strip()
        mark = "; ".join([mark, *(f"false alarm: {key}" for key in entry["false"])])
        rows.append(f"| {fault} | {mark} | {entry['minutes']:g} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", nargs="*", help="default: all of the table")
    parser.add_argument("--write", action="store_true", help="write the page from what is kept, and make no fault")
    arguments = parser.parse_args()
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if arguments.write:
        PAGE.write_text(PAGE.read_text().partition(BELOW)[0] + BELOW + "\n" + page(kept))
        return 0
    nodes = cluster("sh", "sinfo", "-hN", "-o", "%N").split()
    text = re.sub(r"\bnode: (first|last)\b", r"node: {\1}", TABLE.read_text())
    table = yaml.safe_load(text.replace("{first}", nodes[0]).replace("{last}", nodes[-1]))
    for name in arguments.rounds or table:
        try:
            play(name, table[name], nodes, kept)
        except (subprocess.SubprocessError, ValueError) as error:
            print(f"no answer {name}: {error}")
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        KEPT.write_text(json.dumps(kept, indent=1))
    return (
        0 if all(entry["mark"] != "missed" and not entry["false"] for entry in kept.get("faults", {}).values()) else 1
    )


if __name__ == "__main__":
    sys.exit(main())
