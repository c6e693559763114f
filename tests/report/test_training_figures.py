"""Pictures of training runs: what is on them, and that a name cannot change what they say."""

import shutil
from dataclasses import replace

import pytest
from bringup.compare.entries import Entry
from bringup.errors import UsageError
from bringup.records import MemoryCheck, RankTimes
from bringup.report.figures import canvas
from bringup.report.figures import training as figures_training
from factory import an_entry
from loops import for_each
from trained_runs import RECORDS

FIXTURES = RECORDS


def entries(*names: str) -> list[Entry]:
    """Recorded runs, with the measurements that are younger than some of them."""
    loaded = []
    for entry in (an_entry(FIXTURES / name) for name in names):
        ranks = [0.1] * entry.metrics.world_size
        loaded.append(
            replace(
                entry,
                metrics=entry.metrics.model_copy(
                    update={
                        "rank_times_s": RankTimes(
                            step_p50=ranks, step_p95=ranks, step_max=ranks, fetch=ranks, forward=ranks, optimizer=ranks
                        ),
                        "steps_s": [0.1, 0.12],
                        "memory_check": MemoryCheck(
                            states_measured_bytes=2**30,
                            states_predicted_bytes=2**30,
                            states_rank=0,
                            peak_measured_bytes=None,
                            peak_predicted_bytes=2**31,
                            peak_least_bytes=2**30,
                            reason=None,
                            device_needed_bytes=None,
                            device_free_bytes=None,
                            host_needed_bytes=2**31,
                            host_available_bytes=2**36,
                        ),
                    }
                ),
            )
        )
    return loaded


def test_a_folder_gets_a_picture_each_and_a_file_one_sheet(tmp_path):
    runs = entries("run_1gpu", "run_ddp_2node", "run_hsdp_2node")
    written = figures_training.draw(runs, tmp_path / "pictures")
    assert sorted(path.name for path in written) == sorted(f"{stem}.png" for stem in figures_training.PANELS)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    (sheet,) = figures_training.draw(runs, tmp_path / "sheet.svg")
    assert "<svg" in sheet.read_text()


def test_a_suffix_that_is_no_picture_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"\.png, \.svg, \.pdf"):
        figures_training.draw(entries("run_1gpu"), tmp_path / "sheet.txt")


@for_each("panel", figures_training.PANELS.values())
def test_every_panel_says_its_units_and_only_losses_leave_out_zero(panel):
    figure, (axis,) = canvas.panels(1, 1, (6, 4))
    runs = entries("run_1gpu", "run_ddp_2node", "run_fsdp_2node")
    panel(axis, runs, [entry.folder.name for entry in runs])
    figure.draw_without_rendering()
    labels = f"{axis.get_title()} {axis.get_xlabel()} {axis.get_ylabel()}"
    assert any(unit in labels for unit in ("nats", "milliseconds", "tokens", "GiB"))
    if "Loss" not in axis.get_title():
        assert axis.get_xlim()[0] == 0


def test_a_name_with_dollars_markup_and_a_leading_underscore_is_shown_as_it_is(tmp_path):
    names = ("_hidden", "$\\frac{$ <script>&", "b" * 200)
    for name in names:
        shutil.copytree(FIXTURES / "run_1gpu", tmp_path / name)
    runs = [an_entry(tmp_path / name) for name in names]
    figure, (axis,) = canvas.panels(1, 1, (6, 4))
    figures_training._losses(axis, runs, list(names))
    figure.draw_without_rendering()
    assert len(axis.get_legend().get_texts()) == 3
