"""The published figures that need training: the quadratic, and the network of CIFAR-100."""

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="A figure with a training")
