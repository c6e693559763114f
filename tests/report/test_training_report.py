"""The training report: the chapters of the source document; each line from records, and what they lack is said."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

from bringup.kernel.facts.observations import of_run
from bringup.kernel.judge import Judged
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.records import Outcome, grouped
from bringup.readers import monitor
from bringup.report import document, page, system, write
from bringup.report.training import chapters as training
from bringup.report.training import lines as made_of_several
from bringup.report.training.chapters import NOT_RECORDED
from bringup.report.trainings import layout
from bringup.training.records import CollectiveTime, Communication, Memory, RunArgs, TrainMetrics
from bringup.training.records.folder import TrainingRecords
from factory import a_run, a_verdict, gathered, judged_of, observed, records_in, the_folder
from trained_runs import RECORDS, run_of

TITLES = [
    "Overview", "Hardware", "Software", "Model and strategy", "Configuration", "Metrics", "Interpretation",
    "CPU and memory", "Network", "Takeaways", "DDP, FSDP and HSDP beside each other", "When to use which", "Assessment",
]  # fmt: skip
KINDS = ("say", "fact", "nodes", "gpus", "worst")
GIB = {"host_rss_gib": 1.0, "device_allocated_gib": 10.0, "device_reserved_gib": 12.0}
STEPS_AT = 1795447377.2  # unix seconds on n0 in run_ddp_2node
MONITOR = """\
n0,1795447377.5,10.0,1.5,1000000000,0,50,300,40,0.1,,
#gpu,n0,1795447377.5,GPU-a,50,300,40,1900,none,,,,,,,
n0,1795447378.5,30.0,2.5,3000000000,0,90,500,60,0.1,,
#gpu,n0,1795447378.5,GPU-a,90,500,60,1900,sw_power_cap,,,,,,,
"""


def a_training(stem: str, folder: Path | None = None, **outcomes: Outcome) -> Judged:
    whole = {"run.closed": Outcome.PASS, "run.evidence": Outcome.PASS, "train.strategy": Outcome.PASS} | outcomes
    judged = judged_of(
        *(a_verdict(gate, "job", outcome) for gate, outcome in whole.items()),
        run=a_run(stem, ["n0", "n1"] if stem.endswith("2node") else ["n0"], name=stem),
        folder=folder or RECORDS / stem,
    )
    return replace(judged, training=records_in(RECORDS / stem))


def lines(*judged: Judged) -> dict[str, dict[str, list[str]]]:
    return {chapter.title: dict(chapter.lines) for chapter in training.report(judged).chapters}


def sentences(title: str, *judged: Judged) -> str:
    sentences_of = {chapter.title: chapter.sentences for chapter in training.report(judged).chapters}
    return "\n".join(sentences_of[title])


def test_the_chapters_are_those_of_the_source_document_in_its_order_and_a_line_says_what_the_records_say():
    run = a_training("run_fsdp_2node")
    assert [chapter.title for chapter in training.report([run]).chapters] == TITLES
    chapter_lines = lines(run)
    for chapter, line, value in (
        ("Model and strategy", "strategy, observed", "fsdp"),
        ("Model and strategy", "held by the fullest rank", "53,392 of 213,568 parameters (25 %)"),
        ("Configuration", "global batch", "64"),
        ("Metrics", "tokens/s, all ranks", f"{run.training.metrics.tokens_per_s:,.0f}"),
        ("Hardware", "device", "cpu"),
    ):
        assert chapter_lines[chapter][line] == [value]


def test_a_training_on_the_cpu_says_nothing_of_gpus_and_one_on_gpus_says_why_a_number_is_missing():
    """It had a chapter "GPU: memory", an MFU that is not known, and a step that could not be predicted."""
    run = a_training("run_fsdp_2node")
    names = [name for title, chapter in lines(run).items() for name in chapter if title in TITLES[:9]]
    assert not re.search("GPU|MFU|NCCL|RDMA|TFLOP|predicted", " ".join(names))
    on_gpus = replace(run, training=changed_to(run.training, "cuda", tokens_per_s=100_000.0))
    chapter_lines = lines(on_gpus)["Metrics"]
    assert chapter_lines["a billion tokens"] == [f"{4 * 1e9 / 100_000 / 3600:.4g} GPU-hours"]
    assert chapter_lines["MFU"] == ["not known: no peak is known for cpu"]
    assert chapter_lines["step as predicted"][0].startswith("incomplete (communication 0.09003 s): compute time: no")


def test_what_was_not_recorded_has_no_line_and_where_others_recorded_it_that_is_said():
    run = a_training("run_fsdp_2node")
    older = {"communication": None, "communication_share": None, "communication_reason": "this run is older"}
    chapter_lines = lines(replace(run, training=communicating(run.training, **older)))
    assert "GPU" not in chapter_lines
    assert "processor" not in chapter_lines["Hardware"]
    both = lines(a_training("run_1gpu"), run)["Model and strategy"]
    assert both["mesh"] == [NOT_RECORDED, "1 × 4 (replicas × shards)"]
    assert chapter_lines["Metrics"]["communication that nothing overlapped"] == ["not known: this run is older"]
    assert "communication in a step" not in chapter_lines["Metrics"], "for the same reason"


def communicating(records: TrainingRecords, **changed: object) -> TrainingRecords:
    """The same training with a measured communication: 8 MiB in two all_gathers of 10 ms together, on 2 nodes."""
    sizes = {"message_bytes": 4 * 2**20, "sent_bytes": 6 * 2**20, "seconds": 0.01, "busbw_gb_per_s": 0.6291456}
    each = CollectiveTime(operation="all_gather", over="all", ranks=4, calls=2, calls_predicted=2, **sizes)
    measured = Communication(
        steps=3, step_s=0.1, total_s=[0.02, 0.03, 0.03, 0.04], exposed_s=[0.01, 0.02, 0.02, 0.03], collectives=[each]
    )
    known = {"communication_share": 0.2, "communication": measured, "communication_reason": None}
    return changed_to(records, **known | changed)


def changed_to(records: TrainingRecords, device: str = "cpu", **metrics: object) -> TrainingRecords:
    args, made = records.args.model_copy(update={"device": device}), records.metrics.model_copy(update=metrics)
    return SimpleNamespace(args=args, metrics=made, reference_metrics=None)  # type: ignore[return-value]


def test_communication_in_training_stands_beside_that_of_the_collectives_alone():
    run = a_training("run_fsdp_2node")
    run = replace(run, training=communicating(run.training))
    alone = lines(run)["Metrics"]
    says = "20.0 %, by rank 10.0 to 30.0 %; a profiled step took 0.1 s"
    assert alone["communication that nothing overlapped"] == [says]
    least = "0.02 s on the rank that waited least"
    says = f"{least}, not predicted: no run of the collectives is in this report"
    assert alone["communication in a step"] == [says]
    beside = lines(a_collective("all_gather"), run)["Metrics"]
    assert beside["communication in a step"] == [f"{least}, 0.006291 s predicted from the collectives alone"]
    assert beside["bus bandwidth in training"] == ["all_gather 0.629 GB/s for messages of 4 MiB, alone 1"]
    other = lines(a_collective("all_reduce"), run)["Metrics"]
    assert "measured no all_gather on 2-nodes" in other["communication in a step"][0]
    assert "alone not known" in other["bus bandwidth in training"][0]


def a_collective(name: str) -> Judged:
    facts = (observed(f"nccl.{name}.busbw@4MiB", "2-nodes", 1.0),)
    return judged_of(run=a_run("nccl_scaling", plan={}), observations=facts)


def test_what_nccl_s_inspector_measured_is_in_the_report_and_its_absence_too(tmp_path: Path):
    sample = (RECORDS.parent / "real/nccl/inspector-4.0.log").read_text()
    folder = tmp_path / "run"
    shutil.copytree(RECORDS / "run_fsdp_2node", folder)
    (folder / "raw/inspector").mkdir(parents=True)
    (folder / "raw/inspector/n0-pid1.log").write_text(sample)
    run = a_training("run_fsdp_2node")
    parsed, _ = of_run(the_folder(folder, run.run), records_in(folder))
    chapter_lines = lines(replace(run, observations=tuple(parsed.observations)))["Metrics"]
    assert chapter_lines["bus bandwidth by NCCL's Inspector"] == [
        "all_reduce 485 GB/s, 8 ranks on 1 node (16,384 MiB, 1 call); "
        "reduce_scatter 366 GB/s, 8 ranks on 1 node (2,048 MiB, 1 call)"
    ]
    assert "bus bandwidth by NCCL's Inspector" not in lines(run)["Metrics"]


def monitored(folder: Path, samples: str, stem: str = "run_ddp_2node") -> dict[str, dict[str, list[str]]]:
    (folder / "raw").mkdir()
    (folder / "raw/monitor.csv").write_text(samples)
    return lines(a_training(stem, folder))


def test_what_the_monitor_sampled_beside_a_training_is_in_its_report(tmp_path: Path):
    chapter_lines = monitored(tmp_path, MONITOR)
    assert chapter_lines["GPU"] | {"peak of the allocator, fullest rank": []} == {
        "busy in the measured steps, % (waiting in NCCL counts)": ["mean 70, most 90 (n0/GPU-a)"],
        "clock in the measured steps, MHz": ["mean 1.9e+03, most 1.9e+03 (n0/GPU-a)"],
        "slowed down by": ["none, sw_power_cap"],
        "power in the measured steps, W": ["mean 400, most 500 (n0/GPU-a)"],
        "temperature in the measured steps, °C": ["mean 50, most 60 (n0/GPU-a)"],
        "peak of the allocator, fullest rank": [],
    }
    assert chapter_lines["CPU and memory"]["CPU of a node in the measured steps, %"] == ["mean 20, most 30 (n0)"]
    assert chapter_lines["Network"]["sent over interfaces in the measured steps"] == ["2 GB"]


def test_of_a_gpu_the_allocator_shows_what_was_allocated_active_and_reserved_and_of_a_cpu_it_has_no_line():
    assert "GPU" not in lines(a_training("run_fsdp_2node"))
    of_gpu: Any = SimpleNamespace(metrics=SimpleNamespace(memory=Memory(**GIB, device_active_gib=11.5)))
    assert made_of_several.gpu_memory(of_gpu) == "10.00 GiB allocated, 11.5 GiB active, 12 GiB reserved"
    earlier: Any = SimpleNamespace(metrics=SimpleNamespace(memory=Memory(**GIB)))
    assert made_of_several.gpu_memory(earlier) == "10.00 GiB allocated, 12 GiB reserved"


def test_what_went_over_nvlink_and_pcie_is_counted_from_the_samples(tmp_path: Path) -> None:
    samples = (
        "n0,1795447402.5,10.0,1.5,0,0,50,300,40,0.1,,\n"
        "#gpu,n0,1795447402.5,GPU-a,50,300,40,1900,none,1593,0x0,1.0,1000000,0,500000000,0\n"
        "n0,1795447403.5,30.0,2.5,0,0,90,500,60,0.1,,\n"
        "#gpu,n0,1795447403.5,GPU-a,90,500,60,1900,none,1593,0x0,2.0,3000000,0,2500000000,0\n"
    )
    chapter_lines = monitored(tmp_path, samples, "run_fsdp_2node")["GPU"]
    assert chapter_lines["NVLink sent in the measured steps"] == ["2.05 GB"]
    assert chapter_lines["PCIe sent in the measured steps"] == ["2 GB"]


def test_what_was_sampled_counts_in_the_measured_steps_alone_and_an_idle_gpu_is_named(tmp_path: Path):
    """A minute of start-up before a few measured seconds made 20 % of a GPU that was 99 % busy."""
    rows = [
        f"#gpu,n0,{STEPS_AT - 60 + second:.1f},{gpu},{busy if second >= 60 else 0},300,40,1900,none,,,,,,,\n"
        for second in range(63)
        for gpu, busy in (("GPU-a", 99), ("GPU-b", 20))
    ]
    busy = "mean 59.5, most 99 (n0/GPU-a), lowest mean 20 (n0/GPU-b)"
    chapter_lines = monitored(tmp_path, "".join(rows))["GPU"]
    assert chapter_lines["busy in the measured steps, % (waiting in NCCL counts)"] == [busy]


def test_facts_of_the_cluster_come_from_discovery_in_the_same_report():
    kernel = observed("discovery.kernel", "n0", "6.8", "text")
    discovery = judged_of(run=a_run("discovery", ["n0"], plan={}), observations=(kernel,))
    assert lines(discovery, a_training("run_1gpu"))["Software"]["kernel"] == ["6.8"]


def test_a_gate_that_failed_is_no_takeaway_and_the_assessment_says_that_it_failed():
    run = a_training("run_fsdp_2node", **{"train.loss.agrees": Outcome.FAIL, "train.trial": Outcome.WARN})
    [confirmed] = sentences("Takeaways", run).splitlines()
    assert confirmed.startswith("Confirmed: the strategy that trained is the one that")
    assert sentences("Assessment", run).startswith("FAIL: ")
    passed = a_training("run_ddp_2node", **{"train.loss.agrees": Outcome.PASS})
    assert "the losses agree" in sentences("Takeaways", passed)
    assert "the losses agree" not in sentences("Takeaways", passed, run), "of two runs one failed"


def test_what_the_numbers_of_trainings_that_passed_say():
    runs = [a_training(stem) for stem in ("run_1gpu", "run_ddp_2node", "run_fsdp_2node", "run_hsdp_2node")]
    losses, fastest, memory = sentences("Interpretation", *runs).splitlines()
    assert losses.startswith("All learn the same: the losses differ by")
    assert fastest.startswith("Fastest: DDP on 4 ranks: 43,707 tokens/s, 10,927 of a rank")
    assert fastest.endswith("; 14.0 % of a step was communication that nothing overlapped.")
    assert memory.startswith("Least memory: FSDP on 4 ranks: its fullest rank held 25 % of the parameters, and 0.8 MiB")
    which = sentences("DDP, FSDP and HSDP beside each other", *runs).splitlines()[0]
    assert which.startswith("Which strategy on 4 ranks of 2 nodes: cannot tell, because no GPU was at work")
    assert sentences("Takeaways", *runs).startswith("Confirmed: the strategy that trained is the one")


def test_strategies_are_compared_at_the_same_number_of_ranks_where_their_evidence_holds():
    title, ddp, fsdp = "DDP, FSDP and HSDP beside each other", a_training("run_ddp_2node"), a_training("run_fsdp_2node")
    sentence = sentences(title, ddp, fsdp)
    assert "4 ranks on 2 nodes: FSDP made" in sentence
    longer = "a step takes 177 ms longer, of which that explains"
    overlapped = f"communication that nothing overlapped, of DDP 14.0 %: {longer}"
    assert overlapped in sentence
    assert "its fullest rank held 25 % of the parameters" in sentence
    changed = a_training("run_fsdp_2node", **{"run.evidence": Outcome.INCOMPLETE})
    for runs in ([ddp], [ddp, changed]):
        assert "Not compared" in sentences(title, *runs)
    assert "its numbers must not be used" in sentences("Assessment", changed)


def test_it_is_in_report_md_of_a_training_alone_and_a_playbook_has_what_all_say_alike_and_runs_side_by_side():
    text = document.run(a_training("run_hsdp_2node"))
    assert re.search(r"\n## Model and strategy\n\n\| what +\| value +\|\n\| -+ \| -+ \|\n\| model +\| tiny +\|\n", text)
    assert "| wall time " in text
    assert NOT_RECORDED not in text
    assert "\n- Not compared: " in text
    assert "## Metrics" not in document.run(judged_of(a_verdict(), run=a_run()))
    runs = [a_training("run_ddp_2node"), a_training("run_fsdp_2node")]
    text = document.playbook(gathered(judged_of(run=a_run("discovery", plan={})), *runs))
    assert re.search(r"\| global batch +\| 64 +\|", text)
    assert re.search(r"\| +\| ddp 2x2 \| fsdp 2x2 \|", text)
    assert "FSDP made" in text
    shown = page.render(gathered(*runs))
    assert '<tr><th>global batch</th><td colspan="2">64</td></tr>' in shown
    assert "<tr><th>strategy, observed</th><td>ddp</td><td>fsdp</td></tr>" in shown


def test_a_run_of_a_playbook_is_compared_with_ddp_of_the_same_playbook(tmp_path: Path):
    """The DDP run lay beside it, and its report said that there was nothing to compare it with."""
    for stem in ("run_ddp_2node", "run_fsdp_2node"):
        folder = run_of(stem, tmp_path / "training/results", reference=stem == "run_ddp_2node", name="p")
        write.judge_and_save(folder)
    text = (tmp_path / "training/results/run_fsdp_2node-p/report.md").read_text()
    assert "- 4 ranks on 2 nodes: FSDP made " in text
    assert "Not compared" not in text


def test_every_source_that_a_line_reads_is_there() -> None:
    chapters = layout().chapters.values()
    lists = ([line] if isinstance(line, str) else line for chapter in chapters for line in chapter.values())
    every = [each for lines in lists for each in lines]
    sources = grouped(tuple(each.split(" ", 1)) if each.split(" ")[0] in KINDS else ("", each) for each in every)
    assert len(sources[""]) > 30
    for path in sources[""]:
        record, *names = path.partition(",")[0].split(".")
        kind: Any = {"args": RunArgs, "metrics": TrainMetrics}[record]
        for name in names:
            assert name in kind.model_fields, path
            annotation = kind.model_fields[name].annotation
            kind = next((part for part in get_args(annotation) if hasattr(part, "model_fields")), annotation)
    assert set(sources["gpus"]) <= set(monitor.GPU_COLUMNS)
    assert set(sources["nodes"]) <= set(monitor.COLUMNS)
    assert set(sources["fact"]) <= {what for what, _ in system.OF_NODES}
    assert all(callable(getattr(made_of_several, name)) for name in sources["say"])
    assert set(layout().not_on_a_cpu) <= {name for chapter in chapters for name in chapter}
    assert set(layout().confirmed) <= GATES.keys()
