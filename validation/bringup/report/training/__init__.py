"""A training report: overview, hardware, software, model, metrics, what they mean, comparison, assessment."""
