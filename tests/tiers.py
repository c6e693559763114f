"""Two sizes of the suite: `make test` performs fewer tests; `make test-all` and a bare pytest perform all."""

import os
from collections.abc import Sequence
from typing import Any

import pytest

FEWER = "FEWER_TESTS" in os.environ
in_test_all = pytest.mark.in_test_all


def first(rows: Sequence[Any]) -> Sequence[Any]:
    """Return one row of a table whose rows start a program each, or in `make test-all` all of them."""
    return rows[:1] if FEWER else rows


def rest(*rows: Any) -> Sequence[Any]:
    """Return the rows behind those that `make test` performs, too; in `make test` none."""
    return () if FEWER else rows
