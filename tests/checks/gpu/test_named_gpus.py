"""A cause names a GPU as a person finds it: index, PCI address, serial number. What is not known is left out."""

import pytest
from bringup.derive.blame import named, names_of
from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Outcome, Verdicts
from bringup.report import text
from factory import a_verdict

FIRST, SECOND, THIRD = (f"GPU-0000000{n}-0000-8575-9a7a-461ee90213dc" for n in "123")


def seen(*facts: tuple[str, str, str | None], node: str = "n1") -> Seen:
    parsed = Parsed()
    for quantity, uuid, value in facts:
        parsed.saw(quantity, f"{node}/{uuid}", value, "text", "raw/inventory.jsonl:1")
    return Seen(parsed.observations)


def of_nvml(*uuids: str) -> list[tuple[str, str, str | None]]:
    """In an order that is not that of the addresses."""
    addresses = dict(
        zip((FIRST, SECOND, THIRD), ("00000000:43:00.0", "00000000:1B:00.0", "00010000:01:00.0"), strict=True)
    )
    return [("discovery.gpu.pci", uuid, addresses[uuid]) for uuid in uuids]


def cause_of(cause: str, facts: Seen, gpus: int, outcome: Outcome = Outcome.FAIL, subject: str = "n1") -> str | None:
    verdict = a_verdict("discovery.gpu.ecc", subject, outcome, f"2 ({cause})", cause=cause)
    run = Verdicts(
        phase="discovery", run="r", profile="p", outcome=outcome, verdicts=[verdict], not_applicable=[], notes=[]
    )
    (changed,) = named(run, names_of(facts, gpus)).verdicts
    assert changed.observed == verdict.observed  # drills compare it
    assert (changed.outcome, changed.value) == (verdict.outcome, verdict.value)
    return changed.cause


def test_the_index_is_the_place_by_address_and_the_serial_follows():
    facts = seen(*of_nvml(FIRST, SECOND), ("inventory.gpu.serial", FIRST, "1653522001234"))
    assert cause_of(FIRST, facts, 2) == "GPU 1 (PCI 0000:43:00, serial 1653522001234)"
    assert cause_of(f"{SECOND}, {FIRST}", facts, 2).startswith("GPU 0 (PCI 0000:1b:00), GPU 1 (PCI 0000:43:00")


def test_a_gpu_that_is_lost_has_the_address_that_the_driver_lists():
    """NVML does not answer for it, and it still counts: the GPUs behind it keep their index."""
    listed = [("inventory.gpu.address", SECOND, "0000:1b:00.0"), ("inventory.gpu.address", FIRST, "0000:43:00.0")]
    facts = seen(*of_nvml(FIRST), *listed)
    assert cause_of(f"NVML; no answer from {SECOND}", facts, 2) == "NVML; no answer from GPU 0 (PCI 0000:1b:00)"
    assert cause_of(FIRST, facts, 2) == "GPU 1 (PCI 0000:43:00)"


def test_where_a_gpu_of_the_node_is_not_known_no_index_is_guessed():
    assert cause_of(FIRST, seen(*of_nvml(FIRST)), 2) == "GPU (PCI 0000:43:00)"


def test_a_uuid_that_two_nodes_have_is_named_as_on_the_node_in_question():
    parsed = Parsed()
    for node, address in (("n1", "00000000:1B:00.0"), ("n2", "00000000:43:00.0")):
        parsed.saw("discovery.gpu.pci", f"{node}/{FIRST}", address, "text", "e")
    facts = Seen(parsed.observations)
    assert cause_of(FIRST, facts, 1) == "GPU 0 (PCI 0000:1b:00)"
    assert cause_of(FIRST, facts, 1, subject="n2/rank9") == "GPU 0 (PCI 0000:43:00)"


def test_an_address_in_the_log_of_the_driver_is_that_gpu_of_that_node_alone():
    facts = seen(*of_nvml(FIRST, SECOND))
    cause = "1 × Xid 79 on PCI:0000:43:00: reboot the node"
    assert cause_of(cause, facts, 2) == "1 × Xid 79 on GPU 1 (PCI 0000:43:00): reboot the node"
    assert cause_of(cause, facts, 2, subject="n2") == cause


@pytest.mark.parametrize("cause", [THIRD, "GPU-a", "a cable", f"{FIRST}-0", "PCI:0000:99:00"])
def test_what_has_no_name_stays_as_it_is(cause):
    assert cause_of(cause, seen(*of_nvml(FIRST, SECOND)), 2) == cause
    assert cause_of(FIRST, seen(("discovery.gpu.pci", FIRST, None)), 2) == FIRST


def test_a_pass_keeps_its_remark():
    assert cause_of(FIRST, seen(*of_nvml(FIRST, SECOND)), 2, Outcome.PASS) == FIRST


def test_the_sentence_says_the_name():
    facts = seen(*of_nvml(FIRST, SECOND))
    verdict = a_verdict("discovery.gpu.ecc", "n1", cause=cause_of(FIRST, facts, 2)).model_copy(
        update={"fails": "it fails"}
    )
    assert text.sentence(verdict) == "GPU 1 (PCI 0000:43:00) (it fails)"
