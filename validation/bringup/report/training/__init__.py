"""A training report: goal, hardware, software, model, configuration, performance, utilisation, comparison, assessment.

Every line is read from the records and the evidence of the runs. What they do not hold is said to be not recorded.
"""

from bringup.report.training.chapters import Report, markdown, report

__all__ = ["Report", "markdown", "report"]
