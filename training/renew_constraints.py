"""Writes constraints.txt: a version for every package that an installation of all extras brings, direct or not.

    make constraints                                                # the newest versions that fit pyproject.toml
    PIP_CONSTRAINT=training/constraints.txt make constraints        # only what is new; all others stay

pip resolves and installs nothing. Its answer is for the Python that runs this, so take the oldest that is supported.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADER = """\
# A version for every package that is installed, also those that nobody names. Made by: make constraints
# No hashes: the CPU and CUDA builds of torch are one version with different files, and a hash allows one of them.
# The libraries of CUDA are listed for the CUDA build, and not installed with the other.
"""


def main() -> None:
    """Raises SystemExit with one line when the answer is not complete."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]
    wanted = ["--ignore-installed", "--report", "-", f"{HERE.parent}[train,dev]"]
    done = subprocess.run([*pip, *wanted], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit("constraints: pip could not resolve pyproject.toml; constraints.txt is as it was")
    resolved = {
        package["metadata"]["name"]: package["metadata"]["version"] for package in json.loads(done.stdout)["install"]
    }
    del resolved["bringup"]
    if "+" in resolved["torch"]:
        raise SystemExit(
            f"constraints: torch is {resolved['torch']}, so the libraries of CUDA would have no version; "
            "ask an index with torch's CUDA build (PyPI), without --find-links for another"
        )
    lines = sorted((f"{name}=={version}" for name, version in resolved.items()), key=str.lower)
    new = HERE / "constraints.txt.new"
    new.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    new.replace(HERE / "constraints.txt")


if __name__ == "__main__":
    main()
