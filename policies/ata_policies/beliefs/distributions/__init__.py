"""The distribution of each worker's task times: a belief in bins, samples, and new tries."""
