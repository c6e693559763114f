"""Known faults: signatures of log lines, Xids, pending reasons, exit codes."""
