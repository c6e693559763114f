"""bringup changes no node's state: no command of ours that does so exists in the tree.

Lines that are printed for a person to paste, and the test bed that makes faults on its own cluster, are listed here.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from bringup.drill import catalogue as drills
from loops import for_each
from programs import ROOT, ran

PRODUCT = ("validation", "infrastructure-validation", "training", "Makefile", ".ci")
TEST_BED = (
    "infrastructure-validation/local-cluster/"  # acts on the cluster that it starts on this machine, and no other
)
WORTH_A_LOOK = re.compile("scontrol|State=|reboot|shutdown|poweroff|halt|--gpu-reset|systemctl|sacctmgr")
OF_OUR_JOB = "requeue"  # a job of its own, not a node
ORDERS = re.compile(
    r"\bscontrol\b(?:[ ,'\"]+-\S+)*[ ,'\"]+(?!(?:show|ping|requeue)\b)([a-z]+)\b"
    r"|\bState=(?:UNDRAIN|DRAIN|RESUME|DOWN|FAIL|IDLE|POWER\w*|REBOOT\w*)"
    r"|(?:[;&|(]\s*|\bsudo )(?:reboot|shutdown|poweroff|halt)\b|--gpu-reset\b|\bsystemctl (?:re)?(?:start|stop)\b"
    r"|\bsacctmgr\b.*\b(?:add|modify|delete)\b"
)
PRINTED = {  # file -> the orders in it that a person may paste
    "infrastructure-validation/slurm/install": {"scontrol reconfigure"},
    "validation/bringup/report/drain.py": {"scontrol update", "State=DRAIN"},
    "validation/bringup/run/node_lines.py": {"scontrol update", "State=RESUME"},
    "validation/benchmarks/virtual_faults.py": {"scontrol update"},  # to the virtual nodes that it made
    "validation/benchmarks/judge_and_report.py": {"State=IDLE"},  # an answer of Slurm, made up
}


def product(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """(path, text) of every program of ours."""
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *PRODUCT]
    for name in ran(git, cwd=root, check=True).stdout.splitlines():
        path = root / name
        if name.startswith(TEST_BED) or not path.is_file() or path.suffix in (".md", ".yaml", ".json", ".csv", ".txt"):
            continue
        text = path.read_text(errors="replace")
        if "results/" not in name:
            yield name, text


def is_python(name: str, text: str) -> bool:
    return name.endswith(".py") or "python" in text.partition("\n")[0]


def orders(name: str, text: str) -> set[str]:
    """What this program could order, in its own words."""
    if not WORTH_A_LOOK.search(text):
        return set()
    return _of_python(text) if is_python(name, text) else _in_words(_without_comments(text))


def _in_words(text: str) -> set[str]:
    matches = (match for line in text.splitlines() for match in ORDERS.finditer(line))
    return {f"scontrol {match[1]}" if match[1] else match[0].strip("(;&| ") for match in matches}


def _without_comments(shell: str) -> str:
    return "\n".join(line for line in shell.splitlines() if not line.lstrip().startswith("#"))


def _of_python(text: str) -> set[str]:
    matches: set[str] = set()
    tree = ast.parse(text)
    documentation = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None
        if isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation:
            matches |= _in_words(node.value)
        if isinstance(node, ast.Call):
            is_reader = ast.unparse(node.func).startswith("answers.")  # where its answer is from, in words
            words = [] if is_reader else node.args
        else:
            words = getattr(node, "elts", None) or []
        for at, word in enumerate(words):
            if isinstance(word, ast.Constant) and _program(word.value) == "scontrol":
                matches |= _order(words[at + 1 :])
    return matches


def _program(value: object) -> str:
    return value.rpartition("/")[2] if isinstance(value, str) else ""


def _order(words: list[ast.expr]) -> set[str]:
    for word in words:
        if not isinstance(word, ast.Constant) or not isinstance(word.value, str):
            break
        if not word.value.startswith("-"):
            return set() if word.value in ("show", "ping", OF_OUR_JOB) else {f"scontrol {word.value}"}
    if [ast.unparse(word) for word in words] == ["'--version'"]:
        return set()
    return {"scontrol with words that are not in the text"}


def test_no_program_of_ours_orders_a_node_anything():
    read = {name: orders(name, text) for name, text in product()}
    assert len(read) > 300
    assert {name: matches for name, matches in read.items() if matches - PRINTED.get(name, set())} == {}
    assert {name for name in PRINTED if not read.get(name)} == set(), "an exception that nothing needs"


@for_each(
    'subprocess.run(["scontrol", "update", "NodeName=n1", "State=DRAIN"])',
    'ask("scontrol", "--quiet", "reboot", "n1")',
    'ask("scontrol", *words)',
    'command = ("/usr/bin/scontrol", verb, node)',
    'command = ["scontrol"] + words',
    'os.system("scontrol update nodename=n1 state=resume")',
    'f"scontrol delete ReservationName={name}"',
    'words = (f"NodeName={node}", "State=UNDRAIN")',
    'subprocess.run(["nvidia-smi", "--gpu-reset"])',
)
def test_one_that_did_would_be_found(text: str):
    assert orders("validation/bringup/run/slurm.py", text)


@for_each(
    '[ -z "$bad" ] || scontrol update NodeName="$(hostname)" State=DRAIN Reason=x',
    "systemctl restart slurmd",
    "true && reboot",
)
def test_a_script_that_did_would_be_found_too(text: str):
    assert orders("training/slurm/attempt.sh", text)


def test_no_drill_that_orders_nodes_leaves_the_test_bed():
    """`drill --anywhere` plays those alone that stay inside a job of one's own."""
    ordering = [drill for drill in drills.DRILLS if "scontrol update NodeName" in drill.model_dump_json()]
    assert len(ordering) >= 2
    assert {drill.where for drill in ordering} == {"local-cluster"}
