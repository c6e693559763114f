"""Checkpoints: written whole or not at all, looked at before they are read, the same whatever the strategy.

state.py     what one holds: the tensors of model and optimizer, the random state; their fingerprints
files.py     writes and reads the files, and finds those that are whole
metadata.py  reads the one file of it that is a pickle, by a closed list of names
size.py      how large one is going to be, and whether there is room
resume.py    when one is written, the rehearsal of a resume, and where a run begins
stopping.py  ends a training early, with a checkpoint

docs/checkpoints.md says what lies in the folder of a checkpoint.
"""
