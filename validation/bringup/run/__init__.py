"""Running phases on a cluster: open a run, launch it, wait, resume. The only room that asks Slurm."""
