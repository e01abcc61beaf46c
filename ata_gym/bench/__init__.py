"""Experiments: run policies on a world, keep what they did, and report on it."""
