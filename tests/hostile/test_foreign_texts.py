"""Bombs, control characters and secrets: a judge says one line in little memory, and no output passes them on."""

import io
import json
import os
import re
import stat
import subprocess
import sys
import zipfile
from contextlib import redirect_stdout
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import pytest
from bringup import cli
from bringup.kernel import results
from bringup.kernel.characters import Printable, plain
from bringup.kernel.errors import RecordError
from bringup.kernel.judge import judge_folder
from bringup.kernel.records import Run, files, read_record
from bringup.report import bundle
from bringup.report.campaigns import Playbook
from bringup.report.collection import gather
from bringup.report.text import escaped
from bringup.run import hidden
from bringup.run import open as opening
from bringup.run import site as at_site
from bringup.run.site_file import Site
from factory import a_run
from loops import case_for_each, for_each
from programs import ran
from runs_for_tests import discovery, reseal
from tiers import first

GIBIBYTE = 2**30
JUDGE = """import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), -1))
from bringup.cli import main
sys.exit(main(["judge", sys.argv[1]]))
"""


def judged(folder: Path, most: int = 2 * GIBIBYTE) -> subprocess.CompletedProcess[str]:
    """Under a limit of its address space, which is more than what it uses: libraries are mapped."""
    return ran([sys.executable, "-c", JUDGE, folder, str(most)], env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return discovery(tmp_path, monkeypatch)


@case_for_each(
    ("ranks_per_node", 10**9),
    ("gpus_per_node", 1025),
    ("nodes", [f"n{number}" for number in range(100_000)]),
    ("allocated", [f"n{number}" for number in range(16_385)]),
)
def test_a_plan_for_more_than_any_cluster_has_is_one_line(run: Path, refused, field: str, value: object):
    (run / "run.json").write_text(json.dumps(json.loads((run / "run.json").read_text()) | {field: value}))
    assert f"run.json: not a valid Run: {field}" in refused("judge", run)


def test_the_largest_plan_is_a_record(tmp_path: Path):
    run = a_run(nodes=[f"n{number}" for number in range(16_384)], gpus=1_024, plan={})
    (tmp_path / "run.json").write_text(run.model_dump_json())
    assert read_record(tmp_path / "run.json", Run) == run


NAMES = "abcdefghijklm"
BOMBS = {
    "aliases": "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"{name}: &{name} [{', '.join([f'*{last}'] * 10)}]\n" for last, name in pairwise(NAMES)),
    "depth": "[" * 200_000,
    "digits": "gpus: " + "9" * 100_000,
    "tag": "!!python/object/apply:os.system [false]\n",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_yaml_bomb_is_one_line(run: Path, refused, bomb: str):
    (run / "profile.yaml").write_text(BOMBS[bomb])
    refused("judge", run)


@pytest.mark.parametrize("bomb", ["[" * 200_000, '{"a":' * 200_000, "9" * 100_000, "NaN", "1e999", '"\\ud800"'])
@pytest.mark.parametrize("name", ["run.json", "raw/inventory.jsonl", "raw/error.json", "raw/dcgm-n0.json"])
def test_a_json_bomb_is_one_line_or_a_note(run: Path, name: str, bomb: str):
    (run / name).write_text(bomb)
    if name == "run.json":
        with pytest.raises(RecordError):
            read_record(run / name, Run)
    else:
        assert judge_folder(reseal(run)).verdicts.outcome in ("pass", "incomplete")


def test_the_end_of_a_log_that_is_too_long_is_said(run: Path, monkeypatch: pytest.MonkeyPatch):
    (run / "raw/x.err").write_text("a\n" * 4096)
    monkeypatch.setattr(files, "MOST_OF_A_LOG", 4096)
    monkeypatch.setattr(files, "MOST_BYTES", (run / "raw/inventory.jsonl").stat().st_size - 100)
    verdicts = judge_folder(reseal(run)).verdicts
    assert any(note.startswith("raw/x.err: its last 4096 bytes were not read") for note in verdicts.notes)
    assert any(note.startswith("raw/inventory.jsonl: its last 100 bytes were not read") for note in verdicts.notes)
    assert verdicts.outcome == "incomplete"  # the facts of a probe without its closing line are none


@pytest.mark.parametrize("name", first(["x.jsonl", "x.err"]))
def test_a_gibibyte_is_judged_in_less_memory(run: Path, name: str):
    """Sparse: one line of zeros. What many short lines take is measured by hand: it would take minutes."""
    with (run / "raw" / name).open("wb") as stream:
        stream.truncate(GIBIBYTE)
    done = judged(run)
    assert "a fault of bringup itself" not in done.stderr
    assert f"raw/{name}: its last" in done.stdout


# --- names and texts of somebody else's folder: none of them moves a cursor, names a window, or turns words around


EVIL = "\x1b]0;title\x07\x1b[2J\x9b\u202e\u2066\r"
BAD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@for_each(*BAD.findall(EVIL + "\u202a\u2069"))
def test_a_text_loses_them(letter: str):
    assert plain(f"a{letter}b") == "a b"
    assert escaped(f"a{letter}b") == "a b"


@case_for_each(
    ("phase", f"discovery{EVIL}"),
    ("name", f"a{EVIL}"),
    ("profile", f"a{EVIL}"),
    ("nodes", ["n0", f"n1{EVIL}"]),
    ("planned", {f"gate{EVIL}": ["n0"]}),
    ("planned", {"gate": [f"n0{EVIL}"]}),
    ("not_applicable", [{"gate": f"g{EVIL}", "reason": "why"}]),
    ("left_out", [{"gate": f"g{EVIL}", "reason": "why"}]),
    ("allocated", [f"n0{EVIL}"]),
    ("continues", f"a{EVIL}"),
    ("opened_at", f"2026-01-01T00:00:00Z{EVIL}"),
    ("opened_at", "yesterday"),
    ("opened_at", "2026-13-01T00:00:00Z"),
    ("opened_at", "<script>"),
    ("git_commit", "not hex"),
    ("slurm_job_id", "7; DROP"),
)
def test_a_name_in_a_run_is_checked_where_it_enters(run: Path, capsys, field: str, value: object):
    (run / "run.json").write_text(json.dumps(json.loads((run / "run.json").read_text()) | {field: value}))
    with pytest.raises(RecordError, match="not a valid Run"):
        read_record(run / "run.json", Run)
    for verb in (["judge"], ["explain"], ["report", "--prometheus", str(run.parent / "x.prom")]):
        assert cli.main([verb[0], str(run), *verb[1:]]) == 2
        shown = capsys.readouterr()
        assert not BAD.search(shown.out + shown.err)
        assert "a fault of bringup itself" not in shown.err


def test_a_name_in_a_playbook_is_checked_where_it_enters(tmp_path: Path):
    good = Playbook(name="a", nodes=["n0"], profile="p", planned=["smoke"], left_out=[], steps=[])
    for change in ({"planned": [EVIL]}, {"name": EVIL}, {"nodes": [EVIL]}, {"site": EVIL}):
        (tmp_path / "playbook.json").write_text(json.dumps(good.model_dump(mode="json") | change))
        with pytest.raises(RecordError, match="not a valid Playbook"):
            read_record(tmp_path / "playbook.json", Playbook)


def test_what_logs_and_file_names_say_reaches_no_output(run: Path, capsys):
    (run / f"raw/x{EVIL.replace('/', '')}.err").write_text(f"srun: error: n1: task 1: Killed{EVIL}\n")
    of_slurm = f"NodeName=n1 State=DOWN Reason=<script>{EVIL} [root@2026-01-01T00:00:00]\n"
    (run / "raw/scontrol-node.txt").write_text(of_slurm)
    (run / f"raw/y{EVIL}.jsonl").write_text(f"{EVIL}\n")
    facts = run / "raw/inventory.jsonl"
    facts.write_text(facts.read_text().replace('"6.18.44"', json.dumps(f"6{EVIL}")))
    renamed = run.with_name(f"run{EVIL}")
    reseal(run).rename(renamed)
    into = run.parent / "outputs"
    into.mkdir()
    options = ["-o", str(into / "page.html"), "--junit", str(into / "j.xml")]
    for arguments in (["judge"], ["explain"], ["report", *options, "--prometheus", str(into / "p.prom")]):
        cli.main([arguments[0], str(renamed), *arguments[1:]])
        shown = capsys.readouterr()
        assert not BAD.search(shown.out + shown.err), arguments
    for path in (renamed / "report.md", into / "j.xml", into / "p.prom"):
        assert not BAD.search(path.read_text()), path
        assert "<script>" not in path.read_text(), path
    assert "&lt;script&gt;" in (renamed / "report.md").read_text()


def test_the_stream_of_the_terminal_is_the_last_guard():
    screen = io.StringIO()
    with redirect_stdout(Printable(screen)):  # type: ignore[type-var]
        print(f"a\tb{EVIL}\x1b[1;31mred\x1b[0m")
    assert screen.getvalue() == "a\tb ]0;title  [2J     [1;31mred [0m\n"
    screen.isatty = lambda: True  # type: ignore[method-assign]
    with redirect_stdout(Printable(screen)):  # type: ignore[type-var]
        print("\x1b[1;31mred\x1b[0m\x1b]0;title\x07")
    assert screen.getvalue().endswith("\x1b[1;31mred\x1b[0m ]0;title \n")


# --- no secret of the operator reaches a file that others read


SECRET = "hunter2"


@pytest.fixture
def open_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return discovery(tmp_path / "results", monkeypatch, close=False)


def packed(run: Path) -> list[str]:
    with zipfile.ZipFile(BytesIO(bundle.pack(gather([run])))) as archive:
        return archive.namelist()


def test_no_file_that_lists_an_environment_is_packed(open_run: Path) -> None:
    listing = json.dumps({"version": 3, "env": [f"HF_TOKEN={SECRET}"], "results": []}, indent=1)
    for name, text in (("a.json", listing), ("b.json.0", listing), ("cut.json", listing[:50]), ("c.json", "{}")):
        (open_run / "raw" / name).write_text(text)
    assert [name for name in packed(open_run) if ".json" in name and "/raw/" in name and "jsonl" not in name] == [
        "evidence/00-discovery/raw/c.json"
    ]


def test_what_came_after_the_run_was_closed_is_not_packed(open_run: Path) -> None:
    opening.close_run(open_run, 0)
    for name in ("later.txt", "a\\..\\b.txt", "a\033[2J.txt"):
        (open_run / "raw" / name).write_text("{}")
    of_raw = [name for name in json.loads((open_run / results.CLOSED).read_text())["files"] if "raw/" in name]
    names = sorted(name for name in packed(open_run) if "/raw/" in name)
    assert names == [f"evidence/00-discovery/{name}" for name in of_raw]


def test_the_secret_of_a_run_is_its_owners_and_ends_with_it(open_run: Path) -> None:
    secret = open_run / results.SECRET
    assert len(secret.read_text()) == 64
    assert [stat.S_IMODE(path.stat().st_mode) for path in (secret, secret.parent)] == [0o600, 0o700]
    assert not [name for name in packed(open_run) if "private" in name]
    opening.close_run(open_run, 0)
    assert not secret.parent.exists()
    assert "private" not in (open_run / results.CLOSED).read_text()


@for_each(
    ("HTTPS_PROXY", f"http://anna:{SECRET}@proxy:3128", True),
    ("https_proxy", f"anna:{SECRET}@proxy:3128", True),
    ("PIP_INDEX_URL", f"https://{SECRET}@index/simple", True),
    ("NCCL_CONF", SECRET, False),
    ("WANDB_API_KEY", SECRET, True),
    ("HF_TOKEN", "", True),
    ("NCCL_IB_PKEY", "0x7fff", False),
    ("IMAGE", "docker://me@index:5000/a@sha256:00", False),
    ("HTTPS_PROXY", "http://proxy:3128", False),
)
def test_what_looks_like_a_secret(name: str, value: str, is_secret: bool) -> None:
    assert hidden.looks_secret(name, value) is is_secret


def test_a_record_says_that_the_users_value_differs_and_not_which_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRINGUP_GIVEN", raising=False)
    own = {"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "localhost", "NCCL_IB_HCA": "mlx5_0"}
    site = Site(schema_version=1, name="lab", environment=own)
    monkeypatch.setenv("HTTPS_PROXY", f"http://anna:{SECRET}@proxy:3128")
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_1")
    monkeypatch.delenv("no_proxy", raising=False)
    secret = "another value, not recorded: it looks like a secret"
    assert at_site.used(site, "discovery").otherwise == {"HTTPS_PROXY": secret, "NCCL_IB_HCA": "mlx5_1"}
