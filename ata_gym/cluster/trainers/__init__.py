"""Allocation inside trainers of other projects: each of their batches is a round."""

import ata_gym.cluster.needs_torch  # noqa: F401 - before what needs it
