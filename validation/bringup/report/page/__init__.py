"""One self-contained HTML page of everything a set of runs says: `bringup report`."""

from bringup.report.page.view import render

__all__ = ["render"]
