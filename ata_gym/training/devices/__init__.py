"""Devices: workers whose tasks are run and timed there, the clock of their rounds, CUDA graphs and mixed precision."""
