"""Loaders that give each rank the samples of its tasks."""

# This raises the error for a missing torch before anything imports torch.
import ata_gym.cluster.needs_torch  # noqa: F401
