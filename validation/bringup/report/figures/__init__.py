"""Pictures for a reader, of one run, of pairs of nodes, of training runs. They judge nothing. All are drawn on one
canvas."""
