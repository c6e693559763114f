"""The first cause is said after judging, and nothing but words is added."""

import pytest
from bringup.derive.blame import blame
from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Kind, Outcome, Verdict, Verdicts
from factory import a_run, a_verdict, judged_of

ENDED = "train.rank.finished"
RUN = a_run("run_ddp_2node")
CODE = a_verdict("train.exit_code", "job", Outcome.FAIL, "1")


def rank(subject: str, value: str, why: str | None = None) -> Verdict:
    return a_verdict(ENDED, subject, Outcome.FAIL, value, value=value, cause=why)


def victim(subject: str, kind: Kind = Kind.UNKNOWN, cause: str = "not found out: lost its peers: x") -> Verdict:
    return a_verdict(ENDED, subject, Outcome.INCOMPLETE, "nothing", kind=kind, cause=cause)


def raised(**seconds: int) -> Seen:
    """The facts of ranks that left an error file: `n1_rank3=1795287790`."""
    parsed = Parsed()
    for name, second in seconds.items():
        file = f"raw/torchrun/{name}/error.json"
        parsed.saw("launcher.raised_at", "job", second, "s", file)
        parsed.saw("train.rank.error_file", name.replace("_", "/"), file, "text", "raw/rank.jsonl:1")
    return Seen(parsed.observations)


def blamed(*verdicts: Verdict, seen: Seen | None = None) -> dict[tuple[str, str], str | None]:
    blamed_verdicts = blame(judged_of(*verdicts, run=RUN).verdicts, Seen([]) if seen is None else seen, RUN)
    return {(verdict.gate, verdict.subject): verdict.cause for verdict in blamed_verdicts.verdicts}


def test_the_oldest_error_is_first_and_its_time_is_said():
    seen = raised(n0_rank1=1795287798, n1_rank3=1795287790)
    causes = blamed(
        rank("n0/rank1", "raised", "ValueError: 1"), rank("n1/rank3", "raised", "ValueError: 3"), CODE, seen=seen
    )
    assert causes["train.exit_code", "job"] == "first n1/rank3 raised (ValueError: 3) at 19:03:10 UTC; and 1 more rank"
    assert causes[ENDED, "n0/rank1"] == "ValueError: 1"


def test_a_rank_that_was_killed_left_no_time_and_was_earlier_than_those_that_raised():
    causes = blamed(
        rank("n0/rank0", "raised", "x"), rank("n1/rank3", "killed by signal 9"), CODE, seen=raised(n0_rank0=1795287790)
    )
    assert causes["train.exit_code", "job"] == "first n1/rank3 killed by signal 9; and 1 more rank"


@pytest.mark.parametrize("kind", [Kind.UNKNOWN, Kind.ABSENT])
def test_ranks_that_it_took_along_name_it_behind_their_own_words(kind):
    causes = blamed(
        rank("n1/rank3", "killed by signal 9", "out of memory on n1"), victim("n0/rank0", kind, "own words")
    )
    assert causes[ENDED, "n0/rank0"] == "own words; first n1/rank3 killed by signal 9"


@pytest.mark.parametrize(
    "verdicts",
    [
        (victim("n0/rank0"), victim("n1/rank3"), CODE),  # nobody failed by itself
        (rank("n0/rank0", "refused"), rank("n1/rank3", "refused"), CODE),  # all said it together
    ],
)
def test_where_nobody_was_first_nobody_is_named(verdicts):
    assert blamed(*verdicts) == {(v.gate, v.subject): v.cause for v in verdicts}


def test_it_changes_nothing_but_causes_and_nothing_outside_of_training():
    verdicts = (rank("n1/rank3", "killed by signal 9"), victim("n0/rank0"), victim("n0/rank1", Kind.ABSENT), CODE)
    before = judged_of(*verdicts, run=RUN).verdicts
    after = blame(before, Seen([]), RUN)

    def without_causes(several: Verdicts) -> Verdicts:
        bare = [verdict.model_copy(update={"cause": None}) for verdict in several.verdicts]
        return several.model_copy(update={"verdicts": bare})

    assert without_causes(after) == without_causes(before)
    assert after != before
    assert blame(before, Seen([]), a_run("discovery")) == before


def test_a_time_that_is_no_date_is_left_out():
    assert (
        blamed(rank("n1/rank3", "raised"), CODE, seen=raised(n1_rank3=0))["train.exit_code", "job"]
        == "first n1/rank3 raised"
    )
