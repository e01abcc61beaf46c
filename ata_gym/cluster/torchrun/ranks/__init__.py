"""The ranks that compute a round together, as a process group, replicas or a quorum."""

# This raises the error for a missing torch before anything imports torch.
import ata_gym.cluster.needs_torch  # noqa: F401
