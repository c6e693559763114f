"""A playbook's folder stands for its runs, for every verb, inside the tree that was named and nowhere else."""

import os
import shutil
from pathlib import Path

import pytest
from bringup.cli import main
from bringup.kernel import results
from bringup.kernel.errors import RunError
from bringup.kernel.records import Outcome, read_record, write_record
from bringup.report import collection, run_folders, text
from bringup.report.campaigns import Playbook, Step
from loops import for_each
from runs_for_tests import discovery, lose_a_gpu
from trained_runs import run_of

TRAINED = ("run_ddp_1node", "run_ddp_2node")


def tree_of(root: Path, monkeypatch) -> Path:
    """A tree with a playbook of a discovery and two trainings, all of which passed; returns the playbook's folder."""
    runs = {"discovery": discovery(root / "validation/results/discovery", monkeypatch)}
    for stem in TRAINED:
        # each beside a reference of its own, then at its place
        made = run_of(stem, root / stem)
        runs[stem] = root / "training/results" / made.name
        runs[stem].parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, runs[stem])
    folder = root / results.PLAYBOOKS / "p"
    folder.mkdir(parents=True)
    passed = {"outcome": Outcome.PASS, "blocks": False, "seconds": 1}
    steps = [Step(phase=stem, folder=str(run.relative_to(root)), **passed) for stem, run in runs.items()]
    playbook = Playbook(name="p", nodes=["n0", "n1"], profile="local-cpu", planned=list(runs), left_out=[], steps=steps)
    write_record(folder / "playbook.json", playbook)
    return folder


@pytest.fixture
def trees(tmp_path, monkeypatch) -> tuple[Path, Path]:
    """The playbook in the checkout, and in a copy of it."""
    here = tmp_path / "checkout"
    playbook = tree_of(here, monkeypatch)
    shutil.copytree(here, tmp_path / "copy")
    for module in (results, collection, text):
        monkeypatch.setattr(module, "REPOSITORY", here, raising=False)
    return playbook, tmp_path / "copy" / results.PLAYBOOKS / "p"


def break_discovery(playbook: Path) -> None:
    [run] = playbook.parents[3].glob("validation/results/discovery/*")
    lose_a_gpu(run)


VERBS = for_each("judge", "explain", "report")


@VERBS
def test_a_copy_that_failed_is_judged_and_not_the_checkout_that_passed(trees, capsys, verb):
    here, copy = trees
    if verb == "judge":
        break_discovery(copy)
    capsys.readouterr()
    assert main([verb, str(copy)]) == 1
    shown = capsys.readouterr().out
    first, *_, last = shown.splitlines()
    worst_first = {"judge": last == "FAIL: 3 runs: 2 pass, 1 fail", "explain": first.startswith("FAIL")}
    assert worst_first.get(verb, last.startswith("FAIL"))
    assert str(here.parents[3]) not in shown
    assert main([verb, str(here)]) == 0


@VERBS
def test_a_run_that_is_missing_in_a_copy_is_not_taken_from_the_checkout(trees, capsys, verb):
    _, copy = trees
    for absent in copy.parents[3].glob("training/results/run_ddp_2node-*"):
        shutil.rmtree(absent)
    assert main([verb, str(copy)]) == 2
    shown = capsys.readouterr().out
    assert "run_ddp_2node" in shown or "DDP across nodes" in shown
    if verb == "report":
        shown = (copy / "report.html").read_text()
    assert "not copied with the playbook" in shown


def test_compare_and_profile_take_a_playbook(trees, tmp_path, shown, refused):
    _, copy = trees
    assert len([line.split()[0] for line in shown(0, "compare", copy).splitlines() if "  run_" in line]) == len(TRAINED)
    assert main(["profile", "--from", str(copy), "-o", str(tmp_path / "measured.yaml")]) == 0
    for run in copy.parents[3].glob("validation/results/discovery/*"):
        shutil.rmtree(run)
    assert "a profile is made of runs that passed" in refused("profile", "--from", copy)


def test_a_playbook_with_its_own_run_through_a_link_and_with_results_linked_from_elsewhere_is_found(trees, tmp_path):
    _, copy = trees
    [run] = copy.parents[3].glob("validation/results/discovery/*")
    assert len(collection.gather([copy, run]).judged) == 1 + len(TRAINED), "they stand for one run"
    link = tmp_path / "latest"
    link.symlink_to(copy)
    assert not collection.gather([link]).absent
    shutil.move(copy.parents[3] / "training/results", tmp_path / "scratch")
    (copy.parents[3] / "training/results").symlink_to(tmp_path / "scratch")
    assert not collection.gather([copy]).absent


@VERBS
def test_a_playbook_that_was_copied_alone_says_in_one_line_what_is_missing(trees, tmp_path, refused, verb):
    _, copy = trees
    alone = shutil.copytree(copy, tmp_path / "alone", dirs_exist_ok=True)
    assert "none of its 3 runs was copied with it: expected validation/results/discovery/" in refused(verb, alone)


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("parts_left_out", [0, 1, 2])  # of the path of each run
def test_a_playbook_that_was_copied_with_its_runs_finds_them(trees, tmp_path, is_inside, parts_left_out):
    _, copy = trees
    sent = copied_with_runs(copy, tmp_path / "sent/p", is_inside=is_inside, parts_left_out=parts_left_out)
    gathered = collection.gather([sent])
    assert not gathered.absent
    assert {judged.run.phase for judged in gathered.judged} == {"discovery", *TRAINED}
    assert all(judged.folder.is_relative_to(sent.parent) for judged in gathered.judged)


def test_the_playbook_of_an_unpacked_zip_finds_its_runs(trees, tmp_path):
    _, copy = trees
    assert main(["report", str(copy), "--zip", str(tmp_path / "sent.zip")]) == 0
    shutil.rmtree(copy.parents[3])
    shutil.unpack_archive(tmp_path / "sent.zip", tmp_path / "unpacked")
    gathered = collection.gather(list((tmp_path / "unpacked/playbook").iterdir()))
    assert (gathered.absent, len(gathered.judged)) == ([], 1 + len(TRAINED))


def test_of_a_playbook_that_was_copied_with_some_of_its_runs_the_others_are_absent(trees, tmp_path, shown):
    _, copy = trees
    sent = copied_with_runs(copy, tmp_path / "sent/p", is_inside=True, parts_left_out=0)
    shutil.rmtree(sent / "validation")
    assert shown(2, "explain", sent).count("copy it with its playbook") == 1


def copied_with_runs(playbook: Path, to: Path, *, is_inside: bool, parts_left_out: int) -> Path:
    """The playbook and its runs, at ends of their paths; nothing is left where they were."""
    tree = playbook.parents[3]
    shutil.copytree(playbook, to)
    for step in read_record(playbook / results.PLAYBOOK, Playbook).steps:
        end = Path(step.folder).parts[parts_left_out:]
        shutil.copytree(tree / step.folder, (to if is_inside else to.parent).joinpath(*end))
    shutil.rmtree(tree)
    return to


@for_each("/etc", "../../../etc", "../x", "a" * 5000, "validation/../..", "smoke/p", "p")
def test_a_recorded_folder_that_is_no_run_near_a_playbook_is_absent(trees, tmp_path, recorded):
    """Outside of the tree; and one that ends like the playbook's own folder, or like a run of another phase."""
    (here, copy), sent = trees, tmp_path / "sent/p"
    if not sent.exists():
        copied_with_runs(copy, sent, is_inside=False, parts_left_out=2)
    step = Step(phase="smoke", folder=recorded, outcome=Outcome.PASS, blocks=False, seconds=1)
    for playbook in (here, sent):
        with pytest.raises(RunError):
            run_folders.step_folder(playbook, step)


def test_one_broken_run_does_not_end_the_page(trees, shown):
    _, copy = trees
    [run] = copy.parents[3].glob("validation/results/discovery/*")
    (run / "run.json").write_text("{")
    assert "not run: discovery" in shown(2, "report", copy)
    assert "not a valid Run" in (copy / "report.html").read_text()


def test_a_folder_that_may_not_be_read_is_said_and_the_page_goes_on(trees, monkeypatch, refused):
    _, copy = trees
    [run] = copy.parents[3].glob("validation/results/discovery/*")
    lstat = Path.lstat

    def unreadable(path: Path) -> os.stat_result:
        if path.parent == run:
            raise PermissionError(13, "Permission denied", str(path))
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", unreadable)  # root may read everything
    assert main(["report", str(copy)]) == 2
    assert "cannot be read (Permission denied)" in (copy / "report.html").read_text()
    assert "cannot be read (Permission denied)" in refused("judge", run)
