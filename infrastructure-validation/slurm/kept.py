"""What a hook keeps on its node: settings that were installed, answers, what was told to Slurm, and a log.

All of it lies in one folder (default /run/bringup-health: it is empty after a boot, as it should be), a file per node
and purpose; only a fault that the driver reported is kept beyond a boot, in MEMORY_FOLDER. A folder that cannot be
written, or that somebody else could write, changes no answer.
"""

import contextlib
import fcntl
import json
import sys
import syslog
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROBES = HERE / "probes" if (HERE / "probes").is_dir() else HERE.parent / "probes"
sys.path.append(str(PROBES))

import own_files
from brake import MOST, checked
from own_files import objection

__all__ = ["Kept", "Settings", "objection"]
STATE_FOLDER = "/run/bringup-health"
MEMORY_FOLDER = "/var/lib/bringup-health"
DRIVER_LOG = "discovery.kernel_log.xid"
DRIVER_REPAIRED = "driver-log"
LOG_BYTES = 2**20
DATE = "%Y-%m-%dT%H:%M:%SZ"


class Settings:
    """settings.json, written by `install`. Without it (in a checkout), or when it cannot be used: shadow mode."""

    def __init__(self, settings, problem=None):
        self.problem = problem  # why it cannot be used
        self.most_drained = settings.get("most_drained", MOST)
        self.drains = settings.get("mode") == "drain"
        self.slurm_folder = settings.get("slurm_folder", "/usr/bin")
        self.tools_folder = settings.get("tools_folder", "/usr/bin")  # where nvidia-smi was found
        self.slurm_conf = settings.get("slurm_conf")
        self.state_folder = Path(settings.get("state_folder", STATE_FOLDER))
        # what has to survive a boot
        self.memory_folder = Path(settings.get("state_folder", MEMORY_FOLDER))
        self.probes = PROBES

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
    def __init__(self, settings, node):
        self.begun = time.monotonic()
        self.folder, self.memory, self.node = settings.state_folder, settings.memory_folder, node
        self.boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self.objections = {folder: _made(folder) for folder in {self.folder, self.memory}}

    def variables(self):
        """For checks: the folders that nobody else can write."""
        named = {"BRINGUP_STATE": self.folder, "BRINGUP_MEMORY": self.memory}
        return {name: str(folder) for name, folder in named.items() if self.objections[folder] is None}

    def _file(self, suffix):
        return self.folder / f"{self.node}.{suffix}"

    def read(self, name, folder=None):
        """{} where there is nothing, or nothing whole."""
        folder = folder or self.folder
        if self.objections[folder] is not None:
            return {}
        try:
            with own_files.regular(folder / f"{self.node}.{name}.json", "r") as stream:
                content = json.load(stream)
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def keep(self, name, content, folder=None):
        """Whether it is kept."""
        folder = folder or self.folder
        if self.objections[folder] is not None:
            return False
        try:
            own_files.replace(folder / f"{self.node}.{name}.json", json.dumps(content, indent=1) + "\n")
        except OSError:
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
        if self.objections[self.folder] is not None:
            return False
        try:
            self._lock = own_files.regular(self._file("lock"), "a")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def driver_fault(self):
        """What the driver reported when the node was taken out of service; {}: nothing, or it was dealt with."""
        return self.read("driver-fault", self.memory)

    def keep_repaired(self):
        now = int(time.monotonic() * 1e6)
        self.keep(DRIVER_REPAIRED, {"boot": self.boot, "microseconds": now})

    def is_repaired_meanwhile(self):
        """Whether `--repaired` was called while this hook was at work."""
        repaired = self.read(DRIVER_REPAIRED)
        return repaired.get("boot") == self.boot and repaired["microseconds"] > self.begun * 1e6

    def remember(self, faults):
        """Until `bringup resume-nodes` has run the node under load, or somebody says that it is repaired."""
        words = [each["words"] for each in faults if each["gate"] == DRIVER_LOG]
        if words and not self.is_repaired_meanwhile():
            self.keep("driver-fault", {"at": time.strftime(DATE, time.gmtime()), "words": words[0]}, self.memory)

    def forget_driver_fault(self):
        with contextlib.suppress(OSError):
            (self.memory / f"{self.node}.driver-fault.json").unlink()

    def keep_place(self, facts):
        """How far the kernel's log was read."""
        for fact in facts.get("driver-log", ()):
            if fact.get("quantity") == "health.kernel_log.read":
                self.keep("log-read", {"boot": self.boot, "sequence": fact["value"]})

    def say_what_is_not_used(self, hook):
        for folder, why in self.objections.items():
            if why is not None:
                self.say(hook, f"{folder} is not used, so nothing is kept there: {why}")

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
        if self.objections[self.folder] is not None:
            return
        log = self._file("log")
        with contextlib.suppress(OSError):
            if log.exists() and log.stat().st_size > LOG_BYTES:
                log.replace(self._file("log.1"))
            with own_files.regular(log, "a") as stream:
                stream.write(f"{time.strftime(DATE, time.gmtime())} {self.node} {hook}: {line}\n")


def _made(folder):
    """Makes it where it is missing; why it must not be used, or None. Root uses no folder that others may write."""
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    return objection(folder)
