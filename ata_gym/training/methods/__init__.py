"""Training methods on the same clock as the policies: Rennala SGD, Ringmaster ASGD, and what they are compared with.

>>> from ata_gym.pools import exponential
>>> result = run_method("rennala", exponential([1.0, 2.0, 3.0]), "quadratic", updates=10, budget=4)
>>> bool(result.used[-1] == 40 and result.loss[-1] < result.loss[0])
True
"""

from ata_gym.training.methods.method import Method
from ata_gym.training.methods.registry import METHODS
from ata_gym.training.methods.run import Result, Run, run_method
from ata_gym.training.methods.server import Record, Server, Task

__all__ = ["METHODS", "Method", "Record", "Result", "Run", "Server", "Task", "run_method"]
