"""Commands to look closely: at rounds, at a policy, at recorded data, workers and results of a user's own."""
