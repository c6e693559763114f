"""No secret of the operator reaches a file that others read: not the environment, not a proxy's password, not what the
ranks of a run know each other by."""

import json
import os
import stat
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from bringup import results
from bringup.plan import hidden
from bringup.plan.site import Site
from bringup.report import bundle
from bringup.report.collection import gather
from bringup.run import open as opening
from bringup.run import site as at_site
from loops import for_each
from programs import ran
from runs_for_tests import discovery

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "infrastructure-validation/scripts"
SIMULATED = ROOT / "infrastructure-validation/local-cluster/simulated/bin"
SECRET = "hunter2"
SECRETS = {
    "HF_TOKEN": SECRET,
    "MYSQL_URL": SECRET,
    "HTTPS_PROXY": f"http://anna:{SECRET}@proxy:3128",
    "SLURM_JWT": SECRET,
    "UCX_API_KEY": SECRET,
    "NCCL_CONF_URL": f"https://anna:{SECRET}@host/nccl.conf",
    "SITE_PASSWORD": SECRET,
}
NEEDED = {
    "OFI_NCCL_PROTOCOL": "RDMA",  # of the plugin for EFA
    "UCX_IB_PKEY": "0x8001",
    "NCCL_IB_HCA": "mlx5_0",
    "NCCL_IB_PKEY": "0x7fff",
    "PMIX_RANK": "0",
    "SLURM_PROCID": "0",
    "LAB_RAIL": "3",
    "CUDA_VISIBLE_DEVICES": "0",
    "BRINGUP_SIMULATED_STATE": "/none",
    "SITE_VARIABLES": "LAB_RAIL SITE_PASSWORD BRINGUP_SIMULATED_STATE",
}
# srun starts one task, and then does what a test wants
NCCL_TEST = """
set -uo pipefail
srun() {{ while [[ $1 == -* ]]; do shift; done; "$@"; local rc=$?; {then}; }}
cpus_per_rank() {{ echo 1; }}
SRUN_SITE=() count=1 gpus=1 GPUS=1 list=n0
eval "$(sed -n '/^nccl_test() {{/,/^}}/p' infrastructure-validation/scripts/nccl_scaling.sh)"
nccl_test all_reduce_perf "$RUN_DIR/raw/all_reduce_perf-1" -b 8K -e 8K
"""


def files_with_secret(folder: Path) -> list[str]:
    return [
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and SECRET in path.read_text()
    ]


def nccl_test(run: Path, then: str) -> subprocess.CompletedProcess[str]:
    own = {"RUN_DIR": str(run), "PYTHON": sys.executable, "NCCL_TESTS_BIN": str(SIMULATED)}
    script = NCCL_TEST.format(then=then)
    return ran(["bash", "-c", script], cwd=ROOT, env={**os.environ, **SECRETS, **NEEDED, **own})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return discovery(tmp_path / "results", monkeypatch, close=False)


def packed(run: Path) -> list[str]:
    with zipfile.ZipFile(BytesIO(bundle.pack(gather([run])))) as archive:
        return archive.namelist()


def test_a_program_that_writes_its_environment_down_knows_no_secret(run: Path) -> None:
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    done = ran(
        [sys.executable, SCRIPTS / "clean_environment.py", sys.executable, "-c", program],
        env={**os.environ, **SECRETS, **NEEDED},
        check=True,
    )
    assert SECRET not in done.stdout
    environment = json.loads(done.stdout)
    assert {name: environment[name] for name in NEEDED if name != "SITE_VARIABLES"} == {
        name: value for name, value in NEEDED.items() if name != "SITE_VARIABLES"
    }
    assert {"PATH", "HOME"} <= environment.keys()


def test_nccl_tests_leave_their_numbers_and_no_environment(run: Path) -> None:
    """Also where each rank is a program of its own: the second one finds the name taken."""
    done = nccl_test(run, 'cp "${@: -1}" "${@: -1}.0"; return $rc')
    assert done.returncode == 0, done.stderr
    assert "env" not in json.loads((run / "raw/all_reduce_perf-1.json").read_text())
    assert sorted(path.name for path in (run / "raw").glob("all_reduce*")) == [
        f"all_reduce_perf-1.{kind}" for kind in ("err", "json", "txt")
    ]
    assert [path.name for path in (run / "private").iterdir()] == ["secret"]


def test_nccl_tests_that_know_no_json_run_and_leave_their_table(tmp_path: Path) -> None:
    """They print their usage at -J, and end with 0: no scale had a number."""
    older = tmp_path / "all_reduce_perf"
    older.write_text(
        "#!/bin/bash\ncase $* in *--help*) echo '[-b,--minbytes <min size in bytes>]' ;;"
        " *-J*) echo 'invalid option' ;; *) echo \"ran $*\" ;; esac\n"
    )
    older.chmod(0o755)
    done = ran(
        [sys.executable, SCRIPTS / "clean_environment.py", older, "-b", "8K", "-J", tmp_path / "x.json", "-c", "1"],
        check=True,
    )
    assert done.stdout == "ran -b 8K -c 1\n"


def test_nccl_tests_that_are_killed_leave_no_secret_and_nothing_for_others(run: Path) -> None:
    """At once after they began to write, and with them the script, so that nothing can be cleaned up."""
    done = nccl_test(run, "kill -KILL $$")
    assert done.returncode == -9
    assert files_with_secret(run) == []
    (left,) = run.rglob("all_reduce_perf-1.json")
    assert '"env"' in left.read_text(), "the stand-in wrote its environment"
    assert stat.S_IMODE(left.parent.stat().st_mode) == 0o700
    assert not [name for name in packed(run) if left.name in name]
    opening.close_run(run, 1)
    assert not left.exists()


def test_no_file_that_lists_an_environment_is_packed(run: Path) -> None:
    listing = json.dumps({"version": 3, "env": [f"HF_TOKEN={SECRET}"], "results": []}, indent=1)
    for name, text in (("a.json", listing), ("b.json.0", listing), ("cut.json", listing[:50]), ("c.json", "{}")):
        (run / "raw" / name).write_text(text)
    assert [name for name in packed(run) if ".json" in name and "/raw/" in name and "jsonl" not in name] == [
        "evidence/00-discovery/raw/c.json"
    ]


def test_what_came_after_the_run_was_closed_is_not_packed(run: Path) -> None:
    opening.close_run(run, 0)
    for name in ("later.txt", "a\\..\\b.txt", "a\033[2J.txt"):
        (run / "raw" / name).write_text("{}")
    assert sorted(name for name in packed(run) if "/raw/" in name) == [
        f"evidence/00-discovery/{name}"
        for name in json.loads((run / results.CLOSED).read_text())["files"]
        if "raw/" in name
    ]


def test_the_secret_of_a_run_is_its_owners_and_ends_with_it(run: Path) -> None:
    secret = run / results.SECRET
    assert len(secret.read_text()) == 64
    assert [stat.S_IMODE(path.stat().st_mode) for path in (secret, secret.parent)] == [0o600, 0o700]
    assert not [name for name in packed(run) if "private" in name]
    opening.close_run(run, 0)
    assert not secret.parent.exists()
    assert "private" not in (run / results.CLOSED).read_text()


@for_each(
    ("name", "value", "is_secret"),
    [
        ("HTTPS_PROXY", f"http://anna:{SECRET}@proxy:3128", True),
        ("https_proxy", f"anna:{SECRET}@proxy:3128", True),
        ("PIP_INDEX_URL", f"https://{SECRET}@index/simple", True),
        ("NCCL_CONF", SECRET, False),
        ("WANDB_API_KEY", SECRET, True),
        ("HF_TOKEN", "", True),
        ("NCCL_IB_PKEY", "0x7fff", False),
        ("IMAGE", "docker://me@index:5000/a@sha256:00", False),
        ("HTTPS_PROXY", "http://proxy:3128", False),
    ],
)
def test_what_looks_like_a_secret(name: str, value: str, is_secret: bool) -> None:
    assert hidden.looks_secret(name, value) is is_secret


def test_a_record_says_that_the_users_value_differs_and_not_which_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRINGUP_GIVEN", raising=False)
    own = {"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "localhost", "NCCL_IB_HCA": "mlx5_0"}
    site = Site(schema_version=1, name="lab", environment=own)
    monkeypatch.setenv("HTTPS_PROXY", SECRETS["HTTPS_PROXY"])
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert at_site.used(site, "discovery").otherwise == {
        "HTTPS_PROXY": "another value, not recorded: it looks like a secret",
        "NCCL_IB_HCA": "mlx5_1",
    }
