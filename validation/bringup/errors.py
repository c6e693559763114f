"""Every error that a user can cause or meet. `cli` catches the root and nothing else of ours.

    BringupError            one line: what was observed, what was expected, where, what to do. Exit code 2
    ├── UsageError          arguments that cannot work together, or name what does not exist
    ├── RecordError         a file that is not the record it should be
    ├── ProfileError        a profile that cannot be used
    ├── SiteError           a site file that cannot be used
    ├── CheckError          a file of checks that cannot be used
    ├── RunError            a run that cannot be opened or read
    ├── RuleError           a value and an expectation that cannot be compared
    ├── ModelError          a model of which memory and FLOPs are not known
    ├── NotComparable       runs that are not comparable
    ├── NotHealthy          a run that is not a measure of health
    ├── CannotStart         phases or drills that could not be started
    ├── DrillError          a drill that could not be performed
    └── SlurmError          a Slurm command that failed or is not there
        └── ControllerAway  nothing was requested or done; slurmctld may be back in a minute

An error outside of this tree is a fault of bringup itself.
"""

from __future__ import annotations


class BringupError(Exception):
    """The message is one line."""


class UsageError(BringupError):
    pass


class RecordError(BringupError):
    """The line names file, field, and what is wrong."""


class ProfileError(BringupError):
    """The line names file, key, what is wrong, and what to do."""


class SiteError(BringupError):
    """The line names file, key, what is wrong, and what to do."""


class CheckError(BringupError):
    """The line names file, line, check, field, and what is wrong."""


class RunError(BringupError):
    """The line says what, where, and what to do."""


class RuleError(BringupError):
    """A text against a number, say: we could not tell."""


class ModelError(BringupError):
    pass


class NotComparable(BringupError):
    """The line names the runs and the field. Nothing is printed about their speed."""


class NotHealthy(BringupError):
    """The line says which run, what failed, and what to do."""


class CannotStart(BringupError):
    pass


class DrillError(BringupError):
    pass


class SlurmError(BringupError):
    """printed: standard output of the command before it failed."""

    def __init__(self, message: str, printed: str = "") -> None:
        super().__init__(message)
        self.printed = printed


class ControllerAway(SlurmError):
    pass
