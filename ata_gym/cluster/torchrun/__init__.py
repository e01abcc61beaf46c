"""Allocation inside ``torch.distributed``: every rank runs the same policy on the same times, without a coordinator."""

import ata_gym.cluster.needs_torch  # noqa: F401 - before what needs it
