"""Memories that notice a change and start anew.

``restarts`` is the memory that compositions choose; the detectors are its parts.
"""
