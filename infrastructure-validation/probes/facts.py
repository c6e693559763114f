"""How a probe reports: one fact, one JSON line on standard output; after the last one, a line that counts them.

srun carries the lines to the batch host, so a node whose filesystem is broken can still report it. A line stays under
1,000 bytes, because srun cuts longer ones when it labels them. A text that does not fit is cut. A list that does not
fit is unknown: half a list is not an answer. A missing count line means that the probe did not finish. Standard library
only: a probe must start when the venv is broken.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

MAX_LINE_BYTES = 1000
MAX_TEXT = 300  # of a text value, as JSON writes it; what is cut off is replaced by an ellipsis
MAX_NAME = 100  # of what a fact is about


def node_name():
    """The name Slurm calls this node; outside a job step, the host name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]


def read(path):
    """Return the text of a file of the kernel, without blanks around it; None: it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def cpu_s():
    """CPU seconds of this process so far, with the tools that it started."""
    return sum(os.times()[:4])


class Facts:
    """Collects nothing, writes at once: what a probe saw before it died is kept."""

    def __init__(self, probe, stream=None, before_s=0.0):
        """before_s: CPU seconds of this process that were another probe's."""
        self.probe, self.before_s = probe, before_s
        self.at = node_name()
        self.count = 0
        self.begun = time.monotonic()
        self.stream = sys.stdout if stream is None else stream

    def saw(self, quantity, value, unit, subject=None, remark=None):
        """A fact. value: bool, int, float, str or list of str; unit: GiB, count, s, text; remark: for the reader."""
        self._write(quantity, subject, value, unit, None if remark is None else str(remark))

    def unknown(self, quantity, unit, why, subject=None):
        """Looked for and not found out. Absence is never health, so it is said, with the reason."""
        self._write(quantity, subject, None, unit, str(why))

    def answered(self, quantity, value, unit, why, subject=None, remark=None):
        """A fact; unknown, for this reason, where the value is None."""
        if value is None:
            self.unknown(quantity, unit, why, subject)
        else:
            self.saw(quantity, value, unit, subject, remark)

    def asked(self, quantity, unit, question, about, errors=OSError, subject=None, remark=None):
        """Say what the question returns. Where it raises an error: unknown, with its subject and the error's words."""
        try:
            value = question()
        except errors as error:
            self.unknown(quantity, unit, f"{about}: {getattr(error, 'strerror', None) or error}", subject)
        else:
            self.saw(quantity, value, unit, subject, remark)

    def finish(self):
        """The closing line: how many facts this probe wrote, for which run, and when. So runs cannot be mixed."""
        self.saw(
            f"probe.{self.probe}.cpu_s",
            round(cpu_s() - self.before_s, 2),
            "s",  # the tools that it started too
            remark=f"what the probe itself took of one core, in {time.monotonic() - self.begun:.1f} s",
        )
        run = Path(os.environ.get("RUN_DIR", "")).name
        utc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._line({"probe": self.probe, "at": _bounded(self.at, MAX_NAME), "end": self.count, "run": run, "utc": utc})

    def _write(self, quantity, subject, value, unit, why):
        """A fact that is too long is cut or unknown. It never ends the probe: the facts after it would be lost."""
        self.count += 1
        fact = {
            "probe": self.probe,
            "at": _bounded(self.at, MAX_NAME),
            "subject": _bounded(subject or self.at, MAX_NAME),
            "quantity": _bounded(quantity, MAX_NAME),
            "value": _bounded(value) if isinstance(value, str) else value,
            "unit": unit,
        }
        if why is not None:
            fact["why"] = _bounded(why)
        if len(json.dumps(fact)) > MAX_LINE_BYTES:
            fact.update(value=None, why=_bounded(_does_not_fit(value)))
        self._line(fact)

    def _line(self, record):
        self.stream.write(json.dumps(record, allow_nan=False) + "\n")
        self.stream.flush()


def _does_not_fit(value):
    if isinstance(value, list):
        return f"{len(value)} entries do not fit on one line: {', '.join(map(str, value))}"
    return f"does not fit on one line: {value}"


def _bounded(text, most=MAX_TEXT):
    """At most so many bytes as JSON writes them: a letter outside ASCII takes 6 or 12, and so does the ellipsis."""
    if len(json.dumps(text)) - 2 <= most:
        return text
    text = text[:most] + "…"
    while len(json.dumps(text)) - 2 > most:
        text = text[:-2] + "…"
    return text
