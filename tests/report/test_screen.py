"""The screen of a phase: what has one reason is one line."""

from pathlib import Path
from xml.etree import ElementTree as xml

from bringup.kernel import judge
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan import profile as profiles
from bringup.kernel.records import Kind, NotApplicable, Outcome, Run, SiteUsed, Value, Verdict
from bringup.report import document, explain, page, text, view
from bringup.report.junit import junit
from factory import a_run, a_verdict, gathered, judged_of
from loops import for_each
from runs_for_tests import discovery, reseal

CLOSED_LOG = "not found out: the kernel log cannot be read: Operation not permitted"


def screen(*verdicts: Verdict) -> str:
    return view.screen(judged_of(*verdicts, run=a_run("smoke")))


def test_numbers_without_a_limit_are_on_the_screen_with_what_they_are():
    """Sixty lines said that a profile declares no number, and none of them had it."""
    sizes = "1 GB/s (1MiB); 9 GB/s (16MiB)"
    busbw = a_verdict("nccl.all_reduce.busbw", "2-nodes", Outcome.NO_LIMIT, sizes, kind=Kind.UNDECLARED)
    shown = screen(busbw.model_copy(update={"value": 9, "unit": "GB/s", "at": "16MiB"})).splitlines()
    assert "0 pass, 1 without a limit" in shown[0]
    assert "  MEASURED   nccl.all_reduce.busbw [2-nodes]: 9 GB/s at 16MiB" in shown


def unknown(gate: str, subject: str, cause: str) -> Verdict:
    return a_verdict(gate, subject, Outcome.INCOMPLETE, "nothing", cause=cause, kind=Kind.UNKNOWN)


def test_a_dead_node_is_one_line_on_the_screen_and_the_report_lists_all_that_is_missing(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    for name in ("inventory", "clock"):
        path = folder / f"raw/{name}.jsonl"
        path.write_text("".join(line for line in path.read_text().splitlines(True) if '"at": "n0"' in line))
    judged = judge.judge_folder(reseal(folder))
    missing = [v for v in judged.verdicts.verdicts if v.subject == "n1" and v.cause == "no evidence arrived"]
    assert len(missing) > 10
    shown = view.screen(judged)
    assert f"[n1]: no evidence arrived ({len(missing)} gates: {missing[0].gate}, " in shown
    assert shown.count("no evidence arrived") == 1
    [line] = [line for line in document.run(judged).splitlines() if "INCOMPLETE n1: no evidence arrived: " in line]
    assert set(line.partition("arrived: ")[2].split(", ")) == {v.gate for v in missing}


def test_nodes_that_lack_the_same_are_one_line_and_so_are_messages_that_differ_in_their_numbers():
    """18 nodes of which no evidence arrived took 36 lines, and the 66 after them were not shown."""
    gates = ("smoke.node.ran_tasks", "smoke.gpu.isolated")
    silent = {"cause": "no evidence arrived", "kind": Kind.ABSENT}
    pairs = [(gate, f"n{node}") for node in range(18) for gate in gates]
    lines = screen(*(a_verdict(*pair, Outcome.INCOMPLETE, "nothing", **silent) for pair in pairs)).splitlines()
    assert f"  INCOMPLETE no evidence arrived (36 verdicts: {', '.join(gates)} on n[0-9],n[10-17] (18))" in lines
    step_of = [unknown(*pair, f"step 77.{number} was cancelled") for number, pair in enumerate(pairs)]
    assert [len(group) for group in view.on_screen(step_of)[0]] == [36]
    assert "step 77.0 was cancelled; or alike (36 verdicts: " in screen(*step_of)


def test_one_undeclared_number_is_one_line_for_all_its_subjects_and_a_fault_keeps_its_own():
    of_scales = [("nccl.transport", f"{number}-nodes", Outcome.INCOMPLETE, "declares no") for number in (2, 4, 8, 16)]
    fault = ("nccl.step", "2-nodes", Outcome.FAIL, "declares no")
    rows = [*of_scales, fault, ("nccl.ranks", "4-nodes", Outcome.INCOMPLETE, "other")]
    shown = screen(*(a_verdict(*row[:3], "nothing", cause=row[3], evidence="none") for row in rows))
    assert "nccl.transport: declares no (4 scales: 2-nodes, 4-nodes, 8-nodes, …)" in shown
    assert "FAIL       nccl.step [2-nodes]" in shown
    assert "INCOMPLETE nccl.ranks [4-nodes]" in shown


def test_what_cannot_be_known_is_one_line_however_many_gates_and_nodes_wait_for_it():
    """A kernel log that is closed to users: 39 lines on four nodes, before."""
    gates = ("discovery.kernel_log.xid", "discovery.kernel_log.nonfatal", "load.kernel_log")
    verdicts = [unknown(gate, f"n{number}", CLOSED_LOG) for gate in gates for number in range(4)]
    line = f"{CLOSED_LOG} (12 verdicts: {', '.join(gates)} on n0, n1, n2, n3)"
    assert [len(group) for group in view.on_screen(verdicts)[0]] == [12]
    shown = view.not_known([*verdicts, a_verdict("nccl.step", "2-nodes", Outcome.FAIL, "no")])
    assert shown.splitlines()[0] == f"NOT KNOWN  {line}"
    assert "what to do first: docs/" in shown
    assert len(shown.splitlines()) == 2


def test_reasons_that_name_a_device_of_each_node_are_one_line():
    """Virtual machines tell no NUMA node of a GPU: four lines on four nodes, before."""
    why = "not found out: GPU-{0}: its NUMA node reads -1"
    verdicts = [unknown("smoke.cpu.near_gpu", f"n{number}", why.format(number)) for number in range(4)]
    shown = view.not_known(verdicts)
    first = "GPU-0: its NUMA node reads -1; or not found out: GPU-1: its NUMA node reads -1; and 2 more reasons"
    assert f"smoke.cpu.near_gpu: not found out: {first} (4 nodes: n0, n1, n2, …)" in shown
    assert len(shown.splitlines()) == 2


def test_nodes_on_which_a_gate_failed_alike_are_one_line_and_numbers_are_their_range():
    """A setting of the site fails on each of its nodes; a slow shared filesystem took eight lines."""
    gate, unlike = "smoke.gpu.isolated", a_verdict("smoke.gpu.isolated", "n4", Outcome.FAIL, "7", expected="8")
    shown = screen(*(a_verdict(gate, f"n{n}", Outcome.FAIL, "0", expected="8") for n in range(4)), unlike)
    assert "FAIL       smoke.gpu.isolated [n0, n1, n2, …]: observed 0, expected 8 (4 nodes)" in shown
    assert "FAIL       smoke.gpu.isolated [n4]: observed 7, expected 8\n" in shown
    slow = [a_verdict("load.start", f"n{n}", Outcome.FAIL, f"0.01{n} GB/s", value=0.01 + n / 1000) for n in range(4)]
    assert "[n0, n1, n2, …]: observed 0.010 GB/s, expected 2 (4 nodes, 0.010 GB/s to 0.013 GB/s)\n" in screen(*slow)


def test_one_line_of_evidence_is_told_once_whatever_gates_judge_it():
    """A port that is down stood there a second time, in 500 characters, as "RDMA ports differ"."""
    active, same = (a_verdict(f"discovery.rdma.{name}", "n3", evidence="raw/x:7") for name in ("active", "same"))
    shown = screen(active, same)
    assert "discovery.rdma.active [n3]: observed 1, expected 2; also discovery.rdma.same\n" in shown
    assert shown.count("FAIL ") == 2, "the phase, and the port"


def test_a_phase_that_passed_shows_its_numbers_and_the_command_of_the_next_phase():
    """Nine commands by hand printed no bandwidth, and none said which one is next."""
    scales = [("1-node", 390.0), ("2-nodes", 94.0)]
    gate, passed = "nccl.all_reduce.busbw", {"outcome": Outcome.PASS, "limit": 80}
    verdicts = [a_verdict(gate, on, value=value, **passed).model_copy(update={"at": "8GiB"}) for on, value in scales]
    passed = judged_of(*verdicts, run=a_run("nccl_scaling", ["n0", "n1"]))
    shown = view.screen(passed)
    assert "\n  measured: all_reduce 94 GB/s at 8GiB on 2-nodes, floor 80\n" in shown
    assert "\n  next: sbatch --nodes=2 infrastructure-validation/scripts/nccl_pairwise.sbatch\n" in shown
    slow = [verdict.model_copy(update={"outcome": Outcome.FAIL}) for verdict in verdicts]
    failed = judged_of(*slow, run=a_run("nccl_scaling", ["n0", "n1"]))
    says = view.screen(failed)
    assert "measured: " not in says
    assert "next: " not in says


@for_each(
    ("discovery", 2, "bash infrastructure-validation/scripts/smoke_test.sh --nodes 2"),
    ("nccl_scaling", 1, "bash infrastructure-validation/scripts/nccl_run_with_monitoring.sh --nodes 1"),
    ("run_1gpu", 1, "sbatch training/slurm/run_ddp_1node.sbatch"),
    ("run_ddp_1node", 1, "bringup compare"),
    ("run_fsdp_2node", 2, "bringup compare"),
)
def test_the_next_phase_is_one_that_these_nodes_can_run(phase, nodes, command):
    run = a_run(phase, [f"n{number}" for number in range(nodes)])
    assert view.View(judged_of(a_verdict(outcome=Outcome.PASS), run=run)).next.startswith(command)


def test_pairs_that_failed_alike_are_one_line_that_names_what_they_have_in_common():
    def pairs(*names: str) -> str:
        return screen(*(a_verdict("smoke.fs.pair.write", pair, Outcome.FAIL, "no", expected="yes") for pair in names))

    assert (
        "FAIL       smoke.fs.pair.write [n0->n1]: observed no, expected yes "
        "(4 pairs, all with n1: n0->n1, n1->n0, n1->n2, …)" in pairs("n0->n1", "n1->n0", "n1->n2", "n2->n1")
    )
    assert "(3 pairs: n0->n1, n1->n2, n2->n0)" in pairs("n0->n1", "n1->n2", "n2->n0")
    assert "smoke.fs.pair.write [n1->n0]: observed no, expected yes\n" in pairs("n0->n1", "n1->n0"), "two stand alone"


def test_what_is_not_applicable_takes_one_line_however_many_reasons_there_are():
    """Ten lines pushed the failures out of sight."""
    given = {"a": "no GPU", "b": "no GPU", "c": "one node"}
    many = "  not applicable: 3 checks; the report says why"
    for gates, expected in (("ab", "  not applicable: no GPU: a, b"), ("abc", many)):
        entries = [NotApplicable(gate=gate, reason=given[gate]) for gate in gates]
        shown = view.screen(judged_of(a_verdict(), not_applicable=tuple(entries))).splitlines()
        assert [line for line in shown if "not applicable" in line] == [expected]


# --- what failed is a sentence, the same in all outputs: what is wrong, what it means for a job, and the device behind


ECC = "discovery.gpu.ecc"
ECC_SAYS = "GPU-3 (uncorrected memory errors of a GPU: 2; jobs on it crash)"


def judged(gate: str, subject: str, *values: Value, why: str | None = None, profile: str = "h100-8x400g") -> Verdict:
    """The verdict about n0, or about a job or scale; the other values are those of n1, n2. The run is of a phase that
    plans none of these gates, so no other one has to pass first."""
    known = profiles.load(profile)
    at = known.expect[gate].at if gate in known.expect else None
    subjects = [subject, "n1", "n2"][: len(values)]
    parsed = Parsed()
    for each, value in zip(subjects, values, strict=True):
        unit = judge.catalogue.GATES[gate].unit
        parsed.saw(gate if at is None else f"{gate}@{at}", each, value, unit, "raw/x:1", why)
    run = a_run("run_1gpu", nodes=["n0", "n1", "n2"], gpus=8, profile=profile, plan={gate: subjects})
    return next(v for v in judge.judge(run, known, parsed).verdicts if (v.gate, v.subject) == (gate, subject))


UNDER_LOAD = "under load 2.95 % of the TCP segments that the node sends are sent again, allowed at most 1 % (GPU-3)"
NO_ROW = "a GPU has no spare row left: its next memory error cannot be repaired (GPU-3)"
SLOW_GPU = "the slowest GPU computes 512.3 TFLOP/s, expected at least 600 TFLOP/s: it slows down all ranks (GPU-3)"
FLAPS = "GPU-3 (times that an RDMA port lost its link: 23, allowed at most 5; jobs stall then)"


@for_each(
    (ECC, 2, ECC_SAYS),
    ("load.tcp_sent_again", 0.02954, UNDER_LOAD),
    ("discovery.gpu.remap_failed", True, NO_ROW),
    ("smoke.compute.tflops", 512.34, SLOW_GPU),
    ("discovery.rdma.flaps", 23, FLAPS),
    ("discovery.clock.offset", 12345.678, "the clock may be 12346 s off, allowed at most 0.1 s (GPU-3)"),
    ("discovery.node.state", "DOWN", "Slurm gives no jobs to this node: its state is DOWN (GPU-3)"),
)
def test_a_miss_says_what_is_wrong_with_units_and_the_remark_behind(gate, value, says):
    assert text.sentence(judged(gate, "n0", value, why="GPU-3")) == says


def test_a_limit_with_a_size_and_a_basis_names_both():
    slow = judged("nccl.all_reduce.busbw", "2-nodes", 12.0)
    assert slow.basis
    says = f"all_reduce reaches 12 GB/s, expected at least {slow.limit:g} GB/s at 8GiB ({slow.basis})"
    assert text.sentence(slow) == says


def test_nodes_that_are_compared_say_what_the_others_have():
    odd = judged("discovery.kernel", "n0", "6.8", "6.1", "6.1")
    assert text.sentence(odd) == "the kernel differs from that of other nodes: 6.8 (2 of 3 have 6.1)"


def test_what_was_not_judged_gives_its_reason_first_and_nothing_that_was_not_seen():
    absent = a_verdict(ECC, "n0", Outcome.INCOMPLETE, "nothing", cause="no evidence arrived", evidence="none")
    assert text.sentence(absent) == "no evidence arrived"
    why = "not found out: the kernel log cannot be read"
    assert text.sentence(a_verdict(ECC, "n0", Outcome.INCOMPLETE, "nothing", cause=why, kind=Kind.UNKNOWN)) == why
    alone = judged("discovery.kernel", "n0", "6.8")
    assert alone.outcome is Outcome.INCOMPLETE
    assert text.sentence(alone) == "compared with too few: 1 of 1 are known (observed 6.8)"
    undeclared = judged("smoke.compute.tflops", "n0", 0.35, profile="generic")
    assert undeclared.kind is Kind.UNDECLARED
    assert text.sentence(undeclared) == "0.35 TFLOP/s; profile generic declares no smoke.compute.tflops"
    good = judged(ECC, "n0", 0)
    assert (good.outcome, good.fails) == (Outcome.PASS, None)


def test_all_outputs_say_the_same_sentence(tmp_path: Path):
    bad = judged(ECC, "n0", 2, why="GPU-3")
    run = a_run(plan={ECC: ["n0"]})
    whole = judged_of(bad, run=run, folder=tmp_path)
    collection = gathered(whole)
    cases = xml.fromstring(junit(collection))
    outputs = {
        "screen": view.screen(whole),
        "report.md": document.run(whole),
        "explain": explain.screen(whole),
        "page": page.render(collection),
        "JUnit": "".join(failure.get("message", "") for failure in cases.iter("failure")),
    }
    for name, output in outputs.items():
        assert ECC_SAYS in output, f"{name}: does not say what is wrong"
        assert "expected 0" not in output, f"{name}: still says what was expected in its old form"


# --- every report names the site file in one line, and says where the run was not as the file says


SITE = SiteUsed(
    name="lab",
    says={"partition": "gpu", "srun": ["--mpi=pmix"], "environment": {"NCCL_IB_HCA": "mlx5_0"}},
    otherwise={"partition": "main"},
)
WORDS = "lab: partition gpu; srun --mpi=pmix; environment NCCL_IB_HCA=mlx5_0; not as its file says: partition main"


def run_at(site: SiteUsed | None) -> Run:
    return a_run(plan={}).model_copy(update={"site": site})


def test_the_screen_the_report_and_the_page_name_it_in_one_line():
    judged = judged_of(a_verdict(), run=run_at(SITE))
    screen = view.screen(judged).splitlines()
    assert "  site: lab; not as its file says: partition main" in screen
    [line] = [line for line in document.run(judged).splitlines() if line.startswith("| site ")]
    assert line.endswith(f" | {text.escaped(WORDS)} |")
    shown = page.render(gathered(judged))
    assert f"<tr><th>site</th><td>{WORDS}</td></tr>" in shown
    assert "<dt>site file</dt><dd>lab</dd>" in shown

    assert f"; site {text.escaped(WORDS)};" in document.playbook(gathered(judged))


def test_without_one_no_report_speaks_of_a_site():
    judged = judged_of(a_verdict(), run=run_at(None))
    screen, collection = view.screen(judged), gathered(judged)
    documents = f"{screen}{document.run(judged)}{page.render(collection)}{document.playbook(collection)}"
    assert "site" not in documents.lower()


def test_markup_in_a_site_file_is_text():
    bad = SITE.model_copy(update={"name": "<b>|x\x1b[31m", "says": {"partition": "<script>"}})
    judged = judged_of(a_verdict(), run=run_at(bad))
    assert "\x1b" not in view.screen(judged)
    assert "<script>" not in document.run(judged)
    assert page.render(gathered(judged)).count("<script>") == 1  # our search
