"""The published figures and end points, and ours beside them.

The command ``reproduce`` imports from here.
"""
