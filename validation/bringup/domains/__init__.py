"""From facts to the observations that gates judge: folds over devices, and what is really computed. Pure."""
