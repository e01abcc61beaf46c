"""Allocation inside ``torch.distributed``: every rank runs the same policy on the same times, without a coordinator."""

from __future__ import annotations

from ata_gym.utils.extras import require

require("torch", extra="cluster", purpose="ata_gym.cluster.torchrun")
