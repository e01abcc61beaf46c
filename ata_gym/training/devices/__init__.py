"""Devices: workers whose tasks are run and timed there, the clock of their rounds, CUDA graphs and mixed precision."""

from __future__ import annotations

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="ata_gym.training.devices")
