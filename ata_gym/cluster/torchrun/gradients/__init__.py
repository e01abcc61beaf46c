"""The mean gradient of a round.

It is filled in flat buckets, summed over the ranks, and checked before a step is taken.
"""

# This raises the error for a missing torch before anything imports torch.
import ata_gym.cluster.needs_torch  # noqa: F401
