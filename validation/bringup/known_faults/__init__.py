"""Faults that others have met: signatures of log lines, Xids, pending reasons, exit codes."""
