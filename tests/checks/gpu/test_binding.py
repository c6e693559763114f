"""Which GPU a task would compute on, whether it is its own, and whether its CPUs are near. And how a person finds it:
index, PCI address, serial number."""

import os
import subprocess
import threading
from types import SimpleNamespace

import binding
import counters
import dcgm
import gpus
import imex
import inventory
import monitor
import nvml
import patience
import perftest
import pynvml
import pytest
import smi
from bringup.domains.blame import blame
from bringup.domains.gpu_names import named, names_of
from bringup.kernel import judge
from bringup.kernel.answers import answers
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.plan import profile
from bringup.kernel.records import Action, Mark, Outcome, Verdict, Verdicts
from bringup.report import text
from bringup.run.site import AtSite
from bringup.run.site_file import Site
from factory import a_run, a_verdict
from loops import for_each
from nvml_for_tests import GPUS, Driver, driver_of
from probing import answers_of, told_by
from programs import tree
from runs_for_tests import FAIL, OPEN, PASS, Fact, add_derived, gpu_run, in_words, judged, opened, parsed_of, values
from showing import check, shows_failing


@shows_failing("smoke.cpu.near_gpu")
@for_each(
    ("1", {4, 5}, 2, PASS, ""),
    ("-1", {0}, 1, PASS, ""),
    ("1", {3, 4}, 2, Outcome.WARN, "0.5 (GPU-a sits at NUMA node 1, 1 of 2 CPUs too)"),
    ("-1", {0}, 2, OPEN, ""),  # the NUMA node is not told
    ("7", {0}, 2, OPEN, ""),
)
def test_a_task_on_the_cpus_of_the_other_socket_is_a_warning(tmp_path, monkeypatch, at, mask, nodes, outcome, says):
    """4 CPUs at each NUMA node."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: mask)
    place = tmp_path / f"{at} {nodes} {mask}"
    gpu = {
        "driver/0000:18:00.0/information": "Model: \t H100\nGPU UUID: \t GPU-a\nDevice Minor: \t 0",
        "devices/0000:18:00.0/numa_node": at,
    }
    tree(place, gpu | {f"numa/node{n}/cpulist": f"{n * 4}-{n * 4 + 3}" for n in range(nodes)})
    monkeypatch.setattr(gpus.numa_node, "__defaults__", (place / "driver", place / "devices"))
    parsed = told_by(lambda probe: binding.near_gpu(probe, "GPU-a", place / "numa"))
    check(judged(parsed, "smoke", ["n0"])["smoke.cpu.near_gpu n0"], outcome, says)


def test_a_placeholder_and_an_unknown_gpu_are_unknown():
    for gpu in ("nvidia0 (char 195:0)", None):
        assert answers_of(lambda probe, gpu=gpu: binding.near_gpu(probe, gpu))["smoke.cpu.near_gpu"][0] is None
    assert binding.cpus("0-2,8\n") == {0, 1, 2, 8}


# ---- which GPU an index means

CROSSED = {0: "0000:c8:00.0", 1: "0001:18:00.0", 2: "0000:18:00.0", 3: "0000:9a:00.0"}


@for_each(
    # as CUDA does, by PCI address and not by minor
    *((visible, CROSSED, 4, f"GPU-{gpu}") for visible, gpu in (("0", 2), ("1", 3), ("2", 0), ("3", 1), ("GPU-1", 1))),
    # the driver does not tell every address
    ("0", {minor: address for minor, address in CROSSED.items() if minor != 3}, 4, "GPU-0"),
    ("0", {0: "not-an-address", 1: "0000:18:00.0"}, 2, "GPU-0"),
)
def test_an_index_counts_gpus_by_pci_address_or_by_minor(tmp_path, monkeypatch, visible, addresses, minors, gpu):
    place = tmp_path / f"{visible} {len(addresses)}"
    answer = "GPU UUID: \t GPU-{0}\nDevice Minor: \t {0}"
    known = {f"driver/{address}/information": answer.format(minor) for minor, address in addresses.items()}
    tree(place, known | {f"nvidia{minor}": "" for minor in range(minors)})
    monkeypatch.setattr(gpus, "DRIVER", place / "driver")
    monkeypatch.setattr(gpus, "devices", lambda: {minor: place / f"nvidia{minor}" for minor in range(minors)})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    facts = answers_of(lambda probe: binding.bound(probe, "n0/task0", gpus.openable()[0]))
    assert facts["smoke.binding.gpu"][0] == gpu


# ---- two jobs at once

JOBS = {"first_job.outlasted": True}
JOBS |= {"first_job.gpu": "a", "first_job.openable": ["a"], "first_job.denied": ["b"]}
JOBS |= {"second_job.gpu": "b", "second_job.openable": ["b"], "second_job.denied": ["a"]}
NONE_DENIED = {"first_job.denied": [], "second_job.denied": []}


@for_each(
    (JOBS, 2, 2),
    (JOBS | {"second_job.gpu": "a"}, 1, 2),
    (JOBS | NONE_DENIED, 2, 0),  # a device that is not there at all is not a refusal
    (JOBS | NONE_DENIED | {"first_job.openable": ["a", "b"], "second_job.openable": ["a", "b"]}, 2, 0),
    (JOBS | {"second_job.gpu": None}, 1, 2),
    ({name: value for name, value in JOBS.items() if "outlasted" not in name}, None, None),
    ({name: value for name, value in JOBS.items() if "second" not in name}, None, None),
)
def test_two_jobs_at_once_are_evidence_about_two(facts, distinct, refused):
    seen = add_derived(parsed_of((f"smoke.{name}", "n0", value) for name, value in facts.items()), a_run("smoke"))
    assert values(seen, "smoke.jobs.distinct_gpus").get("n0") == distinct
    assert values(seen, "smoke.jobs.refused_gpus").get("n0") == refused


@for_each(
    (["1:2"], ["1:3"], "own"),
    (["1:2"], ["1:2"], "shared"),
    ([], ["c1"], "none"),
    ("no IMEX", "no IMEX", "no IMEX"),
    ("no IMEX", ["c1"], None),
)
def test_what_two_jobs_at_once_have_is_their_own_shared_or_missing(first, second, value):
    facts = [("smoke.first_job.outlasted", "n0", True)]
    for what in ("tmp", "imex"):
        facts += [(f"smoke.first_job.{what}", "n0", first), (f"smoke.second_job.{what}", "n0", second)]
    seen = add_derived(parsed_of(facts), a_run("smoke"))
    assert values(seen, "smoke.jobs.tmp").get("n0") == values(seen, "smoke.jobs.imex").get("n0") == value
    alone = add_derived(parsed_of(facts[1:]), a_run("smoke"))
    assert values(alone, "smoke.jobs.tmp") == {"n0": None}


def test_a_job_names_the_channels_that_it_opens(tmp_path):
    assert binding.channels(tmp_path / "none") == "no IMEX"
    (tmp_path / "channel1").touch()
    (tmp_path / "channel2").mkdir()  # nobody opens it
    assert binding.channels(tmp_path) == ["channel1"]


def test_two_jobs_are_not_planned_where_a_node_has_one_gpu_or_no_two_jobs_share_a_node(tmp_path):
    """OverSubscribe=EXCLUSIVE: the second job would wait for the first. It stays so under another profile."""
    assert "smoke.jobs.distinct_gpus" in a_run("smoke").planned
    assert "smoke.jobs.distinct_gpus" not in a_run("smoke", gpus=1).planned
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
        run = judge.judge_folder(opened("smoke", tmp_path / str(shares), nodes=["n0"], site=lab))
        gates = {verdict.gate for verdict in run.verdicts.verdicts}
        assert of_sharing - gates == absent
        assert "smoke.gpu.bound" in gates  # what one task gets is still judged
        claims = [claim for answer in answers([run]) for claim in answer.claims if claim.claim == "gpus-isolated"]
        not_asked = [claim.why for claim in claims if claim.mark is Mark.NOT_ASKED]
        assert ["jobs_share_nodes" in why for why in not_asked] == ([] if shares else [True])


# ---- a cause names a GPU as a person finds it; what is not known is left out

FIRST, SECOND, THIRD = (f"GPU-0000000{n}-0000-8575-9a7a-461ee90213dc" for n in "123")
ADDRESSES = {FIRST: "00000000:43:00.0", SECOND: "00000000:1B:00.0"}  # in an order that is not that of the addresses


def known(*uuids: str, node: str = "n1") -> list[Fact]:
    return [("discovery.gpu.pci", f"{node}/{uuid}", ADDRESSES[uuid]) for uuid in uuids]


BOTH = known(FIRST, SECOND)
LISTED = [("inventory.gpu.address", f"n1/{uuid}", ADDRESSES[uuid][4:].lower()) for uuid in (SECOND, FIRST)]
SERIAL = ("inventory.gpu.serial", f"n1/{FIRST}", "1653522001234")
ON_TWO = [*known(FIRST, node="n2"), ("discovery.gpu.pci", f"n1/{FIRST}", ADDRESSES[SECOND])]
XID = "1 × Xid 79 on {}: reboot the node"
GPU_1 = "GPU 1 (PCI 0000:43:00)"


def cause_of(cause: str, facts: list[Fact], count: int, outcome: Outcome = Outcome.FAIL, subject: str = "n1") -> str:
    verdict = a_verdict("discovery.gpu.ecc", subject, outcome, f"2 ({cause})", cause=cause)
    lists = {"verdicts": [verdict], "not_applicable": [], "notes": []}
    run = Verdicts(phase="discovery", run="r", profile="p", outcome=outcome, **lists)
    (changed,) = named(run, names_of(Seen(parsed_of(facts).observations), count)).verdicts
    assert changed.observed == verdict.observed  # drills compare it
    assert (changed.outcome, changed.value) == (verdict.outcome, verdict.value)
    return str(changed.cause)


@for_each(
    # the index is the place by address
    (FIRST, [*BOTH, SERIAL], 2, "GPU 1 (PCI 0000:43:00, serial 1653522001234)", {}),
    (f"{SECOND}, {FIRST}", BOTH, 2, f"GPU 0 (PCI 0000:1b:00), {GPU_1}", {}),
    # NVML does not answer for a GPU that is lost, and it still counts
    (f"NVML; no answer from {SECOND}", known(FIRST) + LISTED, 2, "NVML; no answer from GPU 0 (PCI 0000:1b:00)", {}),
    (FIRST, known(FIRST) + LISTED, 2, GPU_1, {}),
    (FIRST, known(FIRST), 2, "GPU (PCI 0000:43:00)", {}),  # no index is guessed
    # a uuid that two nodes have
    (FIRST, ON_TWO, 1, "GPU 0 (PCI 0000:1b:00)", {}),
    (FIRST, ON_TWO, 1, "GPU 0 (PCI 0000:43:00)", {"subject": "n2/rank9"}),
    # an address in the log of the driver
    (XID.format("PCI:0000:43:00"), BOTH, 2, XID.format(GPU_1), {}),
    (XID.format("PCI:0000:43:00"), BOTH, 2, XID.format("PCI:0000:43:00"), {"subject": "n2"}),
    # what has no name stays as it is
    *((name, BOTH, 2, name, {}) for name in (THIRD, "GPU-a", "a cable", f"{FIRST}-0", "PCI:0000:99:00")),
    (FIRST, [("discovery.gpu.pci", f"n1/{FIRST}", None)], 2, FIRST, {}),
    (FIRST, BOTH, 2, FIRST, {"outcome": PASS}),  # a remark
)
def test_a_cause_names_a_gpu_as_a_person_finds_it(cause, facts, count, names, how):
    assert cause_of(cause, facts, count, **how) == names


def test_the_sentence_says_the_name():
    verdict = a_verdict("discovery.gpu.ecc", "n1", cause=cause_of(FIRST, BOTH, 2))
    assert text.sentence(verdict.model_copy(update={"fails": "it fails"})) == f"{GPU_1} (it fails)"


# ---- GPUs that are lost or hang, drivers that do not start, tools that may not be run: who and why is said

TOOL = "Failed to initialize NVML: Driver/library version mismatch"
INDEX = "nvmlDeviceGetHandleByIndex"


def hanging(driver: Driver, at: str, released: threading.Event) -> Driver:
    """GPU-b never answers the question that `at` names; at the end of the test it does."""
    asked = getattr(driver, at)

    def hang(gpu, *more):
        if gpu == 1 or (gpu != 0 and driver.nvmlDeviceGetUUID(gpu) == GPUS[1]):
            released.wait()
        return asked(gpu, *more)

    setattr(driver, at, hang)
    return driver


@pytest.fixture
def released():
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setenv("BRINGUP_GPU_S", "0.2")


def answering(parsed: Parsed) -> tuple[object, str]:
    verdicts = judge.judge(*gpu_run(), add_derived(parsed)).verdicts
    return in_words(next(v for v in verdicts if v.gate == "discovery.gpu.answering" and v.subject == "n0"))


@for_each(
    ("gpu1.lost=1", (), "1 (NVML; GPU 1: GPU is lost)"),
    ("gpu1.lost=1", GPUS, "1 (NVML; GPU 1: GPU is lost; no answer from GPU-b)"),  # the driver still lists it
    ("gpus=1", (*GPUS, "GPU-c"), "1 (NVML)"),  # this job may not open the others
)
def test_the_verdict_names_the_gpu_that_is_lost(change, listed, says):
    with driver_of(change) as driver:
        assert answering(told_by(lambda probe: nvml.read(probe, driver, listed=listed))) == (FAIL, says)


@for_each(INDEX, "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetComputeRunningProcesses")
def test_a_gpu_that_hangs_is_named_and_costs_neither_the_others_nor_the_probe(released, at):
    """22 questions of 20 s each would take a probe past the time limit of its job."""
    with driver_of() as driver:
        parsed = told_by(lambda probe: nvml.read(probe, hanging(driver, at, released)))
    assert answering(parsed) == (FAIL, "1 (NVML; GPU 1: no answer within 0.2 s)")
    assert [o.value for o in parsed.observations if (o.quantity, o.subject) == ("discovery.gpu.ecc", "n0/GPU-a")] == [0]
    if at == "nvmlDeviceGetTotalEccErrors":
        unknown = [o.why for o in parsed.observations if o.subject == "n0/GPU-b" and o.value is None]
        assert unknown[0] == "NVML: no answer within 0.2 s"
        assert len(unknown) > 10
        assert set(unknown[1:]) == {"not asked: GPU 1 did not answer discovery.gpu.ecc"}


def test_why_nvml_and_nvidia_smi_did_not_start_reaches_the_verdict(released):
    calls = []

    def mismatch(command, **_):
        raise subprocess.CalledProcessError(18, command, output=f"{TOOL}\n")

    def hang(command, **_):
        calls.append(command)
        released.wait()

    for run, says in ((mismatch, TOOL), (hang, "no answer within 0.6 s")):
        parsed = told_by(lambda probe, run=run: smi.read(probe, lambda *_: None, run, nvml_said="NVML: no"))
        assert {o.value for o in parsed.observations if o.quantity.startswith("discovery.gpu.")} == {None}
        assert answering(parsed) == (OPEN, f"not found out: NVML: no; nvidia-smi: {says}")
    assert len(calls) == 1  # it is waited for once


def test_a_driver_that_hangs_when_it_is_started_is_said_so_and_what_a_question_raises_is_raised(monkeypatch, released):
    with driver_of("gpu1.lost=1") as driver, pytest.raises(pynvml.NVMLError, match="lost"):
        patience.within(5, lambda: driver.nvmlDeviceGetHandleByIndex(1))
    fake = SimpleNamespace(nvmlInit=released.wait, NVMLError=pynvml.NVMLError)
    monkeypatch.setitem(__import__("sys").modules, "pynvml", fake)
    assert nvml.library() == (None, "NVML: no answer within 0.2 s")


def test_the_inventory_tells_the_rest_of_the_node_when_a_gpu_hangs_and_counters_name_it(monkeypatch, released):
    with driver_of() as driver:
        monkeypatch.setattr(nvml, "library", lambda: (hanging(driver, INDEX, released), ""))
        facts = answers_of(lambda probe: inventory.gpu(probe, None))
    assert {"discovery.gpu.count", "discovery.gpu.answering", "discovery.nvidia_smi.q"} <= facts.keys()
    for at in (INDEX, "nvmlDeviceGetTotalEccErrors"):
        with driver_of() as driver:
            monkeypatch.setattr(nvml, "library", lambda at=at, driver=driver: (hanging(driver, at, released), ""))
            parsed = told_by(lambda probe: counters.of_gpus(counters.Counters(probe, "before")))
        assert [o.value for o in parsed.observations if o.quantity.endswith(".gpus")] == [1]
        assert [o.why for o in parsed.observations if o.subject == "n0/gpu1"] == ["NVML: no answer within 0.2 s"]


# --- the monitor

NOTHING = ["", "", ""]


@for_each(AttributeError("an old pynvml"), pynvml.NVMLError_GpuIsLost())
def test_a_driver_that_cannot_count_its_gpus_does_not_end_the_samples(error):
    def count() -> int:
        raise error

    with driver_of() as driver:
        driver.nvmlDeviceGetCount = count
        assert monitor.gpu_reader(driver)() == (NOTHING, [])


def test_a_gpu_that_is_lost_or_hangs_leaves_the_samples_of_the_others(released):
    with driver_of("gpu1.lost=1") as driver:
        summary, each = monitor.gpu_reader(driver)()
    assert [cells[0] for cells in each] == ["GPU-a"]
    assert summary == NOTHING
    with driver_of() as driver:
        read = monitor.gpu_reader(hanging(driver, "nvmlDeviceGetCurrentClocksEventReasons", released))
        assert read() == (NOTHING, [])
        assert read() == (NOTHING, []), "it is not waited for again"


# --- a node whose GPUs are divided (MIG), where Slurm counts the parts: one cause, and no GPU is missing


def divided(parts: int, devices: int = 1) -> dict[str, Verdict]:
    """Slurm counts 2. devices: of GPUs, each divided into so many parts."""
    run, profile = gpu_run()
    facts = [("discovery.gpu.count", "n0", devices), ("discovery.gpu.answering", "n0", devices, "NVML")]
    facts += [("inventory.gpu.mig_devices", f"n0/GPU-{index}", parts) for index in range(devices)]
    parsed = parsed_of([*facts, ("discovery.gpu.mig", "n0", "on", "GPU-0")])
    return {v.gate: v for v in blame(judge.judge(run, profile, parsed), Seen(parsed.observations), run).verdicts}


def test_what_slurm_counts_are_parts_and_no_reboot_is_proposed_and_a_gpu_that_is_missing_beside_them_is_missing():
    verdicts = divided(parts=2)
    for gate in ("discovery.gpu.count", "discovery.gpu.answering"):
        expected = (FAIL, "its GPUs are divided: discovery.gpu.mig", Action.CONFIGURE)
        assert (verdicts[gate].outcome, verdicts[gate].cause, verdicts[gate].action) == expected
    cause = "Slurm counts 2 parts as GPUs; ranks on them have neither NVLink nor NCCL between them"
    assert verdicts["discovery.gpu.mig"].cause == cause
    missing = divided(parts=3)["discovery.gpu.count"]  # the parts do not explain the count
    assert (missing.outcome, missing.cause, missing.action) == (FAIL, None, Action.REBOOT)
    right = divided(parts=1, devices=2)["discovery.gpu.count"]
    assert (right.outcome, right.cause) == (PASS, None)


# --- tools that are not installed, where the PATH has something that may not be run: exec says EACCES then


def test_a_tool_that_may_not_be_run_is_not_installed(tmp_path, monkeypatch):
    """Of an ordinary user such a folder may not be searched; a file that nobody may run gives root the same answer."""
    for tool in ("nvidia-imex-ctl", "dcgmi", "ib_write_bw", "nvidia-smi"):
        (tmp_path / tool).write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert answers_of(imex.imex)["discovery.imex"] == (imex.NONE, "nvidia-imex-ctl is not installed")
    diagnosed = answers_of(lambda facts: dcgm.diagnose(facts, "2", 1, None))
    assert diagnosed["dcgm.ended"] == (None, "dcgmi is not installed")
    with pytest.raises(perftest.NotThere):
        perftest.call("ib_write_bw", "mlx5_0:1", 20000, "n0")
    assert smi._why(PermissionError(13, "Permission denied")) == "nvidia-smi is not installed"
