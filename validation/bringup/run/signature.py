"""Detached signatures by `ssh-keygen -Y` of closed.json, which holds the checksums of its run.

A checksum beside the evidence shows a change, but not to who makes it anew. A signature holds as long as its key is
kept. Nobody is ever asked for a pass phrase: what cannot be signed at once stays unsigned, and a line says why.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from bringup.kernel.errors import BringupError, RecordError
from bringup.kernel.judge import Judged
from bringup.kernel.records import files
from bringup.kernel.results import CLOSED, SIGNATURE
from bringup.run import site as at_site

NAMESPACE = "bringup"  # a signature that was made for mail or git does not count
PATIENCE_S = 10.0  # a key that has to be touched, and an agent that asks, wait for a person
_MOST_BYTES = 2**16
_NO_QUESTIONS = {"SSH_ASKPASS_REQUIRE": "never", "SSH_ASKPASS": "", "DISPLAY": ""}


def beside(path: Path) -> Path:
    return path.with_name(path.name + SIGNATURE)


def sign(path: Path, tell: Callable[[str], None]) -> None:
    """Sign with the key of the site, if it has one. Where that fails, why is told."""
    try:
        at = at_site.from_environment()
        if at is None or at.site.signing_key is None:
            return
        signed = _keygen("sign", "-f", at.site.signing_key, "-n", NAMESPACE, standard_input=files.read(path).data)
        files.write(beside(path), signed)
    except (BringupError, OSError) as error:
        tell(f"{path}: unsigned: {error}")


def signers(named: Path | None) -> Path | None:
    """Find whose signatures count: the named file, or the site's. None: nothing is verified. Raises FileError."""
    if named is not None:
        return named
    at = at_site.from_environment()
    return None if at is None or at.site.allowed_signers is None else Path(at.site.allowed_signers)


def signer(judged: Judged, allowed: Path) -> str:
    """Return who signed the closed.json that was judged, as the file `allowed` calls him. Raises RecordError."""
    path, seal = judged.folder / CLOSED, judged.seal
    if seal is None or seal.closed is None:
        raise RecordError(f"{path}: not signed: {'there is no such file' if seal is None else seal.why}")
    return verified(path, seal.content, allowed)


def verified(path: Path, content: str, allowed: Path) -> str:
    """Return who signed this content of the file, as `allowed` calls him. Raises RecordError."""
    try:
        signature = files.read(beside(path), most=_MOST_BYTES).data
    except FileNotFoundError as error:
        raise RecordError(f"{path}: not signed: there is no {beside(path).name}") from error
    except OSError as error:
        raise RecordError(f"{path}: its signature cannot be read: {error.strerror}") from error
    with tempfile.NamedTemporaryFile() as copy:  # of what was read safely
        copy.write(signature)
        copy.flush()
        try:
            principals = _keygen("find-principals", "-f", str(allowed), "-s", copy.name).decode(errors="replace")
            name = principals.partition("\n")[0]
            verify = ("verify", "-f", str(allowed), "-I", name, "-n", NAMESPACE, "-s", copy.name)
            _keygen(*verify, standard_input=content.encode())
        except RecordError as error:
            raise RecordError(f"{path}: its signature does not count ({allowed}): {error}") from error
    return name


def _keygen(*arguments: str, standard_input: bytes = b"") -> bytes:
    """Run ssh-keygen, and return what it prints. Raises RecordError with its own words."""
    try:
        done = subprocess.run(
            ["ssh-keygen", "-Y", *arguments],
            input=standard_input,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
            start_new_session=True,  # without a terminal nobody can be asked
            env=os.environ | _NO_QUESTIONS,
        )
    except OSError as error:
        raise RecordError(f"ssh-keygen cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        late = f"ssh-keygen did not end within {PATIENCE_S:.0f} s"
        raise RecordError(f"{late}; does the key or its agent ask?") from error
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").replace("Enter passphrase: ", "").splitlines()
        reasons = [line for line in lines if line.strip() and not line.startswith(("@", "Signing data"))]
        raise RecordError(f"ssh-keygen: {reasons[0] if reasons else f'exit code {done.returncode}'}")
    return done.stdout
