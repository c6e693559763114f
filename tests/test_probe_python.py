"""Probes of a node start under the Python of its system (3.6 on RHEL 8): no syntax and no call is newer than that.

vermin knows what came with which version. What depends on the type of a variable it does not see; the names below are
looked for besides, whatever they are called on.

Those that import torch run in the environment of the checkout, and may use what it has.
"""

import ast

import pytest
import vermin
from loops import for_each
from programs import PROBES

OLDEST = (3, 6)
WITH_TORCH = {"bench", "collectives", "compute", "groups", "imports", "node_sweep", "seeded_step", "sustained_load"}
HEALTH = PROBES.parent / "slurm"
OWN_PROBES = [path for path in PROBES.glob("*.py") if path.stem not in WITH_TORCH]
OF_THE_SYSTEM = sorted([*OWN_PROBES, *HEALTH.glob("*.py"), *(HEALTH / "checks.d").iterdir(), HEALTH / "install"])


def since(**names: str) -> dict[str, str]:
    """Name -> the version that brought it, of `v3_9="name name"`."""
    return {name: version[1:].replace("_", ".") for version, listed in names.items() for name in listed.split()}


# attributes and functions; readlink is one of a Path: os.readlink is older
NEWER_NAMES = since(
    v3_7="nullcontext fromisoformat time_ns monotonic_ns perf_counter_ns is_mount",
    v3_8="create_server quantiles fmean prod dist cached_property",
    v3_9="removeprefix removesuffix is_relative_to cache readlink waitstatus_to_exitcode randbytes",
    v3_10="pairwise hardlink_to",
    v3_12="batched",
)
NEWER_ARGUMENTS = since(
    v3_7="capture_output text", v3_8="missing_ok dirs_exist_ok", v3_10="strict", v3_12="delete_on_close"
)
NEWER_MODULES = {"dataclasses": "3.7", "contextvars": "3.7", "tomllib": "3.11", "graphlib": "3.9", "zoneinfo": "3.9"}


def newer_than_the_oldest(source: str) -> list[str]:
    """What of this source needs a newer Python, with its line."""
    newer = []
    _, needed = vermin.detect(source)
    if needed is not None and needed > OLDEST:
        newer.append("Python {}.{}, says vermin (vermin -vvv FILE names the line)".format(*needed))
    two_classes = "one class with TimeoutError since 3.10: listening.TIMED_OUT"
    for node in ast.walk(ast.parse(source, feature_version=OLDEST)):
        if isinstance(node, ast.Attribute) and node.attr in NEWER_NAMES:
            on_os = isinstance(node.value, ast.Name) and node.value.id == "os"
            if not (node.attr == "readlink" and on_os):
                newer.append(f"{node.lineno}: {node.attr}: {NEWER_NAMES[node.attr]}")
        elif isinstance(node, ast.Call):
            newer += [
                f"{node.lineno}: {keyword.arg}=: {NEWER_ARGUMENTS[keyword.arg]}"
                for keyword in node.keywords
                if keyword.arg in NEWER_ARGUMENTS
            ]
        elif isinstance(node, ast.ExceptHandler) and node.type is not None and "TimeoutError" in ast.dump(node.type):
            newer.append(f"{node.lineno}: except TimeoutError: {two_classes}")
        elif isinstance(node, ast.Return | ast.Yield) and isinstance(node.value, ast.Tuple):
            has_star = any(isinstance(each, ast.Starred) for each in node.value.elts)
            if has_star and not str(ast.get_source_segment(source, node.value)).startswith("("):
                newer.append(f"{node.lineno}: a star in a tuple without parentheses: 3.8")
        elif isinstance(node, ast.Import):
            newer += [f"{node.lineno}: {name.name}" for name in node.names if name.name in NEWER_MODULES]
        elif isinstance(node, ast.ImportFrom):
            if node.module in NEWER_MODULES:
                newer.append(f"{node.lineno}: {node.module}: {NEWER_MODULES[node.module]}")
            if node.module == "__future__" and any(name.name == "annotations" for name in node.names):
                newer.append(f"{node.lineno}: postponed annotations: 3.7")
    return newer


@for_each(*OF_THE_SYSTEM, ids=lambda path: path.name)
def test_a_probe_of_the_system_needs_no_newer_python(path):
    """zip(strict=True) ended the whole inventory on Python 3.8 and 3.9, in the branch for nodes without pynvml."""
    assert len(OF_THE_SYSTEM) >= 15
    assert newer_than_the_oldest(path.read_text()) == []


def test_the_package_needs_python_3_10():
    """That of Ubuntu 22.04's login hosts. datetime.UTC, enum.StrEnum and hashlib.file_digest came with 3.11."""
    newer = {}
    package = sorted((PROBES.parents[1] / "validation/bringup").rglob("*.py"))
    assert len(package) > 150
    for path in package:
        _, needed = vermin.detect(path.read_text())
        if needed is not None and needed > (3, 10):
            newer[path.name] = needed
    assert newer == {}
    assert vermin.detect("from datetime import UTC")[1] == (3, 11)


def test_what_is_newer_is_found_and_what_the_parser_of_the_oldest_version_refuses():
    for source in (
        "zip([], [], strict=True)",
        "subprocess.run(['x'], capture_output=True)",
        "'a'.removeprefix('b')",
        "def f(a): return 1, *a",
        "import dataclasses",
        "try: pass\nexcept TimeoutError: pass",
        "def cut(fact):\n    fact |= {'value': None}",
    ):
        assert newer_than_the_oldest(source), source
    with pytest.raises(SyntaxError):
        newer_than_the_oldest("if (x := 1): pass")
