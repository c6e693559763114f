#!/usr/bin/env python3
"""Xids that the driver reports to NVML from now until the standard input ends, or SIGTERM: where users may not read the
kernel's log, this is what they can know of it.

An event has the number of an Xid. The driver's words, messages about NVSwitches, and what was before are in the log
alone. NVML's reference names no user who may not ask; what NVML refuses is unknown, in its own words. An Xid that comes
again on the same GPU is reported once.
Run: srun --label --overlap --ntasks-per-node=1 --gpus-per-node=8 python3 xids.py, with an open standard input
"""

import ctypes
import signal
import sys
import threading
import time
from functools import partial

import nvml
from facts import Facts
from patience import NoAnswer, seconds, within

WAIT_MS = 500
LAST_S = 2.0  # for the events that came before the end and were not asked for yet
PAUSE_S = 1.0  # after an error: NVML answers at once from when a GPU is lost


def main():
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    facts = Facts("xids")
    library, why_not = nvml.library()
    if library is None:
        facts.unknown("load.event.gpus", "count", why_not)
    else:
        watch(facts, library, stop)
    facts.finish()


def watch(facts, library, stop):
    """load.event.gpus: those that are watched; load.event.seconds: how long, without a gap; load.event.xid_79, ...: it
    came."""
    refused, watched = {}, {}
    try:
        events = within(seconds(), library.nvmlEventSetCreate)
        for index, gpu, error in nvml.each_gpu(library):
            error = error or _refusal(library, events, gpu[0])
            if error is None:
                watched[_place(gpu[0])] = gpu[1]
            else:
                refused[f"gpu{index}" if gpu is None else gpu[1]] = f"NVML's events: {error}"
    except (library.NVMLError, NoAnswer, AttributeError) as error:  # AttributeError: a pynvml older than the question
        facts.unknown("load.event.gpus", "count", f"NVML's events: {error}")
        return
    if not watched:
        facts.unknown("load.event.gpus", "count", next(iter(refused.values()), "NVML lists no GPU"))
        return
    facts.saw("load.event.gpus", len(watched), "count")
    for gpu, why in refused.items():
        facts.unknown("load.event.watched", "flag", why, f"{facts.at}/{gpu}")
    begun, seen, gap = time.monotonic(), set(), None
    until = None  # when the end is asked for, what came in the last moment is still in the queue
    while until is None or time.monotonic() < until:
        if until is None and stop.is_set():
            until = time.monotonic() + LAST_S
        try:
            event = within(seconds(), partial(library.nvmlEventSetWait_v2, events, WAIT_MS if until is None else 0))
        except library.NVMLError_Timeout:
            if until is not None:
                break
            continue
        except (library.NVMLError, NoAnswer) as error:
            gap = gap or f"NVML's events after {time.monotonic() - begun:.0f} s: {error}"
            if until is not None:
                break
            stop.wait(PAUSE_S)
            continue
        xid = event.eventData, watched.get(_place(event.device), "a GPU")
        if xid not in seen:
            seen.add(xid)
            facts.saw(f"load.event.xid_{xid[0]}", True, "flag", f"{facts.at}/{xid[1]}")
    if gap is None:
        facts.saw("load.event.seconds", round(time.monotonic() - begun, 1), "s")
    else:
        facts.unknown("load.event.seconds", "s", gap)


def _place(gpu):
    """Tells one handle from another. NVML does not give the UUID of a GPU that is lost by now."""
    return ctypes.cast(gpu, ctypes.c_void_p).value


def _refusal(library, events, gpu):
    """Why its Xids will not be reported; None: they will."""
    try:
        within(seconds(), lambda: _register(library, events, gpu))
    except (library.NVMLError, NoAnswer, nvml.NothingToAsk) as error:
        return error
    return None


def _register(library, events, gpu):
    xid = library.nvmlEventTypeXidCriticalError
    if not library.nvmlDeviceGetSupportedEventTypes(gpu) & xid:
        raise nvml.NothingToAsk("this GPU has none for an Xid")
    if nvml.in_mig_mode(library, gpu):
        raise nvml.NothingToAsk("of a GPU in MIG mode, they tell an ordinary user about the whole GPU alone")
    library.nvmlDeviceRegisterEvents(gpu, xid, events)


if __name__ == "__main__":
    main()
