"""Facts are judged by the rule of their gate, the number of a profile and what the gate needs."""

from bringup.kernel import judge
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan import catalogue as gates
from bringup.kernel.plan.expectation import Expectation
from bringup.kernel.plan.profile import Profile, load
from bringup.kernel.records import Kind, Outcome, SiteUsed, Verdict
from bringup.kernel.records.base import worst_of_run
from bringup.readers.scripts import rounds_of_pairs
from factory import a_run, a_verdict
from loops import for_each

Fact = tuple[str, str, object]  # quantity, subject, value; None: not found out
FAILED, OPEN, PASSED = Outcome.FAIL, Outcome.INCOMPLETE, Outcome.PASS


def judging(*facts, profile="generic", **run) -> dict[tuple[str, str], Verdict]:
    """Judge facts, in the unit of their gate, in a run of nccl_scaling on n0 and n1 but for `run`."""
    parsed = Parsed()
    for quantity, subject, value in facts:
        known = gates.GATES[quantity.partition("@")[0]].unit
        parsed.saw(quantity, subject, value, known, "e", "no answer" if value is None else None)
    used = load(profile) if isinstance(profile, str) else profile
    judged = judge.judge(a_run("nccl_scaling", profile="generic").model_copy(update=run), used, parsed)
    return {(v.gate, v.subject): v for v in judged.verdicts}


def test_a_number_without_a_limit_that_never_arrived_is_no_measured_one():
    transport = judging(("nccl.ranks", "2-nodes", 4))["nccl.transport", "2-nodes"]
    assert (transport.outcome, transport.kind) == (Outcome.INCOMPLETE, Kind.ABSENT)


@for_each(("discovery.shm", -1.0, "-1 GiB"), ("discovery.names.slowest", -0.5, "-0.5 s"))
def test_no_amount_is_below_0(gate, value, shown):
    verdict = judging((gate, "n0", value), phase="discovery")[gate, "n0"]
    assert (verdict.outcome, verdict.cause) == (Outcome.INCOMPLETE, f"observed {shown}: no amount is below 0")


def test_a_job_that_began_before_the_one_it_waits_for_had_ended_fails():
    """It was no amount, and so INCOMPLETE: the drill of lost dependencies was missed."""
    verdict = judging(("smoke.dependency.waits", "job", -2.0), phase="smoke")["smoke.dependency.waits", "job"]
    assert verdict.outcome is Outcome.FAIL


@for_each(((),), ((("nccl.transport", "2-nodes", "Socket"),),))
def test_a_value_that_could_not_be_found_out_is_unknown_also_where_it_has_no_limit(others):
    """Also where a second log names one."""
    facts = (("nccl.ranks", "2-nodes", 4), ("nccl.transport", "2-nodes", None), *others)
    transport = judging(*facts)["nccl.transport", "2-nodes"]
    assert (transport.outcome, transport.kind) == (Outcome.INCOMPLETE, Kind.UNKNOWN)
    assert "no answer" in (transport.cause or "")


@for_each((False, Outcome.NO_LIMIT, Outcome.PASS), (True, *[Outcome.INCOMPLETE] * 2))
def test_what_was_measured_without_a_limit_is_no_gap_unless_the_site_wants_one(strict, outcome, whole):
    facts = (("nccl.transport", "2-nodes", "Socket"), ("nccl.ranks", "2-nodes", 4))
    planned = {gate: ["2-nodes"] for gate in ("nccl.transport", "nccl.ranks")}
    verdicts = judging(*facts, planned=planned, site=SiteUsed(name="lab", says={"strict": strict}))
    seen = [verdict for verdict in verdicts.values() if verdict.kind in (Kind.JUDGED, Kind.UNDECLARED)]
    transport = verdicts["nccl.transport", "2-nodes"]
    assert (transport.outcome, transport.kind) == (outcome, Kind.UNDECLARED)
    assert worst_of_run([verdict.outcome for verdict in seen]) is whole


def collectives(scale: str, ranks: int, speeds: dict[str, float], wrong: int = 0) -> tuple[Fact, ...]:
    needs = (("nccl.ranks", ranks), ("nccl.hosts", int(scale[0])), ("nccl.wrong_values", wrong))
    measured = ((f"nccl.all_reduce.busbw@{size}", speed) for size, speed in speeds.items())
    return tuple((quantity, scale, value) for quantity, value in (*needs, *measured))


def test_what_was_observed_is_shown_also_where_the_profile_has_no_number():
    """It said "observed nothing", and the newcomer saw none of the values that a profile needs."""
    facts = (("nccl.transport", "2-nodes", "Socket"), *collectives("2-nodes", 4, {"1MiB": 3.5, "16MiB": 9.25}))
    verdict_of = judging(*facts)
    transport, busbw = verdict_of["nccl.transport", "2-nodes"], verdict_of["nccl.all_reduce.busbw", "2-nodes"]
    assert (transport.kind, transport.value, transport.observed) == (Kind.UNDECLARED, "Socket", "Socket")
    assert (busbw.outcome, busbw.observed) == (Outcome.NO_LIMIT, "3.5 GB/s (1MiB); 9.25 GB/s (16MiB)")
    assert (busbw.value, busbw.at) == (9.25, "16MiB")


@for_each((4, 0.5, 0, PASSED), (4, 0.01, 0, FAILED), (2, 9.9, 0, OPEN), (4, 9.9, 3, OPEN))
def test_bandwidth_is_judged_only_on_the_right_ranks_and_results_at_the_named_size(ranks, busbw, wrong, expected):
    facts = collectives("2-nodes", ranks, {"16MiB": busbw}, wrong)
    verdicts = judging(*facts, profile="local-cpu", phase="nccl_monitoring", planned=a_run("nccl_monitoring").planned)
    verdict = verdicts["nccl.all_reduce.busbw", "2-nodes"]
    assert (verdict.outcome, verdict.expected) == (expected, "≥ 0.03 GB/s at 16MiB")


def test_every_need_of_a_gate_is_a_gate_and_has_a_verdict_about_its_subject():
    above = {"rank": ("rank", "node", "job"), "wide_scale": ("wide_scale", "scale", "job")}
    needs = [(gate, gates.GATES[need]) for gate in gates.GATES.values() for need in gate.needs]
    assert needs
    for gate, need in needs:
        assert need.per in above.get(gate.per, (gate.per, "job")), f"{gate.id} needs {need.id}"


def test_who_lacks_what_a_fleet_gate_needs_is_not_judged_and_has_no_vote():
    gate, need, nodes = "discovery.gpu.model", "discovery.gpu.answering", ["n0", "n1", "n2", "n3", "n4"]
    answering, models = (2, 1, 2, 1, 1), ("H100", "H200", "H100", "H200", "H200")
    facts = [(need, *known) for known in zip(nodes, answering, strict=True)]
    facts += [(gate, *known) for known in zip(nodes, models, strict=True)]
    verdict_of = judging(*facts, phase="discovery", nodes=nodes, planned={gate: nodes, need: nodes})
    assert [node for node in nodes if verdict_of[gate, node].outcome is Outcome.PASS] == ["n0", "n2"]
    assert verdict_of[gate, "n1"].outcome is Outcome.INCOMPLETE
    assert verdict_of[gate, "n1"].cause == "not judged: discovery.gpu.answering did not pass"


def declaring(gate: str, **entry: object) -> Profile:
    generic = load("generic")
    declared = Expectation.model_validate({"unit": gates.GATES[gate].unit, "source": "a test", **entry})
    return generic.model_copy(update={"expect": {**generic.expect, gate: declared}})


@for_each(
    ({"near_peers": 0.1}, Outcome.FAIL, ""),
    ({"at_most": 60}, Outcome.INCOMPLETE, "as at_most, the gate is near_peers"),
    ({"at_least": 60}, Outcome.INCOMPLETE, "as at_least, the gate is near_peers"),
    ({"near_peers": 0.1, "unit": "GB/s"}, Outcome.INCOMPLETE, "in GB/s"),
)
def test_a_profile_gives_the_number_and_never_the_direction(entry, expected, says):
    """1 GB/s passed a floor that a profile had turned into a ceiling."""
    gate, nodes = "smoke.compute.peers", ["n0", "n1", "n2"]
    facts = [(gate, node, 50.0 if node == "n1" else 100.0) for node in nodes]
    facts += [("smoke.compute.device.fallback", node, 0) for node in nodes]
    used = declaring(gate, **entry)
    verdict = judging(*facts, profile=used, phase="smoke", nodes=nodes, planned={gate: nodes})[gate, "n1"]
    assert verdict.outcome is expected
    assert verdict.kind is (Kind.JUDGED if expected is Outcome.FAIL else Kind.UNDECLARED)
    assert says in (verdict.cause or "")
    assert verdict.observed.startswith("50 TFLOP/s")


OF_THE_SITE = (  # how it shares its nodes, its limits, and promises that no phase uses
    *("discovery.slurm.confines_devices", "discovery.nofile", "discovery.memlock", "smoke.memory.enforced"),
    *("smoke.gpu.isolated", "smoke.cpu.confined", "smoke.time_limit.warned", "smoke.jobs.refused_gpus"),
)


def test_any_speed_can_be_held_against_its_peers():
    gate, speeds = "nccl.all_reduce.busbw", {"1-node": 400.0, "2-nodes": 400.0, "4-nodes": 300.0}
    facts = [fact for scale, speed in speeds.items() for fact in collectives(scale, 2 * int(scale[0]), {"1GiB": speed})]
    used, nodes = declaring(gate, near_peers=0.1, at="1GiB"), ["n0", "n1", "n2", "n3"]
    verdict_of = judging(*facts, profile=used, nodes=nodes, planned={gate: list(speeds)})
    assert [verdict_of[gate, scale].outcome for scale in speeds] == [Outcome.PASS, Outcome.PASS, Outcome.FAIL]


@for_each(
    ("discovery.gpu.count", Outcome.FAIL, True),
    ("discovery.gpu.count", Outcome.INCOMPLETE, True),
    ("discovery.kernel_log.xid", Outcome.FAIL, True),
    ("discovery.kernel_log.xid", Outcome.INCOMPLETE, False),
    ("discovery.slurm.prolog", Outcome.WARN, False),
    ("discovery.slurm.prolog", Outcome.INCOMPLETE, False),
    ("train.scaling", Outcome.FAIL, False),
    ("run.closed", Outcome.INCOMPLETE, True),
    ("nccl.all_reduce.busbw", Outcome.FAIL, True),
    ("nccl.all_reduce.busbw", Outcome.INCOMPLETE, False),  # generic has no number
    ("of.a.newer.version", Outcome.INCOMPLETE, True),
    *((gate, outcome, False) for outcome in (Outcome.FAIL, Outcome.INCOMPLETE) for gate in OF_THE_SITE),
    # what the later phases are built on
    ("smoke.gpu.bound", Outcome.FAIL, True),
    ("smoke.fs.reads_submit_host", Outcome.FAIL, True),
    ("smoke.compute.wrong_values", Outcome.FAIL, True),
)
def test_later_phases_are_stopped_by_what_they_build_on_and_by_nothing_else(gate, outcome, stops):
    undeclared = gate == "nccl.all_reduce.busbw" and outcome is Outcome.INCOMPLETE  # generic has no number
    assert judge.stops(a_verdict(gate, "n0", outcome, kind=Kind.UNDECLARED if undeclared else None)) is stops


def test_a_need_that_has_no_verdict_about_the_subject_is_not_met(monkeypatch):
    """A rank needed a scale: no outcome was found, and that counted as met."""
    gate = gates.GATES["nccl.rank.local_time"]
    monkeypatch.setitem(gates.GATES, gate.id, gate.model_copy(update={"needs": ("nccl.ranks",)}))
    facts = (("nccl.ranks", "2-nodes", 1), (gate.id, "n0/rank0", 1.0))  # of four
    verdict = judging(*facts, profile="local-cpu")[gate.id, "n0/rank0"]
    assert (verdict.outcome, verdict.kind, verdict.blocked_by) == (Outcome.INCOMPLETE, Kind.BLOCKED, ["nccl.ranks"])


@for_each(
    ("generic", Outcome.PASS, Kind.JUDGED),
    ("local-cpu", Outcome.INCOMPLETE, Kind.BLOCKED),  # it expects a CPU
)
def test_a_need_for_which_the_profile_has_no_limit_blocks_nothing_and_one_that_failed_does(profile, outcome, kind):
    """A profile that does not name the type of device has nothing against the one that computed."""
    gate, need = "smoke.compute.wrong_values", "smoke.compute.device"
    facts = ((need, "n0", "cuda"), (f"{need}.fallback", "n0", 0), (gate, "n0", 0))
    verdict = judging(*facts, profile=profile, phase="smoke", nodes=["n0"], planned={})[gate, "n0"]
    assert (verdict.outcome, verdict.kind) == (outcome, kind)


def test_a_rank_whose_node_failed_what_it_needs_is_not_judged_and_those_of_other_nodes_are(monkeypatch):
    gate, need = gates.GATES["nccl.rank.local_time"], "load.node_faults"
    monkeypatch.setitem(gates.GATES, gate.id, gate.model_copy(update={"needs": (need,)}))
    facts = ((need, "n0", 1), (need, "n1", 0), (gate.id, "n0/rank0", 1.0), (gate.id, "n1/rank1", 1.0))
    planned = {need: ["n0", "n1"], gate.id: ["n0/rank0", "n1/rank1"]}
    verdict_of = judging(*facts, profile="local-cpu", planned=planned)
    assert (verdict_of[gate.id, "n0/rank0"].kind, verdict_of[gate.id, "n1/rank1"].kind) == (Kind.BLOCKED, Kind.JUDGED)


KERNEL, PEERS = "discovery.kernel", "smoke.compute.peers"
SAME, ACTIVE = "discovery.rdma.same", "discovery.rdma.active"
DEVICE = "smoke.compute.device"
ON_GPUS = [
    (f"{DEVICE}{each}", f"n{number}", value) for each, value in (("", "cuda"), (".fallback", 0)) for number in range(3)
]
AT_400 = f"{ACTIVE}@400Gb/s"


@for_each(
    # half of a node is unknown: it is not like its peers
    ([(KERNEL, "n0", "6.1"), (KERNEL, "n1", "6.1"), (KERNEL, "n1", None)], {(KERNEL, "n1"): OPEN}),
    ([(KERNEL, "n0", "6.1"), (KERNEL, "n1", "6.1"), (KERNEL, "n1", "5.15")], {(KERNEL, "n1"): FAILED}),
    ([(KERNEL, "n1", "6.1"), (KERNEL, "n1", "5.15")], {(KERNEL, "n0"): OPEN, (KERNEL, "n1"): FAILED}),
    # what no node but one knows is no majority against it
    (
        [(KERNEL, "n0", "6.1"), (KERNEL, "n1", None), (KERNEL, "n2", None)],
        {(KERNEL, node): OPEN for node in ("n0", "n1", "n2")},
    ),
    # of three peers, two that are known cannot say who is slow
    ([*ON_GPUS, (PEERS, "n0", 100.0), (PEERS, "n1", 10.0)], {(PEERS, f"n{number}"): OPEN for number in range(3)}),
    # of two nodes that differ, the one whose own ports are unknown is not at fault
    (
        [(SAME, "n0", "8 ports"), (SAME, "n1", "7 ports"), (AT_400, "n0", 8), (AT_400, "n1", None)],
        {(ACTIVE, "n0"): PASSED, (ACTIVE, "n1"): OPEN, (SAME, "n0"): FAILED, (SAME, "n1"): FAILED},
    ),
)
def test_nodes_are_compared_by_what_is_known_of_each(facts, expected):
    planned: dict[str, list[str]] = {}
    for gate, node in expected:
        planned.setdefault(gate, []).append(node)
    planned |= {gate: ["n0", *listed] for gate, listed in planned.items() if listed == ["n1"]}
    phase = "smoke" if PEERS in planned else "discovery"
    verdict_of = judging(*facts, profile="h100-8x400g", phase=phase, nodes=["n0", "n1", "n2"], planned=planned)
    assert {about: verdict_of[about].outcome for about in expected} == expected
    assert not any(verdict_of[about].blocked_by for about in expected)


def test_of_a_node_that_says_two_things_the_first_is_shown():
    facts = ((KERNEL, "n0", "6.1"), (KERNEL, "n1", "6.1"), (KERNEL, "n1", "5.15"))
    shown = judging(*facts, phase="discovery", planned={KERNEL: ["n0", "n1"]})[KERNEL, "n1"]
    assert (shown.outcome, shown.value, shown.cause) == (Outcome.FAIL, "6.1", "says both 5.15 and 6.1")


@for_each((Kind.ABSENT, True), (Kind.UNKNOWN, True), (Kind.BLOCKED, True), (Kind.UNDECLARED, False))
def test_all_that_is_incomplete_is_a_gap_but_what_no_profile_declares(kind, is_gap):
    """What makes a profile or a baseline of a run refuses it for a gap."""
    assert judge.is_fault_or_gap(a_verdict("discovery.gpu.count", "n0", Outcome.INCOMPLETE, kind=kind)) is is_gap


def test_a_round_that_names_a_node_of_another_job_plans_no_link_of_it():
    gate, parsed = "nccl.pair.link", rounds_of_pairs("n0,n2\nn0,n9\n", "raw/rounds.txt")
    run = a_run("nccl_pairwise", ["n0", "n1", "n2"], plan={gate: ["n0--n1"]})
    judged_run = judge.judge(run, load("generic"), parsed)
    assert {v.subject for v in judged_run.verdicts if v.gate == gate} == {"n0--n1", "n0--n2"}
