"""Many rows in one test: each is an argument, and its values are the last parameters of the test."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tiers import FEWER

MOST_OF_A_NAME = 200
Test = Callable[..., None]


def case_for_each(*rows: Any, ids: Callable[[Any], str] | Sequence[str] | None = None) -> Callable[[Test], Test]:
    """A case for each row, as `pytest.mark.parametrize` makes them. `make test` may have none (tests/tiers.py)."""
    assert rows or FEWER, "no rows: nothing would be tested"

    def decorate(test: Test) -> Test:
        names = _columns(test, rows)
        return pytest.mark.parametrize(names if _width(rows) else names[0], rows, ids=ids)(test)

    return decorate if rows else pytest.mark.skip(reason="no rows in `make test`")


def for_each(*rows: Any, ids: Callable[[Any], str] = repr) -> Callable[[Test], Test]:
    """One test of all rows, which fails with the name of every row that does not hold.

    For tables and catalogues. Fixtures are shared by all rows. A row that is a sentence of its own stays a case.
    """
    assert rows, "no rows: nothing would be tested"

    def decorate(test: Test) -> Test:
        names = _columns(test, rows)
        cases = rows if _width(rows) else [(row,) for row in rows]

        @functools.wraps(test)
        def of_all(*arguments: Any, **fixtures: Any) -> None:
            __tracebackhide__ = True
            misses: list[str] = []
            first: BaseException | None = None
            for values in cases:
                try:
                    test(*arguments, **fixtures, **dict(zip(names, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # named below, the first with its traceback
                    first = first or error
                    name = ", ".join(str(ids(value)) for value in values)[:MOST_OF_A_NAME]
                    misses.append(f"{name}: {type(error).__name__}: {error}")
            if first is not None:
                raise AssertionError(f"{len(misses)} of {len(cases)} rows\n" + "\n".join(misses)) from first

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in names]
        of_all.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # what pytest asks for
        return of_all

    return decorate


def _width(rows: Sequence[Any]) -> int:
    """How many columns there are; 0: one, and each row is its value."""
    each = [row.values if isinstance(row, type(pytest.param())) and len(row.values) > 1 else row for row in rows]
    return min(len(values) if type(values) is tuple else 0 for values in each)


def _columns(test: Test, rows: Sequence[Any]) -> list[str]:
    of_marks = [mark.args[0] for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    taken = ",".join(names if isinstance(names, str) else ",".join(names) for names in of_marks).replace(" ", "")
    left = [name for name in inspect.signature(test).parameters if name not in taken.split(",")]
    names = left[-(_width(rows) or 1) :]
    assert [*rows[0]] != names if _width(rows) else [rows[0]] != names, "names stand in the signature alone"
    return names
