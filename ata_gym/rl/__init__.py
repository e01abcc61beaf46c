"""Reinforcement learning: bridges to RL libraries, networks and the training of policies.

It needs the extra ``rl``.
"""
