"""Experiments and studies: policies on scenarios, what they did, and the reports on it."""
