"""Training methods on the same clock as the policies: Rennala SGD, Ringmaster ASGD, and what they are compared with.

>>> from ata_gym.pools import exponential
>>> result = run_method("rennala", exponential([1.0, 2.0, 3.0]), "quadratic", updates=10, budget=4)
>>> bool(result.used[-1] == 40 and result.loss[-1] < result.loss[0])
True
"""

from ata_gym.training.methods.method import EndedTask, Method, ParameterServer, UpdateRecord
from ata_gym.training.methods.run import METHODS, MethodResult, MethodRun, run_method

__all__ = [
    "METHODS",
    "EndedTask",
    "Method",
    "MethodResult",
    "MethodRun",
    "ParameterServer",
    "UpdateRecord",
    "run_method",
]
