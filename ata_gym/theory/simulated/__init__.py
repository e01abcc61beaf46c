"""What allocations and races cost, by playing rounds on sampled task times."""
