"""What a node runs: kernel, system, libraries by content, the mount of the working directory. For comparing nodes."""

import errno
import hashlib
import os
import platform
import re
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

from fabric import uses_rdma
from tools import ran

# what a launch or a collective loads from the node itself; soname -> short name
LIBRARIES = {
    "libc.so.6": "libc",
    "libcuda.so.1": "libcuda",
    "libnccl.so.2": "libnccl",
    "libibverbs.so.1": "libibverbs",
    "libmunge.so.2": "libmunge",
}
HASHED_BYTES = 16 * 2**20  # of each end; libcuda and libnccl hold hundreds of MB
MOUNTS = Path("/proc/self/mountinfo")
OS_RELEASE = Path("/etc/os-release")
TORCH = re.compile(r"^(__version__|cuda)\b[^=\n]*=\s*(?:'([^'\n]+)'|None)", re.M)
PACKAGES = (  # the first ones also where torch is not installed
    *("pydantic", "pyyaml", "jinja2", "rich"),
    *("transformers", "accelerate", "datasets", "numpy", "triton", "nvidia_nccl_cu12", "nvidia_nccl_cu13"),
)
ABSENT = "absent"  # looked for and not there: an observation like any other
# where this is not so, a node that lacks the library lacks nothing
NEEDED = {
    "libcuda": ("there is no driver", Path("/proc/driver/nvidia/version").exists),
    "libibverbs": ("no RDMA port is active", uses_rdma),
    "libmunge": ("munge does not run", lambda: any(Path("/run/munge").glob("munge.socket*"))),
}
# they differ between healthy clients of one server
OWN_TO_A_CLIENT = re.compile(r"^(clientaddr|addr|mountaddr|port|mountport)=")


def software(facts):
    facts.saw("discovery.node.hostname", socket.gethostname(), "text")
    facts.saw("discovery.node.distinct", Path("/proc/sys/kernel/random/boot_id").read_text().strip(), "text")
    machine_id(facts, Path("/etc/machine-id"))
    facts.saw("discovery.kernel", Path("/proc/sys/kernel/osrelease").read_text().strip(), "text")
    release = os_release(OS_RELEASE.read_text(errors="replace"))
    facts.answered("discovery.os", release, "text", f"{OS_RELEASE} names no release")
    facts.saw("discovery.python", f"{platform.python_implementation()} {platform.python_version()}", "text")
    known = linker_cache()
    for soname, name in LIBRARIES.items():
        path = bundled_nccl() if soname == "libnccl.so.2" else None
        if path is None and known is None:
            facts.unknown(f"inventory.library.{name}", "text", "ldconfig gave no answer about what is installed")
            continue
        path = path or known.get(soname)
        question = partial(identity, path) if path else partial(absent, name)
        facts.asked(f"inventory.library.{name}", "text", question, path)
    version, cuda = torch_build(sys.path)
    facts.saw("inventory.torch", cuda, "text", remark=version)
    installed = [f"{name}={version}" for name, version in sorted(packages(sys.path).items())]
    facts.saw("inventory.packages", [f"torch={version}", f"torch's CUDA={cuda}", *installed], "text")
    here = Path.cwd()
    facts.asked("discovery.mount", "text", lambda: mount_of(here), "the mount of the working directory", remark=here)
    hub = os.environ.get("HF_HOME") or "~/.cache/huggingface"  # models and data sets: the largest folder of a training
    # by the table of mounts: a server that is gone keeps who looks into its folder. RuntimeError: no home
    place, errors = (lambda: f"{hub}: {mount_of(Path(hub).expanduser())}"), (OSError, RuntimeError)
    facts.asked("inventory.hf_home", "text", place, hub, errors)


def machine_id(facts, path):
    """A hash: who knows the number itself can take the node for another one (machine-id(5))."""
    try:
        number = path.read_text().strip()
    except OSError as error:
        facts.unknown("discovery.node.machine_id", "text", f"{path}: {error.strerror}")
        return
    if re.fullmatch("[0-9a-f]{32}", number):
        facts.saw("discovery.node.machine_id", hashlib.sha256(number.encode()).hexdigest()[:12], "text")
    else:
        facts.unknown("discovery.node.machine_id", "text", f"{path} holds no number")


def absent(library):
    """`absent`, or also why nothing on this node needs it."""
    why, needed = NEEDED.get(library, ("", lambda: True))
    return ABSENT if needed() else f"{ABSENT}: {why}"


def os_release(text):
    for line in text.splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip().strip("\"'") or None
    return None


def linker_cache():
    """{soname: path} as the dynamic linker would choose: of several, the first. None when it cannot be asked."""
    for ldconfig in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            answer = ran((ldconfig, "-p"), 10, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        libraries = {}
        for line in answer.splitlines():
            match = re.match(r"\s+(\S+) \(.*\) => (\S+)", line)
            if match:
                libraries.setdefault(match[1], match[2])
        return libraries or None  # a list without a single library is not a list
    return None


def bundled_nccl():
    """torch's wheels bring their own NCCL; that one is loaded, whatever the system has."""
    for folder in sys.path:
        path = Path(folder) / "nvidia/nccl/lib/libnccl.so.2"
        if folder and path.is_file():
            return str(path)
    return None


def torch_build(folders):
    """(its version, the CUDA that it was built for or `CPU`), from its own file: to import it takes seconds. ABSENT
    twice: it is not installed."""
    for folder in folders:
        path = Path(folder) / "torch/version.py"
        if folder and path.is_file():
            lines = dict(TORCH.findall(path.read_text(errors="replace")))
            return lines.get("__version__") or "?", lines.get("cuda") or "CPU"
    return ABSENT, ABSENT


def packages(folders):
    """{name: version} of those that training uses: the first on the path is the one that is imported."""
    versions = {}
    for folder in filter(None, folders):
        for path in sorted(Path(folder).glob("*.dist-info")):
            name, _, version = path.name[: -len(".dist-info")].partition("-")
            if name.lower() in PACKAGES:
                versions.setdefault(name.lower(), version)
    return versions


def identity(path):
    """Real file name, size, and a hash of its beginning and end."""
    real = Path(path).resolve()
    size = real.stat().st_size
    digest = hashlib.sha256()
    with real.open("rb") as stream:
        digest.update(stream.read(HASHED_BYTES))
        if size > HASHED_BYTES:
            stream.seek(max(HASHED_BYTES, size - HASHED_BYTES))
            digest.update(stream.read(HASHED_BYTES))
    return f"{real.name} {size} bytes {digest.hexdigest()[:12]}"


def mount_of(folder):
    """File system, source and options of the mount that holds `folder`, without what is a client's own."""
    best = None
    for line in MOUNTS.read_text(errors="replace").splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        point = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), fields[4])
        # later lines are mounted over earlier ones
        if Path(point) in (Path(folder), *Path(folder).parents) and (best is None or len(point) >= len(best[0])):
            best = point, fields[5], right
    if best is None:
        raise FileNotFoundError(errno.ENOENT, f"{folder} is below no mount")
    _, options, right = best
    kind, source, more = [*right.split(" "), "", "", ""][:3]
    shared = sorted({option for option in f"{options},{more}".split(",") if not OWN_TO_A_CLIENT.match(option)})
    return f"{kind} {source} {','.join(shared)}"
