"""Lines per room are held by a number: more is an error, less is a number that can be written down."""

import subprocess
from pathlib import Path

import pytest
import sizes

ROOM = f"{sizes.PACKAGE}/judge/*.py"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Two files of 3 lines in one room, committed on main."""
    room = tmp_path / sizes.PACKAGE / "judge"
    (room / "deep").mkdir(parents=True)
    for file in (room / "a.py", room / "deep/b.py"):
        file.write_text("one\n\nthree words here\n")
    own = ("-c", "user.name=x", "-c", "user.email=x@x")
    for words in (("init", "-q", "-b", sizes.MAIN), ("add", "."), (*own, "commit", "-q", "-m", "x")):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    return tmp_path


def of(checkout: Path, unit: str, most: int) -> sizes.Size:
    (size,) = sizes.measured(checkout, unit, {ROOM: most}, sizes.UNITS[unit])
    return size


def test_lines_and_words_are_counted_in_all_folders_of_a_room_with_the_difference_to_main(checkout):
    assert of(checkout, "lines", 6) == sizes.Size(ROOM, "lines", 6, 6, 6)
    (checkout / sizes.PACKAGE / "judge/deep/b.py").write_text("one\n")
    assert of(checkout, "words", 8)[3:] == (5, 8)
    (checkout / sizes.PACKAGE / "judge/new.py").write_text("not in git yet\n")
    assert of(checkout, "words", 8)[3:] == (9, 8)
    (checkout / sizes.PACKAGE / "judge/new.py").unlink()
    assert sizes.lines([of(checkout, "lines", 6)]) == [f"{ROOM}       4 of       6 lines -2"]


def test_a_room_may_be_some_patterns_without_another(checkout):
    (checkout / "READ ME.md").write_text("a word\n")
    room = "*.py *.md :!*/deep/*"
    assert sizes.words_of(checkout, room) == 6
    assert sizes.lines_of(checkout, room) == 4


def test_a_room_above_its_number_is_an_error_and_one_at_its_number_is_none(checkout):
    assert sizes.above([of(checkout, "lines", 6)]) == []
    (error,) = sizes.above([of(checkout, "lines", 5)])
    assert error.startswith(f"{ROOM}: 6 lines, at most 5; ")


def test_a_new_room_of_the_package_needs_a_number(checkout):
    assert sizes.without_a_number(checkout, {ROOM: 1}) == []
    (error,) = sizes.without_a_number(checkout, {"tests/*.py": 1})
    assert error.startswith("validation/bringup/judge: no number")


def test_only_a_number_that_fell_is_written(checkout):
    table = f'"{ROOM}" = 9 # a reason\n"other/*.py" = 9\n'
    assert sizes.lowered(table, [of(checkout, "lines", 9)]) == f'"{ROOM}" = 6 # a reason\n"other/*.py" = 9\n'
    assert sizes.lowered(table, [of(checkout, "lines", 9)._replace(most=5)]).startswith(f'"{ROOM}" = 5 #')
