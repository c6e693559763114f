"""What is shown while it trains is no evidence of a gate, and no note says that it cannot be read."""

from bringup import judge
from trained_runs import run_of

LINE = '{"step": 1, "of": 12, "loss_of_rank_0": 6.2, "step_s": 0.5}\n'


def test_the_lines_that_were_shown_leave_no_note(tmp_path):
    folder = run_of("run_ddp_2node", tmp_path)
    (folder / "raw/progress.jsonl").write_text(LINE)
    notes = judge.judge_folder(folder).problems
    assert not [note for note in notes if "progress.jsonl" in note and "not a fact" in note]
