"""Tools that are not installed, where the PATH has something that may not be run: exec says EACCES then."""

from pathlib import Path

import dcgm
import imex
import perftest
import pytest
import smi
from facts import Facts
from probing import told_by


@pytest.fixture(autouse=True)
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an ordinary user such a folder may not be searched; a file that nobody may run gives root the same answer."""
    for tool in ("nvidia-imex-ctl", "dcgmi", "ib_write_bw", "nvidia-smi"):
        (tmp_path / tool).write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))


def test_a_node_without_imex_has_none() -> None:
    fact = next(fact for fact in told_by(imex.imex).observations if fact.quantity == "discovery.imex")
    assert (fact.value, fact.why) == (imex.NONE, "nvidia-imex-ctl is not installed")


def test_a_node_without_dcgm_or_perftest_lacks_it() -> None:
    def diagnose(facts: Facts) -> None:
        dcgm.diagnose(facts, "2", 1, None)

    fact = next(fact for fact in told_by(diagnose).observations if fact.quantity == "dcgm.ended")
    assert (fact.value, fact.why) == (None, "dcgmi is not installed")
    with pytest.raises(perftest.NotThere):
        perftest.call("ib_write_bw", "mlx5_0:1", 20000, "n0")


def test_nvidia_smi_that_may_not_be_run_is_not_installed() -> None:
    assert smi._why(PermissionError(13, "Permission denied")) == "nvidia-smi is not installed"
