"""What allocations cost, by playing rounds on sampled task times."""
