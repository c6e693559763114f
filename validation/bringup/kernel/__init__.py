"""From a plan and a folder of evidence to verdicts and answers. Read this room first.

errors, characters · records: what goes to disk · plan: what is declared before a run · facts: what was read, and folds
over devices · judge: verdicts · answers: the six questions · results: paths of a run.
It imports no other room: bringup/registry.py names the readers and the domains for it.
"""
