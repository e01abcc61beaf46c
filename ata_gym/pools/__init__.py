"""Pools: the workers, and the distributions of their task times."""

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
from ata_gym.pools.distributions import Distributions
from ata_gym.pools.pool import Pool, concatenate
from ata_gym.pools.pool_distribution import PoolDistribution
from ata_gym.pools.traces import measured, read_trace

__all__ = [
    "Distributions",
    "Pool",
    "PoolDistribution",
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
