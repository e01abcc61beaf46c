"""Reinforcement learning: bridges to RL libraries, a network for workers, and the training of learned policies.

The command ``learn`` imports from here; this room imports bench, the zoo and the core. It needs the extra ``rl``.
"""
