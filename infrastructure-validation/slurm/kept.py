"""What a hook keeps on its node: settings that were installed, answers, what was told to Slurm, and a log.

All of it lies in one folder (default /run/bringup-health: it is empty after a boot, as it should be), a file per node
and purpose. A folder that cannot be written changes no answer.
"""

import contextlib
import json
import os
import syslog
import time
from pathlib import Path

STATE_FOLDER = "/run/bringup-health"
LOG_BYTES = 2**20
DATE = "%Y-%m-%dT%H:%M:%SZ"


class Settings:
    """settings.json, written by `install`. Without it (in a checkout): shadow mode."""

    def __init__(self, settings):
        here = Path(__file__).resolve().parent
        self.drains = settings.get("mode") == "drain"
        self.slurm_folder = settings.get("slurm_folder", "/usr/bin")
        self.tools_folder = settings.get("tools_folder", "/usr/bin")  # where nvidia-smi was found
        self.slurm_conf = settings.get("slurm_conf")
        self.state_folder = Path(settings.get("state_folder", STATE_FOLDER))
        self.probes = here / "probes" if (here / "probes").is_dir() else here.parent / "probes"

    @classmethod
    def read(cls, path):
        try:
            return cls(json.loads(path.read_text()))
        except (OSError, ValueError):
            return cls({})


class Kept:
    def __init__(self, folder, node):
        self.folder, self.node = folder, node
        self.boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)

    def _file(self, suffix):
        return self.folder / f"{self.node}.{suffix}"

    def read(self, name):
        """{} where there is nothing, or nothing whole."""
        try:
            content = json.loads(self._file(name + ".json").read_text())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def keep(self, name, content):
        path = self._file(name + ".json")
        part = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            part.write_text(json.dumps(content, indent=1) + "\n")
            part.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()

    def hanging(self):
        return self.read("hanging")

    def keep_hanging(self, hanging):
        if hanging or self.hanging():
            self.keep("hanging", hanging)

    def keep_answers(self, hook, answers, seconds):
        self.keep(
            hook, {"at": time.strftime(DATE, time.gmtime()), "boot": self.boot, "seconds": seconds, "answers": answers}
        )

    def say(self, hook, words):
        """One line, to syslog and to the log of this folder; not again while it stays the same."""
        line = "".join(letter if letter.isprintable() else "_" for letter in words)
        last = self.read("said")
        if last.get(hook) == line:
            return
        self.keep("said", dict(last, **{hook: line}))
        with contextlib.suppress(OSError):
            syslog.openlog("bringup-" + hook)
            syslog.syslog(syslog.LOG_WARNING, line)
        log = self._file("log")
        with contextlib.suppress(OSError):
            if log.exists() and log.stat().st_size > LOG_BYTES:
                log.replace(self._file("log.1"))
            with log.open("a") as stream:
                stream.write(f"{time.strftime(DATE, time.gmtime())} {self.node} {hook}: {line}\n")
