"""Reinforcement learning: bridges to RL libraries, a network for workers, and the training of learned policies.

It needs the extra ``rl``.
"""
