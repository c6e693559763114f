"""What is kept on a node between two calls, and how it was installed.

All of it lies in one folder (default /run/bringup-health: it is empty after a boot, as it should be), a file per node
and purpose. A folder that cannot be written, or that somebody else could write, changes no answer.
"""

import contextlib
import json
import syslog
import time
from pathlib import Path

import own_files
from baseline import FAULT
from own_files import objection

STATE_FOLDER = "/run/bringup-health"
DRIVER_LOG = "discovery.kernel_log.xid"
LOG_BYTES = 2**20
DATE = "%Y-%m-%dT%H:%M:%SZ"


class Settings:
    """settings.json, written by `install`. problem: why it cannot be used."""

    def __init__(self, settings, problem=None):
        self.problem = problem
        self.tools_folder = settings.get("tools_folder", "/usr/bin")  # where nvidia-smi was found
        self.state_folder = Path(settings.get("state_folder", STATE_FOLDER))
        self.textfile_folder = Path(settings.get("textfile_folder", self.state_folder))

    @classmethod
    def read(cls, path):
        try:
            with own_files.regular(path, "r") as stream:
                settings = json.load(stream)
            if any(not isinstance(value, str) for value in settings.values()):
                raise ValueError("every setting is a text")
            return cls(settings)
        except FileNotFoundError:  # in a checkout there are none
            return cls({}, None if path.with_name("install").exists() else f"{path} is missing")
        except (OSError, ValueError, AttributeError) as error:
            return cls({}, f"{path} cannot be read: {error}")


class State:
    def __init__(self, settings, node):
        self.begun = time.monotonic()
        self.folder, self.node = settings.state_folder, node
        self.boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.objection = objection(self.folder)  # root uses no folder that others may write

    def _file(self, suffix):
        return self.folder / f"{self.node}.{suffix}"

    def read(self, name):
        """{} where there is nothing, or nothing whole."""
        if self.objection is not None:
            return {}
        try:
            with own_files.regular(self._file(name + ".json"), "r") as stream:
                content = json.load(stream)
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def keep(self, name, content):
        if self.objection is None:
            with contextlib.suppress(OSError):
                own_files.replace(self._file(name + ".json"), json.dumps(content, indent=1) + "\n")

    def keep_hanging(self, hanging):
        if hanging or self.read("hanging"):
            self.keep("hanging", hanging)

    def keep_driver_log(self, facts, answers):
        """How far the kernel's log was read; and its fault, which the log may lose before anybody deals with it."""
        for fact in facts.get("driver-log", ()):
            if fact.get("quantity") == "health.kernel_log.read":
                self.keep("log-read", {"boot": self.boot, "sequence": fact["value"]})
        words = [each["words"] for each in answers if each["gate"] == DRIVER_LOG and each["outcome"] == FAULT]
        if words and self.read("driver-fault").get("boot") != self.boot and not self._is_repaired_meanwhile():
            now = time.strftime(DATE, time.gmtime())
            self.keep("driver-fault", {"boot": self.boot, "at": now, "words": words[0]})

    def repaired(self):
        """Messages of the driver until now no longer count on this boot."""
        self.keep("driver-log", {"boot": self.boot, "microseconds": int(time.monotonic() * 1e6)})
        with contextlib.suppress(OSError):
            self._file("driver-fault.json").unlink()
        self.log("what the driver has said until now counts as repaired")

    def _is_repaired_meanwhile(self):
        """Whether `--repaired` was called while this call was at work: it read the log before."""
        repaired = self.read("driver-log")
        return repaired.get("boot") == self.boot and repaired.get("microseconds", 0) > self.begun * 1e6

    def log(self, words):
        line = "".join(letter if letter.isprintable() else "_" for letter in words)
        with contextlib.suppress(OSError):
            syslog.openlog("bringup-health")
            syslog.syslog(syslog.LOG_WARNING, line)
        if self.objection is not None:
            return
        log = self._file("log")
        with contextlib.suppress(OSError):
            if log.exists() and log.stat().st_size > LOG_BYTES:
                log.replace(self._file("log.1"))
            with own_files.regular(log, "a") as stream:
                stream.write(f"{time.strftime(DATE, time.gmtime())} {self.node} {line}\n")
