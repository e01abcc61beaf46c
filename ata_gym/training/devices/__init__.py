"""Devices: workers whose tasks are run and timed there, the clock of their rounds, CUDA graphs and mixed precision.

The trainer, the wrapper and the command ``measure`` import from here.
"""

from __future__ import annotations

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="ata_gym.training.devices")
