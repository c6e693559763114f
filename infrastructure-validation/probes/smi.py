"""What every GPU says about itself, through nvidia-smi's CSV, where NVML cannot be asked. Same quantities as nvml.py.

A field that this nvidia-smi does not know fails the whole query, so fields of newer drivers have a query of their own.
"""

import itertools
import re
import shutil
import subprocess

import absent
from nvml import HARDWARE_SLOWDOWNS
from patience import NoAnswer, seconds, within

UNSAID = re.compile(r"|N/A|ERR!|\[.*\]")  # no value of its own stands in brackets


def _mib(text):
    return round(float(text) / 1024, 2)


FLAGS = {
    **dict.fromkeys(("1", "yes", "enabled", "active", "on", "true"), True),
    **dict.fromkeys(("0", "no", "disabled", "not active", "inactive", "off", "false"), False),
}


def _flag(text):
    """Every field says it in words of its own, and some change with the version. KeyError for any other word."""
    return FLAGS[text.lower()]


def _on_or_off(text):
    return "on" if _flag(text) else "off"


def _slowdown(text):
    bits = int(text, 16)
    return ", ".join(name for bit, name in HARDWARE_SLOWDOWNS.items() if bits & bit) or "none"


FIELDS = (  # (query, field of nvidia-smi, fact, its unit, how the field is read)
    ("gpu", "name", "discovery.gpu.model", "text", str),
    ("gpu", "memory.total", "discovery.gpu.memory", "GiB", _mib),
    ("gpu", "driver_version", "discovery.gpu.driver", "text", str),
    ("gpu", "pci.bus_id", "discovery.gpu.pci", "text", str),
    ("gpu", "persistence_mode", "discovery.gpu.persistence", "flag", _flag),
    ("gpu", "ecc.errors.uncorrected.volatile.total", "discovery.gpu.ecc", "count", int),
    ("gpu", "ecc.errors.corrected.volatile.total", "discovery.gpu.ecc_corrected", "count", int),
    ("gpu", "pcie.link.width.current", "width", "count", int),
    ("gpu", "pcie.link.width.max", "width_max", "count", int),
    ("gpu", "pcie.link.gen.current", "discovery.gpu.pcie_generation", "count", int),
    ("identity", "serial", "inventory.gpu.serial", "text", str),
    ("identity", "vbios_version", "inventory.gpu.vbios", "text", str),
    ("slowdown", "clocks_event_reasons.active", "discovery.gpu.slowdown", "text", _slowdown),
    ("power", "power.default_limit", "power_default", "W", float),
    ("power", "enforced.power.limit", "power", "W", float),
    ("clock", "clocks.default_applications.graphics", "clock_default", "MHz", float),
    ("clock", "clocks.applications.graphics", "clock", "MHz", float),
    # a GPU without ECC, one without MIG, and one without a fabric, says N/A
    ("ecc", "ecc.mode.current", "discovery.gpu.ecc_mode", "text", _on_or_off),
    ("mig", "mig.mode.current", "discovery.gpu.mig", "text", _on_or_off),
    ("fabric", "fabric.state", "discovery.gpu.fabric", "text", str.lower),
    ("recovery", "gpu_recovery_action", "discovery.gpu.recovery_action", "text", str),
    ("remapped", "remapped_rows.correctable", "discovery.gpu.remapped_corrected", "count", int),
    ("remapped", "remapped_rows.uncorrectable", "discovery.gpu.remapped_uncorrected", "count", int),
    ("remapped", "remapped_rows.pending", "discovery.gpu.remap_pending", "flag", _flag),
    ("remapped", "remapped_rows.failure", "discovery.gpu.remap_failed", "flag", _flag),
)
FIRST_LESS_SECOND = {  # two columns -> the fact that is made of them
    "discovery.gpu.pcie": ("width_max", "width", "count"),
    "discovery.gpu.power_cap": ("power_default", "power", "W"),
    "discovery.gpu.clock_cap": ("clock_default", "clock", "MHz"),
}
COLUMNS = {column: quantity for quantity, (*both, _) in FIRST_LESS_SECOND.items() for column in both}
QUERIES = [  # (name, what nvidia-smi is asked, its fields without the leading uuid)
    (
        name,
        "--query-remapped-rows=gpu_uuid," if name == "remapped" else "--query-gpu=uuid,",
        {field: reading for query, field, *reading in FIELDS if query == name},
    )
    for name in dict.fromkeys(query for query, *_ in FIELDS)
]
NO_SUCH_FIELD = "is not a valid field to query"
PATIENCE = 3  # times that of one GPU: it asks all of them
NODE_WIDE = ("discovery.gpu.driver",)
TEXTS = (("q", ("-q",)), ("topo", ("topo", "-m")))  # for people; -m is also read by readers/topology.py


def keep_texts(facts, keep, run=subprocess.run):
    """What nvidia-smi tells people, as it is: everything about each GPU, and how GPUs and NICs are connected."""
    hung = None
    for name, options in TEXTS:
        quantity = f"discovery.nvidia_smi.{name}"
        try:
            if hung is not None:
                raise hung
            text = _output_of(("nvidia-smi", *options), run)
        except (OSError, subprocess.SubprocessError, NoAnswer) as error:
            hung = error if isinstance(error, NoAnswer) else None
            facts.unknown(quantity, "count", _why(error))
        else:
            keep(name, text)
            facts.saw(quantity, len(text.splitlines()), "count", remark="lines, kept in raw/")


def read(facts, keep, run=subprocess.run, nvml_said=""):
    """All GPUs. keep(name, text) stores a raw answer; nvml_said: why NVML was not asked."""
    ask, uuids = _Asking(facts, run, nvml_said), []
    for name, query, fields in QUERIES:
        quantities = [(quantity, unit) for quantity, unit, _ in fields.values()]
        answer = ask.answer((query + ",".join(fields),), quantities, uuids if name == "recovery" else ())
        if answer is None and name == "gpu":
            facts.unknown("discovery.gpu.answering", "count", ask.why)
        if answer is None:
            continue
        keep(name, answer)
        rows = _rows(answer, len(fields) + 1)
        for cells in rows:
            _row(facts, cells, fields)
        if name == "gpu":
            uuids = [cells[0] for cells in rows]
            facts.saw("discovery.gpu.answering", len(uuids), "count", remark="nvidia-smi")
        for uuid in uuids:  # a GPU that one answer leaves out would not be missed beside the others
            if uuid not in [cells[0] for cells in rows]:
                for quantity, unit, _ in fields.values():
                    facts.unknown(
                        quantity, unit, f"nvidia-smi's answer about {name} leaves this GPU out", f"{facts.at}/{uuid}"
                    )
    _processes(facts, uuids, keep, ask)


class _Asking:
    """Queries, one after the other. What a failed one asked for is unknown; one that hangs is the last."""

    def __init__(self, facts, run, nvml_said):
        self.facts, self.run, self.nvml_said = facts, run, nvml_said
        self.why, self.hangs = "", False

    def answer(self, options, quantities, since_a_driver=()):
        """Its standard output, or None. since_a_driver: the GPUs, where an older nvidia-smi need not know the field."""
        if not self.hangs:
            try:
                return _output_of(("nvidia-smi", *options, "--format=csv,noheader,nounits"), self.run)
            except (OSError, subprocess.SubprocessError, NoAnswer) as error:
                self.hangs = isinstance(error, NoAnswer)
                self.why = f"{self.nvml_said}; {_why(error)}" if self.nvml_said else _why(error)
        if since_a_driver and NO_SUCH_FIELD in self.why:
            for (quantity, unit), uuid in itertools.product(quantities, since_a_driver):
                absent.says(self.facts, quantity, unit, absent.LACKS, self.why, f"{self.facts.at}/{uuid}")
            return None
        for quantity, unit in dict.fromkeys((COLUMNS.get(quantity, quantity), unit) for quantity, unit in quantities):
            self.facts.unknown(quantity, unit, self.why)
        return None


def _output_of(command, run):
    """Its standard output. It is not killed when it hangs: a process inside the driver would not end, and who killed it
    would wait."""

    def ask():
        return run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=True).stdout

    return within(PATIENCE * seconds(), ask)


def _why(error):
    if isinstance(error, OSError) and shutil.which("nvidia-smi") is None:
        return "nvidia-smi is not installed"
    if isinstance(error, subprocess.CalledProcessError):
        return f"nvidia-smi: {((error.stdout or error.stderr or '').strip() or str(error)).splitlines()[0]}"
    return f"nvidia-smi: {error}"


def _rows(answer, width):
    """Whole rows only: a truncated one is no GPU that answered."""
    split = [[cell.strip() for cell in line.split(",")] for line in answer.splitlines()]
    return [cells for cells in split if len(cells) == width and cells[0].startswith("GPU-")]


def _row(facts, cells, fields):
    subject = f"{facts.at}/{cells[0]}"
    columns = {}
    for (name, (quantity, unit, convert)), text in zip(fields.items(), cells[1:]):
        where = facts.at if quantity in NODE_WIDE else subject
        try:
            value = None if UNSAID.fullmatch(text) else convert(text)
        except (ValueError, KeyError):
            value = None
        if quantity in COLUMNS:
            columns[quantity] = value, text
        elif value is None:
            absent.says(
                facts, quantity, unit, absent.kind_of_words(text), f"nvidia-smi says {text!r} for {name}", where
            )
        else:
            facts.saw(quantity, value, unit, where)
    for quantity, (first, second, unit) in FIRST_LESS_SECOND.items():
        if first in columns:
            _difference(facts, quantity, unit, (columns[first], columns[second]), subject)


def _difference(facts, quantity, unit, answers, subject):
    """The first less the second. Nothing is said of both only where neither is there."""
    (first, its_words), (second, other_words) = answers
    if first is not None and second is not None:
        facts.saw(quantity, max(0, first - second), unit, subject)
        return
    kinds = {absent.kind_of_words(its_words), absent.kind_of_words(other_words)}
    kind = kinds.pop() if len(kinds) == 1 else None
    absent.says(facts, quantity, unit, kind, f"nvidia-smi says {its_words!r} and {other_words!r}", subject)


def _processes(facts, uuids, keep, ask):
    quantity, left = "discovery.gpu.free", "discovery.gpu.left"
    text = ask.answer(("--query-gpu=uuid,memory.used",), [(left, "GiB")])
    if text is not None:
        keep("used", text)
    used = dict(_rows(text or "", 2))
    answer = ask.answer(("--query-compute-apps=gpu_uuid,pid",), [(quantity, "count")])
    if answer is None:
        return
    keep("processes", answer)
    owners = [cells[0] for cells in _rows(answer, 2)]
    lines = [line for line in answer.splitlines() if line.strip()]
    if len(lines) != len(owners):  # cut off, or a message: it is not known that nothing runs
        why = f"nvidia-smi's list of processes holds {len(lines) - len(owners)} lines that name no GPU"
        for uuid in uuids:
            facts.unknown(quantity, "count", why, f"{facts.at}/{uuid}")
            facts.unknown(left, "GiB", why, f"{facts.at}/{uuid}")
        return
    for uuid in uuids:
        facts.saw(quantity, owners.count(uuid), "count", f"{facts.at}/{uuid}")
        if uuid in owners:  # a process uses it: not left over
            facts.saw(left, 0.0, "GiB", f"{facts.at}/{uuid}")
        elif uuid in used and used[uuid].isdigit():
            facts.saw(left, _mib(used[uuid]), "GiB", f"{facts.at}/{uuid}")
        elif used:
            facts.unknown(left, "GiB", f"nvidia-smi says {used.get(uuid)!r} for memory.used", f"{facts.at}/{uuid}")
