"""Why a job waits, in plain words; on real answers of squeue."""

from bringup.readers import slurm
from bringup.readers.known.pending import CAUSES, cause_of, explain, named_nodes
from bringup.readers.node_states import Node
from loops import for_each
from runs_for_tests import FIXTURES

SQUEUE = (FIXTURES / "slurm/squeue-states.txt").read_text().splitlines()[1:]


def nodes() -> dict[str, Node]:
    seen = slurm.nodes((FIXTURES / "slurm/nodes-six-states.txt").read_text(), "f").observations
    states = (each for each in seen if each.quantity == "slurm.node.state")
    return {each.subject: Node(str(each.value), each.why) for each in states}


def reasons() -> list[str]:
    """From the right: a job's name may hold the delimiter."""
    return sorted({line.rsplit("|", 4)[1] for line in SQUEUE} - {"None"})


@for_each(*reasons())
def test_every_reason_that_was_really_seen_is_explained(reason):
    assert cause_of(reason) is not None
    assert "squeue(1)" not in explain(reason, {})


def test_the_node_that_is_not_available_is_named_with_its_state_and_reason():
    text = explain("ReqNodeNotAvail, UnavailableNodes:n[2-3]", nodes())
    assert "n2: drained: it takes no new job, 'rack 7, PDU 'b' | pipe'" in text
    assert "n3: slurmd does not answer" in text
    assert "State=RESUME" in text


def test_a_node_that_slurm_does_not_know_is_said_so():
    assert "n9: Slurm does not know it" in explain("ReqNodeNotAvail, UnavailableNodes:n9", nodes())


def test_without_names_the_nodes_that_cannot_take_jobs_are_listed():
    reason = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    text = explain(reason, nodes())
    assert "n3: " in text
    assert "n5" not in text


def test_scontrol_writes_blanks_as_underscores():
    reason = "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions"
    assert cause_of(reason) is CAUSES[0]
    assert named_nodes("ReqNodeNotAvail,_UnavailableNodes:n3") == ["n3"]


@for_each(
    ("Resources", "busy"),
    ("No_suitable_topology_unit_found", "not together in one switch or block"),  # 26.05.5; squeue writes blanks
    ("No suitable topology unit found for segment", "--segment"),
    ("MaxGRESRunMinsPerUser", "all the minutes"),
    ("Job's QOS not permitted to use this partition (main allows high not normal)", "does not admit"),  # 26.05.5
    ("uid 1000 not in group permitted to use this partition (gpu). groups allowed: hpc", "does not admit"),
    ("Job is at or exceeds QOS q's group wall limit of 5 with 6", "time of its group"),
    ("Job is at or exceeds QOS q's max TRES(cpu) minutes of 1 with 2", "more than one job may have"),
    ("job requeued in held state", "is held"),
    ("Priority", "higher priority"),
    ("Dependency", "end of another job"),
    ("BeginTime", "may not begin yet"),
    ("DependencyNeverSatisfied", "never begin"),
    ("PartitionNodeLimit", "too many nodes"),
    ("PartitionConfig", "too many nodes"),
    ("PartitionInactive", "closed for now"),
    ("ReqNodeNotAvail, Reserved for maintenance", "maintenance"),
    ("ReqNodeNotAvail, May be reserved for other job", "reserved for another job"),
    ("MaxMemPerLimit", "one job may have"),
    ("QOSMaxCpuPerJobLimit", "never begins"),
    ("AssocMaxWallDurationPerJobLimit", "never begins"),
    ("QOSMaxGRESPerNode", "never begins"),
    ("QOSMinGRES", "less than its QOS demands"),
    ("QOSNotAllowed", "does not admit"),
    ("QOSGrpGRESMinutes", "the end of jobs does not give back"),
    ("AssocGrpCPUMinutesLimit", "the end of jobs does not give back"),
    ("AssocGrpGRESRunMinutes", "may have at once"),
    ("QOSGrpNodeLimit", "all jobs of its account or QOS"),
    ("AssocMaxJobsLimit", "one user may have"),
    ("FrontEndDown", "front end"),
    ("JobArrayTaskLimit", "array"),
    ("NvidiaImexChannels", "IMEX"),
    ("user env retrieval failed requeued held", "login environment"),
    ("JobHeldUser", "owner holds it"),
    ("QOSMaxGRESPerUser", "one user may have"),
    ("AssocGrpGRES", "account or QOS"),
    ("MaxGRESPerAccount", "account or QOS"),
    ("launch failed requeued held", "could not start it"),
    ("InvalidAccount", "a job that then runs"),  # Slurm 23.11, on a cluster without accounting
)
def test_reasons_in_plain_words(reason, words):
    assert words in explain(reason, nodes())


def test_no_reason_needs_no_words_and_an_unknown_one_is_kept():
    assert explain("None", nodes()) == explain("", nodes()) == ""
    assert explain("SomethingNew", nodes()).startswith("SomethingNew (squeue(1)")


@for_each(*CAUSES, ids=lambda cause: cause.reason)
def test_every_cause_says_what_to_do_in_one_line(cause):
    assert cause.says
    assert cause.do
    assert "\n" not in cause.says + cause.do
