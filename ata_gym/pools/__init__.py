"""Pools: the workers, and the laws of their task times."""

from ata_gym.pools.constructors import (
    deterministic,
    exponential,
    gamma,
    half_normal,
    log_normal,
    pareto,
    shifted_exponential,
    trace,
    uniform,
    weibull,
)
from ata_gym.pools.measured import measured
from ata_gym.pools.pool import Laws, Pool, concatenate
from ata_gym.pools.traces import read_trace

__all__ = [
    "Laws",
    "Pool",
    "concatenate",
    "deterministic",
    "exponential",
    "gamma",
    "half_normal",
    "log_normal",
    "measured",
    "pareto",
    "read_trace",
    "shifted_exponential",
    "trace",
    "uniform",
    "weibull",
]
