"""A ticket: what is wrong on which device of which machine, with the line of evidence, and what to attach."""

import json
import re
import subprocess

import pytest
from bringup.cli import main
from bringup.kernel.errors import UsageError
from bringup.kernel.judge import judge_folder
from bringup.report import outputs, ticket
from loops import for_each
from runs_for_tests import discovery, lose_a_gpu, reseal

MISSING = '"quantity": "discovery.gpu.count", "value": 1'


@pytest.fixture
def faulty(tmp_path, monkeypatch):
    """n1 counts one GPU."""
    return lose_a_gpu(discovery(tmp_path / "run", monkeypatch))


def test_the_finding_stands_with_its_line_of_evidence_and_what_to_run(faulty):
    text = ticket.text("n1", [judge_folder(faulty)])
    assert "1. **FAIL** discovery.gpu.count " in text
    assert MISSING in text
    assert "nvidia-smi" in text
    assert "nvidia-bug-report.sh" in text
    assert re.search(r"\| Slurm +\| 22.05.8 +\|", text)


def test_the_gpu_of_a_driver_message_is_marked_and_the_message_is_quoted(faulty):
    """A verdict names a GPU by its PCI address and serial number, and the table joined by UUID alone. The line that
    was quoted was a count."""
    says = "NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus."
    facts: list[tuple[str, str, int | str, str]] = [
        ("n1/PCI:0000:43:00", "discovery.kernel_log.xid_79", 1, "count"),
        ("n1/PCI:0000:43:00", "inventory.kernel_log.line", says, "text"),
        ("n1/GPU-a", "inventory.gpu.address", "0000:43:00.0", "text"),
        ("n1/GPU-b", "inventory.gpu.address", "0000:1b:00.0", "text"),
    ]
    names = ("subject", "quantity", "value", "unit")
    lines = ({"probe": "inventory", "at": "n1"} | dict(zip(names, fact, strict=True)) for fact in facts)
    path = faulty / "raw/inventory.jsonl"
    inserted = "".join(f"1: {json.dumps(each)}\n" for each in lines)
    first_disc = '1: {"probe": "inventory", "at": "n1", "subject": "n1", "quantity": "disc'
    before, at, after = path.read_text().partition(first_disc)
    text = before + inserted + at + after
    whole = re.sub('("at": "n1", "end": )([0-9]+)', lambda m: f"{m[1]}{int(m[2]) + len(facts)}", text)
    path.write_text(whole.replace('kernel_log.xids", "value": 0', 'kernel_log.xids", "value": 1', 1))
    text = ticket.text("n1", [judge_folder(reseal(faulty))])
    assert f"`{says}`" in text
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in text.splitlines() if "| GPU-" in line]
    assert rows == [["GPU-a", "yes"], ["GPU-b", ""]]
    assert "A drained node starts no `srun`" in text


def test_a_finding_of_another_node_is_not_in_it_and_a_node_of_which_no_run_speaks_is_refused(faulty):
    text = ticket.text("n0", [judge_folder(faulty)])
    assert "discovery.gpu.count" not in text
    assert "Nothing failed on this node" in text
    with pytest.raises(UsageError, match="no run of these is about 'n7'; they are about n0, n1"):
        ticket.text("n7", [judge_folder(faulty)])


def test_the_exit_code_is_that_of_a_report_and_another_file_is_not_written_over(faulty, tmp_path, shown, refused):
    assert main(["ticket", "n1", str(faulty)]) == 1
    other = tmp_path / "notes.md"
    other.write_text("mine")
    assert "notes.md" in refused("ticket", "n1", faulty, "-o", other)
    assert other.read_text() == "mine"
    assert shown(1, "ticket", "n1", faulty, "-o", tmp_path / "n1.md") == f"written: {tmp_path / 'n1.md'}\n"


def test_a_folder_holds_the_files_of_the_evidence_and_a_script_and_is_a_new_one(faulty, tmp_path, refused):
    folder = tmp_path / "for the vendor"
    assert main(["ticket", "n1", str(faulty), "--folder", str(folder)]) == 1
    kept = next(folder.glob("discovery-*-inventory.jsonl"))
    assert kept.read_bytes() == (faulty / "raw/inventory.jsonl").read_bytes()
    assert "discovery.gpu.count" in (folder / "ticket.md").read_text()
    subprocess.run(["bash", "-n", folder / "attach.sh"], check=True)
    assert "--nodelist=n1 --exclusive nvidia-bug-report.sh" in (folder / "attach.sh").read_text()
    assert "is not empty; name a new one" in refused("ticket", "n1", faulty, "--folder", folder)


def test_markup_in_a_line_of_evidence_stays_text(faulty):
    path = faulty / "raw/inventory.jsonl"
    path.write_text(path.read_text().replace(MISSING, MISSING + ', "why": "<b>`|"'))
    text = ticket.text("n1", [judge_folder(reseal(faulty))])
    [line] = [line for line in text.splitlines() if "<b>" in line and "raw/" in line]
    assert line.count("`") == 2, "one code span, which the line cannot end"
    assert line.index("`") < line.index("<b>") < line.rindex("`")


def test_the_line_is_the_one_that_evidence_counts_and_where_evidence_is_missing_that_is_a_finding(faulty):
    """Evidence counts line feeds alone, also below a progress bar."""
    path = faulty / "raw/inventory.jsonl"
    path.write_text("not a fact\r\x0c of this\n" + path.read_text())
    assert MISSING in ticket.text("n1", [judge_folder(reseal(faulty))])
    path.write_text("".join(line for line in path.read_text().splitlines(True) if '"at": "n0"' in line))
    text = ticket.text("n1", [judge_folder(reseal(faulty))])
    assert "**INCOMPLETE**" in text
    assert "Nothing failed on this node" not in text


@for_each("x/../../outside", "../outside", "..", ".outside", "a b", "/outside", "a\\b", "")
def test_a_name_of_a_run_is_never_a_path(faulty, tmp_path, refused, name):
    (faulty / "run.json").write_text(json.dumps({**json.loads((faulty / "run.json").read_text()), "name": name}))
    into = tmp_path / "for the vendor"
    assert "not a valid Run: name: " in refused("ticket", "n1", reseal(faulty), "--folder", into)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_ticket_writes_into_its_folder_alone(tmp_path):
    for name in ("../outside", "a/b", "/outside", ".."):
        with pytest.raises(UsageError, match="nothing was written outside of it"):
            outputs.write_in(tmp_path, name, b"x")
    assert not any(tmp_path.iterdir())
