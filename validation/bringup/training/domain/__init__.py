"""From the records and logs of a training to the values that gates judge."""
