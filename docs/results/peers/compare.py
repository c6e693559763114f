"""Two other tools on the same faults: what do `cmax audit` (ClusterMAX) and NHC notice of a fault that a drill makes?

    python docs/results/peers/compare.py --cmax CMAX --nhc FOLDER --drills DRILL_RUN > docs/results/peers.md

CMAX: the program of `pip install clustermax==0.2.1`, in an environment of its own. FOLDER: a checkout of
github.com/mej/nhc (9c4a38c). DRILL_RUN: the folder of a whole `bringup drill`, for what bringup said of the same fault.

Every drill is taken whose fault is made on the cluster itself and is there before a phase starts. Each tool is run on
the healthy cluster first, twice. A tool noticed a fault when it says something with the fault in place that it said in
none of the healthy runs: a criterion of cmax with another status or value, a failed check of NHC on any node. NHC has a
configuration made for these nodes (nhc.conf, nhc-gpu.conf beside this file).
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from bringup.drill.environment import RESULTS, LocalCluster
from bringup.errors import DrillError
from bringup.plan.catalogue import DRILLS
from bringup.plan.drill import Drill, Shape
from bringup.records import DrillReport, read_record

HERE = Path(__file__).resolve().parent
CRITERION = re.compile(r"^(?:PASS|FAIL|WARNING|SKIPPED)\s.*\[(?P<name>[\w./-]+)\]$")
FAILED_CHECK = re.compile(r"ERROR:\s+nhc:\s+Health check failed:\s+(?P<reason>.*)")
LIMIT_S = 120
NO_END = "(did not end)"
NOT_RUN = "(the fault could not be made)"


def cmax(cluster: LocalCluster, program: str, _: Path) -> set[str]:
    """The criteria that did not pass, each with its status and what was observed."""
    ended = cluster.verb("sh", program, "audit", "--slurm", "-y", limit_s=LIMIT_S)
    criteria, lines = set(), (ended.said + ended.complained).splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if match := CRITERION.match(line):
            criteria.add(f"{line.split()[0]} {match['name']}: {following.strip().removeprefix('Observed: ')}")
    if not criteria:
        raise DrillError(f"cmax printed no criterion: {ended.complained.strip()[-200:]}")
    return criteria


def nhc(cluster: LocalCluster, folder: str, configuration: Path) -> set[str]:
    """The checks that failed, on any node. A node on which it cannot be started is one of them."""
    failed = set()
    for node in cluster.shape.names:
        settings = (f"INCDIR={folder}/scripts", f"HELPERDIR={folder}/helpers", "MARK_OFFLINE=0", "LOGFILE=-", "NHC_RM=")
        ended = cluster.verb(
            "on", node, "bash", f"{folder}/nhc", "-a", "-t", "60", "-c", str(configuration), "-D", folder, *settings,
            limit_s=LIMIT_S,
        )  # fmt: skip
        reasons = {match["reason"] for match in FAILED_CHECK.finditer(ended.said + ended.complained)}
        if ended.code != 0 and not reasons:
            reasons = {f"ended with {ended.code}"}
        failed |= {f"{node}: {reason}" for reason in reasons}
    return failed


def answer_of(tool: Callable[[], set[str]]) -> str:
    """What it says beyond what it said of the healthy cluster. To hang names no fault."""
    try:
        return "; ".join(sorted(tool()))
    except DrillError as error:
        print(error, file=sys.stderr)
        return NO_END


def suitable(drill: Drill) -> bool:
    """The fault is in the cluster, not in what a job of ours does, and it is there before a phase starts."""
    return bool(drill.inject) and not (drill.during or drill.environment or drill.tamper or drill.truncate)


def faults_noticed(shape: Shape, drills: Iterable[Drill], programs: dict[str, str]) -> Iterable[dict[str, str]]:
    """One row a drill: what each tool said that it had not said of the healthy cluster."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:  # every node sees the checkout, and has a /tmp of its own
        configuration = Path(folder) / "nhc.conf"
        parts = ("nhc.conf", "nhc-gpu.conf") if shape.simulate else ("nhc.conf",)
        configuration.write_text("".join((HERE / part).read_text() for part in parts))
        tools = {"cmax": cmax, "nhc": nhc}
        cluster = LocalCluster(Path(tempfile.gettempdir()) / "bringup-peers", shape)
        cluster.start()
        try:
            healthy = {
                name: tool(cluster, programs[name], configuration) | tool(cluster, programs[name], configuration)
                for name, tool in tools.items()
            }
            print(f"{shape}: healthy: {len(healthy['nhc'])} checks of NHC fail", *healthy["nhc"], file=sys.stderr)
            for drill in drills:
                row = {"drill": drill.id, "fault": drill.fault}
                try:
                    cluster.make(drill.inject)
                    if drill.wait_for is not None:
                        cluster.wait_for(*drill.wait_for)
                    for name, tool in tools.items():
                        row[name] = answer_of(
                            lambda run=tool, of=name: run(cluster, programs[of], configuration) - healthy[of]
                        )
                except DrillError as error:
                    row |= {name: f"{NOT_RUN}: {error}" for name in tools}
                for command in drill.undo:
                    try:
                        cluster.make((command,))
                    except DrillError:
                        cluster.is_spoiled = True
                print(row, file=sys.stderr, flush=True)
                yield row
                cluster.heal()
        finally:
            cluster.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cmax", required=True)
    parser.add_argument("--nhc", required=True)
    parser.add_argument("--drills", required=True, type=Path)
    parser.add_argument("--only", nargs="+", default=[])
    options = parser.parse_args()
    results = {result.drill: result for result in read_record(options.drills / "drill.json", DrillReport).results}
    chosen = [drill for drill in DRILLS if suitable(drill) and (not options.only or drill.id in options.only)]
    rows: list[dict[str, str]] = []
    for shape in dict.fromkeys(drill.shape for drill in chosen):
        of_shape = [drill for drill in chosen if drill.shape == shape]
        rows += faults_noticed(shape, of_shape, {"cmax": options.cmax, "nhc": options.nhc})
    for row in rows:
        result = results.get(row["drill"])
        noticed = result is not None and result.performed and result.detected
        row["bringup"] = f"{result.gate} [{result.subject}] {result.outcome}" if noticed and result else ""
    print(table(rows))


def table(rows: list[dict[str, str]]) -> str:
    """The page: a count for each tool, then a line for each fault."""
    tools = ("bringup", "nhc", "cmax")
    run = [row for row in rows if not row["nhc"].startswith(NOT_RUN)]
    counts = ", ".join(f"{name} {sum(row[name] not in ('', NO_END) for row in run)}" for name in tools)
    lines = [
        "# The same faults, seen by other tools",
        "",
        f"{len(run)} faults were made on local clusters. Noticed: {counts}. `docs/results/peers/compare.py` made this "
        "page; its head says what counts as noticed.",
        "",
        "`cmax audit` reads the configuration of a cluster. NHC reads the state of a node. Neither runs jobs, and "
        "bringup does. So this is not a ranking: it shows what each tool leaves to be noticed later.",
        "",
        "| fault | bringup | NHC | cmax audit |",
        "| --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = (row["fault"], *(row[name] or "—" for name in tools))
        lines.append("| " + " | ".join(cell.replace("|", "\\|")[:160] for cell in cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
