"""Which RDMA ports NCCL may use: NCCL_IB_HCA, from the environment or from NCCL's own files. Standard library only."""

import os
from pathlib import Path

NAME = "NCCL_IB_HCA"
OF_SYSTEM = Path("/etc/nccl.conf")


def named():
    """Return what NCCL would read; "" where no HCA is named. A variable that is set and empty comes before NCCL's
    files. In these, NCCL ignores a line with a blank before the name or the `=`, and takes blanks around a value for a
    part of it."""
    if NAME in os.environ:
        return os.environ[NAME]
    of_user = Path(os.environ.get("NCCL_CONF_FILE") or os.path.expanduser("~/.nccl.conf"))  # noqa: PTH111  # never raises
    for file in (of_user, OF_SYSTEM):
        try:
            lines = file.read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            name, equals, value = line.partition("=")
            if equals and name == NAME:
                return value
    return ""


def allows(names, port):
    """Whether `names` takes mlx5_3:1. A name stands for all devices that begin with it, `=` before the list for that
    device alone, `^` for all others; a name may have a port."""
    device, _, number = port.rpartition(":")
    others = names.startswith("^")
    exact = names[others:].startswith("=")
    for entry in names[others + exact :].split(","):
        name, _, wanted = entry.partition(":")
        if (device == name or (not exact and device.startswith(name))) and name and wanted in ("", number):
            return not others
    return others
