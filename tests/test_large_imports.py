"""Large imports without the garbage collector: it works again afterwards, without what was imported."""

import gc
import importlib.util
import os
import sys

import pytest
from imports import large_imports
from programs import ROOT, ran


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


def test_a_library_that_is_not_used_looks_as_if_it_were_not_installed_until_the_end(monkeypatch):
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    with large_imports(["wave", "gc"]):
        assert importlib.util.find_spec("wave") is None  # so transformers asks
        with pytest.raises(ImportError):
            importlib.import_module("wave")
        assert sys.modules["gc"] is gc  # it is there already
    assert importlib.import_module("wave").__name__ == "wave"


def test_a_training_imports_no_library_that_it_does_not_use():
    """transformers imports them for losses of images and for datasets of its own; 1.1 of 4.5 s of CPU for each rank."""
    program = "from recipe import program; from imports import large_imports\n"
    program += "with large_imports(program.UNUSED):\n    import recipe.workload\n"
    program += "import sys; print({'datasets', 'pandas', 'scipy', 'torchao', 'tensorboard'} & sys.modules.keys())"
    folders = [ROOT / "training/src", ROOT / "infrastructure-validation/probes", ROOT / "validation"]
    done = ran([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": ":".join(map(str, folders))})
    assert done.stdout == "set()\n", done.stderr


def test_a_library_that_cannot_be_imported_leaves_the_collector_at_work():
    with pytest.raises(ImportError), large_imports():
        import no_such_library  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()
