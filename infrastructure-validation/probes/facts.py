"""How a probe reports: one fact, one JSON line on standard output; after the last one, a line that counts them.

srun carries the lines to the batch host, so a node whose filesystem is broken can still say so. A line stays under 1,000
bytes because srun cuts longer ones when it labels them. A missing count line means that the probe did not finish.
Standard library only: a probe must start when the venv is broken.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

MAX_LINE_BYTES = 1000
MAX_TEXT = 300  # characters of a text value; what is cut off is replaced by an ellipsis


def node_name():
    """The name Slurm calls this node; outside a job step, the host name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]


class Facts:
    """Collects nothing, writes at once: what a probe saw before it died is kept."""

    def __init__(self, probe, stream=None):
        self.probe = probe
        self.at = node_name()
        self.count = 0
        self.begun = time.monotonic()
        self.stream = sys.stdout if stream is None else stream

    def saw(self, quantity, value, unit, subject=None, remark=None):
        """A fact. value: bool, int, float, str or list of str; unit: GiB, count, s, text, ...; remark: for the reader."""
        self._write(quantity, subject, _bounded(value), unit, None if remark is None else _bounded(str(remark)))

    def unknown(self, quantity, unit, why, subject=None):
        """Looked for and not found out. Absence is never health, so it is said, with the reason."""
        self._write(quantity, subject, None, unit, _bounded(str(why)))

    def finish(self):
        """The probe came to its end and wrote this many facts. For which run, and when: no other's can be taken for them."""
        cost = os.times()
        self.saw(f"probe.{self.probe}.cpu_s", round(sum(cost[:4]), 2), "s",  # the tools that it started too
                 remark=f"what the probe itself took of one core, in {time.monotonic() - self.begun:.1f} s")
        run = Path(os.environ.get("RUN_DIR", "")).name
        utc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._line({"probe": self.probe, "at": self.at, "end": self.count, "run": run, "utc": utc})

    def _write(self, quantity, subject, value, unit, why):
        self.count += 1
        fact = {"probe": self.probe, "at": self.at, "subject": subject or self.at, "quantity": quantity,
                "value": value, "unit": unit}
        if why is not None:
            fact["why"] = why
        self._line(fact)

    def _line(self, record):
        line = json.dumps(record, allow_nan=False)
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"{self.probe}: a fact of {len(line)} bytes, at most {MAX_LINE_BYTES}: {line[:80]}")
        self.stream.write(line + "\n")
        self.stream.flush()


def _bounded(value):
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return value[: MAX_TEXT - 1] + "…"
    return value
