"""The house: arrows in one direction, directives that take, links that resolve."""

import ast
import re
import shlex
import sys
from pathlib import Path

from bringup.kernel.plan.phases import PHASES
from loops import for_each
from programs import ROOT, ran

PACKAGE = ROOT / "validation/bringup"


def test_the_package_has_few_rooms_and_each_says_what_belongs_there():
    assert len([path for path in PACKAGE.iterdir() if path.name != "__pycache__"]) <= 21
    for room in [path for path in PACKAGE.rglob("*") if path.is_dir() and any(path.glob("*.py"))]:
        assert ast.get_docstring(ast.parse((room / "__init__.py").read_text())), f"{room}/__init__.py says nothing"


def imported(path: Path) -> set[str]:
    """Everything a file imports, also inside functions: bringup.readers.curve, bringup.kernel.records.Run."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def roots(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def test_the_package_never_imports_torch_or_a_probe():
    probes = {path.stem for path in (ROOT / "infrastructure-validation/probes").glob("*.py")}
    forbidden = {"torch", "transformers", "accelerate", "datasets", "pynvml", "psutil"} | (probes - {"monitor"})
    for path in PACKAGE.rglob("*.py"):
        assert not roots(path) & forbidden, path


def test_probes_start_with_the_standard_library_alone():
    probes = list((ROOT / "infrastructure-validation/probes").glob("*.py"))
    assert len(probes) >= 7
    own = {path.stem for path in probes}
    # the subject of collectives and compute is torch; NVML is asked only where it is there
    allowed = {key: {"torch"} for key in ("collectives", "compute", "groups", "node_sweep")} | {"nvml": {"pynvml"}}
    for path in probes:
        assert not roots(path) - set(sys.stdlib_module_names) - own - allowed.get(path.stem, set()), path


def test_training_takes_records_formulae_and_how_a_number_is_counted_in_words_and_nothing_else_of_the_judge():
    sources = list((ROOT / "training/src").rglob("*.py"))
    assert len(sources) >= 7
    formulae = "|".join(("models", "memory", "flops", "overlap", "pace", "traffic"))
    of_training = rf"training\.(records|formulae\.({formulae}))"
    allowed = re.compile(rf"bringup\.(kernel\.(records|errors|characters|facts\.names)|{of_training})\b")
    for path in sources:
        ours = [name for name in imported(path) if name.split(".")[0] == "bringup"]
        assert [name for name in ours if not allowed.match(name)] == [], path


SBATCH = sorted(ROOT.glob("infrastructure-validation/scripts/*.sbatch")) + sorted(ROOT.glob("training/slurm/*.sbatch"))


@for_each(*SBATCH, ids=lambda path: path.name)
def test_every_directive_is_above_the_first_command_and_well_formed(path):
    commands = 0
    directives = []
    for line in path.read_text().splitlines():
        if re.match(r"#\s*SBATCH", line):
            assert commands == 0, f"below a command, so that Slurm ignores it: {line}"
            assert re.match(r"#SBATCH --[a-z-]+(=\S+)?(\s+#.*)?$", line), f"not a directive for Slurm: {line}"
            directives.append(line)
        elif line.strip() and not line.startswith("#"):
            commands += 1
    names = {re.match(r"#SBATCH --([a-z-]+)", line)[1] for line in directives}
    assert {"job-name", "nodes", "time", "output"} <= names
    # site facts come from SBATCH_* variables or the command line
    assert not names & {"partition", "account", "qos", "nodelist"}
    assert commands > 5


@for_each(*SBATCH, ids=lambda path: path.name)
def test_a_job_is_named_after_its_phase(path):
    phase = next(phase for phase in PHASES.values() if phase.script == str(path.relative_to(ROOT)))
    assert f"#SBATCH --job-name={phase.stem}" in path.read_text()


def test_every_phase_has_its_script_and_every_need_is_a_phase():
    assert len(SBATCH) >= 9
    for phase in PHASES.values():
        assert (ROOT / phase.script).is_file(), phase.script
        assert set(phase.needs) <= set(PHASES)


def test_no_shell_script_forgets_to_stop_on_errors():
    listed = ran(["git", "-C", ROOT, "ls-files", "*.sh", "*.sbatch"], check=True).stdout
    scripts = [ROOT / name for name in listed.splitlines()]
    started = [path for path in scripts if path.read_text().startswith("#!")]
    assert len(started) >= 8
    for path in started:
        assert "set -euo pipefail" in path.read_text(), path


def test_every_srun_line_names_the_options_of_the_site():
    scripts = [*(ROOT / "training/slurm").glob("*"), *(ROOT / "infrastructure-validation/scripts").glob("*")]
    text = "\n".join(path.read_text() for path in scripts if path.suffix in (".sh", ".sbatch")).replace("\\\n", " ")
    steps = [line for line in text.splitlines() if re.search('srun --(label|overlap|mpi="[^l])', line)]
    assert len(steps) >= 13
    for line in steps:
        assert '"${SRUN_SITE[@]}"' in line, line
        of_torch = ("collectives.py", "scaling.py", "node_sweep.py", '"$program"')  # the last: of training/src
        assert ('"${CONTAINER[@]}"' in line) == any(name in line for name in of_torch), line


def slug(heading: str) -> str:
    text = re.sub(r"[`*]", "", heading.strip()).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    text = path.read_text()
    headings = {slug(line.lstrip("#")) for line in text.splitlines() if re.match(r"#{1,6} ", line)}
    return headings | set(re.findall(r'<a id="([^"]+)"></a>', text))


def documents() -> list[Path]:
    return [ROOT / name for name in ran(["git", "-C", ROOT, "ls-files", "*.md"], check=True).stdout.splitlines()]


def test_links_in_the_documents_resolve():
    seen = 0
    for path in documents():
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
            if target.startswith(("http:", "https:", "mailto:")):
                continue
            file, _, anchor = target.partition("#")
            there = (path.parent / file).resolve() if file else path
            assert there.exists(), f"{path.name}: {target}"
            if anchor and there.suffix == ".md":
                assert anchor in anchors(there), f"{path.name}: {target}"
            seen += 1
    assert len(documents()) >= 12
    assert seen > 20


OWN_PATH = re.compile(
    r"\b(?:validation|training|infrastructure-validation|bringup|recipe)/[\w/-]+\.(?:py|sh|sbatch|j2)\b"
)
OF_A_SITE = "bringup/setup.sh"  # in the example of a site file


def test_a_file_that_a_comment_or_a_message_names_is_there():
    files = ran(["git", "-C", ROOT, "ls-files"], check=True).stdout.splitlines()
    texts = [name for name in files if re.match(r"(training|validation|infrastructure-validation)/.*\.\w+$", name)]
    named = {path: name for name in texts for path in OWN_PATH.findall((ROOT / name).read_text(errors="replace"))}
    ends = {"/" + path for path in named} - {f"/{OF_A_SITE}"}
    assert len(ends) > 30
    assert {end: named[end[1:]] for end in ends if not any(f"/{file}".endswith(end) for file in files)} == {}


def test_the_top_level_holds_only_what_belongs_there():
    listed = ran(["git", "-C", ROOT, "ls-files"], check=True).stdout.splitlines()
    folders = "docs infrastructure-validation training validation slurm-logs tests findings .ci"
    files = "pyproject.toml README.md Makefile .gitignore"
    assert {name.split("/")[0] for name in listed} <= {*folders.split(), *files.split()}


def test_ci_calls_the_readmes_test_command():
    lines = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    assert shlex.split(lines[-1])[-2:] == ["make", "test"]
