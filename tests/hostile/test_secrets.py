"""No secret of the operator reaches a file that others read: not the environment, not a proxy's password, not what the
ranks of a run know each other by."""

import json
import stat
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
from runs_for_tests import discovery

SECRET = "hunter2"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return discovery(tmp_path / "results", monkeypatch, close=False)


def packed(run: Path) -> list[str]:
    with zipfile.ZipFile(BytesIO(bundle.pack(gather([run])))) as archive:
        return archive.namelist()


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
    monkeypatch.setenv("HTTPS_PROXY", f"http://anna:{SECRET}@proxy:3128")
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert at_site.used(site, "discovery").otherwise == {
        "HTTPS_PROXY": "another value, not recorded: it looks like a secret",
        "NCCL_IB_HCA": "mlx5_1",
    }
