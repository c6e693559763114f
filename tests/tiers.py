"""Two sizes of the suite: `make test` performs fewer tests; `make test-all` and a bare pytest perform all."""

import os

import pytest

FEWER = "FEWER_TESTS" in os.environ
in_test_all = pytest.mark.in_test_all
