"""The screen of a phase: what has one reason is one line."""

from pathlib import Path

from bringup import judge, results
from bringup.records import Kind, NotApplicable, Outcome, Verdict
from bringup.report import document, view
from factory import a_run, a_verdict, judged_of
from runs_for_tests import discovery, reseal

CLOSED_LOG = "not found out: the kernel log cannot be read: Operation not permitted"


def screen(*verdicts: Verdict) -> str:
    judged = judged_of(*verdicts, run=a_run("smoke"))
    return view.screen(Path("/x"), judged.run, judged.verdicts)


def test_numbers_without_a_limit_are_on_the_screen_with_what_they_are():
    """Sixty lines said that a profile declares no number, and none of them had it."""
    busbw = a_verdict(
        "nccl.all_reduce.busbw", "2-nodes", Outcome.NO_LIMIT, "1 GB/s (1MiB); 9 GB/s (16MiB)", kind=Kind.UNDECLARED
    )
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
    run, verdicts = results.load(folder), judged.verdicts
    missing = [v for v in verdicts.verdicts if v.subject == "n1" and v.cause == "no evidence arrived"]
    assert len(missing) > 10
    shown = view.screen(folder, run, verdicts)
    assert f"[n1]: no evidence arrived ({len(missing)} gates: {missing[0].gate}, " in shown
    assert shown.count("no evidence arrived") == 1
    [line] = [line for line in document.run(judged).splitlines() if "INCOMPLETE n1: no evidence arrived: " in line]
    assert set(line.partition("arrived: ")[2].split(", ")) == {v.gate for v in missing}


def test_one_undeclared_number_is_one_line_for_all_its_subjects_and_a_fault_keeps_its_own():
    of_scales = [("nccl.transport", f"{number}-nodes", Outcome.INCOMPLETE, "declares no") for number in (2, 4, 8, 16)]
    fault = ("nccl.step", "2-nodes", Outcome.FAIL, "declares no")
    rows = [*of_scales, fault, ("nccl.ranks", "4-nodes", Outcome.INCOMPLETE, "other")]
    shown = screen(*(a_verdict(*row[:3], "nothing", cause=row[3], evidence="none") for row in rows))
    assert "nccl.transport: declares no (4 subjects: 2-nodes, 4-nodes, 8-nodes, …)" in shown
    assert "FAIL       nccl.step [2-nodes]" in shown
    assert "INCOMPLETE nccl.ranks [4-nodes]" in shown


def test_what_cannot_be_known_is_one_line_however_many_gates_and_nodes_wait_for_it():
    """A kernel log that is closed to users: 39 lines on four nodes, before."""
    gates = ("discovery.kernel_log.xid", "discovery.kernel_log.nonfatal", "load.kernel_log")
    verdicts = [unknown(gate, f"n{number}", CLOSED_LOG) for gate in gates for number in range(4)]
    line = f"{CLOSED_LOG} (12 verdicts: {', '.join(gates)} on n0, n1, n2, …)"
    assert [len(group) for group in view.on_screen(verdicts)[0]] == [12]
    shown = view.not_known([*verdicts, a_verdict("nccl.step", "2-nodes", Outcome.FAIL, "no")])
    assert shown.splitlines()[0] == f"NOT KNOWN  {line}"
    assert "what to do first: docs/" in shown
    assert len(shown.splitlines()) == 2


def test_reasons_that_name_a_device_of_each_node_are_one_line():
    """Virtual machines tell no NUMA node of a GPU: four lines on four nodes, before."""
    verdicts = [
        unknown("smoke.cpu.near_gpu", f"n{number}", f"not found out: GPU-{number}: its NUMA node reads -1")
        for number in range(4)
    ]
    shown = view.not_known(verdicts)
    first = "GPU-0: its NUMA node reads -1; or not found out: GPU-1: its NUMA node reads -1; and 2 more reasons"
    assert f"smoke.cpu.near_gpu: not found out: {first} (4 subjects: n0, n1, n2, …)" in shown
    assert len(shown.splitlines()) == 2


def test_nodes_on_which_a_gate_failed_alike_are_one_line_and_numbers_are_their_range():
    """A setting of the site fails on each of its nodes; a slow shared filesystem took eight lines."""
    gate, unlike = "smoke.gpu.isolated", a_verdict("smoke.gpu.isolated", "n4", Outcome.FAIL, "7", expected="8")
    shown = screen(*(a_verdict(gate, f"n{n}", Outcome.FAIL, "0", expected="8") for n in range(4)), unlike)
    assert "FAIL       smoke.gpu.isolated [n0, n1, n2, …]: observed 0, expected 8 (4 subjects)" in shown
    assert "FAIL       smoke.gpu.isolated [n4]: observed 7, expected 8\n" in shown
    slow = [a_verdict("load.start", f"n{n}", Outcome.FAIL, f"0.01{n} GB/s", value=0.01 + n / 1000) for n in range(4)]
    assert "[n0, n1, n2, …]: observed 0.010 GB/s, expected 2 (4 subjects, 0.010 GB/s to 0.013 GB/s)\n" in screen(*slow)


def test_one_line_of_evidence_is_told_once_whatever_gates_judge_it():
    """A port that is down stood there a second time, in 500 characters, as "RDMA ports differ"."""
    active, same = (a_verdict(f"discovery.rdma.{name}", "n3", evidence="raw/x:7") for name in ("active", "same"))
    shown = screen(active, same)
    assert "discovery.rdma.active [n3]: observed 1, expected 2; also discovery.rdma.same\n" in shown
    assert shown.count("FAIL ") == 2, "the phase, and the port"


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
    for gates, expected in (
        ("ab", "  not applicable: no GPU: a, b"),
        ("abc", "  not applicable: 3 checks; the report says why"),
    ):
        entries = [NotApplicable(gate=gate, reason=given[gate]) for gate in gates]
        verdicts = judged_of(a_verdict(), not_applicable=tuple(entries)).verdicts
        shown = view.screen(Path("/x"), a_run("smoke"), verdicts).splitlines()
        assert [line for line in shown if "not applicable" in line] == [expected]
