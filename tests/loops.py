"""Many rows in one test."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest

MOST_OF_A_NAME = 200


def case_for_each(
    names: str | Sequence[str], *rows: Any, ids: Callable[[Any], str] | Sequence[str] | None = None
) -> pytest.MarkDecorator:
    """`pytest.mark.parametrize`, of which each row is an argument."""
    assert not (len(rows) == 1 and isinstance(rows[0], list)), "a list of rows: write *rows"
    return pytest.mark.parametrize(names, rows, ids=ids)


def for_each(
    names: str | Sequence[str], *rows: Any, ids: Callable[[Any], str] = repr
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As case_for_each, but one test, which fails with the name of every row that does not hold.

    For tables and catalogues. Fixtures are shared by all rows. A row that is a sentence of its own stays a case.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = [row if len(parameters) > 1 else (row,) for row in rows]
    assert cases, "no rows: nothing would be tested"
    assert not (len(rows) == 1 and isinstance(rows[0], list)), "a list of rows: write *rows"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def of_all(*arguments: Any, **fixtures: Any) -> None:
            __tracebackhide__ = True
            misses: list[str] = []
            first: BaseException | None = None
            for values in cases:
                try:
                    test(*arguments, **fixtures, **dict(zip(parameters, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # named below, the first with its traceback
                    first = first or error
                    name = ", ".join(str(ids(value)) for value in values)[:MOST_OF_A_NAME]
                    misses.append(f"{name}: {type(error).__name__}: {error}")
            if first is not None:
                raise AssertionError(f"{len(misses)} of {len(cases)} rows\n" + "\n".join(misses)) from first

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in parameters]
        of_all.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # what pytest asks for
        return of_all

    return decorate
