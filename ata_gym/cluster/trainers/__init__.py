"""Allocation inside trainers of other projects: each of their batches is a round."""

# This raises the error for a missing torch before anything imports torch.
import ata_gym.cluster.needs_torch  # noqa: F401
