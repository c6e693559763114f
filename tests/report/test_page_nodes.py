"""The page says what the cluster is, which nodes are not well and which differ; and leads to the evidence."""

import html
import re
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from bringup.kernel.judge import Judged
from bringup.kernel.records import Action, Observation, Outcome, Verdict
from bringup.kernel.run_folder import RunFolder
from bringup.report import bundle, fleet, links, page, system
from factory import a_run, a_verdict, gathered, judged_of, observed
from loops import for_each

GATE, OTHER = "discovery.gpu.count", "discovery.kernel"


def seen(quantity: str, **values: str | int | float | list[str] | None) -> list[Observation]:
    return [observed(quantity, node, value, "text") for node, value in values.items()]


def judged(*verdicts: Verdict, nodes: tuple[str, ...] = ("n0", "n1", "n2"), **how: Any) -> Judged:
    return judged_of(*verdicts, run=a_run("discovery", nodes, plan={}), **how)


def words(text: str) -> str:
    body = text[text.index("<body>") :]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_a_fact_is_that_of_most_nodes_and_the_others_are_named_with_theirs():
    run = judged(observations=tuple(seen("discovery.kernel", n0="6.8.0-31", n1="6.8.0-40", n2="6.8.0-31")))
    [fact] = system.facts([run])
    shown = (fact.what, fact.value, fact.scope, fact.others)
    assert shown == ("kernel", "6.8.0-31", "2 of 3 nodes", [("6.8.0-40", "n1")])
    page_text = words(page.render(gathered(run)))
    assert "Nodes that differ" in page_text
    assert "kernel 6.8.0-31 (2 of 3 nodes) 6.8.0-40: n1" in page_text


def test_what_only_the_parts_of_a_node_say_is_counted_and_the_node_as_a_whole_goes_first():
    both = (("discovery.rdma.rate", "400 Gb/sec"), ("discovery.gpu.model", "of a part"))
    places = [f"{node}/{part}" for node in ("n0", "n1") for part in ("a", "b")]
    parts = [observed(quantity, place, value, "text") for place in places for quantity, value in both]
    run = judged(nodes=("n0", "n1"), observations=(*parts, *seen("discovery.gpu.model", n0="H100", n1="H100")))
    known = [(fact.what, fact.value) for fact in system.facts([run])]
    assert known == [("GPU", "H100"), ("RDMA ports", "2 × 400 Gb/sec")]


@for_each(
    ("kernel", {f"n{n}": "6.8" if n > 99 else "6.9" for n in range(1024)}, "6.8", ("6.9", "n[0-9],n[10-99] (100)")),
    ("gpu.nvlinks", {"n0": "18", "n1": "17"}, system.NO_MAJORITY, ("17", "n1")),
    ("gpu.driver", {"n0": "570.124", "n1": None, "n2": "570.124"}, "570.124", ("not found out", "n1")),
    ("kernel", {f"n{n}": f"6.8.n{n}" for n in range(12)}, system.NO_MAJORITY, ("7 more values", "7 nodes")),
)
def test_who_differs_is_named_in_short_and_of_two_neither_is_the_usual_one(quantity, values, usual, others):
    [fact] = system.facts([judged(nodes=tuple(values), observations=tuple(seen(f"discovery.{quantity}", **values)))])
    assert (fact.value, fact.others[-1]) == (usual, others)
    assert len(fact.others) <= system.MAX_DIFFERENT + 1


def test_what_nobody_could_find_out_is_not_a_fact_and_equal_nodes_are_no_table():
    assert system.facts([judged(observations=tuple(seen("discovery.gpu.driver", n0=None, n1=None, n2=None)))]) == []
    equal = judged(observations=tuple(seen("discovery.kernel", n0="6.8", n1="6.8", n2="6.8")))
    assert "Nodes that differ" not in page.render(gathered(equal))


def test_a_square_has_the_worst_outcome_of_its_node_and_a_link_accuses_no_node():
    run = judged(
        a_verdict(GATE, "n0", Outcome.PASS),
        a_verdict(OTHER, "n1", Outcome.WARN),
        a_verdict(GATE, "n1/rank3", Outcome.FAIL, cause="it was removed"),
        a_verdict("nccl.pair.link", "n0--n2", Outcome.FAIL),
    )
    node_of = {node.name: node for node in fleet.nodes([run])}
    assert [node.outcome for node in node_of.values()] == [Outcome.PASS, Outcome.FAIL, Outcome.PASS]
    assert (node_of["n1"].gates, node_of["n1"].says) == ([GATE], "it was removed")
    standing = fleet.standing([run], list(node_of.values()))
    assert (standing.broken, standing.suspected, standing.clean) == (["n1"], ["n0", "n2"], [])
    text = page.render(gathered(run))
    assert f'<a href="#next" class="node fail wide" title="n1: fail: it was removed [{GATE}]">n1 F</a>' in text
    assert '<span class="node nothing wide" title="n2: nothing was judged of it alone">' in text


def test_of_a_thousand_nodes_the_rows_with_a_broken_one_are_shown_and_all_others_counted():
    nodes = tuple(f"rack{rack}-n{number:02}" for rack in range(4) for number in range(256))
    outcomes = {node: Outcome.FAIL if node == "rack2-n70" else Outcome.PASS for node in nodes}
    run = judged(*(a_verdict(GATE, node, outcome) for node, outcome in outcomes.items()), nodes=nodes)
    text = page.render(gathered(run))
    assert text.count(' class="node ') == fleet.ROW
    assert 'class="node fail" title="rack2-n70: fail: observed 1, expected 2 [discovery.gpu.count]">F</a>' in text
    assert "Not shown: 31 rows of clean nodes" in text
    assert "<b>1,023 of 1,024</b> nodes clean" in text
    assert len(text) < 100_000


def test_nodes_stand_in_one_class_each_and_what_is_not_known_accuses_nobody():
    run = judged(
        a_verdict(GATE, "n0", Outcome.FAIL),
        a_verdict(GATE, "n1", Outcome.INCOMPLETE),
        a_verdict("nccl.pair.link", "n0--n2", Outcome.FAIL),
        a_verdict(GATE, "n3", Outcome.PASS),
        nodes=("n0", "n1", "n2", "n3"),
    )
    standing = fleet.standing([run], fleet.nodes([run]))
    assert standing.words == "1 broken: n0; 1 suspected: n2; 1 not fully known: n1"
    assert standing.clean == ["n3"]
    assert [style for style, _, _ in standing.parts] == ["fill-pass", "fill-incomplete", "fill-warn", "fill-fail"]
    assert sum(width for _, _, width in standing.parts) == pytest.approx(100)
    many = fleet.Standing(["n0"], [], [], [f"n{number}" for number in range(1, 5000)])
    assert many.parts[-1][2] > 0.9, "one broken node of thousands is seen"


def with_evidence(folder: Path) -> Judged:
    raw = folder / "raw"
    raw.mkdir(parents=True)
    (raw / "inventory.jsonl").write_text("{}\n")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/large.bin").write_text("x")
    (folder / "link").symlink_to("/etc/hostname")
    (folder / "notes.txt").write_text("what the run did not write")
    bad = a_verdict(GATE, "n1", evidence="raw/gone.jsonl:3")
    return replace(judged(a_verdict(GATE, "n0", Outcome.PASS), bad), files=RunFolder(folder))


def addresses(text: str) -> list[str]:
    return [address for address in re.findall(r'href="([^"]*)"', text) if not address.startswith("#")]


def test_evidence_is_one_click_away_for_passes_too_and_what_is_not_there_has_no_link(tmp_path: Path):
    run = with_evidence(tmp_path / "a run")
    text = page.render(gathered(run), links.beside(tmp_path / "pages/report.html"))
    assert addresses(text) == ["../a%20run", "../a%20run/raw/inventory.jsonl"]
    assert "raw/gone.jsonl:3" in text
    assert addresses(page.render(gathered(run))) == []


def test_an_archive_holds_the_page_and_what_its_links_lead_to_and_no_checkpoints(tmp_path: Path):
    with zipfile.ZipFile(BytesIO(bundle.pack(gathered(with_evidence(tmp_path / "a run"))))) as archive:
        names = archive.namelist()
        text = archive.read(bundle.PAGE).decode()
    assert names == ["report.html", "evidence/00-discovery/raw/inventory.jsonl"]
    assert addresses(text) == ["evidence/00-discovery", "evidence/00-discovery/raw/inventory.jsonl"]


def test_the_repair_list_has_the_causes_with_their_nodes_and_what_helps_and_each_sentence_once():
    actions = {GATE: Action.REBOOT, OTHER: Action.CONFIGURE, "discovery.shm": Action.CONFIGURE}
    updates = {gate: {"action": action, "fails": f"{gate} is wrong"} for gate, action in actions.items()}
    failed = [a_verdict(gate, "n1").model_copy(update=update) for gate, update in updates.items()]
    failed += [failed[0].model_copy(update={"subject": "n2"})]
    text = page.render(gathered(judged(*failed, a_verdict("discovery.cpu.count", "n0", Outcome.WARN))))
    head, _, below = text.partition('<div class="tiles">')
    rows = [words(f"<body>{row}") for row in head.split('<tr class="is-fail">')[1:]]
    assert rows[0].startswith(f"n1, n2 {GATE} is wrong {GATE} discovery: n1, n2")
    assert " reboot " in rows[0]
    assert rows[1].startswith(f"n1 {OTHER} is wrong")
    assert words(below.partition('id="steps"')[0].join(("<body>", ""))).count("is wrong") == 0
    assert re.findall(r'class="where">([^<]*)', head) == ["n1, n2", "n1", "n1"]
    assert "n0" not in words(head).partition("Repair list")[2].partition("how to look")[0]


def test_a_node_needs_what_costs_most_of_what_helps():
    asked = (Action.RESET, Action.REBOOT, None, Action.CONFIGURE)
    updates = [{"action": action, "fails": f"asks for {action}"} for action in asked]
    node = fleet.Node("n1", [a_verdict(GATE, "n1").model_copy(update=update) for update in updates])
    assert node.says == f"asks for {Action.REBOOT}"  # the sentence was that of the first one
