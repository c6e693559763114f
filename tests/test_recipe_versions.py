"""A training with other libraries than the recipe needs, as an image may have them, is refused in one line."""

import importlib.metadata
import os
import sys
import tomllib

import pytest
from loops import for_each
from programs import ROOT, ran
from recipe import program


@for_each(*program.LEAST)
def test_an_older_library_is_refused_with_its_version(name):
    least = program.LEAST[name]
    with pytest.MonkeyPatch.context() as patched:
        for installed in ("0.9", f"{least[0]}.{least[1] - 1}.7+cu126"):
            patched.setattr(importlib.metadata, "version", lambda asked, v=installed: v if asked == name else "99.0")
            message = program.lacking()
            assert message is not None and "\n" not in message
            assert f"{name} {least[0]}.{least[1]} or newer, observed {installed}" in message
        for installed in (f"{least[0]}.{least[1]}", f"{least[0]}.{least[1] + 9}.0a0+nv", f"{least[0] + 1}.0"):
            patched.setattr(importlib.metadata, "version", lambda asked, v=installed: v if asked == name else "99.0")
            assert program.lacking() is None, installed


def test_what_we_install_is_new_enough_and_what_is_absent_is_said():
    assert program.lacking() is None
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["train"]
    assert set(program.LEAST) <= {pin.split("==")[0] for pin in pins}
    with pytest.MonkeyPatch.context() as patched:

        def absent(name: str) -> str:
            raise importlib.metadata.PackageNotFoundError(name)

        patched.setattr(importlib.metadata, "version", absent)
        assert "observed none" in str(program.lacking())


def test_a_rank_is_refused_before_it_imports_the_library(tmp_path):
    old = tmp_path / "site/transformers-4.57.1.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 4.57.1\n")
    (tmp_path / "run/raw").mkdir(parents=True)
    inherited = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "RUN_DIR")}
    command = [sys.executable, str(ROOT / "training/src/train_single_gpu.py"), "--run-dir", str(tmp_path / "run")]
    done = ran(command, env=inherited | {"PYTHONPATH": str(tmp_path / "site")})
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1
    assert "refused: expected transformers 5.23 or newer, observed 4.57.1" in done.stderr
    facts = (tmp_path / "run/raw/rank0.jsonl").read_text()
    assert '"why": "refused: expected transformers 5.23' in facts and '"end": ' in facts.splitlines()[-1]
