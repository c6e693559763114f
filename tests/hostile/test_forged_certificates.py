"""Certificates and runs that were edited, copied or replayed, and signatures that are not what they should be."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bringup import results
from bringup.cli import main
from bringup.records import Closed, read_record, write_record
from bringup.run import open as opening
from runs_for_tests import discovery, reseal

COUNT = '"quantity": "discovery.gpu.count", "value": {}'
Check = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def no_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRINGUP_SITE", raising=False)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return discovery(tmp_path / "runs", monkeypatch)


@pytest.fixture
def paper(run: Path, tmp_path: Path) -> Path:
    """An unsigned certificate of this run."""
    assert main(["certificate", str(run), "-o", str(tmp_path / "paper"), "--partly"]) == 0
    return tmp_path / "paper/certificate.json"


@pytest.fixture
def check(paper: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """The exit code of `certificate RUN --check`, and what it says."""

    def called(run: Path, *options: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["certificate", str(run), "--check", str(paper), *options])
        return code, "".join(capsys.readouterr())

    return called


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def text_in(folder: Path, file: str, old: str, new: str) -> Path:
    """Replaced, and the checksums made anew: so far as they say, it was always so."""
    path = folder / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return reseal(folder)


# --- certificates


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"holds_until": "2099-01-01"}, "holds_until is 2099-01-01; made again it is "),
        ({"mark": "pass"}, "mark is pass; made again it is rehearsed"),
        ({"does_not_say": []}, "does_not_say is []; made again it is ['1. "),
        ({"dated": "soon"}, "dated is soon; "),
        ({"nodes": ["n0", "n1", "n2"]}, "nodes is ['n0', 'n1', 'n2']; made again it is ['n0', 'n1']"),
    ],
)
def test_an_edited_certificate_is_noticed_beside_its_runs(run: Path, paper: Path, check: Check, changes, says: str):
    edit(paper, **changes)
    code, output = check(run)
    assert code == 2
    assert f"it cannot be relied on:\n{says}" in output


@pytest.mark.parametrize("changes", [{"holds_until": "2099-01-01"}, {"mark": "pass"}, {"does_not_say": []}])
def test_so_is_one_that_contradicts_itself_beside_other_runs(tmp_path, monkeypatch, paper: Path, check: Check, changes):
    edit(paper, **changes)
    code, output = check(discovery(tmp_path / "newer", monkeypatch))
    assert code == 2
    assert f"{next(iter(changes))} is " in output


def test_answers_that_its_runs_do_not_give_are_noticed(run: Path, paper: Path, check: Check):
    answers = json.loads(paper.read_text())["answers"]
    for answer in answers:
        answer["mark"] = "pass"
        for claim in answer["claims"]:
            claim["mark"] = "pass"
    edit(paper, answers=answers, mark="pass", does_not_say=[])
    code, output = check(run)
    assert code == 2
    assert "answers[0].mark is pass; made again it is rehearsed" in output


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        (
            "raw/scontrol-config.txt",
            "ClusterName             = local",
            "ClusterName = b",
            "cluster: b; certified was local",
        ),
        ("raw/inventory.jsonl", "a1" * 32, "c3" * 32, f"n0: hardware, SHA-256: {'c3' * 32}; certified was {'a1' * 32}"),
        (
            "raw/inventory.jsonl",
            '"nvidia0 (char 195:0)", "nvidia1 (char 195:1)"',
            '"GPU-1", "GPU-2"',
            "n1: GPUs, SHA-256 of their UUIDs: ",
        ),
    ],
)
def test_a_certificate_of_another_cluster_of_the_same_kind_does_not_hold_here(
    tmp_path, monkeypatch, check: Check, file: str, old: str, new: str, says: str
):
    here = text_in(discovery(tmp_path / "here", monkeypatch), file, old, new)
    code, output = check(here)
    assert (code, says in output) == (1, True), output


def test_nodes_that_were_not_certified_do_not_hold(run: Path, tmp_path, paper: Path, check: Check):
    edit(paper, machines=[machine for machine in json.loads(paper.read_text())["machines"] if machine["node"] == "n0"])
    assert "n1: not among the certified nodes" in check(run)[1]


def test_a_reboot_breaks_nothing_and_is_said(tmp_path, monkeypatch, check: Check):
    boot = "9ae47a52-f1e6-46d8-acb1-b532ecfecb62"
    newer = text_in(discovery(tmp_path / "newer", monkeypatch), "raw/inventory.jsonl", boot, boot[::-1])
    code, output = check(newer)
    assert code == 0
    assert "every condition still holds, on 2 of 2 nodes, as of 20" in output
    assert "1 of them have booted since: n1" in output


def test_an_old_run_under_a_new_name_is_noticed(tmp_path, monkeypatch, check: Check):
    """Its probes wrote for which run they worked, and when."""
    old = discovery(tmp_path / "old", monkeypatch, close=False)
    inventory = old / "raw/inventory.jsonl"
    stamp = rf'\g<0>, "run": "{old.name}", "utc": "{opening.now()}"'
    inventory.write_text(re.sub(r'"end": \d+', stamp, inventory.read_text()))
    opening.close_run(old, 0)
    new = old.parent / "20300101-120000-abcdef"
    shutil.copytree(old, new)
    edit(new / "run.json", name=new.name, opened_at="2030-01-01T12:00:00Z")
    closed = read_record(new / results.CLOSED, Closed).model_copy(update={"closed_at": "2030-01-01T12:01:00Z"})
    write_record(new / results.CLOSED, closed, replace=True)
    code, output = check(reseal(new))
    assert code == 2
    assert f"run {new.name}: run.evidence" in output
    assert f"wrote it for run {old.name}" in output


def test_a_run_from_before_the_certificate_says_nothing_about_later(tmp_path, monkeypatch, check: Check):
    older = discovery(tmp_path / "older", monkeypatch)
    edit(older / "run.json", opened_at="2020-01-01T00:00:00Z")
    edit(older / results.CLOSED, closed_at="2020-01-01T00:01:00Z")
    code, output = check(reseal(older))
    assert code == 2
    assert "the runs ended at 2020-01-01T00:01:00Z, before it was dated" in output


def test_evidence_that_was_edited_after_it_was_certified_is_noticed(run: Path, check: Check):
    code, output = check(text_in(run, "raw/inventory.jsonl", "AMD EPYC", "AMD Epyc"))
    assert code == 2
    assert f"discovery {run.name}: files_sha256 is " in output


# --- signatures


def new_key(path: Path, phrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", phrase, "-f", path], check=True)
    return path


def site_with(tmp_path: Path, **keys: Path) -> str:
    path = tmp_path / "lab.site.yaml"
    lines = [f"{name}: {value}\n" for name, value in keys.items()]
    path.write_text("schema_version: 1\nname: lab\n" + "".join(lines))
    return str(path)


@pytest.fixture
def signers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The site has a key, and a file of those whose signatures count."""
    key, allowed = new_key(tmp_path / "key"), tmp_path / "allowed_signers"
    allowed.write_text(f'anna@lab namespaces="bringup" {key.with_suffix(".pub").read_text()}')
    monkeypatch.setenv("BRINGUP_SITE", site_with(tmp_path, signing_key=key, allowed_signers=allowed))
    return allowed


def sign_with(key: Path, path: Path, namespace: str = "bringup") -> None:
    signature = path.with_name(f"{path.name}.sig")
    signature.unlink(missing_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", namespace, path], check=True, capture_output=True
    )


@pytest.fixture
def signed(signers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Path:
    folder = discovery(tmp_path / "signed", monkeypatch, close=False)
    assert main(["close", str(folder), "--exit-code", "0"]) == 0
    assert capsys.readouterr().err == ""
    return folder


def judged(folder: Path, capsys, *options: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["judge", str(folder), *options])
    return code, "".join(capsys.readouterr())


def test_a_signed_run_says_who_closed_it_and_its_evidence_is_its_own(signed: Path, signers: Path, capsys, monkeypatch):
    code, output = judged(signed, capsys)
    assert (code, "signed by anna@lab\n" in output) == (0, True)
    monkeypatch.delenv("BRINGUP_SITE")
    code, output = judged(signed, capsys)
    assert (code, "signed by" in output) == (0, False), "the judge itself knows nothing of signers"
    assert judged(signed, capsys, "--signers", str(signers))[0] == 0


def another_key(folder: Path, tmp_path: Path) -> None:
    sign_with(new_key(tmp_path / "another"), folder / "closed.json")


def other_bytes(folder: Path, tmp_path: Path) -> None:
    edit(folder / "closed.json", exit_code=0)


def another_purpose(folder: Path, tmp_path: Path) -> None:
    sign_with(tmp_path / "key", folder / "closed.json", "git")


def removed(folder: Path, tmp_path: Path) -> None:
    (folder / "closed.json.sig").unlink()


def fifo(folder: Path, tmp_path: Path) -> None:
    removed(folder, tmp_path)
    os.mkfifo(folder / "closed.json.sig")


def rubbish(folder: Path, tmp_path: Path) -> None:
    (folder / "closed.json.sig").write_text("\x1b]0;owned\x07")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (another_key, "No principal matched"),
        (other_bytes, "incorrect signature"),
        (another_purpose, "namespace does not match"),
        (removed, "not signed: there is no closed.json.sig"),
        (fifo, "a FIFO is in the place of a file"),
        (rubbish, "ssh-keygen: "),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_a_signature_that_does_not_count_is_exit_code_2(signed: Path, tmp_path: Path, capsys, damage, says: str):
    damage(signed, tmp_path)
    code, output = judged(signed, capsys)
    assert (code, says in output, "\x1b" in output) == (2, True, False), output
    assert "PASS" in output, "the verdicts stay as they are"


def test_sums_that_were_made_anew_pass_unless_the_run_is_signed(signed: Path, signers, capsys, monkeypatch):
    """What docs/SECURITY.md says that checksums do not promise."""
    inventory = "raw/inventory.jsonl"
    text_in(signed, inventory, COUNT.format(2), COUNT.format(1))
    sign_with(signers.with_name("key"), signed / "closed.json")
    assert judged(signed, capsys)[0] == 1, "a GPU is lost"
    text_in(signed, inventory, COUNT.format(1), COUNT.format(2))
    code, output = judged(signed, capsys)
    assert (code, "incorrect signature" in output) == (2, True)
    monkeypatch.delenv("BRINGUP_SITE")
    assert judged(signed, capsys)[0] == 0


@pytest.fixture
def at_open() -> Iterator[Callable[[str, int, Callable[[], None]], None]]:
    """Do something when a file of this name is opened for the nth time, before it is."""
    steps: list[tuple[str, int, Callable[[], None]]] = []
    opened: Counter[str] = Counter()

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and steps and isinstance(arguments[0], str):
            name = Path(arguments[0]).name
            opened[name] += 1
            for what, nth, do in list(steps):
                if (name, opened[name]) == (what, nth):
                    do()

    sys.addaudithook(audit)  # nothing removes it
    yield lambda name, nth, do: steps.append((name, nth, do))
    steps.clear()


def lose_a_gpu(signed: Path, signers: Path) -> None:
    text_in(signed, "raw/inventory.jsonl", COUNT.format(2), COUNT.format(1))
    sign_with(signers.with_name("key"), signed / "closed.json")


def test_a_signature_is_of_the_checksums_that_were_judged(signed: Path, signers, at_open, capsys):
    """Its owner puts the signed closed.json back once the edited run was judged."""
    lose_a_gpu(signed, signers)
    honest = (signed / "closed.json").read_bytes()
    text_in(signed, "raw/inventory.jsonl", COUNT.format(1), COUNT.format(2))
    at_open("closed.json", 2, lambda: (signed / "closed.json").write_bytes(honest))
    code, output = judged(signed, capsys)
    assert (code, "signed by" in output, "incorrect signature" in output) == (2, False, True), output


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("raw/inventory.jsonl", COUNT.format(1), COUNT.format(2)),
        ("run.json", '"gpus_per_node": 2', '"gpus_per_node": 1'),
    ],
)
def test_checksums_are_of_the_bytes_that_were_judged(signed: Path, signers, at_open, capsys, file: str, old, new):
    """Its owner shows other bytes to the first who reads the file, and the signed ones to the second."""
    lose_a_gpu(signed, signers)
    honest = (signed / file).read_text()
    assert old in honest
    (signed / file).write_text(honest.replace(old, new))
    at_open(Path(file).name, 2, lambda: (signed / file).write_text(honest))
    code, output = judged(signed, capsys)
    assert (code != 0, f"{file} was changed after the run was closed" in output) == (True, True), output


def test_a_signed_certificate_cannot_be_changed(signed: Path, tmp_path: Path, capsys, monkeypatch):
    folder = tmp_path / "paper"
    assert main(["certificate", str(signed), "-o", str(folder), "--partly"]) == 0
    assert "Signed: `certificate.json.sig`" in (folder / "certificate.md").read_text()
    check = ["certificate", str(signed), "--check", str(folder / "certificate.json")]
    assert main(check) == 0
    assert "certificate.json: signed by anna@lab" in capsys.readouterr().out
    edit(folder / "certificate.json", days=27000, holds_until="2099-01-01")
    assert main(check) == 2
    assert "incorrect signature" in capsys.readouterr().out
    (signed / "closed.json.sig").unlink()
    assert main(["certificate", str(signed), "-o", str(folder), "--partly"]) == 0, "made again, and signed again"
    capsys.readouterr()
    assert main(check) == 2
    assert f"{signed.name}/closed.json: not signed" in capsys.readouterr().out


def test_an_unsigned_certificate_says_what_it_is_worth(run: Path, paper: Path, check: Check):
    assert "Unsigned: it is worth what its keeper is worth" in paper.with_name("certificate.md").read_text()
    code, output = check(run)
    assert (code, "not verified: who made it" in output) == (0, True)


def pass_phrase(tmp_path: Path, monkeypatch) -> Path:
    return new_key(tmp_path / "locked", "a phrase")


def not_there(tmp_path: Path, monkeypatch) -> Path:
    return tmp_path / "nowhere"


def open_to_all(tmp_path: Path, monkeypatch) -> Path:
    key = new_key(tmp_path / "open")
    key.chmod(0o644)
    return key


def no_ssh_keygen(tmp_path: Path, monkeypatch) -> Path:
    key = new_key(tmp_path / "good")
    monkeypatch.setenv("PATH", str(tmp_path))
    return key


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (pass_phrase, "incorrect passphrase"),
        (not_there, "No such file"),
        (open_to_all, "are too open"),
        (no_ssh_keygen, "ssh-keygen cannot be started"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_a_run_that_cannot_be_signed_is_closed_all_the_same(tmp_path: Path, monkeypatch, capsys, key, says: str):
    closes_unsigned(tmp_path, monkeypatch, capsys, key(tmp_path, monkeypatch), says)


def test_an_agent_that_asks_a_person_is_not_waited_for(tmp_path: Path, monkeypatch, capsys):
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent"))
        agent.listen()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        monkeypatch.setattr("bringup.run.signature.PATIENCE_S", 0.5)
        public = new_key(tmp_path / "held").with_suffix(".pub")
        closes_unsigned(tmp_path, monkeypatch, capsys, public, "did not end within")


def closes_unsigned(tmp_path: Path, monkeypatch, capsys, key: Path, says: str) -> None:
    folder = discovery(tmp_path / "runs", monkeypatch, close=False)
    monkeypatch.setenv("BRINGUP_SITE", site_with(tmp_path, signing_key=key))
    assert main(["close", str(folder), "--exit-code", "0"]) == 0
    output = capsys.readouterr().err
    assert output.startswith(f"bringup: {folder}/closed.json: unsigned: ")
    assert says in output
    assert output.count("\n") == 1
    assert (folder / "closed.json").is_file()
    assert not (folder / "closed.json.sig").exists()
