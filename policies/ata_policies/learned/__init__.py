"""Policies that were learned: a network over workers that was trained before, and agents of RL libraries."""
