"""Runs that were edited, and signatures that are not what they should be."""

import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bringup.cli import main
from loops import case_for_each
from programs import ran, tree
from runs_for_tests import discovery, lose_a_gpu, reseal
from trained_runs import change

COUNT = '"quantity": "discovery.gpu.count", "value": {}'


@pytest.fixture(autouse=True)
def no_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRINGUP_SITE", raising=False)


def text_in(folder: Path, file: str, old: str, new: str) -> Path:
    """Replaced, and the checksums made anew: so far as they say, it was always so."""
    path = folder / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return reseal(folder)


def new_key(path: Path, phrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", phrase, "-f", path], check=True)
    return path


def site_with(tmp_path: Path, **keys: Path) -> str:
    lines = [f"{name}: {value}" for name, value in {"schema_version": 1, "name": "lab", **keys}.items()]
    return str(tree(tmp_path, {"lab.site.yaml": "\n".join(lines)}) / "lab.site.yaml")


@pytest.fixture
def signers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The site has a key, and a file of those whose signatures count."""
    key, allowed = new_key(tmp_path / "key"), tmp_path / "allowed_signers"
    allowed.write_text(f'anna@lab namespaces="bringup" {key.with_suffix(".pub").read_text()}')
    monkeypatch.setenv("BRINGUP_SITE", site_with(tmp_path, signing_key=key, allowed_signers=allowed))
    return allowed


def sign_with(key: Path, path: Path, namespace: str = "bringup") -> None:
    path.with_name(f"{path.name}.sig").unlink(missing_ok=True)
    ran(["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", namespace, path], check=True)


@pytest.fixture
def signed(signers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Path:
    folder = discovery(tmp_path / "signed", monkeypatch, close=False)
    assert main(["close", str(folder), "--exit-code", "0"]) == 0
    assert capsys.readouterr().err == ""
    return folder


def judged(folder: Path, capsys, *options: str) -> tuple[int, str]:
    capsys.readouterr()
    return main(["judge", str(folder), *options]), "".join(capsys.readouterr())


def test_a_signed_run_says_who_closed_it_and_its_evidence_is_its_own(signed: Path, signers: Path, capsys, monkeypatch):
    code, output = judged(signed, capsys)
    assert (code, "signed by anna@lab\n" in output) == (0, True)
    monkeypatch.delenv("BRINGUP_SITE")
    code, output = judged(signed, capsys)
    assert (code, "signed by" in output) == (0, False), "the judge itself knows nothing of signers"
    assert judged(signed, capsys, "--signers", str(signers))[0] == 0


SEAL, SIGNATURE = "closed.json", "closed.json.sig"
DAMAGES: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "another key": (lambda run, place: sign_with(new_key(place / "another"), run / SEAL), "No principal matched"),
    "other bytes": (lambda run, place: change(run, SEAL, exit_code=0), "incorrect signature"),
    "another purpose": (lambda run, place: sign_with(place / "key", run / SEAL, "git"), "namespace does not match"),
    "removed": (lambda run, place: (run / SIGNATURE).unlink(), "not signed: there is no closed.json.sig"),
    "a FIFO": (
        lambda run, place: ((run / SIGNATURE).unlink(), os.mkfifo(run / SIGNATURE)),
        "a FIFO is in the place of a file",
    ),
    "rubbish": (lambda run, place: (run / SIGNATURE).write_text("\x1b]0;owned\x07"), "ssh-keygen: "),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_signature_that_does_not_count_is_exit_code_2(signed: Path, tmp_path: Path, capsys, name: str):
    damage, says = DAMAGES[name]
    damage(signed, tmp_path)
    code, output = judged(signed, capsys)
    assert (code, says in output, "\x1b" in output) == (2, True, False), output
    assert "PASS" in output, "the verdicts stay as they are"


def test_sums_that_were_made_anew_pass_unless_the_run_is_signed(signed: Path, signers, capsys, monkeypatch):
    """What docs/SECURITY.md says that checksums do not promise."""
    lose_and_sign(signed, signers)
    assert judged(signed, capsys)[0] == 1, "a GPU is lost"
    text_in(signed, "raw/inventory.jsonl", COUNT.format(1), COUNT.format(2))
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


def lose_and_sign(signed: Path, signers: Path) -> None:
    sign_with(signers.with_name("key"), lose_a_gpu(signed) / "closed.json")


def test_a_signature_is_of_the_checksums_that_were_judged(signed: Path, signers, at_open, capsys):
    """Its owner puts the signed closed.json back once the edited run was judged."""
    lose_and_sign(signed, signers)
    honest = (signed / "closed.json").read_bytes()
    text_in(signed, "raw/inventory.jsonl", COUNT.format(1), COUNT.format(2))
    at_open("closed.json", 2, lambda: (signed / "closed.json").write_bytes(honest))
    code, output = judged(signed, capsys)
    assert (code, "signed by" in output, "incorrect signature" in output) == (2, False, True), output


@case_for_each(
    ("raw/inventory.jsonl", COUNT.format(1), COUNT.format(2)), ("run.json", '"gpus_per_node": 2', '"gpus_per_node": 1')
)
def test_checksums_are_of_the_bytes_that_were_judged(signed: Path, signers, at_open, capsys, file: str, old, new):
    """Its owner shows other bytes to the first who reads the file, and the signed ones to the second."""
    lose_and_sign(signed, signers)
    honest = (signed / file).read_text()
    assert old in honest
    (signed / file).write_text(honest.replace(old, new))
    at_open(Path(file).name, 2, lambda: (signed / file).write_text(honest))
    code, output = judged(signed, capsys)
    assert (code != 0, f"{file} was changed after the run was closed" in output) == (True, True), output


def open_to_all(tmp_path: Path) -> Path:
    key = new_key(tmp_path / "open")
    key.chmod(0o644)
    return key


@case_for_each(
    (lambda place: new_key(place / "locked", "a phrase"), None, "incorrect passphrase"),
    (lambda place: place / "nowhere", None, "No such file"),
    (open_to_all, None, "are too open"),
    (lambda place: new_key(place / "good"), "/nowhere", "ssh-keygen cannot be started"),
    ids=["a pass phrase", "no key", "open to all", "no ssh-keygen"],
)
def test_a_run_that_cannot_be_signed_is_closed_all_the_same(tmp_path: Path, monkeypatch, capsys, key, path, says: str):
    made = key(tmp_path)
    if path is not None:
        monkeypatch.setenv("PATH", path)
    closes_unsigned(tmp_path, monkeypatch, capsys, made, says)


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
