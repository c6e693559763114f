"""What exit codes and signals mean. The table: validation/known_faults/exit-codes.yaml."""

from bringup.readers.known.tables import Sourced, entries


class _ExitCodes(Sourced):
    codes: dict[int, str]
    signals: dict[int, list[str]]  # name, words of the C library, meaning


_ENDS = _ExitCodes.model_validate(entries("exit-codes"))
SIGNALS = {words: meaning for _, words, meaning in _ENDS.signals.values()}
"""What the C library calls a signal -> what it means."""
EXIT_CODES = _ENDS.codes | {128 + number: meaning for number, (*_, meaning) in _ENDS.signals.items()}
"""Exit codes of a step, as the shell counts them: 128 + signal."""
