"""Studies of training: one trajectory on the clocks of policies, methods beside the policies, the paper's quadratic."""

import ata_gym.training.needs_torch  # noqa: F401 - before what needs it
