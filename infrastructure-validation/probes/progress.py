"""How far a rank is with its collectives, and what it leaves when it gets no further.

A collective may wait BRINGUP_HANG_S (120 s). That is a number of its own: how long ranks may start apart says
BRINGUP_START_S (arrival.py). After half of it without progress a rank says as facts how many collectives it had entered
and left, and where it is, and writes the stacks of all its threads to standard error. Where a call keeps the
interpreter lock, so that nothing can be said, faulthandler's own thread in C writes the stacks a little later. It takes
no lock: while threads run Python, it can end the process. So it is called off before anything is said. A rank that is
stopped says nothing, and the others do.
"""

import faulthandler
import sys
import threading
import time
import traceback
from pathlib import Path

from facts import Facts, node_name
from patience import whole_seconds

DEFAULT_S = 120
LOOK_EVERY_S = 1.0
LOCKED = 1.5  # times the patience: then nothing was said, and the interpreter is locked


def hang_s():
    """Seconds that a collective may wait. Raises ValueError."""
    return whole_seconds("BRINGUP_HANG_S", DEFAULT_S, least=2)


class Progress:
    """Collectives that this rank entered and left, on all groups. Counting costs less than a microsecond."""

    def __init__(self):
        self.entered = self.left = 0
        self.operation = "nothing"
        self.since = time.monotonic()
        self._closed, self._watcher = threading.Event(), None

    def enter(self, operation):
        """operation: all_gather@1MiB."""
        self.operation = operation
        self.entered += 1
        self.since = time.monotonic()

    def leave(self):
        self.left += 1
        self.since = time.monotonic()

    def watch(self, scale, rank, patience_s, keep=lambda: None):
        """Until close(), which a rank that ends by an error does not call: its threads end with it. keep: called when
        there was no progress, after that was said."""
        watched = (scale, rank, patience_s, keep)
        self._watcher = threading.Thread(target=self._look, args=watched, name="progress", daemon=True)
        self._watcher.start()

    def close(self):
        self._closed.set()
        if self._watcher is not None:
            self._watcher.join(LOOK_EVERY_S)  # else it might call for the stacks once more
        faulthandler.cancel_dump_traceback_later()

    def _look(self, scale, rank, patience_s, keep):
        last_change = None
        while not self._closed.wait(min(LOOK_EVERY_S, patience_s / 10)):
            if last_change != self.since:  # starting faulthandler's thread costs 0.1 ms: not in every collective
                last_change = self.since
                faulthandler.dump_traceback_later(LOCKED * patience_s, file=sys.stderr)
            if time.monotonic() - self.since > patience_s:
                faulthandler.cancel_dump_traceback_later()
                self.say(scale, rank, Facts("progress"))
                faulthandler.dump_traceback(file=sys.stderr)  # with the interpreter lock
                keep()
                return

    def say(self, scale, rank, facts):
        """Once: a rank that goes on after all says later that it finished."""
        subject = f"{node_name()}/rank{rank}"
        inside = "in" if self.entered > self.left else "after"
        facts.saw("nccl.rank.entered", self.entered, "count", subject, f"{inside} {self.operation}, {where()}")
        facts.saw("nccl.rank.left", self.left, "count", subject)
        facts.saw("nccl.quiet", round(time.monotonic() - self.since, 1), "s", scale, f"of {subject}")
        facts.finish()


def where():
    """The innermost frame of the main thread: `at synchronize (bench.py:230)`."""
    main = sys._current_frames().get(threading.main_thread().ident)
    if main is None:
        return "nowhere"
    frame = traceback.extract_stack(main)[-1]
    return f"at {frame.name} ({Path(frame.filename).name}:{frame.lineno})"
