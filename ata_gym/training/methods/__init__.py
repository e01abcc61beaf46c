"""Training methods on the same clock as the policies.

They are Rennala SGD, Ringmaster ASGD, and the methods that these are compared with.
"""

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="Training")

from ata_gym.training.methods.method import (  # noqa: E402 - after the error that names the extra
    EndedTask,
    Method,
    ParameterServer,
    UpdateRecord,
)
from ata_gym.training.methods.run import METHODS, MethodRun  # noqa: E402

__all__ = ["METHODS", "EndedTask", "Method", "MethodRun", "ParameterServer", "UpdateRecord"]
