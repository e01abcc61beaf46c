"""Models of torch and the devices they are on: weights, checkpoints, seeds, time and memory.

It needs torch, which each of the extras ``train``, ``rl`` and ``cluster`` brings.
"""

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="A model")
