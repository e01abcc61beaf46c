"""Imported before what needs torch: without torch, the import says in a sentence what to install."""

from ata_gym.utils.extras import require

require("torch", extra="cluster", purpose="Training on real processes")
