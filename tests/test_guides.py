"""Help for a gate that did not pass: a section of a page for each, and commands that run as pasted."""

import re
import shlex
import subprocess
from pathlib import Path

from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.gate import PLACES
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Outcome
from bringup.report.explain import next_commands
from factory import a_run, a_verdict, judged_of
from programs import ROOT

GUIDES = list(dict.fromkeys(gate.guide for gate in GATES.values()))
KNOWN = {"node": "n1", "nodes": "n0,n1", "node_count": "2", "gpus": "8", "job": "17", "profile": "generic"}
KNOWN |= {"run": "validation/results/smoke/a run", "script": "training/slurm/run_ddp_2node.sbatch"}
PLACE = re.compile(r"\{(" + "|".join(PLACES) + r")\}")
PLACE_LEFT = re.compile(PLACE.pattern + r"|…|\b(NODE|RUN|JOBID)\b")
SECTION = re.compile(r'((?:<a id="[^"]+"></a>)+)\n\n### (.*)\n((?:(?!<a id=|## |### ).*\n)*)')
SYMPTOMS = "| you see | usually | check | do |\n|---|---|---|---|\n"
PARTS = ("**Usually helps:** ", SYMPTOMS, "**Observes.** ", "**Why.** ")


def test_next_is_commands_that_run_as_pasted():
    assert set(KNOWN) == set(PLACES)
    for guide in GUIDES:
        commands = guide.commands(KNOWN)
        assert len(commands) == len(guide.next), guide.title
        requests_none = guide.title == "No GPU for a job that requested none"
        for command in commands:
            assert not PLACE_LEFT.search(command), command
            under_pipefail = re.search(r"\| *(head|grep -[qm])", command)
            assert not under_pipefail, f"{command}: fails under pipefail when the reader ends first"
            if re.search("^srun .*(nvidia-smi|torch.cuda)", command) and not requests_none:
                assert "--gpus-per-" in command, f"{command}: where jobs are confined it sees no GPU"
            assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0, command
            for word in shlex.split(command, comments=True):
                if re.match(r"(infrastructure-validation|training|validation/profiles)/", word):
                    assert (ROOT / word).exists(), f"{command}: {word} is not there"


def test_no_command_starts_a_phase_on_fewer_nodes_than_it_needs_or_on_more():
    """`explain` printed run_ddp_2node with --nodes=1, which its script refuses."""
    tried = 0
    for gate in GATES.values():
        for phase in (PHASES[stem] for stem in gate.phases):
            for nodes in {phase.min_nodes, phase.max_nodes or 3}:
                run = a_run(phase.stem, [f"n{number}" for number in range(nodes)], plan={})
                for command in next_commands([a_verdict(gate.id, "n0")], judged_of(run=run, folder=Path("a-run"))):
                    asked = re.search(r"--nodes=(\d+) .*?(\S+\.(?:sbatch|sh))\b", command)
                    other = None if asked is None else next((p for p in PHASES.values() if p.script == asked[2]), None)
                    if asked is not None and other is not None:
                        assert other.min_nodes <= int(asked[1]) <= (other.max_nodes or 10**6), command
                        tried += 1
    assert tried > 50


def sections() -> dict[tuple[str, str], tuple[list[str], str]]:
    """(page, heading) -> the gates whose anchors stand before it, and its text."""
    return {
        (str(page.relative_to(ROOT / "docs").with_suffix("")), title): (re.findall(r'"([^"]+)"', anchors), text)
        for page in (ROOT / "docs").rglob("*.md")
        for anchors, title, text in SECTION.findall(page.read_text(encoding="utf-8"))
    }


def test_each_section_of_checks_is_a_section_of_its_page_with_the_anchors_of_its_gates():
    in_docs = {place: set(gates) for place, (gates, _) in sections().items()}
    declared: dict[tuple[str, str], set[str]] = {}
    for gate in GATES.values():
        declared.setdefault((gate.guide.page, gate.guide.title), set()).add(gate.id)
    assert declared == in_docs


def test_a_section_says_what_a_failure_means_what_helps_and_what_to_run():
    written = sections()
    for guide in GUIDES:
        _, text = written[guide.page, guide.title]
        where = f"docs/{guide.page}.md, {guide.title}"
        places = [text.find(f"\n{part}") for part in PARTS]
        assert min(places) >= 0 and places == sorted(places), f"{where}: {dict(zip(PARTS, places, strict=True))}"
        table = text.partition(SYMPTOMS)[2].partition("\n\n")[0].splitlines()
        assert table and all(len(re.findall(r"(?<!\\)\|", row)) == 5 for row in table), where
        for begin in PARTS[2:]:
            paragraph = text.partition(begin)[2].partition("\n\n")[0].rstrip()
            assert paragraph.endswith((".", "`.")), f"{where}: {paragraph[-60:]}"
        of_guide = [gate for gate in GATES.values() if gate.guide == guide]
        others = [f"; `{gate.id}`: {gate.action}" for gate in of_guide if gate.action]
        named = [f"`{gate.id}`{' (warns)' * (gate.severity is Outcome.WARN)}" for gate in of_guide]
        helps = f"**Usually helps:** {guide.action}{''.join(others)}. Gates: {', '.join(named)}."
        assert f"\n{helps}\n" in text, f"{where}: expected {helps}"
        for command in guide.next:
            assert PLACE.sub(lambda match: match[1].upper(), command) in text.splitlines(), f"{where}: {command}"
        assert guide.next or text.count("\n\n") > len(PARTS), f"{where}: neither a command nor a step by hand"
