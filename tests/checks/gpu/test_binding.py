"""Which GPU a task would compute on, whether it is its own, and whether its CPUs are near."""

import os
from pathlib import Path

import binding
import gpus
import pytest
from bringup import judge
from bringup.answers import answers
from bringup.evidence.parsed import Parsed
from bringup.plan import profile
from bringup.plan.site import Site
from bringup.records import Mark, Outcome, Verdict
from bringup.run.site import AtSite
from factory import a_run
from loops import for_each
from probing import told_by
from runs_for_tests import about, add_derived, opened, values
from showing import shows_failing


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def near(tmp_path: Path, monkeypatch, at: str, mask: set[int], nodes: int = 2) -> Verdict:
    """The verdict about a task whose GPU is at this NUMA node and that may run on these CPUs (4 at each node)."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: mask)
    write(tmp_path / "driver/0000:18:00.0/information", "Model: \t H100\nGPU UUID: \t GPU-a\nDevice Minor: \t 0")
    write(tmp_path / "devices/0000:18:00.0/numa_node", at)
    for number in range(nodes):
        write(tmp_path / f"numa/node{number}/cpulist", f"{number * 4}-{number * 4 + 3}")
    monkeypatch.setattr(gpus.numa_node, "__defaults__", (tmp_path / "driver", tmp_path / "devices"))
    parsed = told_by(lambda probe: binding.near_gpu(probe, "GPU-a", tmp_path / "numa"), "n0")
    return about("smoke.cpu.near_gpu", parsed, a_run("smoke", ["n0"]), "h100-8x400g")["n0"]


def test_a_task_on_the_cpus_beside_its_gpu_passes(tmp_path, monkeypatch):
    assert near(tmp_path, monkeypatch, "1", {4, 5}).outcome is Outcome.PASS
    assert near(tmp_path / "single", monkeypatch, "-1", {0}, nodes=1).outcome is Outcome.PASS


@shows_failing("smoke.cpu.near_gpu")
def test_a_task_on_the_cpus_of_the_other_socket_is_a_warning_that_names_gpu_and_node(tmp_path, monkeypatch):
    verdict = near(tmp_path, monkeypatch, "1", {3, 4})
    assert verdict.outcome is Outcome.WARN
    assert verdict.observed == "0.5 (GPU-a sits at NUMA node 1, 1 of 2 CPUs too)"


@pytest.mark.parametrize("at", ["-1", "7"])
def test_a_gpu_whose_numa_node_is_not_told_is_incomplete(tmp_path, monkeypatch, at):
    assert near(tmp_path, monkeypatch, at, {0}).outcome is Outcome.INCOMPLETE


def test_a_placeholder_and_an_unknown_gpu_are_unknown():
    for gpu in ("nvidia0 (char 195:0)", None):
        parsed = told_by(lambda probe, gpu=gpu: binding.near_gpu(probe, gpu), "n0")
        assert [fact.value for fact in parsed.observations if fact.quantity == "smoke.cpu.near_gpu"] == [None]
    assert binding.cpus("0-2,8\n") == {0, 1, 2, 8}


# ---- which GPU an index means


def bound_to(tmp_path: Path, monkeypatch, visible: str, addresses: dict[int, str], minors: int = 4) -> object:
    """The GPU that a task with this CUDA_VISIBLE_DEVICES would compute on. addresses: minor -> PCI address."""
    for minor, address in addresses.items():
        write(tmp_path / f"driver/{address}/information", f"GPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}")
    for minor in range(minors):
        write(tmp_path / f"nvidia{minor}", "")
    monkeypatch.setattr(gpus, "DRIVER", tmp_path / "driver")
    monkeypatch.setattr(gpus, "devices", lambda: {minor: tmp_path / f"nvidia{minor}" for minor in range(minors)})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    parsed = told_by(lambda probe: binding.bound(probe, "n0/task0", gpus.openable()[0]), "n0")
    return next(fact.value for fact in parsed.observations if fact.quantity == "smoke.binding.gpu")


CROSSED = {0: "0000:c8:00.0", 1: "0001:18:00.0", 2: "0000:18:00.0", 3: "0000:9a:00.0"}


@pytest.mark.parametrize(
    ("visible", "gpu"), [("0", "GPU-2"), ("1", "GPU-3"), ("2", "GPU-0"), ("3", "GPU-1"), ("GPU-1", "GPU-1")]
)
def test_an_index_counts_gpus_by_pci_address_as_cuda_does_and_not_by_minor(tmp_path, monkeypatch, visible, gpu):
    assert bound_to(tmp_path, monkeypatch, visible, CROSSED) == gpu


def test_gpus_of_which_the_driver_does_not_tell_every_address_are_counted_by_minor(tmp_path, monkeypatch):
    known_addresses = {minor: address for minor, address in CROSSED.items() if minor != 3}
    assert bound_to(tmp_path, monkeypatch, "0", known_addresses) == "GPU-0"
    assert bound_to(tmp_path / "other", monkeypatch, "0", {0: "not-an-address", 1: "0000:18:00.0"}, minors=2) == "GPU-0"


# ---- two jobs at once


def derived_of(facts: list[tuple[str, str, object]], quantity: str) -> dict[str, object]:
    """Subject -> what is derived of it from these facts."""
    parsed = Parsed()
    for index, (name, subject, value) in enumerate(facts):
        parsed.saw(name, subject, value, "count", f"f:{index}", "said" if value is None else None)
    return values(add_derived(parsed, a_run("smoke")), quantity)


def jobs(
    first_gpu,
    second_gpu,
    *,
    outlasted=True,
    first_denied=("b",),
    second_denied=("a",),
    first_open=("a",),
    second_open=("b",),
):
    facts = [
        ("smoke.first_job.gpu", "n0", first_gpu),
        ("smoke.first_job.openable", "n0", list(first_open)),
        ("smoke.first_job.denied", "n0", list(first_denied)),
        ("smoke.second_job.gpu", "n0", second_gpu),
        ("smoke.second_job.openable", "n0", list(second_open)),
        ("smoke.second_job.denied", "n0", list(second_denied)),
    ]
    return [*facts, ("smoke.first_job.outlasted", "n0", True)] if outlasted else facts


@for_each(
    ("facts", "distinct", "refused"),
    [
        (jobs("a", "b"), 2, 2),
        (jobs("a", "a"), 1, 2),
        # a device that is not there at all is not a refusal
        (jobs("a", "b", first_denied=(), second_denied=()), 2, 0),
        (jobs("a", "b", first_open=("a", "b"), second_open=("a", "b"), first_denied=(), second_denied=()), 2, 0),
        (jobs("a", None), 1, 2),
        (jobs("a", "b", outlasted=False), None, None),
    ],
)
def test_two_jobs_at_once(facts, distinct, refused):
    assert derived_of(facts, "smoke.jobs.distinct_gpus").get("n0") == distinct
    assert derived_of(facts, "smoke.jobs.refused_gpus").get("n0") == refused


def test_one_job_alone_is_no_evidence_about_two():
    facts = [fact for fact in jobs("a", "b") if "second" not in fact[0]]
    assert derived_of(facts, "smoke.jobs.distinct_gpus") == {}


def test_two_jobs_are_not_planned_where_a_node_has_one_gpu():
    assert "smoke.jobs.distinct_gpus" in a_run("smoke").planned
    assert "smoke.jobs.distinct_gpus" not in a_run("smoke", gpus=1).planned


def test_two_jobs_are_not_planned_where_no_two_jobs_share_a_node(tmp_path):
    """OverSubscribe=EXCLUSIVE: the second job would wait for the first. It stays so under another profile."""
    folder = opened("smoke", tmp_path, nodes=["n0"], whole_nodes=True)
    gates = {"smoke.jobs.distinct_gpus", "smoke.jobs.refused_gpus"}
    for other in (None, profile.load("generic")):
        verdicts = judge.judge_folder(folder, other).verdicts
        assert not gates & {verdict.gate for verdict in verdicts.verdicts}
        assert gates <= {entry.gate for entry in verdicts.not_applicable if "EXCLUSIVE" in entry.reason}


def test_what_keeps_two_jobs_apart_is_not_judged_where_the_site_says_that_no_two_share_a_node(tmp_path):
    """AWS ParallelCluster as it is installed confines neither devices nor memory: a cluster whose jobs take whole nodes
    ended with FAIL. The answer says that it was not asked, and why."""
    of_sharing = {"smoke.gpu.isolated", "smoke.jobs.refused_gpus", "smoke.cpu.confined", "smoke.memory.enforced"}
    for shares, absent in ((True, set()), (False, of_sharing)):
        lab = AtSite(Site(schema_version=1, name="lab", jobs_share_nodes=shares), tmp_path / "lab.site.yaml")
        folder = opened("smoke", tmp_path / str(shares), nodes=["n0"], site=lab)
        judged = judge.judge_folder(folder)
        judged_gates = {verdict.gate for verdict in judged.verdicts.verdicts}
        assert of_sharing - judged_gates == absent
        assert "smoke.gpu.bound" in judged_gates  # what one task gets is still judged
        [isolated] = [
            claim
            for answer in answers([judged])
            for claim in answer.claims
            if claim.claim == "gpus-isolated" and claim.mark is Mark.NOT_ASKED
        ] or [None]
        assert (isolated is None) is shares
        assert shares or "jobs_share_nodes" in isolated.why
