"""Imports of torch and transformers without the garbage collector.

They make about a million objects that live as long as the program. The collector goes through all of them several times
while they are made, and once more when the program ends: 1.2 of the 4.2 s of CPU that `transformers.Trainer` takes, for
every rank. What is frozen is also left out of later collections, which are pauses of one rank that all ranks wait for.
"""

import contextlib
import gc


@contextlib.contextmanager
def large_imports():
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
