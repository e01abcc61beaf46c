"""Policies that were learned: a network over workers that was trained before, and agents of RL libraries.

The presets import from here; this room imports the contract of policies and the features of the envs.
"""
