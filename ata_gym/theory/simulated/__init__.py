"""What allocations, races and dispatch rules cost, by playing rounds on sampled task times.

Policies that plan by simulation and the oracles import from here.
"""
