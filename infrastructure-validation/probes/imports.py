"""Imports of torch and transformers without the garbage collector.

They make about a million objects that live as long as the program. The collector goes through all of them several times
while they are made, and once more when the program ends: 1.2 of the 4.2 s of CPU that `transformers.Trainer` takes, for
every rank. What is frozen is also left out of later collections, which are pauses of one rank that all ranks wait for.
"""

import contextlib
import gc
import sys


@contextlib.contextmanager
def large_imports(without=()):
    """without: libraries that others import wherever they are installed, and that this program does not use then. They
    look as if they were not installed, and can be imported afterwards."""
    hidden = [name for name in without if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))
    gc.disable()
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        gc.freeze()
        gc.enable()
