"""Work on a Ray cluster: rounds whose tasks actors compute, and sweeps whose jobs its nodes play."""
