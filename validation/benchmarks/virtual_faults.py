"""Faults that only machines with kernels of their own can have, made on virtual nodes, and whether they are found.

    make test-virtual                                         # the machines, all rounds, the page, and all down again
    infrastructure-validation/local-cluster/cluster up --virtual --nodes 2
    python validation/benchmarks/virtual_faults.py            # all rounds; or some: storage jobs
    python validation/benchmarks/virtual_faults.py --write    # docs/results/virtual.md, from what was stored

A round makes its faults together, each of other gates, asks once, and undoes them. What a healthy round says is no
finding. A new line that no fault of its round explains is a false alarm. What does not end in its time is undone, the
nodes are made usable again, and the next one follows. Exit code: 0 all were found and nothing else; 1 one was missed,
or there was a false alarm; 2 of one it is not known.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

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
    "nccl_pairwise": "sbatch --wait --nodes={nodes} infrastructure-validation/scripts/nccl_pairwise.sbatch",
    "smoke": "bash infrastructure-validation/scripts/smoke_test.sh",
}
ROUND_S, JOB_S, USABLE_S = 1500, 600, 600  # the longest time for a round, for one job, and until the nodes are usable
ASK = {"fail", "warn"}  # outcomes that a healthy cluster may not have, but where the table says that they are right
Lines = dict[str, str]
"""`gate subject` -> what was said."""


class Deadline:
    """When the fault that is being made has to be over (time.monotonic). One for all commands."""

    at = 0.0

    @classmethod
    def in_s(cls, seconds: float) -> None:
        cls.at = time.monotonic() + seconds

    @classmethod
    def left(cls) -> float:
        return max(1.0, cls.at - time.monotonic())


def cluster(*words: str, most: int = 2) -> str:
    """Run a verb of the cluster and return what it printed. most: its exit code. Raises subprocess.SubprocessError."""
    return run([str(CLUSTER), *words], most)


def run(words: Sequence[str], most: int = 0) -> str:
    """Run a program, and end it with its children at the deadline."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as program:
        try:
            out, err = program.communicate(timeout=Deadline.left())
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            raise
        except BaseException:
            os.killpg(program.pid, signal.SIGTERM)
            raise
    if program.returncode > most or program.returncode < 0:
        raise subprocess.SubprocessError(f"{' '.join(words)[:120]}: {program.returncode}: {err.strip()[-300:]}")
    return out


def on(node: str, script: str, most: int = 2) -> str:
    """Run a script as root on a node. `off` and `boot` are verbs of the cluster; `reset` is both."""
    if script in ("off", "boot", "reset"):
        for verb in ("off", "boot") if script == "reset" else (script,):
            cluster(verb, node)
        # Slurm keeps a node that rebooted by itself down (ReturnToService=1)
        return "" if script == "off" else cluster("on", "n0", "scontrol", "update", f"nodename={node}", "state=resume")
    return cluster("on", node, "bash", "-c", script, most=most) if script else ""


def undo(faults: Sequence[Mapping[str, str]], nodes: Sequence[str]) -> None:
    """Undo each, also where another one cannot be undone; then make all nodes usable, by a reset where need be."""
    Deadline.in_s(USABLE_S)
    failed = set()
    for fault in faults:
        try:
            on(fault["node"], fault.get("undo", ""))
        except subprocess.SubprocessError as error:
            failed.add(fault["node"])
            print(f"undo of {fault['fault']}: {error}", flush=True)
    for node in nodes:
        try:
            if node in failed:
                raise subprocess.SubprocessError("a fault is left there")
            on(node, "timeout 20 ls /shared /scratch >/dev/null")
        except subprocess.SubprocessError as error:
            print(f"{node} is started again: {error}", flush=True)
            with suppress(subprocess.SubprocessError):
                on(node, "reset")
    with suppress(subprocess.SubprocessError):
        on("n0", "scancel --user=bringup; scancel --user=root")
        while on("n0", "sinfo -h -t idle -o %D").strip() != str(len(nodes)):
            on("n0", "for n in $(sinfo -hN -t down,drain -o %N); do scontrol update nodename=$n state=resume; done")
            time.sleep(3)


def of_phase(phase: str, parts: str, nodes: Sequence[str]) -> tuple[Lines, int]:
    """Run a phase's script there and judge its folder here, which is quicker; return what did not pass, and how many
    were asked."""
    name = f"v{int(time.time())}"
    environment = [f"BRINGUP_RUN_NAME={name}", "BRINGUP_JUDGE_LATER=1", f"BRINGUP_SMOKE_PARTS={parts}"]
    environment.append("BRINGUP_STORAGE_MIB=16")  # emulated disks are slow
    cluster("sh", "env", *environment, *SCRIPTS[phase].format(nodes=len(nodes)).split())
    with tempfile.TemporaryDirectory() as place:
        run(
            ["bash", "-c", f"'{CLUSTER}' sh tar c -C validation/results/{phase} {name} | tar x -C {place}"],
        )
        verdicts = judge.judge_folder(Path(place) / name).verdicts.verdicts
    left_out = {verdict.gate for verdict in verdicts if "left out by hand" in (verdict.cause or "")}
    asked = [verdict for verdict in verdicts if verdict.gate not in left_out]
    failed = [verdict for verdict in asked if verdict.outcome is not Outcome.PASS]
    return {f"{each.gate} {each.subject}": f"{each.outcome}: {each.cause or each.observed}" for each in failed}, len(
        asked
    )


def of_job(fault: Mapping[str, str]) -> Lines:
    """Submit the fault's job, make the fault while it runs, and ask `why` when it has ended, as its user would."""
    on(fault["node"], fault.get("before", ""))
    options = ["--parsable", "--no-requeue", "--output=slurm-logs/%j.out", *fault.get("options", "").split()]
    submit = ["sbatch", *options, "--wrap", fault["job"]]
    if fault.get("by") == "root":
        job = cluster("on", "n0", "bash", "-c", 'cd /shared/bringup && exec "$@"', "sh", *submit).strip()
    else:
        job = cluster("sh", *submit).strip()
    while _state(job) == "PENDING":
        time.sleep(2)
    time.sleep(5)
    on(fault["node"], fault.get("make", ""), most=0)
    while _state(job) in ("RUNNING", "COMPLETING", "PENDING"):
        if Deadline.left() <= 60:
            raise subprocess.SubprocessError(f"job {job} has not ended")
        time.sleep(3)
    answer = json.loads(cluster("sh", ".venv/bin/bringup", "why", "--json", job))
    cause = answer["cause"]
    return {f"{cause['kind']} {cause['node'] or 'job'}": f"{answer['job'].get('state')}: {json.dumps(cause)}"}


def _state(job: str) -> str:
    if Deadline.left() <= 1:
        raise subprocess.SubprocessError(f"no state of job {job} in time")
    state = re.search(r"JobState=(\w+)", cluster("sh", "scontrol", "show", "job", job))
    return state[1] if state else ""


def of_program(fault: Mapping[str, str]) -> Lines:
    """Make the fault and ask a program on its node, which has to answer."""
    on(fault["node"], fault.get("before", ""), most=0)
    on(fault["node"], fault.get("make", ""), most=0)
    answer = on(fault["node"], fault["ask"], most=255)
    return {f"{fault['says']} {fault['node']}": answer.strip()[-1500:]}


def judged(fault: Mapping[str, str], new: Lines) -> tuple[str, list[str]]:
    """Return found, missed or quiet (nothing should be said), and the lines that are this fault's."""
    if not fault["finds"]:
        return "quiet", []
    own = [key for key, words in new.items() if re.search(fault["finds"], f"{key} {words}")]
    return ("missed" if not own else "quiet" if fault.get("harmless") else "found"), own


def play(name: str, entry: Mapping[str, Any], nodes: Sequence[str], kept: dict[str, Any]) -> None:
    """Make the faults of a round, ask, undo them, and keep what was said."""
    kind = entry["asks"]
    kept["faults"] = {fault: old for fault, old in kept.get("faults", {}).items() if old["round"] != name}
    if kind in ("why", "program"):
        for fault in entry["faults"]:
            begun = time.monotonic()
            Deadline.in_s(JOB_S)
            try:
                answers = (of_job if kind == "why" else of_program)(fault)
            except (subprocess.SubprocessError, ValueError) as error:
                _keep(kept, name, fault, "no answer", [], {"": str(error)}, begun, [])
            else:
                mark, own = judged(fault, answers)
                _keep(kept, name, fault, mark, own or list(answers), answers, begun, [])
            finally:
                undo([fault], nodes)
        return
    begun, usual, made = time.monotonic(), kept.get("healthy", {}).get(name_of_healthy(entry), {}), []
    Deadline.in_s(ROUND_S)
    try:
        for fault in entry["faults"]:
            made.append(fault)
            on(fault["node"], fault["make"], most=0)  # one that was not made would count as missed
        answers, asked = of_phase(kind, entry.get("parts", ""), nodes)
    except (subprocess.SubprocessError, ValueError, OSError) as error:
        for fault in entry["faults"] or [{"fault": name}]:
            _keep(kept, name, fault, "no answer", [], {"": str(error)}, begun, [])
        return
    finally:
        undo(made[::-1], nodes)
    if not entry["faults"]:
        kept.setdefault("healthy", {})[name_of_healthy(entry)] = answers
        wrong = [key for key, words in answers.items() if words.split(":")[0] in ASK]
        wrong = [key for key in wrong if not re.search(entry.get("right", "^$"), key)]
        fault = {"fault": f"none: {asked - len(answers)} of {asked} checks of {kind} pass"}
        _keep(kept, name, fault, "quiet", [], answers, begun, wrong)
        return
    new = {key: words for key, words in answers.items() if usual.get(key, "").split(":")[0] != words.split(":")[0]}
    explained = {key for fault in entry["faults"] for key in judged(fault, new)[1]}
    follows = [fault["also"] for fault in entry["faults"] if "also" in fault]
    explained |= {key for key in new if any(re.search(pattern, key) for pattern in follows)}
    false = [key for key in new if key not in explained]
    for fault in entry["faults"]:
        mark, own = judged(fault, new)
        _keep(kept, name, fault, mark, own, {key: new[key] for key in (*own, *false)}, begun, false)


def name_of_healthy(entry: Mapping[str, Any]) -> str:
    return " ".join([entry["asks"], *sorted(entry.get("parts", "").split())])


def _keep(
    kept: dict[str, Any],
    name: str,
    fault: Mapping[str, Any],
    mark: str,
    own: list[str],
    words: Lines,
    begun: float,
    false: list[str],
) -> None:
    minutes = round((time.monotonic() - begun) / 60, 1)
    entry = {"round": name, "mark": mark, "by": own, "words": words, "minutes": minutes, "false": false}
    kept["faults"][fault["fault"]] = entry
    print(f"{mark:<9} {fault['fault']}: {'; '.join(own) or words.get('', '-')} ({minutes} min)")
    print(*(f"  false alarm: {key}: {words[key]}\n" for key in false), sep="", end="", flush=True)


def summary(kept: Mapping[str, Any]) -> str:
    """One line: what was found, missed, falsely alarmed, and how long it took."""
    faults = kept.get("faults", {})
    marks = {mark: [name for name, each in faults.items() if each["mark"] == mark] for mark in MARKS}
    false = {f"{key} ({each['round']})" for each in faults.values() for key in each["false"]}
    tried = len(marks["found"]) + len(marks["missed"])
    words = f"{len(marks['found'])} of {tried} faults found; {len(false)} false alarms; {len(marks['quiet'])} times "
    words += (
        f"nothing had to be said; {len(marks['no answer'])} without an answer; {kept.get('minutes', 0):.0f} minutes"
    )
    return f"{words}, of which the start {kept['start_s']} s" if "start_s" in kept else words


MARKS = ("found", "missed", "quiet", "no answer")


def exit_code(kept: Mapping[str, Any]) -> int:
    faults = kept.get("faults", {}).values()
    if any(entry["mark"] == "missed" or entry["false"] for entry in faults):
        return 1
    return 2 if not faults or any(entry["mark"] == "no answer" for entry in faults) else 0


def page(kept: Mapping[str, Any]) -> str:
    rows = [f"`make test-virtual`: {summary(kept)}.", "", "| fault | found by, on | minutes |", "|---|---|---|"]
    quiet = [
        fault for fault, entry in kept.get("faults", {}).items() if entry["mark"] == "quiet" and not entry["false"]
    ]
    for fault, entry in kept.get("faults", {}).items():
        if fault in quiet:
            continue
        checks = ", ".join(dict.fromkeys(f"`{key.split()[0]}`" for key in entry["by"]))
        of = ", ".join(dict.fromkeys(key.split()[-1] for key in entry["by"]))
        mark = f"{checks} {of}" if entry["mark"] == "found" else f"**{entry['mark']}** {checks}".strip()
        mark = "; ".join([mark, *(f"false alarm: {key}" for key in entry["false"])])
        rows.append(f"| {fault} | {mark} | {entry['minutes']:g} |")
    rows += ["", f"Nothing had to be said, and nothing was: {'; '.join(quiet)}."] if quiet else []
    return "\n".join(rows) + "\n"


def write(kept: Mapping[str, Any]) -> None:
    PAGE.write_text(PAGE.read_text().partition(BELOW)[0] + BELOW + "\n" + page(kept))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", nargs="*", help="default: all of the table, and what was kept before is forgotten")
    parser.add_argument("--write", action="store_true", help="write the page from what is kept, and make no fault")
    parser.add_argument(
        "--most", type=float, default=240, metavar="MINUTES", help="begin no round later (default: 240)"
    )
    arguments = parser.parse_args()
    kept = json.loads(KEPT.read_text()) if KEPT.exists() and (arguments.rounds or arguments.write) else {}
    kept.setdefault("faults", {})
    if arguments.write:
        write(kept)
        return exit_code(kept)
    begun = time.monotonic()
    Deadline.in_s(USABLE_S)
    nodes = cluster("sh", "sinfo", "-hN", "-o", "%N").split()
    text = re.sub(r"\bnode: (first|last)\b", r"node: {\1}", TABLE.read_text())
    table = yaml.safe_load(text.replace("{first}", nodes[0]).replace("{last}", nodes[-1]))
    for name in arguments.rounds or table:
        if time.monotonic() - begun > arguments.most * 60:
            for fault in table[name]["faults"]:
                _keep(kept, name, fault, "no answer", [], {"": "not begun: the time is over"}, time.monotonic(), [])
            continue
        try:
            play(name, table[name], nodes, kept)
        except (subprocess.SubprocessError, ValueError, OSError) as error:
            print(f"no answer {name}: {error}", flush=True)
            for fault in table[name]["faults"]:
                if kept["faults"].get(fault["fault"], {}).get("round") != name:
                    _keep(kept, name, fault, "no answer", [], {"": str(error)}, time.monotonic(), [])
        if not arguments.rounds:
            kept["minutes"] = (time.monotonic() - begun) / 60
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        KEPT.write_text(json.dumps(kept, indent=1))
    write(kept)
    print(summary(kept))
    return exit_code(kept)


if __name__ == "__main__":
    sys.exit(main())
