"""`bringup why`: the first cause of the end of any job."""
