"""Verdicts and numbers for other programs."""

from bringup.report.exports.ctrf import ctrf
from bringup.report.exports.junit import junit
from bringup.report.exports.prometheus import prometheus

__all__ = ["ctrf", "junit", "prometheus"]
