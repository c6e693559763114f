"""Whether the kernel's clock is kept right by somebody, as the kernel itself says: adjtimex(2), without root."""

import ctypes
import os
from pathlib import Path

UNSYNCHRONISED = 0x40  # STA_UNSYNC
MOST_US = 16_000_000  # NTP_PHASE_LIMIT: the error after a boot, or when nobody has set the clock for hours
PROC = Path("/proc")
DAEMONS = ("chronyd", "ntpd", "systemd-timesyn", "ptp4l", "phc2sys")  # the kernel keeps 15 letters of a name
LONG = ctypes.c_long


class Timex(ctypes.Structure):
    _fields_ = [
        ("modes", ctypes.c_uint),
        *((name, LONG) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        *((name, LONG) for name in ("constant", "precision", "tolerance", "seconds", "fraction", "tick")),
        *((name, LONG) for name in ("ppsfreq", "jitter")),
        ("shift", ctypes.c_int),
        *((name, LONG) for name in ("stabil", "jitcnt", "calcnt", "errcnt", "stbcnt")),
        ("tai", ctypes.c_int),
        ("unused", ctypes.c_int * 11),
    ]


def timekeeping(facts):
    by = daemons()
    try:
        clock = kernel_clock()
    except (OSError, AttributeError) as error:  # a container may refuse it; a libc without the call
        facts.unknown("discovery.clock.synchronised", "flag", f"adjtimex: {error}; {by}")
        return
    remark = f"off by {clock.maxerror / 1e6:g} s at most, says the kernel; {by}"
    # chronyd without `rtcsync` keeps the clock and its error, and leaves the flag as it is after a boot
    is_kept = not clock.status & UNSYNCHRONISED or clock.maxerror < MOST_US
    facts.saw("discovery.clock.synchronised", is_kept, "flag", remark=remark)


def kernel_clock():
    clock = Timex(modes=0)  # nothing is changed
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(clock)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return clock


def daemons(proc=PROC):
    """Those that keep a clock and can be seen: others' processes may be hidden."""
    running = set()
    for path in proc.glob("[0-9]*/comm"):
        try:
            running.add(path.read_text().strip())
        except OSError:  # it has ended
            continue
    return f"running: {', '.join(sorted(running & set(DAEMONS))) or 'no daemon that is known to keep a clock'}"
