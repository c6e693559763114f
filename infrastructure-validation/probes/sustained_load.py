"""Matrix products on one device for a minute or more: does it stay as fast as it began, and right? torch is handed in.

Speed is counted in windows. The first tenth is the warm-up. Drift: the median of the windows in the last third of the
time after it, as a share of that of the first third. Heat and power limits show after tens of seconds, which no short
test sees.
Every window's last product is compared with the exact one.
`watch`, when it is given, is called in every window while the device is busy; of what it says, the last third is kept.
"""

import statistics
import time

import compute
import faults
from patience import whole_seconds

DEFAULT_S = 60
WINDOWS = 12  # at least
WINDOW_S = 1.0
PAUSE_S = 3.0  # the drill: after each product


def seconds():
    """How long the load lasts. Raises ValueError."""
    return whole_seconds("BRINGUP_LOAD_S", DEFAULT_S)


class Load:
    """What a device did under load. windows: (seconds from the begin to its end, TFLOP/s) of each, at least three.
    watched: what was said of it in each. compared_s: of computing what was compared, the last product of each."""

    def __init__(self, windows, wrong, watched=(), compared_s=0.0):
        self.windows, self.wrong, self.compared_s = windows, wrong, compared_s
        self.watched = watched[-max(1, len(watched) // 3) :]

    @property
    def warm(self):
        return self.windows[max(1, len(self.windows) // 10) :]

    @property
    def speeds(self):
        return [speed for _, speed in self.windows]

    @property
    def tflops(self):
        return statistics.median(speed for _, speed in self.warm)

    @property
    def drift(self):
        """Last third of the time to the first third."""
        (first, _), (last, _) = self.warm[0], self.warm[-1]
        third = (last - first) / 3
        early = [speed for at, speed in self.warm if at <= first + third]
        late = [speed for at, speed in self.warm if at >= last - third]
        return statistics.median(late) / statistics.median(early)


def run(torch, device, duration_s, drill, watch=None):
    """drill: `slow`, `drifts`, `wrong` or None."""
    a, b, expected = compute.operands(torch, device)
    flop = 2 * a.shape[0] ** 3
    begun = compute.clock(torch, device)
    windows, wrong, watched, compared_s = [], 0, [], 0.0
    window_s = min(WINDOW_S, duration_s / WINDOWS)
    while compute.clock(torch, device) - begun < duration_s or len(windows) < 3:
        opened, now, products = compute.clock(torch, device), 0.0, 0
        while now - opened < window_s:
            product = a @ b
            if watch is not None and products == 0:
                watched.append(watch())  # a GPU has begun by now, and clock() waits for it to end
            now = compute.clock(torch, device)
            products += 1
            if drill == "slow" or (drill == "drifts" and now - begun > duration_s / 2):
                time.sleep(faults.size(PAUSE_S))
                now = compute.clock(torch, device)
        windows.append((now - begun, products * flop / (now - opened) / 1e12))
        if drill == "wrong" and len(windows) == 2:
            compute.spoil(product)
        wrong += int((product != expected).sum())
        compared_s += (now - opened) / products
    return Load(windows, wrong, watched, compared_s)
