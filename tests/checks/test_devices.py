"""A cluster whose GPUs torch cannot see computes on the CPU, rightly, with exit code 0: that is a failure. And firmware
and settings of GPUs, NICs and PCIe: read as a user and as root reads them, and compared between nodes."""

from pathlib import Path
from types import SimpleNamespace

import collectives
import compute
import cuda_start
import devices
import gpus
import software
import trees
from bringup.kernel import judge
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan import profile, scope
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.records import Action, Outcome, SiteUsed, Verdict
from factory import a_run
from loops import for_each
from nvml_for_tests import driver_of
from probing import told_by
from programs import tree
from runs_for_tests import FAIL, H100, OPEN, PASS, WARN, Fact, about, add_derived, in_words, judged, parsed_of
from showing import check, check_each, shows_failing
from trained_runs import rank_said, run_of

NO_LIMIT = Outcome.NO_LIMIT
LOCAL, GENERIC = "local-cpu", "generic"


def of_collectives(used, expected: str) -> list[Verdict]:
    parsed = told_by(lambda printed: collectives.say_devices(printed, "2-nodes", used))
    by_gate = judged(parsed, "nccl_scaling", ("n0", "n1"), profile_name=expected)
    return [by_gate[f"nccl.device{end} 2-nodes"] for end in ("", ".fallback")]


def of_products(used, expected: str) -> list[Verdict]:
    parsed = told_by(lambda printed: compute.say_device(printed, *used))
    by_gate = judged(parsed, "smoke", ("n0",), profile_name=expected)
    return [by_gate[f"smoke.compute.device{end} n0"] for end in ("", ".fallback")]


def ranks(*kinds: str, listed: int = 8) -> list[tuple[str, str, int, str | None]]:
    return [(f"n{number}", kind, listed, None) for number, kind in enumerate(kinds)]


@shows_failing(*(f"{begin}.device{end}" for begin in ("nccl", "smoke.compute") for end in ("", ".fallback")))
@for_each(
    (of_collectives, ranks("cuda", "cuda"), H100, PASS, PASS),
    (of_collectives, ranks("cpu", "cpu"), H100, FAIL, FAIL),
    (of_collectives, ranks("cpu", "cpu", listed=0), H100, FAIL, PASS),
    (of_collectives, ranks("cuda", "cpu"), H100, FAIL, FAIL),
    (of_collectives, ranks("cpu", "cpu", listed=0), LOCAL, PASS, PASS),
    (of_collectives, ranks("cpu", "cpu"), GENERIC, NO_LIMIT, FAIL),
    (of_collectives, ranks("cuda", "cuda"), GENERIC, NO_LIMIT, PASS),
    (of_products, ("cuda", 8), H100, PASS, PASS),
    (of_products, ("cpu", 8), H100, FAIL, FAIL),
    (of_products, ("cpu", 8), GENERIC, NO_LIMIT, FAIL),
    (of_products, ("cpu", 0), LOCAL, PASS, PASS),
)
def test_collectives_and_products_on_the_cpu_of_a_node_with_gpus_fail(of, used, expected, device, fallback):
    assert [verdict.outcome for verdict in of(used, expected)] == [device, fallback]


def test_a_rank_that_fell_back_is_named_and_holds_no_gpu(tmp_path, monkeypatch):
    _, fallback = of_collectives([("n0", "cuda", 8, None), ("n1", "cpu", 8, "no driver")], H100)
    assert fallback.observed == "1 (first rank 1 on n1: the driver lists 8 GPUs, torch sees none: no driver)"
    assert gpus.driver_count(tmp_path / "none") == 0
    (tmp_path / "0000:1b:00.0").mkdir()
    assert gpus.driver_count(tmp_path) == 1
    monkeypatch.setattr(gpus, "driver_count", lambda: 8)
    monkeypatch.setattr(gpus, "openable", lambda: (["GPU-a"], []))
    assert collectives.placeholder(0) is None


ERROR_803 = "system has unsupported display driver / cuda driver combination"


class Stuck:
    """What torch.cuda is where NVML counts eight GPUs, and CUDA does not start."""

    cuda = backends = None

    def __init__(self, built: bool = True) -> None:
        self.cuda = self
        self.backends = SimpleNamespace(cuda=SimpleNamespace(is_built=lambda: built))

    def device_count(self) -> int:
        return 8

    def init(self) -> None:
        raise RuntimeError(f"Unexpected error from cudaGetDeviceCount(). Did you run … Error 803: {ERROR_803}\n(more)")


def test_gpus_that_only_nvml_counts_are_none_and_the_cause_is_in_the_verdict():
    assert cuda_start.devices(Stuck(built=False)) == (0, "this torch was built without CUDA")
    assert cuda_start.devices(Stuck()) == (0, f"Error 803: {ERROR_803}")
    check_each(of_products(("cpu", 8, f"Error 803: {ERROR_803}"), H100), *[(FAIL, ERROR_803)] * 2)


@for_each(("00a1", "GPU-00a1"), ("GPU-00a1", "GPU-00a1"), (None, None))
def test_a_gpu_has_the_name_that_the_driver_gives_it(uuid, name):
    properties = SimpleNamespace(uuid=uuid) if uuid else SimpleNamespace()
    torch = SimpleNamespace(cuda=SimpleNamespace(get_device_properties=lambda device: properties))
    assert cuda_start.uuid(torch, 0) == name


def trained(tmp_path: Path, device: str, listed: int | None) -> Path:
    folder = run_of("run_ddp_2node", tmp_path)
    for rank, node in enumerate(("n0", "n0", "n1", "n1")):
        known = {} if listed is None else {"driver_gpus": listed}
        rank_said(folder, node, rank, state="finished", device=device, **known)
    return folder


def of_training(folder: Path, expected: str) -> list[Verdict]:
    verdicts = judge.judge_folder(folder, profile.load(expected)).verdicts.verdicts
    return [v for end in ("", ".fallback") for v in verdicts if v.gate == f"train.device{end}"]


@shows_failing("train.device", "train.device.fallback")
def test_training_on_the_cpu_of_a_node_with_gpus_fails(tmp_path):
    for number, (device, listed, expected, outcomes) in enumerate(
        (
            ("GPU-1", 8, H100, [PASS, PASS]),
            ("cpu", 8, H100, [FAIL, FAIL]),
            ("cpu", 0, H100, [FAIL, PASS]),
            ("cpu", 8, GENERIC, [NO_LIMIT, FAIL]),
            ("cpu", 0, LOCAL, [PASS, PASS]),
            ("cpu", None, LOCAL, [PASS, OPEN]),
        )
    ):
        folder = trained(tmp_path / str(number), device, listed)
        assert [verdict.outcome for verdict in of_training(folder, expected)] == outcomes, (device, listed, expected)


def test_one_rank_that_fell_back_is_named_and_one_that_says_nothing_is_not_health(tmp_path):
    folder = trained(tmp_path, "GPU-1", 8)
    rank_said(folder, "n1", 3, state="finished", device="cpu", driver_gpus=8)
    device, fallback = of_training(folder, H100)
    assert device.observed == "cpu and cuda"
    assert fallback.observed == "1 (first n1/rank3: the driver lists 8 GPUs, torch sees none)"
    (folder / "raw/rank3.jsonl").write_text("")
    check_each(of_training(folder, H100), (OPEN, "first n1/rank3"), OPEN)


def test_the_gates_of_all_three_programs_share_one_guide():
    ids = {f"{prefix}.device{end}" for prefix in ("train", "nccl", "smoke.compute") for end in ("", ".fallback")}
    assert len({GATES[gate].guide for gate in ids}) == 1
    assert "train.device.fallback" in scope.plan("run_1gpu", ["n0"], 1, set())


@for_each(2, 0)
@for_each(
    ("smoke", {"smoke.compute.tflops": 0.0666, "smoke.compute.wrong_values": 0}),
    (
        "node_sweep",
        {f"sweep.load.{gate}": 0.01 for gate in ("tflops", "drift", "peers")}
        | {"sweep.ranks": 2, "sweep.load.wrong_values": 0},
    ),
)
def test_what_a_cpu_computed_in_place_of_a_gpu_accuses_no_gpu(listed, phase, slow):
    """Its rate is that of a CPU: nodes were drained to replace a GPU, and torch was only built for another CUDA."""
    device = "smoke.compute.device" if phase == "smoke" else "sweep.device"
    facts = {device: "cpu", f"{device}.fallback": int(listed > 0), **slow}
    by_gate = judged([(name, "n0", value) for name, value in facts.items()], phase, ("n0", "n1"))
    failed = {v.gate: v.action for v in by_gate.values() if v.subject == "n0" and v.outcome is FAIL}
    assert failed == dict.fromkeys([device, *([f"{device}.fallback"] if listed else [])], Action.CONFIGURE)


# ---- firmware and settings, compared between nodes

NODES = ("n0", "n1", "n2")
SWITCH = "tree/pci0000:00/0000:00:01.0/0000:17:00.0"  # of which the first is a port of the CPU
GPU = f"{SWITCH}/0000:1b:00.0"
SYSFS = {  # one NIC, and one GPU below a switch
    "ib/mlx5_0/fw_ver": "28.39.1002",
    "ib/mlx5_0/board_id": "MT_0000000838",
    "ib/mlx5_0/device/current_link_speed": "32.0 GT/s PCIe",
    "ib/mlx5_0/device/current_link_width": "16",
    f"{GPU}/vendor": "0x10de",
    f"{GPU}/class": "0x030200",
    f"{GPU}/iommu_group/type": "identity",
}
CONFIGS = [f"{device}/config" for device in ("ib/mlx5_0/device", GPU, SWITCH, SWITCH.rpartition("/")[0])]
REGISTERS = trees.config("256", "512")


def probed(root: Path, at: str = "n0", files: dict | None = None, shown: int | None = None, gpu: str = "numa=0"):
    """files: that are otherwise; shown: the bytes of the registers that the kernel shows; gpu: what it says."""
    tree(root / at, {**SYSFS, **{config: REGISTERS[:shown] for config in CONFIGS}, **(files or {})})
    (root / at / "pci").mkdir()
    (root / at / "pci/0000:1b:00.0").symlink_to(root / at / GPU)
    parsed = told_by(lambda facts: devices.devices(facts, root / at / "ib", root / at / "pci"), at)
    with driver_of("gpus=1", f"gpu0.{gpu}") as driver:
        parsed.add(told_by(lambda facts: devices.of_gpus(facts, driver), at))
    return parsed


def compared(root: Path, files: dict[str, str | bytes] | None = None, **gpu: str) -> list[Verdict]:
    """n1 is the odd one."""
    parsed = Parsed()
    for node in NODES:
        parsed.add(probed(root, node, files, **gpu) if node == "n1" else probed(root, node))
    run = a_run("discovery", NODES, profile=H100)
    return list(about("discovery.devices", add_derived(parsed, run), run).values())


@shows_failing("discovery.devices")
def test_other_firmware_and_another_setting_warn_on_their_node_and_are_named(tmp_path):
    payload = trees.config("128", "512")
    for number, (files, gpu, words) in enumerate(
        (
            ({"ib/mlx5_0/fw_ver": "28.36.1010"}, {}, "28.36.1010, 2 of 3 have 28.39.1002"),
            (dict.fromkeys(CONFIGS[1:2], payload), {}, "128 and 512 bytes+256 and 512 bytes"),  # of the GPU alone
            ({}, {"gpu": "vbios=96.00.61.00.01"}, "VBIOS: 96.00.61.00.01"),
            ({}, {"gpu": "ecc_mode=off"}, "ECC: off"),
        )
    ):
        check_each(compared(tmp_path / str(number), files, **gpu), PASS, (WARN, words), PASS)


NDR = "400 Gb/sec (4X NDR)"


@for_each(
    ("32.0 GT/s PCIe", "16", NDR, PASS, "PCIe link for a NIC's rate"),
    ("32.0 GT/s PCIe", "8", NDR, WARN, "32.0 GT/s PCIe x8 for 400 Gb/s: the NIC cannot reach its rate"),
    ("16.0 GT/s PCIe", "16", "200 Gb/sec (4X HDR)", PASS, "PCIe link for a NIC's rate"),  # a slower slot by design
    ("5.0 GT/s PCIe", "8", "40 Gb/sec (4X QDR)", WARN, "5.0 GT/s PCIe x8 for 40 Gb/s"),  # 8b/10b: 32 Gb/s
    ("Unknown", "0", NDR, PASS, "0 (right"),  # a virtual function
)
def test_a_nic_whose_link_cannot_carry_its_rate_is_wrong_without_a_peer(tmp_path, speed, width, rate, outcome, says):
    link = {"current_link_speed": speed, "current_link_width": width}
    port = {"ib/mlx5_0/ports/1/state": "4: ACTIVE", "ib/mlx5_0/ports/1/rate": rate}
    root = tmp_path / str(len(list(tmp_path.iterdir())))
    parsed = probed(root, files={f"ib/mlx5_0/device/{name}": text for name, text in link.items()} | port)
    kind = [("inventory.virtual", "n0", False), ("discovery.rdma.ports", "n0", 1), ("discovery.gpu.count", "n0", 1)]
    check(judged(parsed.add(parsed_of(kind)), nodes=("n0",))[f"{RIGHT} n0"], outcome, says)


def test_gpus_that_do_not_answer_leave_the_comparison_open(tmp_path):
    check_each(compared(tmp_path, gpu="lost=1"), PASS, (OPEN, "GPU is lost"), PASS)


def test_registers_that_the_kernel_hides_from_users_are_said_to_be_hidden(tmp_path):
    value_of = {fact.quantity: fact.value for fact in probed(tmp_path, shown=64).observations}
    firmware, link = "firmware of MT_0000000838=28.39.1002", "PCIe link of MT_0000000838=32.0 GT/s PCIe x16"
    assert value_of["inventory.devices.nics"] == [firmware, link]
    hidden = {"MaxPayload and MaxReadReq=not readable by users", "ACS of PCIe switches=not readable by users"}
    assert hidden | {"IOMMU of GPUs and NICs=identity+none"} <= set(value_of["inventory.devices.pci"])


RIGHT = "discovery.settings.right"
KERNEL = [("discovery.gpu.count", "n0", 8), ("inventory.virtual", "n0", False)]
KERNEL += [("discovery.cpu.model", "n0", "AMD EPYC")]


def of_settings(*facts: Fact) -> tuple[Outcome, str]:
    """Return the verdict of a node with these values."""
    return in_words(judged(facts, "discovery", ("n0",), profile_name=H100)[f"{RIGHT} n0"])


@shows_failing(RIGHT)
@for_each(
    ([("discovery.gpu.count", "n0", 8)], WARN, "1 (kernel.numa_balancing is 1: the kernel moves pages of running"),
    ([("discovery.gpu.count", "n0", 0)], PASS, "0 (no vendor documents one for such a node)"),
    ([], OPEN, "not found out: none of them could be read"),  # whether it has GPUs is not known
    (KERNEL, WARN, "3 (kernel.numa_balancing is 1: "),
    ([*KERNEL[:1], ("inventory.virtual", "n0", True)], WARN, "1 (kernel.numa_balancing"),
    ([*KERNEL[:2], ("discovery.cpu.model", "n0", "aarch64 implementer 0x41")], WARN, "2 (kernel.numa_balancing"),
)
def test_a_value_that_its_vendor_calls_wrong_warns_without_a_peer(facts, outcome, words):
    right = ["IOMMU of GPUs and NICs=identity+DMA-FQ", "MaxPayload and MaxReadReq=128 and 512 bytes"]
    entries = [
        ("inventory.settings.kernel", "n0", ["vm.swappiness=60", "kernel.numa_balancing=1"]),
        ("inventory.devices.pci", "n0", right),
        ("inventory.devices.nics", "n0", []),
    ]
    seen, observed = of_settings(*facts, *entries)
    assert (seen, observed[: len(words)]) == (outcome, words)


def test_right_values_pass_and_what_a_user_may_not_read_is_named():
    entries = [
        ("inventory.settings.task", "n0", ["ulimit -l=unlimited", "CPU governor=performance"]),
        ("inventory.devices.pci", "n0", ["ACS of PCIe switches=not readable by users"]),
        ("inventory.devices.gpus", "n0", ["compute mode=default"]),
    ]
    words = "0 (right: CPU governor, compute mode; a user may not read ACS of PCIe switches)"
    assert of_settings(*KERNEL, *entries) == (PASS, words)


@for_each(
    ("ACS of PCIe switches=not readable by users+off", "0 (right: ACS of PCIe switches, CPU governor)"),
    ("ACS of PCIe switches=not readable by users+redirects", "1 (ACS of PCIe switches is not readable by users+redir"),
    ("compute mode=not supported", "0 (right: CPU governor)"),
    ("compute mode=unknown", "0 (right: CPU governor)"),
    ("compute mode=default+not supported", "0 (right: compute mode, CPU governor)"),
)
def test_a_device_that_does_not_say_its_setting_has_no_wrong_one(entry, words):
    of_task = ("inventory.settings.task", "n0", ["CPU governor=performance"])
    seen = of_settings(*KERNEL, ("inventory.devices.pci", "n0", [entry]), of_task)[1]
    assert sorted(seen) == sorted(words) or seen.startswith(words)


def test_a_switch_that_redirects_is_named_and_a_port_of_the_cpu_is_not_asked(tmp_path):
    redirecting = {f"{SWITCH}/config": BEHIND, f"{SWITCH.rpartition('/')[0]}/config": BEHIND}
    cases = ((redirecting, "redirects"), ({CONFIGS[2]: bytes(4096), CONFIGS[3]: BEHIND}, "none"))
    for number, (files, says) in enumerate(cases):
        facts = probed(tmp_path / str(number), files=files).observations
        (value,) = (fact.value for fact in facts if fact.quantity == "inventory.devices.pci")
        assert f"ACS of PCIe switches={says}" in value


def begin(capability: int) -> bytes:
    return bytes(256) + capability.to_bytes(4, "little")


ACS = begin(devices.ACS | 1 << 16) + (0x1F).to_bytes(2, "little")
BEHIND = begin(0x0001 | 0x148 << 20) + bytes(68) + ACS[256:] + b"\x04\0" + bytes(9)


@for_each(
    (bytes(64), devices.HIDDEN),
    (bytes(4096), "none"),
    (ACS + (0x1D).to_bytes(2, "little") + bytes(64), "redirects"),
    (ACS + bytes(66), "off"),
    (BEHIND, "redirects"),
)
def test_acs_is_read_from_the_extended_registers(config, redirects):
    assert devices.acs(config) == redirects


@for_each(
    bytes(256), b"\xff" * 256, bytes(52) + b"\x40" + bytes(203), bytes(52) + b"\x40" + bytes(12) + b"\x40" + bytes(190)
)
def test_registers_without_sense_end_no_probe(config):
    assert devices.payloads(config) == "no PCIe"
    assert devices.acs(config + b"\xff" * 64) in ("none", devices.HIDDEN)


# ---- whether the driver of a node can run the torch that is installed: asked in discovery, before a GPU is used


def of_torch(torch, cuda=None, driver=None, model="NVIDIA H100", site: SiteUsed | None = None) -> Verdict:
    """torch: the CUDA that it was built for; cuda, driver: as NVML says them."""
    facts = {"inventory.torch n0": torch, "discovery.gpu.cuda n0": cuda, "discovery.gpu.driver n0": driver}
    facts["discovery.gpu.model n0/GPU-a"] = model
    run = a_run("discovery", ("n0",)).model_copy(update={"site": site})
    parsed = parsed_of((*name.split(), value, "2.13.0+cu130") for name, value in facts.items())
    return about("discovery.torch.driver", add_derived(parsed, run), run, GENERIC)["n0"]


OLD = ("13.0", "12.2", "535.183.01")
CONTAINER = SiteUsed(name="lab", says={"container": {"image": "/images/torch.sqsh"}})


@shows_failing("discovery.torch.driver")
@for_each(
    (OLD, FAIL, "for CUDA 13.0; driver 535.183.01 has CUDA 12.2: TORCH_INDEX=https://"),
    (OLD, FAIL, "make venv (torch for CUDA 12.6)"),
    (("13.0", "11.4", "470.82.01"), FAIL, "no build of torch 2.13 runs with 470.82.01"),
    (("13.0", "12.8", "570.86.15", "NVIDIA B200"), FAIL, "no code for NVIDIA B200"),
    (("12.6", "12.2", "535.183.01"), PASS, ""),
    (("13.2", "13.0", "580.65.06"), PASS, ""),  # a later build of the same major version
    (("13.0", "13.0", "535.183.01"), PASS, ""),  # with cuda-compat
    (("13.0", None, "580.65.06"), PASS, ""),
    (("CPU",), PASS, "a build for CPU"),
    (("absent",), PASS, "not installed"),
    (("13.0",), OPEN, "the driver did not say which CUDA it has"),
    ((*OLD, "NVIDIA H100", CONTAINER), PASS, "in a container"),  # which brings its own torch
)
def test_a_driver_that_is_too_old_fails_with_the_line_that_installs_another_build(answers, outcome, says):
    verdict = of_torch(*answers)
    check(verdict, outcome, says)
    assert not judge.stops(verdict)


@for_each(
    ("__version__ = '2.13.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\n", ("2.13.0+cu130", "13.0")),
    ("__version__ = '2.5.1+cu118'\ncuda = '11.8'\nhip = None\n", ("2.5.1+cu118", "11.8")),
    ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", ("2.13.0+cpu", "CPU")),
    (None, ("absent", "absent")),
)
def test_the_probe_reads_it_from_torchs_own_file(tmp_path, text, build):
    place = tmp_path / build[0]
    if text is not None:
        tree(place, {"torch/version.py": text})
    assert software.torch_build(["", "/nowhere", str(place)]) == build
