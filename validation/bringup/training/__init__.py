"""What is computed of trainings: their records, formulae, predictions, comparison, and the facts that gates judge."""
