"""What all tests share."""

import os
from collections.abc import Callable, Iterator

import pytest
import tiers
from bringup import cli
from bringup.kernel import judge
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.records import Kind, Outcome
from showing import MARK

os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, and what is printed would depend on it
SLOWEST = ("golden", "test_training_", "test_checkpoint", "test_starter", "test_site", "test_fuzz")  # begin with them


def _ended(arguments: tuple[object, ...]) -> object:
    """The exit code of a verb, which argparse may end itself."""
    try:
        return cli.main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return stop.code


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Gives the one line with which a verb ends that cannot do what was asked: refused("judge", folder)."""

    def line(*arguments: object) -> str:
        capsys.readouterr()
        code = _ended(arguments)
        out, err = capsys.readouterr()
        assert (code, out, err.count("\n"), "a fault of bringup itself" in err) == (2, "", 1, False), out + err
        return err

    return line


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Gives the screen of a verb that ends with this exit code: shown(0, "judge", folder)."""

    def screen(code: int, *arguments: object) -> str:
        capsys.readouterr()
        assert _ended(arguments) == code
        return capsys.readouterr().out

    return screen


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if tiers.FEWER:
        kept = [item for item in items if not item.get_closest_marker(tiers.in_test_all.name)]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept
    items.sort(key=lambda item: not any(name in item.nodeid for name in SLOWEST))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """A test that says which gates it shows failing (showing.py) has to judge each of them so, or it fails itself."""
    named = {gate for mark in pyfuncitem.iter_markers(MARK) for gate in mark.args}
    if not named:
        return (yield)
    judged: dict[str, set[Outcome]] = {}
    original = judge.judge

    def watched(*arguments, **options):
        verdicts = original(*arguments, **options)
        for verdict in verdicts.verdicts:
            if verdict.kind is Kind.JUDGED:
                judged.setdefault(verdict.gate, set()).add(verdict.outcome)
        return verdicts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "judge", watched)
        result = yield
    silent = {gate for gate in named if GATES[gate].severity not in judged.get(gate, set())}
    assert silent == set(), f"this test says that it shows {', '.join(sorted(silent))} failing, and no verdict said so"
    return result
