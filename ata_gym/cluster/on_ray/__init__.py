"""Work on a Ray cluster: rounds of tasks on its actors, and sweeps of jobs on its nodes."""
