"""Policies that share one trajectory, each on its own clock, beside training methods."""
