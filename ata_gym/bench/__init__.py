"""Experiments and studies: run policies on scenarios, keep what they did, and report on it.

The rooms above (training, rl, cluster, cli) import from here; this room imports policies and the core.
"""
