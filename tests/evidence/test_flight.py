"""torch's flight recorder, kept as JSON for people: its own files are pickles."""

from types import SimpleNamespace

import collectives


def test_a_rank_keeps_its_record_where_torch_can_write_it_as_json(tmp_path):
    def dump(collectives: bool, active: bool) -> bytes:
        return b'{"entries":[]}'

    collectives.keep_flight(SimpleNamespace(_dump_fr_trace_json=dump), False, str(tmp_path / "flight.rank0.json"))
    collectives.keep_flight(SimpleNamespace(_dump_fr_trace_json=dump), True, str(tmp_path / "flight.rank1.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["flight.rank0.json"]


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path, capsys):
    dumps = SimpleNamespace(_dump_fr_trace_json=lambda collectives, active: b"{}")
    collectives.keep_flight(dumps, False, str(tmp_path / "gone" / "flight.rank0.json"))
    assert "the flight record was not kept" in capsys.readouterr().err
