"""The expected cost of what a policy decided, and its regret against the best allocation."""

from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.runner.policy_run import SCHEMA, PolicyRun
from ata_gym.pools.validation import checked_costs
from ata_gym.scenarios import Scenario
from ata_gym.theory.optimal.allocation import Optimum, optimal_allocation
from ata_gym.theory.round_time.expected import expected_round_times
from ata_gym.typing import Floats

_MOST_PAIRS = 2**16
"""The largest number of pairs for which expected costs are computed.

A pair is a recorded allocation and a worker that it may use.
"""


class CostRun(PolicyRun):
    """A policy whose expected costs are recorded: E[round time + price * worker time].

    Each distinct allocation takes a quadrature; so the cost is known at recorded rounds, and
    interpolated linearly between them. It is null where the proxy regret is null, where workers
    change, and where the recorded allocations are too many.
    """

    schema: ClassVar[dict[str, Any]] = {
        **SCHEMA,
        "expected_cost": pl.Float64,
    }
    """The columns of its records; the expected cost is added up over rounds 1 to this one."""

    def quantities(self) -> dict[str, tuple[Any, ...]]:
        quantities = super().quantities()
        if self.has_regret and has_expected_costs(self.experiment):
            quantities = quantities | {"tasks": ("i4", self.experiment.scenario.pool.n)}
        return quantities

    def columns(self) -> dict[str, NDArray[Any]]:
        columns = super().columns()
        tasks = columns.pop("tasks", None)
        # shape (recorded rounds, rows)
        costs = np.full(columns["runtime"].shape, np.nan)
        if tasks is not None:
            allocations = tasks.reshape(-1, tasks.shape[-1]).astype(np.int64)
            round_costs = expected_costs(self.experiment, allocations)
            costs = added_up(self.record_at, round_costs.reshape(costs.shape))
        return columns | {"expected_cost": costs}


def has_expected_costs(experiment: Experiment) -> bool:
    """Whether the expected costs of an experiment's recorded allocations are computed.

    They are where workers do not change, and the allocations use few of them.
    """
    scenario = experiment.scenario
    pairs = len(experiment.record_at()) * experiment.seeds * min(scenario.pool.n, scenario.budget)
    return scenario.stationary and pairs <= _MOST_PAIRS


def expected_costs(experiment: Experiment, allocations: NDArray[np.int64]) -> Floats:
    """Expected round time + price * expected worker time of allocations in an experiment.

    Args:
        allocations: Tasks of each worker, shape (C, n).

    Returns:
        The expected cost of each allocation, shape (C,), in units of runtime.
    """
    pool = experiment.scenario.pool
    price = experiment.scenario.price
    unit_costs = checked_costs(experiment.scenario.unit_costs, pool.n)
    worker_costs = pool.mean() * unit_costs
    costs = expected_round_times(pool, allocations)
    # 0 tasks of a worker whose mean time is infinite cost 0, and not NaN
    with np.errstate(invalid="ignore"):
        work = np.where(allocations > 0, allocations * worker_costs, 0.0).sum(axis=1)
    if pool.latency is not None:
        work = work + (allocations > 0) @ (pool.latency.mean() * unit_costs)
    # at price 0 an infinite worker time costs nothing, and 0 * inf would be NaN
    if price > 0:
        costs = costs + price * work
    return costs


def added_up(rounds: NDArray[np.int64], values: Floats) -> Floats:
    """The sums of values over the rounds 1 to k, for each k of ``rounds``.

    Between two of ``rounds`` the values are interpolated linearly; before the first of them, each
    round has the value of the first.

    Args:
        rounds: Rounds, rising from 1 or more, shape (K,).
        values: The values in these rounds, shape (K, rows).

    Returns:
        The sums, shape (K, rows).

    Example:
        The values of the rounds 1 to 5 are 4, 3, 2, 1, 0:

        >>> added_up(np.array([1, 2, 5]), np.array([[4.0], [3.0], [0.0]])).ravel()
        array([ 4.,  7., 10.])
    """
    gaps = np.diff(rounds, prepend=0)[:, None]
    before = np.concatenate([values[:1], values[:-1]])
    # over a gap of g rounds from value u to value v: sum of u + (v - u) j / g for j = 1..g, which
    # is g (u + v) / 2 + (v - u) / 2; expected costs may be infinite, and inf - inf would be NaN
    with np.errstate(invalid="ignore"):
        half_steps = np.where(values == before, 0.0, (values - before) / 2)
        steps = gaps * (before + values) / 2 + half_steps
    return np.cumsum(steps, axis=0)


def best_allocation(scenario: Scenario) -> Optimum | None:
    """The best allocation that is found for a scenario.

    Returns:
        None where workers change or all mean task times are infinite.
    """
    if not scenario.stationary or not np.isfinite(scenario.pool.mean()).any():
        return None
    return optimal_allocation(scenario.pool, scenario.budget, scenario.price, scenario.unit_costs)


def no_regret_in_words(scenario: Scenario) -> list[str]:
    """The remarks on a scenario whose workers follow the load; none on another one.

    Example:
        >>> from ata_gym.scenarios import scenario
        >>> no_regret_in_words(scenario("five-workers"))
        []
    """
    if not scenario.follows_load:
        return []
    return [
        "No regret is shown: these workers follow the load, so that each policy meets the workers"
        " that it has made, and the least possible cost is not known. Oracles do not bound it: ofta"
        " and oracle go by the pool alone, and a dynamic oracle by the coming round alone.",
    ]


def gap_in_words(best: Optimum) -> list[str]:
    """The remarks beside a cost regret: none where the allocation is proved to be the best.

    Example:
        >>> from ata_gym.pools import exponential
        >>> from ata_gym.theory.optimal.allocation import optimal_allocation
        >>> gap_in_words(optimal_allocation(exponential([1.0, 2.0]), 4))
        []
    """
    if best.gap == 0.0:
        return []
    return [
        f"Cost regret is against an allocation of expected cost {best.cost:.6g} a round, which"
        f" is not proved to be the best: another one may cost up to {best.gap:.3g} less"
        f" ({100 * best.gap / best.cost:.2g} %), and the regrets may be larger by that in each"
        " round.",
    ]
