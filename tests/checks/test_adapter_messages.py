"""Messages of the driver of network adapters in the kernel log: which speak of a broken one, and who wrote them."""

import kernel_log
import pytest
from loops import for_each
from probing import told_by
from runs_for_tests import FIXTURES

CLEAN = "6,0,0,-;Linux version 6.8.0\n"
PLACE = "mlx5_core 0000:5c:00.0: "
BROKEN = {
    "Port module event[error]: module 0, Cable error, High Temperature": "Cable error, High Temperature",
    "port_module:249:(pid 0): Port module event[error]: module 1, Cable error, Bus stuck(I2C or data shorted)": (
        "Cable error, Bus stuck(I2C or data shorted)"
    ),
    "poll_health:852:(pid 0): device's health compromised - reached miss count": "device's health compromised",
    "print_health_info:431:(pid 0): Health issue observed, firmware internal error, severity(3) ERROR:": (
        "firmware internal error"
    ),
    "temp_warn:170:(pid 0): High temperature on sensors with bit set 0 1": "High temperature",
    "wait_func:1189:(pid 72061): ACCESS_REG(0x805) timeout. Will cause a leak of a command resource": (
        "the adapter did not answer ACCESS_REG"
    ),
    "cb_timeout_handler:877:(pid 9): cmd[3]: INIT_HCA(0x100) Async, timeout. Will cause a leak of a command resource": (
        "the adapter did not answer INIT_HCA"
    ),
}
HARMLESS = (
    "Port module event: module 0, Cable plugged",
    "mlx5_pcie_event:301:(pid 21): Detected insufficient power on the PCIe slot (27W).",
    "Health issue observed, unrecognized error, severity(6) INFO:",
    "mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2)",
)


def counted(*records: str) -> dict[str, int]:
    return dict(kernel_log.of_adapters(kernel_log.of_kmsg(CLEAN + "\n".join(records))))


@for_each("words", BROKEN.items())
def test_a_message_of_a_broken_adapter_is_named_by_its_address_and_counted(words):
    message, named = words
    record = f"3,7,9,-;{PLACE}{message}"
    assert counted(record, record) == {f"0000:5c:00.0: {named}": 2}


@for_each("message", HARMLESS)
def test_an_ordinary_message_is_none(message):
    assert counted(f"6,7,9,-;{PLACE}{message}") == {}


def test_a_healthy_log_has_none():
    lines = (FIXTURES / "real/kernel/healthy-mlx5.txt").read_text().splitlines()
    records = [f"6,7,9,-;{line.partition('] ')[2]}" for line in lines]
    assert all(
        kernel_log.ADAPTER.match(text) for text, _ in kernel_log.messages(kernel_log.of_kmsg("\n".join(records)))
    )
    assert counted(*records) == {}


@for_each(
    "record",
    (
        "11,7,9,-;" + PLACE + next(iter(BROKEN)),  # user space wrote it
        "3,7,9,c;" + PLACE + next(iter(BROKEN)),  # the rest of a line
        "3,7,9,-;mlx5_core 0000:[4711]: segfault at 0 in " + next(iter(BROKEN)),
        "3,7,9,-;" + PLACE + next(iter(BROKEN)) + "\n SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0",
    ),
)
def test_what_another_one_wrote_does_not_count(record):
    assert counted(record) == {}


@pytest.mark.parametrize(("has_adapter", "value"), [(True, None), (False, 0)])
def test_a_closed_log_is_a_question_only_where_there_is_such_an_adapter(has_adapter, value, tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_log, "KMSG", str(tmp_path / "none"))
    monkeypatch.setattr(kernel_log, "JOURNAL", ("false",))
    monkeypatch.setattr(kernel_log, "ADAPTERS", str(tmp_path if has_adapter else tmp_path / "none"))
    facts = {fact.quantity: fact.value for fact in told_by(kernel_log.kernel_log).observations}
    assert facts["discovery.rdma.messages"] == value
