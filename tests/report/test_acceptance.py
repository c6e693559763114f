"""A contract, line by line: what runs prove of it, what they refute, and what nobody asked."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from bringup.accept import contract as contracts
from bringup.accept.lines import of_contract
from bringup.accept.records import Acceptance, Result
from bringup.cli import main
from bringup.kernel.errors import FileError
from bringup.kernel.records import read_record
from bringup.report import collection
from factory import a_run, a_verdict, judged_of, observed
from hostile.test_forged_signatures import new_key, site_with
from loops import for_each
from runs_for_tests import FAIL, OPEN, PASS, WARN, discovery, lose_a_gpu, reseal, unpacked

HOST, CPU = "discovery.node.hostname", "discovery.cpu.model"


def text_of(lines: dict[str, object], nodes: str = "n[0-1]", **more: object) -> str:
    whole = {"schema_version": 1, "contract": "order-1", "nodes": nodes, "lines": lines, **more}
    return yaml.safe_dump(whole, sort_keys=False)


def results(gathered: collection.Collection, line: dict[str, object], nodes: str = "n[0-1]") -> list[Result]:
    """Of the nodes, and of this line."""
    return of_contract(contracts.parse(text_of({"it": {"says": "it is so", **line}}, nodes), "c"), gathered)


@pytest.fixture
def run(tmp_path: Path, monkeypatch) -> Path:
    return discovery(tmp_path / "results", monkeypatch)


@for_each(
    ({"checks": [HOST]}, "n[0-1]", "proven", None),
    ({"checks": ["discovery.node.h*"]}, "n1", "proven", None),
    ({"fact": CPU, "equals": "AMD EPYC"}, "n[0-1]", "proven", None),
    ({"fact": CPU, "one_of": ["AMD EPYC", "Grace"]}, "n[0-1]", "proven", None),
    ({"fact": CPU, "equals": "Grace"}, "n[0-1]", "refuted", "n0: observed AMD EPYC, expected Grace"),
    (
        {"fact": CPU, "on_nodes": {"n0": ["AMD EPYC"], "n1": ["Grace"]}},
        "n[0-1]",
        "refuted",
        "n1: observed AMD EPYC, expected Grace",
    ),
    ({"fact": CPU, "on_nodes": {"n0": ["AMD EPYC"]}}, "n[0-1]", "not proven", "n1: "),  # nobody said what it has
    ({"fact": "discovery.nofile", "at_least": 1}, "n[0-1]", "proven", None),
    ({"fact": "discovery.nofile", "at_least": 1e9}, "n[0-1]", "refuted", "n0: observed"),
    ({"fact": "discovery.nofile", "at_least": 1, "unit": "GiB"}, "n[0-1]", "not proven", "observed in count"),
    ({"fact": CPU, "equals": "AMD EPYC"}, "n[0-2]", "not proven", "not on n2"),
    ({"checks": [HOST]}, "n[0-2]", "not proven", "not on n2"),
    ({"statements": ["jobs-kept"]}, "n[0-1]", "not asked", "no phase that asks it was run"),
    ({"statements": ["gpus-present"]}, "n[0-1]", "not proven", "no GPU was seen at work"),
    ({"checks": ["discovery.gpu.count"]}, "n[0-1]", "not proven", "no GPU was seen at work"),
    ({"fact": "discovery.gpu.count", "equals": 2}, "n[0-1]", "not proven", "no GPU was seen at work"),
    ({"fact": CPU, "equals": "AMD EPYC", "phase": "smoke"}, "n[0-1]", "not asked", None),
    ({"checks": ["smoke.storage.write"]}, "n[0-1]", "not asked", "no run asked it"),
    ({"shown_by": "a visit"}, "n[0-1]", "not asked", None),
)
def test_a_line_is_proven_only_by_evidence_of_each_node_that_was_sold(run, line, nodes, state, why):
    _, made = results(collection.gather([run]), line, nodes)
    assert (made.state, (why or "") in (made.why or "")) == (state, True), made


def test_a_node_that_slurm_does_not_know_refutes_the_line_of_nodes(run):
    assert results(collection.gather([run]), {"checks": [HOST]})[0].state == "proven"
    nodes, _ = results(collection.gather([run]), {"checks": [HOST]}, "n[0-2]")
    assert (nodes.state, nodes.seen) == ("refuted", "2 of 3 took part") and "Slurm knows no n2" in (nodes.why or "")


@for_each((PASS, "proven"), (WARN, "refuted"), (FAIL, "refuted"), (OPEN, "not proven"))
def test_a_check_that_failed_once_refutes_its_line_though_it_passed_in_another_run(outcome, state):
    sound = [a_verdict(gate, "job", PASS) for gate in ("run.closed", "run.evidence")]
    runs = [
        judged_of(*sound, *(a_verdict(HOST, node, of) for node in ("n0", "n1")), run=a_run(name=f"r{of}", plan={}))
        for of in (PASS, outcome)
    ]
    assert results(collection.Collection(judged=runs), {"checks": [HOST]})[1].state == state


def test_a_run_whose_evidence_was_altered_proves_no_line(run):
    (run / "raw/mpi-list.txt").write_text("none\n")
    _, made = results(collection.gather([run]), {"checks": [HOST]})
    assert made.state == "not proven" and "does not count" in (made.why or "")


def test_a_simulated_device_proves_nothing_and_a_bandwidth_is_that_of_the_widest_scale(tmp_path):
    folders = sorted(path.parent for path in unpacked("h100-healthy", tmp_path).rglob("run.json"))
    gathered = collection.gather(folders)
    _, made = results(gathered, {"fact": "discovery.rdma.ports", "equals": 8}, "n[0-2]")
    assert (made.state, made.why) == ("not proven", "the GPUs are simulated: their UUIDs say so")
    for fact in ("nccl.all_reduce.busbw", "nccl.all_reduce.busbw@16MiB"):
        line = {"fact": fact, "phase": "nccl_scaling", "unit": "GB/s", "at_least": 1e-9}
        _, made = results(gathered, line, "n[0-2]")
        assert "on 3-nodes" in made.seen and made.state == "not proven", "a size hid what has to be real"


@for_each(
    ("discovery.gpu.model", {}, "n0: 1 of 2 answered"),  # the plan of the run
    ("discovery.gpu.model", {"gpus_per_node": 8}, "n1: 2 of 8 answered; n0: 1 of 8 answered"),
    ("discovery.rdma.rate", {}, "n0: 7 of 8 answered"),  # the ports that there are
    ("load.counter.after.pcie_replays", {}, "n0: 1 of 2 answered"),  # another node
)
def test_a_device_that_is_silent_is_a_gap(tmp_path, fact, sold, says):
    folders = (path.parent for path in unpacked("h100-healthy", tmp_path).rglob("run.json"))
    gathered = collection.gather([folder for folder in folders if folder.parent.name in ("discovery", "node_sweep")])
    run = next(run for run in gathered.judged if run.seen.of(fact))
    (silent, *_) = (seen for seen in run.observations if seen.quantity == fact and seen.subject.startswith("n0/"))
    without = replace(run, observations=[seen for seen in run.observations if seen is not silent])
    line = {"it": {"says": "all alike", "fact": fact, "equals": silent.value}}
    contract = contracts.parse(text_of(line, "n[0-1]", **sold), "c")
    assert says in (of_contract(contract, replace(gathered, judged=[without]))[1].why or "")


@for_each(
    ({"says": "a", "checks": ["discovery.node.hostnam"]}, "did you mean discovery.node.hostname?"),
    ({"says": "a", "statements": ["gpu-present"]}, "no statement is called gpu-present"),
    ({"says": "a", "fact": CPU}, "a fact needs one of"),
    ({"says": "a", "equals": 1}, "a fact needs one of"),
    ({"says": "a", "checks": [HOST], "fact": CPU, "equals": "x"}, "write a line for each"),
    ({"says": "a", "checks": [HOST], "unit": "GB/s"}, "are of a fact"),
    ({"says": "a", "checks": [HOST], "shown_by": "a visit"}, "names checks and shown_by"),
    ({"says": "a", "fact": CPU, "equals": "x", "phase": "smok"}, "did you mean smoke?"),
    ({"says": "a", "fact": CPU, "on_nodes": {"n7": ["x"]}}, "the contract has no n7"),
    ({"checks": [HOST]}, "says: is missing"),
)
def test_a_contract_is_read_strictly_and_the_error_names_its_line(line, words):
    with pytest.raises(FileError, match=r"^order\.yaml") as error:
        contracts.parse(text_of({"it": line}), "order.yaml")
    assert words in str(error.value)


def test_nodes_that_are_no_node_list_are_an_error_of_their_line_and_no_other_line_is_called_so():
    with pytest.raises(FileError, match="the line of the nodes themselves"):
        contracts.parse(text_of({"nodes": {"says": "a"}}), "order.yaml")
    with pytest.raises(FileError, match=r"^order\.yaml:3: nodes: "):
        contracts.parse(text_of({"it": {"says": "a"}}, nodes="n[0"), "order.yaml")


def test_an_acceptance_is_signed_checked_and_broken_by_another_boot_a_lost_gpu_and_another_signer(
    run, tmp_path, monkeypatch, capsys
):
    key, allowed, out = new_key(tmp_path / "key"), tmp_path / "signers", tmp_path / "acc <b>"
    allowed.write_text(f'anna@lab namespaces="bringup" {key.with_suffix(".pub").read_text()}')
    monkeypatch.setenv("BRINGUP_SITE", site_with(tmp_path, signing_key=key, allowed_signers=allowed))
    lines = {"host": {"says": "<b>| of *x*", "checks": [HOST]}, "gpu": {"says": "g", "checks": ["discovery.gpu.count"]}}
    file, limits = tmp_path / "c.yaml", tmp_path / "limits.json"
    limits.write_text(json.dumps({HOST: "found at 1 s: 8 of 8"}))
    accept = ["accept", str(run), "--contract", str(file), "--limits", str(limits), "-o", str(out)]
    file.write_text(text_of(lines))
    assert main(accept) == 2  # a line is open
    assert main(accept) == 2 and "--force" in capsys.readouterr().err  # it is there
    lines["gpu"]["exception"] = {"who": "Anna", "why": "placeholders"}
    file.write_text(text_of(lines))
    assert main([*accept, "--force"]) == 0
    assert "1 accepted although not proven" in capsys.readouterr().out
    made = read_record(out / "acceptance.json", Acceptance)
    assert made.boots.keys() == {"n0", "n1"} and made.results[1].limits == ["found at 1 s: 8 of 8"]
    assert "<b>|" not in (out / "acceptance.html").read_text() + (out / "acceptance.md").read_text()
    assert '"viewport"' in (out / "acceptance.html").read_text(), "a narrow screen showed it as a wide one"
    check = ["accept", str(run), "--check", str(out / "acceptance.json")]
    assert main(check) == 0 and "3 of 3 lines asked again; signed by anna@lab" in capsys.readouterr().out
    inventory = run / "raw/inventory.jsonl"
    inventory.write_text(inventory.read_text().replace(made.boots["n1"], "another-boot"))
    lose_a_gpu(reseal(run))
    assert main(check) == 1
    shown = capsys.readouterr().out
    for words in ("booted since: n1", "gpu: refuted; accepted was not proven", "its closed.json is another one"):
        assert words in shown
    allowed.write_text(f'bob@lab namespaces="bringup" {new_key(tmp_path / "b").with_suffix(".pub").read_text()}')
    assert main(check) == 2 and "does not count" in capsys.readouterr().err


def test_a_contract_that_a_discovery_proposes_is_proven_by_that_discovery_but_for_its_placeholders(
    run, tmp_path, refused
):
    file = tmp_path / "c.yaml"
    assert main(["accept", str(run), "--template", "-o", str(file)]) == 0
    assert main(["accept", str(run), "--contract", str(file), "-o", str(tmp_path / "out")]) == 2
    made = read_record(tmp_path / "out/acceptance.json", Acceptance)
    assert {each.state for each in made.results} == {"proven", "not proven", "not asked"}
    assert {CPU, "discovery.kernel"} <= {each.line for each in made.results if each.state == "proven"}
    serials = [observed("inventory.gpu.serial", of, f"of {of}", "text") for of in ("n0/gpu0", "n0/gpu1", "n1/gpu0")]
    sold = contracts.proposed([replace(collection.gather([run]).judged[0], observations=serials)])
    assert "- of n0/gpu1" in sold and "- of n1/gpu0" in sold, "each GPU with a serial number of its own was an error"
    (run / "run.json").write_text("{")  # a file that is there is refused before runs are judged
    assert "exists already" in refused("accept", run, "--template", "-o", file)
