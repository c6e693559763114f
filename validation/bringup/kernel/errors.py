"""Every error that a user can cause or meet. `cli` catches the root and nothing else of ours: the message is one line
(what was observed, what was expected, where, what to do), and the exit code is 2. An error outside of this tree is a
fault of bringup itself.
"""


class BringupError(Exception):
    """The root."""


class UsageError(BringupError):
    """Arguments that cannot work together, or name what does not exist."""


class RecordError(BringupError):
    """A file that is not the record it should be."""


class FileError(BringupError):
    """A profile, a site file or a file of checks that cannot be used. The line names file and key."""


class RunError(BringupError):
    """A run that cannot be opened or read, or is not a measure of health."""


class RuleError(BringupError):
    """A value and an expectation that cannot be compared: a text against a number, say."""


class ModelError(BringupError):
    """A model of which memory and FLOPs are not known."""


class NotComparable(BringupError):
    """Runs that are not comparable. Nothing is printed about their speed."""


class CannotStart(BringupError):
    """Phases or drills that could not be started."""


class DrillError(BringupError):
    """A drill that could not be performed."""


class SlurmError(BringupError):
    """A Slurm command that failed or is not there. printed: its standard output before it failed."""

    def __init__(self, message: str, printed: str = "") -> None:
        super().__init__(message)
        self.printed = printed


class ControllerAway(SlurmError):
    """Nothing was requested or done; slurmctld may be back in a minute."""
