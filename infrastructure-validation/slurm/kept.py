"""What a hook keeps on its node: settings that were installed, answers, what was told to Slurm, and a log.

All of it lies in one folder (default /run/bringup-health: it is empty after a boot, as it should be), a file per node
and purpose. A folder that cannot be written changes no answer.
"""

import contextlib
import fcntl
import json
import os
import syslog
import time
from pathlib import Path

from brake import MOST, checked

STATE_FOLDER = "/run/bringup-health"
LOG_BYTES = 2**20
DATE = "%Y-%m-%dT%H:%M:%SZ"


class Settings:
    """settings.json, written by `install`. Without it (in a checkout), or when it cannot be used: shadow mode."""

    def __init__(self, settings, problem=None):
        here = Path(__file__).resolve().parent
        self.problem = problem  # why it cannot be used
        self.most_drained = settings.get("most_drained", MOST)
        self.drains = settings.get("mode") == "drain"
        self.slurm_folder = settings.get("slurm_folder", "/usr/bin")
        self.tools_folder = settings.get("tools_folder", "/usr/bin")  # where nvidia-smi was found
        self.slurm_conf = settings.get("slurm_conf")
        self.state_folder = Path(settings.get("state_folder", STATE_FOLDER))
        self.probes = here / "probes" if (here / "probes").is_dir() else here.parent / "probes"

    @classmethod
    def read(cls, path):
        try:
            settings = json.loads(path.read_text())
            if any(not isinstance(value, str) for value in settings.values()):
                raise ValueError("every setting is a text")
            checked(settings.get("most_drained", MOST))
            return cls(settings)
        except FileNotFoundError:
            return cls({}, None if path.with_name("install").exists() else f"{path} is missing")
        except (OSError, ValueError, AttributeError) as error:
            return cls({}, f"{path} cannot be read: {error}")


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
        """Whether it is kept."""
        path = self._file(name + ".json")
        part = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            part.write_text(json.dumps(content, indent=1) + "\n")
            part.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()
            return False
        return True

    def forget(self, name):
        with contextlib.suppress(OSError):
            self._file(name + ".json").unlink()

    def age(self, name):
        """Seconds since it was kept; without end for what was not, or has no time."""
        at = self.read(name).get("at")
        return time.time() - at if isinstance(at, (int, float)) else float("inf")

    def is_alone(self):
        """Whether no other hook of this node asks Slurm now, and none will until this process ends."""
        try:
            self._lock = self._file("lock").open("a")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

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
