"""Pictures beside report.md and of --plot, drawn by matplotlib: of one run, of training runs. They judge nothing."""
