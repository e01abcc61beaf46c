"""The mean gradient of a round: filled in flat buckets, summed over the ranks, and checked before a step is taken."""

import ata_gym.cluster.needs_torch  # noqa: F401 - before what needs it
