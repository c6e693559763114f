"""Verdicts and numbers for other programs."""

from bringup.report.exports.junit import junit
from bringup.report.exports.prometheus import prometheus

__all__ = ["junit", "prometheus"]
