"""RoCE: how its ports are set, and what their interfaces have counted, from sysfs, ethtool and mlnx_qos."""

import os
import re
import shutil
import subprocess

from facts import read
from tools import ran

LIMIT_S = 10
PLACES = "/usr/sbin:/sbin"  # behind the PATH of a user
_ENABLED = re.compile(r"^\s*enabled((?:\s+[01]){8})\s*$", re.M)
_COUNTER = re.compile(r"^\s*(\w+): (\d+)$", re.M)
# frames with which the switch stopped the port, and frames that the port dropped: of mlx5, and of bnxt_en
# (mellanox/mlx5/core/en_stats.c and broadcom/bnxt/bnxt_ethtool.c of Linux)
PAUSES = re.compile(r"rx_prio\d_pause|rx_pfc_ena_frames_pri\d")
DISCARDS = ("rx_discards_phy", "rx_stat_discard")


class NoAnswer(Exception):
    pass


def flow_control(interface):
    """Which of ECN and PFC is on for some priority; `off`; or `unknown`, where one of the two cannot be seen."""
    places = [sorted(interface.glob(f"ecn/{what}/enable/[0-7]")) for what in ("roce_np", "roce_rp")]
    known = {"ECN": all(any(read(path) == "1" for path in paths) for paths in places) if all(places) else None}
    try:
        priorities = _ENABLED.search(_answer("mlnx_qos", "-i", interface.name))
        known["PFC"] = "1" in priorities[1] if priorities else None
    except NoAnswer:
        known["PFC"] = None
    on = [name for name, is_on in known.items() if is_on]
    return " and ".join(on) or ("unknown" if None in known.values() else "off")


def counted(interface):
    """{counter: number} of pauses and of frames that the port dropped. Raises NoAnswer."""
    counters = {name: int(count) for name, count in _COUNTER.findall(_answer("ethtool", "-S", interface.name))}
    pauses = [count for name, count in counters.items() if PAUSES.fullmatch(name)]
    discards = {name: counters[name] for name in DISCARDS if name in counters}
    if not pauses or not discards:
        raise NoAnswer(f"ethtool -S {interface.name} has no rx_prio0_pause or no rx_discards_phy, nor Broadcom's")
    return {"rx_pause": sum(pauses), **discards}


def _answer(tool, *words):
    program = shutil.which(tool, path=f"{os.environ.get('PATH', '')}:{PLACES}")
    if program is None:
        raise NoAnswer(f"{tool} is not installed")
    try:
        done = ran([program, *words], LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoAnswer(f"{tool}: {error}") from error
    if done.returncode != 0:
        raise NoAnswer(f"{tool} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[:200]}")
    return done.stdout
