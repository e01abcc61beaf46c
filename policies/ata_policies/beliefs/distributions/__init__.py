"""The distribution of each worker's task times: a belief in bins, samples of it, and who is tried again."""
