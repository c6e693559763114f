"""Cases that are performed one after the other on local clusters, with a line of JSON in a file for each that ended."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bringup.drill.environment import LocalCluster
from bringup.kernel.errors import DrillError


def read(results: Path, score: type[Any]) -> dict[str, Any]:
    lines = results.read_text().splitlines() if results.exists() else []
    scores = [score(**json.loads(line)) for line in lines]
    return {score.case: score for score in scores}


def perform_some(cases: Sequence[Any], results: Path, perform: Callable[[Any, LocalCluster], Any]) -> None:
    """On a cluster of each shape; ended by Ctrl-C or SIGTERM, with what is done by then."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        for shape in dict.fromkeys(case.shape for case in cases):
            with tempfile.TemporaryDirectory(prefix="bringup-cases-", dir="/tmp") as folder:
                Path(folder).chmod(0o711)  # jobs of other users
                cluster = LocalCluster(Path(folder) / "state", shape)
                cluster.start()
                try:
                    for case in (case for case in cases if case.shape == shape):
                        _perform(case, results, lambda case=case, cluster=cluster: perform(case, cluster))
                        cluster.heal()
                finally:
                    cluster.end()


def _perform(case: Any, results: Path, perform: Callable[[], Any]) -> None:
    begun = time.monotonic()
    try:
        score = perform()
        with results.open("a") as stream:
            print(json.dumps(asdict(score)), file=stream)
        print(score, file=sys.stderr)
    except (DrillError, subprocess.TimeoutExpired, ValueError) as error:
        print(f"NOT PERFORMED {case.name}: {error}", file=sys.stderr)
    print(f"{case.name}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
