"""Allocation inside ``torch.distributed``, without a coordinator.

Every rank runs the same policy on the same times.
"""

# This raises the error for a missing torch before anything imports torch.
import ata_gym.cluster.needs_torch  # noqa: F401
