"""The commands of docs/00-first-day.md: the first block runs on a cluster."""

import re
from pathlib import Path

import pytest
from harness import CHECKOUT, Cluster

PAGE = (CHECKOUT / "docs/00-first-day.md").read_text()
BLOCKS = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[str]:
    lines = (line.partition("  #")[0].strip() for line in block.splitlines())
    return [part for line in lines if line for part in line.split(" && ")]


@pytest.mark.cluster
def test_the_first_five_minutes_end_with_a_verdict(cluster: Cluster):
    """`lab` is a path here, so that nothing is written beside the profiles."""
    site = cluster.shared / "lab.yaml"
    site.unlink(missing_ok=True)
    first = [command.replace("lab", str(site)) for command in commands(BLOCKS[0])]
    assert [command for command in first if command.startswith(("git", "cd"))] == first[:2], "and then what runs here"
    done = cluster.sh("bash", "-euc", "\n".join(first[2:]), timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"wrote      {Path(site)}" in done.stdout and "nothing was submitted" in done.stdout
    assert "PASS       Discovery" in done.stdout and "PASS       Smoke" in done.stdout
