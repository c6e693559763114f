"""What one sends: report.md of a phase, and the phases of a playbook in one document."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from bringup.cli import main
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.judge import judge_folder
from bringup.kernel.records import Action, Observation, Outcome
from bringup.kernel.results import REPOSITORY
from bringup.readers import files, nccl_variant, slurm
from bringup.report import collectives, document, system
from bringup.report.text import escaped, table
from factory import a_run, a_verdict, gathered, judged_of, observed
from loops import case_for_each
from programs import module_at
from runs_for_tests import opened

DEVICE = "GPU 1 fell off the bus (Xid 79, PCI 0000:43:00)"


def measured() -> list[Observation]:
    """all_reduce of two sizes at two scales; the large one repeated."""
    of_size = {"8KiB": (8.0, 1.0), "16MiB": (1000.0, 16.8)}
    return [
        *(
            observed(f"nccl.all_reduce.{what}@{size}", scale, number, unit)
            for size, (us, busbw) in of_size.items()
            for scale in ("2-nodes", "1-node")
            for what, number, unit in (("time", us, "us"), ("busbw", busbw, "GB/s"))
        ),
        observed("nccl.all_reduce.time@16MiB", "2-nodes", 2000.0, "us"),
        observed("nccl.groups.all_gather.busbw@16MiB", "2-nodes", 1.0),
    ]


def a_broken_node():
    bad = a_verdict("discovery.kernel_log.xid", "n1", Outcome.FAIL, "1", cause=DEVICE, evidence="raw/inventory.jsonl:9")
    bad = bad.model_copy(update={"action": Action.REBOOT, "fails": "jobs on this GPU crash"})
    plan = {"discovery.kernel_log.xid": ["n0", "n1"]}
    healthy = a_verdict("discovery.kernel_log.xid", "n0", Outcome.PASS)
    return judged_of(bad, healthy, run=a_run("discovery", ["n0", "n1"], plan=plan))


def test_a_collective_is_a_row_for_each_size_and_scale_with_time_algbw_busbw_and_what_is_expected():
    """report.md of the collectives had the floor of one size, and a picture."""
    floor = a_verdict("nccl.all_reduce.busbw", "2-nodes", Outcome.FAIL, "17", expected="≥ 20")
    floor = floor.model_copy(update={"at": "16MiB", "limit": 20.0, "rule": "at_least"})
    assert collectives.tables(measured(), [floor]) == {
        "all_reduce": [
            ("8KiB", "1-node", "8 us", "1.02", "1", ""),
            ("8KiB", "2-nodes", "8 us", "1.02", "1", ""),
            ("16MiB", "1-node", "1 ms", "16.8", "16.8", ""),
            ("16MiB", "2-nodes", "2 ms", "8.39", "16.8", "busbw ≥ 20 FAIL"),
        ]
    }


def test_the_table_is_in_report_md_whole_and_in_the_document_of_a_playbook_once_and_in_short():
    stems = ("nccl_scaling", "nccl_monitoring")
    runs = [judged_of(run=a_run(stem, plan={}), observations=tuple(measured())) for stem in stems]
    whole = document.run(runs[0])
    assert re.search(r"\n\n\| collective +\| size +\| on +\| time \| algbw GB/s \| busbw GB/s \| expected +\|\n", whole)
    assert (whole.count("| 8KiB  | "), whole.count("| 16MiB | ")) == (2, 2)
    short = document.playbook(gathered(*runs))
    assert short.count("| 16MiB | ") == 2
    assert "8KiB" not in short


def test_a_report_says_where_the_time_of_its_ranks_went():
    starts = files.FILES[r"starts\.txt"](SimpleNamespace(text="4 12.5\n4 8.0\nnonsense\n", where="raw/starts.txt"))
    known = [("start", "1-node", 4.0), ("start", "2-nodes", 0.5), ("measure", "1-node", 13.0)]
    times = [observed(f"nccl.time.{part}", scale, seconds, "s") for part, scale, seconds in known]
    assert nccl_variant.numbers(Parsed(times), "ring", 4).observations == times  # those of a variant count, too
    run = judged_of(run=a_run("nccl_scaling", plan={}), observations=(*times, *starts.observations))
    says = "4.5 s to start, 13.0 s measured, 3.0 s waited, in 2 starts of 4 ranks"
    assert re.search(rf"\n\| time +\| {says} +\|\n", document.run(run))
    assert collectives.time_spent(times) == ""


def test_at_each_scale_the_last_time_of_srun_alone_counts_and_the_first_is_shown():
    text = "1gpu 1 0.4\n1gpu 1 0.2\n2 16 3.1\nnonsense\n2 16 0.9\n4 32 5.0\n"
    pattern = next(each for each in files.FILES if re.fullmatch(each, "launches.txt"))
    seen = files.FILES[pattern](SimpleNamespace(text=text, where="raw/launches.txt")).observations
    assert {each.subject: (each.value, each.why) for each in seen} == {
        "1-gpu": (0.2, "1 tasks; the first time 0.4 s"),
        "2-nodes": (0.9, "16 tasks; the first time 3.1 s"),
        "4-nodes": (5.0, "32 tasks; the first time 5.0 s"),
    }


@pytest.mark.parametrize("write", [document.run, lambda judged: document.playbook(gathered(judged))])
def test_what_failed_is_said_in_words_with_device_action_and_evidence_before_any_number(write):
    """The playbook's had `discovery.kernel_log.xid \\[n1\\]`, and no device, action, evidence or drain line."""
    text = write(a_broken_node())
    problem = text.index("- **FAIL** ")
    assert DEVICE in text[problem:]
    assert "**Do: reboot**" in text[problem:]
    assert "evidence raw/inventory.jsonl:9; read docs/" in text[problem:]
    assert problem < min(text.find(mark) % len(text) for mark in ("\n## What was measured", "\n## The six questions"))


def test_a_number_that_is_too_small_on_every_node_is_said_once_with_its_range():
    """A slow filesystem was blamed on each node, and no line had the others' numbers."""
    gate, nodes = "smoke.storage.write_together", [f"n{number}" for number in range(4)]
    slow = [
        a_verdict(gate, node, Outcome.FAIL, f"{number} GB/s", expected="≥ 0.02 GB/s", value=number)
        for node, number in zip(nodes, (0.016, 0.014, 0.015, 0.0155), strict=True)
    ]
    slow = [each.model_copy(update={"fails": f"the node writes at {each.observed}"}) for each in slow]
    text = document.run(judged_of(*slow, run=a_run("smoke", nodes, plan={gate: nodes})))
    [line] = [line for line in text.splitlines() if line.startswith("- **FAIL**")]
    assert line.startswith("- **FAIL** n0, n1, n2, n3: n0 the node writes at 0.016 GB/s (all: 0.014 GB/s to 0.016 ")


def test_the_document_of_a_playbook_begins_with_the_decision_and_has_the_drain_line_and_its_own_contents():
    text = document.playbook(gathered(a_broken_node()))
    assert text.startswith("# Bring-up of 2 nodes: do not accept\n\n**FAIL")
    assert "```\nscontrol update NodeName=n1 State=DRAIN " in text
    anchors = re.findall(r"^- \[.*\]\(#(.*)\)$", text, re.MULTILINE)
    assert anchors[:2] == ["what-is-wrong-and-what-to-do", "the-six-questions"]
    assert len(anchors) == len(re.findall("^## ", text, re.MULTILINE))
    assert not re.search(r"\n{3}|\\\[", text)


def test_tables_are_aligned_for_a_terminal_as_far_as_they_fit():
    rows = [["n0", "x" * 90], ["n1000", "y"]]
    aligned = ["| node  | what |", "| ----- | --- |", f"| n0    | {'x' * 90} |", "| n1000 | y |"]
    assert table(["node", "what"], rows, 100) == aligned
    assert table(["a", "b"], [["1", "|"]])[-1] == r"| 1 | \| |"


def test_a_line_of_a_drain_command_cannot_end_its_block_of_code():
    run = a_run("discovery", ["n0", "n`1"], plan={})
    bad = a_verdict("discovery.kernel_log.xid", "n`1", Outcome.FAIL, "1").model_copy(update={"action": Action.REBOOT})
    assert document.playbook(gathered(judged_of(bad, run=run))).count("```") == 2


def test_the_verb_writes_it_with_links_from_where_it_lies(tmp_path: Path, capsys: pytest.CaptureFixture[str], refused):
    folder = opened("discovery", tmp_path / "validation/results/discovery")
    (folder / "report.md").write_text("x")
    document_of_it = tmp_path / "a folder/doc.md"
    document_of_it.parent.mkdir()
    assert main(["report", str(folder), "--markdown", str(document_of_it)]) == 2, "nothing arrived"
    assert str(document_of_it) in capsys.readouterr().out
    assert f"(../validation/results/discovery/{folder.name}/report.md)" in document_of_it.read_text()
    assert "--force" in refused("report", folder, "--markdown", document_of_it)


def test_what_a_node_is_has_sockets_smt_mig_topology_mounts_and_partitions_and_what_differs_comes_first():
    facts = {
        "discovery.cpu.topology": "sockets 2, cores 96, threads 192, NUMA nodes 2",
        "discovery.gpu.mig": "off",
        "discovery.topology": "8 GPUs, NV18 between them",
        "inventory.network": ["mlx5_core, 400000 Mb/s full duplex, MTU 9000=8", "default route over=igb"],
        "inventory.hf_home": "~/.cache/huggingface: nfs4 srv:/home rw",
    }
    kernels, more = {"n0": "6.8", "n1": "6.9"}, "OverSubscribe=EXCLUSIVE State=UP AllowQos=ALL\n"
    partition = f"PartitionName=gpu Default=YES TotalNodes=16 MaxTime=2-00:00:00 {more}"
    seen = [
        *(observed(quantity, node, value, "text") for quantity, value in facts.items() for node in kernels),
        *(observed("discovery.kernel", node, value, "text") for node, value in kernels.items()),
        *slurm.partitions(partition, "raw/scontrol-partition.txt").observations,
    ]
    rows = dict(system.table(judged_of(run=a_run("discovery", ["n0", "n1"], plan={}), observations=tuple(seen))))
    assert next(iter(rows)) == "kernel"
    network = "8 × mlx5_core, 400000 Mb/s full duplex, MTU 9000, default route over igb"
    assert rows["network"] == f"network interfaces: {network}"
    assert rows["processor"] == "layout of the cores: sockets 2, cores 96, threads 192, NUMA nodes 2, SMT on"
    assert (rows["GPUs"], rows["topology"]) == ("MIG: off", "GPUs and NICs: 8 GPUs, NV18 between them")
    assert rows["mounts"] == "HF_HOME: ~/.cache/huggingface: nfs4 srv:/home rw"
    assert rows["partitions"] == "gpu (default): State UP, TotalNodes 16, MaxTime 2-00:00:00, OverSubscribe EXCLUSIVE"


@case_for_each(
    ("n0->n1 of n[0-3] fails nccl.step [2-nodes]", "n0->n1 of n[0-3] fails nccl.step [2-nodes]"),
    ("x [a](http://b)", r"x \[a\](http://b)"),
    ("[a]: http://b", r"\[a\]: http://b"),
    ("x[a][b]", r"x\[a\][b]".replace("[b]", r"\[b\]")),
    ("<b>", "&lt;b&gt;"),
)
def test_names_of_nodes_stay_readable_and_nothing_becomes_a_link(words: str, safe: str):
    assert escaped(words) == safe


# --- the evidence that the benchmark makes up has a fact for every gate: its page shows a fleet, and no gap


def test_the_report_of_a_fleet_fits_two_screens_and_begins_with_what_failed_and_what_the_nodes_are(tmp_path) -> None:
    """It had a row for each node and gate: 1,138 lines for 16 nodes, of which one mattered."""
    fleet = module_at(REPOSITORY / "validation/benchmarks/judge_and_report.py", "fleet")
    text = document.run(judge_folder(fleet.made_up_run(16, tmp_path)[0]))
    assert len(text.splitlines()) <= 100  # two screens
    bad, inventory, good = map(text.index, ("- **FAIL** gpu-00-08: ", "| GPU: NVIDIA H100", "## What passed"))
    assert bad < inventory < good < 3000
    assert "GPU: NVIDIA H100 80GB HBM3; GPUs of a node: 8; MIG: off; memory of a GPU: 80 GiB;" in text
    assert "holds memory for which no process is there: 0.5 GiB (≤ 2 GiB)\n" in text
    assert "rdma.active, rdma.same, rdma.flaps, rdma.errors, rdma.messages" in text
    assert text.count("FAIL") == 3, "the title, the answer and the one that failed"
