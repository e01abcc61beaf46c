"""What allocations, races and dispatch rules cost, by playing rounds on sampled task times."""
