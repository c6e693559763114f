"""What a node's state means for a run; on states as Slurm, its documentation and tests of cloud clusters write them."""

from bringup.readers import slurm
from bringup.readers.node_states import Meaning, harmful, meaning
from loops import for_each

TABLE = {
    # state -> what is left of it. Seen on a local cluster, 22.05.8 and 26.05
    "IDLE": "IDLE",
    "MIXED+PLANNED": "MIXED",
    "IDLE+COMPLETING+PLANNED": "IDLE",
    "COMPLETING+DRAIN": "DRAIN",
    "IDLE+DRAIN": "IDLE+DRAIN",
    "DOWN+NOT_RESPONDING": "DOWN+NOT_RESPONDING",
    "IDLE+DRAIN+INVALID_REG": "IDLE+DRAIN+INVALID_REG",
    "IDLE+MAINTENANCE+RESERVED": "IDLE+MAINTENANCE",
    "IDLE+CLOUD+POWERING_DOWN": "IDLE",
    "IDLE+CLOUD+POWERED_DOWN": "IDLE",
    "IDLE+FAIL": "IDLE+FAIL",
    # clouds: a node that boots has no slurmd yet
    "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP": "ALLOCATED",
    "MIXED+CLOUD+NOT_RESPONDING+POWERING_UP": "MIXED",
    "IDLE+CLOUD+NOT_RESPONDING+POWERING_DOWN": "IDLE",
    "DOWN+CLOUD+NOT_RESPONDING+POWERING_UP": "DOWN",
    "ALLOCATED+CLOUD+DOWN+NOT_RESPONDING": "ALLOCATED+DOWN+NOT_RESPONDING",
    "IDLE+CLOUD+POWER_DOWN": "IDLE",
    "IDLE+CLOUD+POWER": "IDLE",  # before 21.08
    "IDLE+DYNAMIC_NORM": "IDLE",
    # reboots
    "IDLE+REBOOT_REQUESTED": "IDLE",
    "IDLE+REBOOT_CANCELED": "IDLE",
    "MIXED+POWER_DRAIN": "MIXED",
    "IDLE+NOT_RESPONDING+REBOOT_CANCELED": "IDLE+NOT_RESPONDING",
    "IDLE+NOT_RESPONDING+REBOOT_ISSUED": "IDLE",
    "ALLOCATED+DRAIN+REBOOT_REQUESTED": "ALLOCATED+DRAIN",
    "IDLE+BLOCKED": "IDLE",
    # marks of sinfo and of earlier versions
    "IDLE*": "IDLE+NOT_RESPONDING",
    "DOWN*+DRAIN": "DOWN+NOT_RESPONDING+DRAIN",
    "IDLE~": "IDLE",
    "IDLE#*": "IDLE",
    "IDLE%": "IDLE",
    "MIXED-": "MIXED",
    "IDLE$": "IDLE+MAINTENANCE",
    "UNKNOWN": "UNKNOWN",
    "IDLE+A_WORD_OF_TOMORROW": "IDLE+A_WORD_OF_TOMORROW",
}


@for_each(*TABLE.items())
def test_flags_that_are_no_fault_are_left_out(state, left):
    assert harmful(state) == left


def test_maintenance_is_no_fault_where_the_run_has_the_reservation():
    assert harmful("IDLE+MAINTENANCE+RESERVED", has_reservation=True) == "IDLE"
    assert harmful("IDLE+DRAIN+MAINTENANCE", has_reservation=True) == "IDLE+DRAIN"
    line = "NodeName={} Gres=gpu:2 State=IDLE+MAINTENANCE+RESERVED Version=22.05.8\n"
    facts = slurm.nodes(line.format("n0") + line.format("n1"), "f", ["n0"]).observations
    states = {seen.subject: seen.value for seen in facts if "state" in seen.quantity}
    assert states == {"n0": "IDLE", "n1": "IDLE+MAINTENANCE"}


@for_each(
    ("IDLE+CLOUD", Meaning.USABLE),
    ("IDLE+CLOUD+POWERING_DOWN", Meaning.WAIT),
    ("IDLE+REBOOT_ISSUED", Meaning.WAIT),
    ("IDLE+MAINTENANCE", Meaning.CLOSED),
    ("IDLE+DRAIN+NOT_RESPONDING", Meaning.BROKEN),
    ("IDLE+A_WORD_OF_TOMORROW", Meaning.BROKEN),
)
def test_the_worst_word_decides(state, expected):
    assert meaning(state)[0] is expected
