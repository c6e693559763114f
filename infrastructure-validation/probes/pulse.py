"""The heartbeat of a process: a thread that wakes four times a second and keeps the gaps between two beats.

Where ranks wait for one another, all of them are late, and their times do not say who was the first. The heartbeat
does. A rank that waits for another one goes on beating, because torch gives the interpreter lock back while it waits.
So a gap belongs to the process itself: somebody stopped it (SIGSTOP, a frozen cgroup, a frozen node), it got no core,
or one call kept the interpreter lock. The CPU time within the gap tells the last one from the others. A machine whose
clock stands still with it, as a paused virtual one may, leaves no gap.
"""

import threading
import time
from collections import namedtuple

EVERY_S = 0.25
LEAST_S = 1.0  # shorter gaps are not kept: a busy core makes them
MOST = 1000  # gaps kept: the first ones

# begun, ended: time.perf_counter(); cpu_s: that the process used meanwhile
Gap = namedtuple("Gap", "begun ended cpu_s")


class Pulse:
    """Beats from now on, until it is closed or the process ends."""

    def __init__(self):
        self._gaps, self._closed = [], threading.Event()
        self._last = self._now()
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    def gaps(self):
        """All so far, and the running one if it is long enough."""
        running = self._since(self._last)
        return self._gaps + ([running] if running.ended - running.begun > LEAST_S else [])

    def close(self):
        self._closed.set()

    def _beat(self):
        while not self._closed.wait(EVERY_S):
            gap = self._since(self._last)
            self._last = (gap.ended, time.process_time())
            if gap.ended - gap.begun > LEAST_S and len(self._gaps) < MOST:
                self._gaps.append(gap)

    @staticmethod
    def _now():
        return time.perf_counter(), time.process_time()

    def _since(self, last):
        now, cpu = self._now()
        return Gap(last[0], now, cpu - last[1])


def longest(gaps, spans):
    """(seconds, index of the span, CPU seconds) of the longest part of a gap inside one of `spans`, [(begin, end)];
    (0.0, None, None) where there is none. What lies between spans does not count: it was a known pause."""
    inside = [
        (min(gap.ended, end) - max(gap.begun, begin), index, gap.cpu_s)
        for index, (begin, end) in enumerate(spans)
        for gap in gaps
    ]
    longest_part = max(inside, default=(0.0, None, None), key=lambda entry: entry[0])
    return longest_part if longest_part[0] > 0 else (0.0, None, None)
