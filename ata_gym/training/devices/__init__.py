"""Devices: workers whose tasks are run and timed there, the clock of their rounds, CUDA graphs and mixed precision."""

import ata_gym.training.needs_torch  # noqa: F401 - before what needs it
