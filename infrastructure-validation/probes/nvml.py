"""What every GPU says about itself, through NVML. What it does not say is unknown, with NVML's own words.

`nvml` is the module pynvml, or anything with its functions: tests drive this file without a GPU.
"""

import absent
from patience import NoAnswer, seconds, within

# health bits of the clock event reasons: the hardware protects itself. The others (idle, power cap, user's clocks)
# are normal
HARDWARE_SLOWDOWNS = {0x8: "hardware slowdown", 0x40: "hardware thermal", 0x80: "hardware power brake"}
COMPLETED = 3
SM_CLOCK = 1
FABRIC = {0: "not supported", 1: "not started", 2: "in progress", COMPLETED: "completed"}
# of the health mask (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*): shift and width of a field -> what its values say is wrong
FABRIC_HEALTH = {
    (0, 0x3): {1: "degraded bandwidth"},
    (2, 0x3): {1: "routes in recovery"},
    (4, 0x3): {1: "an unhealthy route"},
    (6, 0x3): {1: "an access timeout"},
    (8, 0xF): {
        2: "another system GUID",
        3: "another chassis serial number",
        4: "no partition",
        5: "too few NVLinks",
        6: "firmware that does not fit",
        7: "an invalid place in the chassis",
        8: "an invalid GPU state",
    },
    (14, 0x3): {2: "no fabric manager"},
}
# of a link of NVLink 5, in nvml.h NVML_FI_DEV_NVLINK_COUNT_: LINK_RECOVERY_EVENTS, MALFORMED_PACKET_ERRORS, RCV_ERRORS
RECOVERY_EVENTS, MALFORMED_PACKETS, RECEIVED_WITH_ERRORS = 215, 206, 208
RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
RECOVERY_ACTIONS = {  # of nvml.h, in the words of nvidia-smi where it has them
    0: "None",
    1: "Reset",
    2: "Reboot",
    3: "Drain P2P",
    4: "Drain and Reset",
    5: "Recover IMEX Domain",
    6: "Bus Reset",
    7: "System Reboot",
}
INVALID_ARGUMENT = 2
GIB = 2**30


class NothingToAsk(Exception):
    """The GPU lacks what the question is about; the message says what."""


def library():
    """(pynvml, started) or (None, why not)."""
    try:
        import pynvml
    except ImportError:
        return None, "pynvml is not installed"
    try:
        within(seconds(), pynvml.nvmlInit)
    except (pynvml.NVMLError, NoAnswer) as error:
        return None, f"NVML: {error}"
    return pynvml, ""


def each_gpu(nvml):
    """[(index, handle and UUID, why there are none)] of all GPUs. Raises NVMLError and NoAnswer: not counted."""
    for index in range(within(seconds(), nvml.nvmlDeviceGetCount)):
        try:
            yield index, within(seconds(), lambda index=index: _handle(nvml, index)), None
        except (nvml.NVMLError, NoAnswer) as error:
            yield index, None, error


def _handle(nvml, index):
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return handle, text(nvml.nvmlDeviceGetUUID(handle))


def read(facts, nvml, listed=()):
    """All GPUs. One that does not give its UUID, or hangs, has not answered. listed: the UUIDs that the driver lists
    in /proc, also of a GPU that is lost."""
    answered, silent = [], []
    _ask(facts, nvml, facts.at, "discovery.gpu.driver", "text", lambda: text(nvml.nvmlSystemGetDriverVersion()))
    _ask(facts, nvml, facts.at, "discovery.gpu.cuda", "text", lambda: _cuda(nvml.nvmlSystemGetCudaDriverVersion()))
    try:
        for index, gpu, error in each_gpu(nvml):
            if gpu is None:
                facts.unknown("discovery.gpu.model", "text", f"GPU {index}: {error}", f"{facts.at}/gpu{index}")
                silent.append(f"GPU {index}: {error}")
                continue
            hung = _questions(facts, nvml, index, *gpu)
            if hung is None:
                answered.append(gpu[1])
            else:
                silent.append(f"GPU {index}: {hung}")
    except (nvml.NVMLError, NoAnswer) as error:
        facts.unknown("discovery.gpu.answering", "count", f"NVML: {error}")
        return
    silent_uuids = [uuid for uuid in listed if uuid not in answered]
    if silent and len(silent_uuids) == len(silent):  # not those that belong to another job
        silent.append(f"no answer from {', '.join(silent_uuids)}")
    facts.saw("discovery.gpu.answering", len(answered), "count", remark="; ".join(["NVML", *silent]))


def _questions(facts, nvml, index, gpu, uuid):
    """All of one GPU. One that hangs is waited for once; returned is what it did then."""
    for place, (quantity, unit, question) in enumerate(QUESTIONS):
        hung = _ask(facts, nvml, f"{facts.at}/{uuid}", quantity, unit, lambda ask=question: ask(nvml, gpu))
        if hung is not None:
            for later, its_unit, _ in QUESTIONS[place + 1 :]:
                facts.unknown(
                    later, its_unit, f"not asked: GPU {index} did not answer {quantity}", f"{facts.at}/{uuid}"
                )
            return hung
    return None


def _ask(facts, nvml, subject, quantity, unit, question):
    """None, or NoAnswer when it hung."""
    try:
        facts.saw(quantity, within(seconds(), question), unit, subject)
    except NoAnswer as error:
        facts.unknown(quantity, unit, f"NVML: {error}", subject)
        return error
    except nvml.NVMLError as error:
        absent.says(facts, quantity, unit, absent.kind_of_error(nvml, error), f"NVML: {error}", subject)
    except AttributeError as error:  # a pynvml older than the question
        facts.unknown(quantity, unit, f"pynvml: {error}", subject)
    except NothingToAsk as error:
        facts.unknown(quantity, unit, str(error), subject)
    return None


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def _cuda(version):
    return f"{version // 1000}.{version % 1000 // 10}"


def _mig(nvml, gpu):
    return "on" if nvml.nvmlDeviceGetMigMode(gpu)[0] else "off"


def in_mig_mode(nvml, gpu):
    try:
        return _mig(nvml, gpu) == "on"
    except nvml.NVMLError_NotSupported:
        return False


def _mig_devices(nvml, gpu):
    """The parts of a GPU that is divided, each of which Slurm may count as a GPU."""
    count = 0
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) if in_mig_mode(nvml, gpu) else 0):
        try:
            nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
            count += 1
        except nvml.NVMLError_NotFound:
            continue
    return count


def _uncorrected(nvml, gpu):
    return nvml.nvmlDeviceGetTotalEccErrors(gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)


def _corrected(nvml, gpu):
    return nvml.nvmlDeviceGetTotalEccErrors(gpu, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_VOLATILE_ECC)


def _links_up(nvml, gpu):
    links = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(gpu, link):
                links.append(link)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            break
    return links


def _nvlinks(nvml, gpu):
    """Links that are up. A GPU without NVLink has none; that is an answer."""
    return len(_links_up(nvml, gpu))


def _nvlink_errors(counter, *fields):
    """One kind of error (NVML_NVLINK_ERROR_DL_...), over all links that are up, since the driver was loaded or the
    GPU was reset.

    A generation that does not count this kind says so: unknown, not 0. NVLink 5 counts it in these fields.
    """

    def ask(nvml, gpu):
        links = _links_up(nvml, gpu)
        if not links:
            raise NothingToAsk("no NVLink is up, so that none counts errors")
        try:
            return sum(nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, link, getattr(nvml, counter)) for link in links)
        except nvml.NVMLError as error:
            if not fields or absent.kind_of_error(nvml, error) is None:
                raise
        return sum(_field(nvml, gpu, field, link) for field in fields for link in links)

    return ask


def _field(nvml, gpu, field, link):
    (answer,) = nvml.nvmlDeviceGetFieldValues(gpu, [(field, link)])
    if answer.nvmlReturn != 0:
        raise nvml.NVMLError(answer.nvmlReturn)
    return answer.value.ullVal


def _fabric_info(nvml, gpu):
    info = nvml.c_nvmlGpuFabricInfoV_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(gpu, nvml.byref(info))
    return info


def _fabric(nvml, gpu):
    info = _fabric_info(nvml, gpu)
    state = FABRIC.get(info.state, f"state {info.state}")
    if info.state != COMPLETED:  # before that, NVML leaves status and health undefined
        return state
    fields = (values.get(info.healthMask >> shift & width) for (shift, width), values in FABRIC_HEALTH.items())
    wrong = ([f"status {info.status}"] if info.status != 0 else []) + [words for words in fields if words]
    return f"{state} with {', '.join(wrong)}" if wrong else state


def _nvlink_cluster(nvml, gpu):
    """UUID and clique: all GPUs that reach each other over NVLink, those of other nodes too, have both alike."""
    info = _fabric_info(nvml, gpu)
    if info.state != COMPLETED or not any(info.clusterUuid):
        raise NothingToAsk("it is in no NVLink cluster")
    return f"{bytes(info.clusterUuid).hex()}.{info.cliqueId}"


def _recovery_action(nvml, gpu):
    """Name the recovery that the driver asks for. NotSupported: the driver is older than the question."""
    try:
        (answer,) = nvml.nvmlDeviceGetFieldValues(gpu, [(RECOVERY_ACTION, 0)])
    except nvml.NVMLError_InvalidArgument:
        raise nvml.NVMLError_NotSupported() from None
    if answer.nvmlReturn in (INVALID_ARGUMENT, absent.LACKS):
        raise nvml.NVMLError_NotSupported()
    if answer.nvmlReturn != 0:
        raise nvml.NVMLError(answer.nvmlReturn)
    return RECOVERY_ACTIONS.get(answer.value.uiVal, f"action {answer.value.uiVal}")


def _slowdown(nvml, gpu):
    reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)
    return ", ".join(name for bit, name in HARDWARE_SLOWDOWNS.items() if reasons & bit) or "none"


def _below_default_power(nvml, gpu):
    """W that the driver holds it below the power it was made for. A limit above that is none."""
    default, limit = nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu), nvml.nvmlDeviceGetEnforcedPowerLimit(gpu)
    return max(0, default - limit) / 1000


def _below_default_clock(nvml, gpu):
    """MHz that somebody set the clock of its application below its default."""
    default = nvml.nvmlDeviceGetDefaultApplicationsClock(gpu, SM_CLOCK)
    return max(0, default - nvml.nvmlDeviceGetApplicationsClock(gpu, SM_CLOCK))


def _ecc_mode(nvml, gpu):
    now, after_reset = nvml.nvmlDeviceGetEccMode(gpu)
    words = "on" if now else "off"
    return words if now == after_reset else f"{words}, {'on' if after_reset else 'off'} after a reset"


def _processes(nvml, gpu):
    """Processes that compute on it. The probe has no CUDA context and the job has the node alone: they are foreign."""
    return len(nvml.nvmlDeviceGetComputeRunningProcesses(gpu))


def _left(nvml, gpu):
    """Memory in use, in GiB, on GPUs where no process computes. The driver keeps some."""
    return 0.0 if _processes(nvml, gpu) else round(nvml.nvmlDeviceGetMemoryInfo(gpu).used / GIB, 2)


def pcie_links(uuid):
    """A function that gives (generation and lanes now, the most that this GPU and its slot can do); or why there is
    none. To be asked while the GPU is busy: an idle one lowers the generation to save power."""
    nvml, why_not = library()
    if nvml is None:
        return None, why_not
    try:
        gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
        return link_of(nvml, gpu), ""
    except (nvml.NVMLError, AttributeError) as error:  # AttributeError: a pynvml older than the question
        return None, f"NVML: {error}"


def link_of(nvml, gpu):
    # of the GPU in its slot: on a board of generation 4, a GPU of generation 5 says 4 (nvml.h)
    most = nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu), nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)

    def ask():  # in the middle of a load, which must not end because NVML does not answer: then None
        try:
            return (nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu), nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu)), most
        except nvml.NVMLError:
            return None

    return ask


NVLINK_RECOVERIES = _nvlink_errors("NVML_NVLINK_ERROR_DL_RECOVERY", RECOVERY_EVENTS)
NVLINK_REPLAYS = _nvlink_errors("NVML_NVLINK_ERROR_DL_REPLAY")
NVLINK_DAMAGED = _nvlink_errors("NVML_NVLINK_ERROR_DL_CRC_FLIT", MALFORMED_PACKETS, RECEIVED_WITH_ERRORS)

QUESTIONS = (
    ("discovery.gpu.model", "text", lambda nvml, gpu: text(nvml.nvmlDeviceGetName(gpu))),
    ("discovery.gpu.memory", "GiB", lambda nvml, gpu: round(nvml.nvmlDeviceGetMemoryInfo(gpu).total / GIB, 2)),
    ("discovery.gpu.pci", "text", lambda nvml, gpu: text(nvml.nvmlDeviceGetPciInfo(gpu).busId)),
    # what a vendor asks for
    ("inventory.gpu.serial", "text", lambda nvml, gpu: text(nvml.nvmlDeviceGetSerial(gpu))),
    ("inventory.gpu.vbios", "text", lambda nvml, gpu: text(nvml.nvmlDeviceGetVbiosVersion(gpu))),
    ("inventory.gpu.board", "text", lambda nvml, gpu: text(nvml.nvmlDeviceGetBoardPartNumber(gpu))),
    ("discovery.gpu.mig", "text", _mig),
    ("inventory.gpu.mig_devices", "count", _mig_devices),
    ("discovery.gpu.persistence", "flag", lambda nvml, gpu: bool(nvml.nvmlDeviceGetPersistenceMode(gpu))),
    ("discovery.gpu.ecc", "count", _uncorrected),
    ("discovery.gpu.ecc_corrected", "count", _corrected),
    ("discovery.gpu.remapped_corrected", "count", lambda nvml, gpu: nvml.nvmlDeviceGetRemappedRows(gpu)[0]),
    ("discovery.gpu.remapped_uncorrected", "count", lambda nvml, gpu: nvml.nvmlDeviceGetRemappedRows(gpu)[1]),
    ("discovery.gpu.remap_pending", "flag", lambda nvml, gpu: bool(nvml.nvmlDeviceGetRemappedRows(gpu)[2])),
    ("discovery.gpu.remap_failed", "flag", lambda nvml, gpu: bool(nvml.nvmlDeviceGetRemappedRows(gpu)[3])),
    (
        "discovery.gpu.pcie",
        "count",
        lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu) - nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
    ),
    # an idle GPU lowers it to save power, so that it is not a verdict
    ("discovery.gpu.pcie_generation", "count", lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu)),
    ("discovery.gpu.nvlinks", "count", _nvlinks),
    ("discovery.gpu.nvlink_recoveries", "count", NVLINK_RECOVERIES),
    ("discovery.gpu.nvlink_replays", "count", NVLINK_REPLAYS),
    ("discovery.gpu.nvlink_crc_errors", "count", NVLINK_DAMAGED),
    ("discovery.gpu.fabric", "text", _fabric),
    ("discovery.gpu.recovery_action", "text", _recovery_action),
    ("discovery.gpu.slowdown", "text", _slowdown),
    ("discovery.gpu.power_cap", "W", _below_default_power),
    ("discovery.gpu.clock_cap", "MHz", _below_default_clock),
    ("discovery.gpu.ecc_mode", "text", _ecc_mode),
    ("discovery.gpu.free", "count", _processes),
    ("discovery.gpu.left", "GiB", _left),
)

# for counters.py
COUNTERS = (
    ("ecc_uncorrected", _uncorrected),
    ("ecc_corrected", _corrected),
    ("rows_remapped_uncorrectable", lambda nvml, gpu: nvml.nvmlDeviceGetRemappedRows(gpu)[1]),
    ("rows_remapped_correctable", lambda nvml, gpu: nvml.nvmlDeviceGetRemappedRows(gpu)[0]),
    ("remap_failed", lambda nvml, gpu: int(nvml.nvmlDeviceGetRemappedRows(gpu)[3])),
    ("pcie_replays", lambda nvml, gpu: nvml.nvmlDeviceGetPcieReplayCounter(gpu)),
    ("nvlinks", _nvlinks),
    ("nvlink_cluster", _nvlink_cluster),
    ("nvlink_recoveries", NVLINK_RECOVERIES),
    ("nvlink_replays", NVLINK_REPLAYS),
    ("nvlink_crc_errors", NVLINK_DAMAGED),
)
