"""Statistics of runs: beside each other, against a baseline, over time; and the profile that they make."""
