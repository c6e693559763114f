"""What was read of a run: facts of devices, who wrote them, and the folds that make values for gates of them."""
