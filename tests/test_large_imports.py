"""Large imports without the garbage collector: it works again afterwards, without what was imported."""

import gc

import pytest
from imports import large_imports


@pytest.fixture(autouse=True)
def as_before():
    yield
    gc.unfreeze()


def test_the_collector_rests_during_the_import_and_works_afterwards_without_what_was_imported():
    frozen = gc.get_freeze_count()
    with large_imports():
        assert not gc.isenabled()
        made = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(made)


def test_a_library_that_cannot_be_imported_leaves_the_collector_at_work():
    with pytest.raises(ImportError), large_imports():
        import no_such_library  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()
