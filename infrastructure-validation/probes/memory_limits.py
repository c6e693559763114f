"""How much memory this process can still get on its host: by the kernel, and by the cgroups around it (v1 or v2)."""

import collections
from pathlib import Path

FILE_PAGES = ("inactive_file", "active_file")
NO_LIMIT = 2**60  # v1 writes a number near 2**63 for none

# of a cgroup. bytes: its limit; left: limit - usage + pages of files, which the kernel drops before it fails
Limit = collections.namedtuple("Limit", ("file", "bytes", "left"))


def host_available(root=Path("/")):
    """(bytes, what says so): MemAvailable, or the file of a cgroup."""
    lines = dict(line.split(":") for line in (root / "proc/meminfo").read_text().splitlines())
    kernel = (int(lines["MemAvailable"].split()[0]) * 1024, "MemAvailable")
    return min([kernel] + [(limit.left, str(limit.file)) for limit in of_cgroups(root)])


def of_cgroups(root=Path("/")):
    """The Limits of this process's cgroup and of those above it, the innermost first."""
    limits = []
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            limits += _upwards(root / "sys/fs/cgroup/memory", path, "limit_in_bytes", "usage_in_bytes", "total_")
        elif not controllers:
            limits += _upwards(root / "sys/fs/cgroup", path, "max", "current", "")
    return limits


def _upwards(mount, path, limit, usage, of_children):
    parts = Path(path.lstrip("/")).parts
    # in a container the mount begins somewhere below the path's first part
    below = (mount.joinpath(*parts[cut:]) for cut in range(len(parts)))
    inner = next((folder for folder in below if folder.is_dir()), mount)
    limits = []
    while inner != mount.parent:
        file = inner / f"memory.{limit}"
        text = file.read_text().strip() if file.is_file() else "max"
        if text.isdigit() and int(text) < NO_LIMIT and (inner / "memory.stat").is_file():
            kept = dict(line.split() for line in (inner / "memory.stat").read_text().splitlines())
            used = int((inner / f"memory.{usage}").read_text())
            dropped = sum(int(kept.get(of_children + pages, 0)) for pages in FILE_PAGES)
            limits.append(Limit(file, int(text), int(text) - used + dropped))
        inner = inner.parent
    return limits
