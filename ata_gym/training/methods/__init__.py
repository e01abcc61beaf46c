"""Training methods on the same clock as the policies.

They are Rennala SGD, Ringmaster ASGD, and the methods that these are compared with.
"""

from ata_gym.training.methods.method import EndedTask, Method, ParameterServer, UpdateRecord
from ata_gym.training.methods.run import METHODS, MethodRun

__all__ = ["METHODS", "EndedTask", "Method", "MethodRun", "ParameterServer", "UpdateRecord"]
