"""A question that may never be answered: a call into a driver can hang, and nothing ends it. The caller goes on."""

import os
import threading

DEFAULT_S = 20  # a driver that is not kept loaded takes seconds for its first answer
NAME = "BRINGUP_GPU_S"


def whole_seconds(name, default, least=1, most=86400):
    """What a variable says. Raises ValueError."""
    text = os.environ.get(name) or str(default)
    if not text.isdigit() or not least <= int(text) <= most:
        raise ValueError(f"{name}={text}: expected seconds, from {least} to {most}")
    return int(text)


class NoAnswer(Exception):
    """In time."""


def seconds():
    """How long a GPU may take for an answer."""
    try:
        return float(os.environ[NAME])
    except (KeyError, ValueError):
        return DEFAULT_S


def within(limit_s, question):
    """What question() returns or raises. NoAnswer: it took longer. Its thread is left behind and ends with the
    process."""
    ended = []

    def ask():
        try:
            ended.append((question(), None))
        except BaseException as error:  # noqa: BLE001  # raised again by who asked
            ended.append((None, error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(limit_s)
    if not ended:
        raise NoAnswer(f"no answer within {limit_s:g} s")
    answer, error = ended[0]
    if error is not None:
        raise error
    return answer
