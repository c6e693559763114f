"""A training report: overview, hardware, software, model, configuration, metrics, what they mean, utilisation,
comparison, assessment. Every line is read from records and evidence; what they do not hold has no line."""

from bringup.report.training.chapters import Report, report

__all__ = ["Report", "report"]
