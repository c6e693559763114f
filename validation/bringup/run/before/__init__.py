"""Before anything is queued: facts of this host and of Slurm, the checks of `bringup doctor`, a first site file."""
