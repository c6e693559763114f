"""What probes read on a node, damaged: what they write is whole, and what is not an answer is not a figure."""

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import fio
import kernel_log
import pytest
import smi
from bringup.kernel.facts.parser_result import Parsed
from damage_for_tests import FEW, MANY, NASTY, damaged, inside, places
from hypothesis import given
from hypothesis import strategies as st
from loops import for_each
from probing import told_by
from runs_for_tests import FIXTURES

KERNEL_LOG = (FIXTURES / "kernel-log.txt").read_text()
SMI = json.loads((FIXTURES / "nvidia-smi.json").read_text())
FIO = (FIXTURES / "fio/write.json").read_text()


@pytest.mark.parametrize("query", sorted(SMI["healthy"]))
@FEW
@given(data=st.data())
def test_no_answer_of_nvidia_smi_makes_the_probe_raise_or_write_what_is_no_fact(query, data):
    answers = SMI["healthy"] | {query: data.draw(damaged(SMI["healthy"][query]))}

    def run(command: Sequence[str], **_: object) -> SimpleNamespace:
        words = {"compute-apps": "processes", "clocks": "slowdown"}
        asked = next((word for word in (*words, "remapped", "mig", "fabric") if word in command[1]), "gpu")
        return SimpleNamespace(stdout=answers[words.get(asked, asked)])

    told_by(lambda probe: smi.read(probe, lambda _name, _text: None, run))


def in_kernel_log(text: str) -> Parsed:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "kmsg"
        path.write_text(text, errors="surrogatepass")
        patch.setattr(kernel_log, "KMSG", str(path))
        patch.setattr(kernel_log, "JOURNAL", ("false",))
        return told_by(kernel_log.kernel_log)


@FEW
@given(data=st.data())
def test_no_kernel_log_makes_the_probe_raise_and_none_without_a_record_is_clean(data):
    text = data.draw(damaged(KERNEL_LOG))
    values = {observation.quantity: observation.value for observation in in_kernel_log(text).observations}
    assert values["discovery.kernel_log.xids"] is not None or not re.search(r"(?m)^[0-7],[0-9]", text)


@for_each("", "-1", "²", "9" * 400, "9" * 5000)
def test_no_time_in_the_kernel_log_makes_the_probe_raise(stamp):
    in_kernel_log(f"6,339,{stamp},-;message\n{KERNEL_LOG}")


def figured(text: str) -> None:
    try:
        speed, moved, _ = fio.figures(text, "write")
    except fio.NoFigure as error:
        assert "\n" not in str(error)
    else:
        assert speed > 0
        assert moved >= 0


@MANY
@given(data=st.data())
def test_what_fio_printed_is_a_figure_or_refused_in_one_line(data):
    figured(data.draw(damaged(FIO)))


@for_each(*NASTY, float("inf"), float("nan"), ids=lambda value: repr(value)[:14])
def test_no_value_that_fio_never_printed_makes_the_probe_raise(value):
    begun = FIO.index("{\n")
    for *parents, last in places(json.loads(FIO[begun:])):
        if [*parents, last][:2] != ["jobs", 0] or (*parents, last, "")[2] in ("", "write", "error"):
            record = json.loads(FIO[begun:])
            inside(record, parents)[last] = value
            figured(FIO[:begun] + json.dumps(record, indent=1))
