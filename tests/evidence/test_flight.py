"""torch's flight recorder, as JSON. The samples are of two ranks over gloo (torch 2.13): rank 0 waits in an all_reduce
of 16 elements that rank 1 never enters."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from bringup.derive.observed import derive
from bringup.evidence import stacks
from bringup.evidence.parsed import Parsed, Seen
from factory import a_run

sys.path.append(str(Path(__file__).resolve().parents[2] / "infrastructure-validation/probes"))
import collectives
from loops import for_each
from runs_for_tests import as_read

RECORDED = Path(__file__).resolve().parents[1] / "fixtures/flight"


def record(rank: int) -> str:
    return (RECORDED / f"rank{rank}.json").read_text()


def test_the_rank_that_did_not_enter_has_begun_fewer_and_the_other_has_not_completed() -> None:
    (waits,) = stacks.flight(record(0), "raw/nccl-2/flight.rank0.json", "n0/rank0").observations
    (stays,) = stacks.flight(record(1), "raw/nccl-2/flight.rank1.json", "n1/rank1").observations
    assert (waits.value, waits.why) == (4, "gloo:all_reduce of 16, not completed")
    assert (stays.value, stays.why) == (3, "gloo:all_reduce of 8, completed")


def test_a_note_compares_what_the_ranks_had_begun() -> None:
    parsed = Parsed()
    parsed.saw("nccl.step.exit_code", "2-nodes", 1, "count", "raw/collectives-2.rc")
    for rank, node in enumerate(("n0", "n1")):
        parsed.add(stacks.flight(record(rank), f"raw/nccl-2/flight.rank{rank}.json", f"{node}/rank{rank}"))
    derived = derive(Seen(as_read(parsed).observations), a_run("nccl_monitoring", gpus=1))
    (note,) = [problem for problem in derived.problems if "flight recorder" in problem]
    assert note == (
        "raw/nccl-2: torch's flight recorder: n0/rank0 had begun 4 collectives, the last gloo:all_reduce of 16, "
        "not completed; n1/rank1 had begun 3 collectives, the last gloo:all_reduce of 8, completed"
    )


@for_each("text", ["", "{", "[]", "null", '{"entries": 3}', "\x80\x04]q\x00.", "[" * 100_000])
def test_what_is_no_record_is_said(text: str) -> None:
    parsed = stacks.flight(text, "raw/nccl-2/flight.rank0.json", "n0/rank0")
    assert parsed.observations == []
    assert "not a record of torch's flight recorder" in parsed.problems[0]


def test_entries_of_another_shape_are_passed_over() -> None:
    whole = json.loads(record(0))
    whole["entries"] += [None, 3, {"collective_seq_id": "9"}, {"collective_seq_id": 2**70, "profiling_name": "x"}]
    (observation,) = stacks.flight(json.dumps(whole), "f", "n0/rank0").observations
    assert observation.value == 4


def test_a_rank_keeps_its_record_where_torch_can_write_it_as_json(tmp_path: Path) -> None:
    def dump(collectives: bool, active: bool) -> bytes:
        return b'{"entries":[]}'

    collectives.keep_flight(SimpleNamespace(_dump_fr_trace_json=dump), False, str(tmp_path / "flight.rank0.json"))
    collectives.keep_flight(SimpleNamespace(_dump_fr_trace_json=dump), True, str(tmp_path / "flight.rank1.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["flight.rank0.json"]


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dumps = SimpleNamespace(_dump_fr_trace_json=lambda collectives, active: b"{}")
    collectives.keep_flight(dumps, False, str(tmp_path / "gone" / "flight.rank0.json"))
    assert "the flight record was not kept" in capsys.readouterr().err
