"""The buffers of models, which the tasks of a round may change on each rank alone."""

# This raises the error for a missing torch before anything imports torch.
import ata_gym.cluster.needs_torch  # noqa: F401
