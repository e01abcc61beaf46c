"""Devices: workers whose tasks are run and timed there, CUDA graphs and mixed precision.

The trainer, the wrapper and the command ``measure`` import from here.
"""
