"""The expected cost of what a policy decided, and its regret against the best allocation."""

from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.run import SCHEMA, PolicyRun
from ata_gym.pools.validation import checked_costs
from ata_gym.scenarios import Scenario
from ata_gym.theory.optimal.allocation import Optimum, optimal_allocation
from ata_gym.theory.round_time.expected import expected_round_times
from ata_gym.typing import Floats

REGRETS = (
    "Proxy regret is that of max a_i mu_i, which ATA minimises; cost regret is that of the expected round time + price "
    "x worker time, which our defaults minimise. Where the two are least at different allocations, a policy that finds "
    "one of these has a regret of the other kind that grows with every round."
)
"""What the two regrets are, to be said where both are shown."""

_MOST = 2**16  # pairs of a recorded allocation and a worker that it may use, of which expected costs are computed

_EXACT = 1e-6  # expected costs are known to this part of them: a smaller regret is none


class CostRun(PolicyRun):
    """A policy of which the expected cost is recorded: E[round time + price * worker time] of its allocations.

    Since each distinct allocation takes a quadrature, it is interpolated linearly between recorded rounds. It is null
    where the proxy regret is, where workers change, and where the recorded allocations are too many.
    """

    schema: ClassVar[dict[str, Any]] = {**SCHEMA, "expected_cost": pl.Float64}  # of rounds 1 to this one, added up

    def quantities(self) -> dict[str, tuple[Any, ...]]:
        known = self.has_regret and has_expected_costs(self.experiment)
        return super().quantities() | ({"tasks": ("i4", self.experiment.scenario.pool.n)} if known else {})

    def columns(self) -> dict[str, NDArray[Any]]:
        columns = super().columns()
        tasks, costs = columns.pop("tasks", None), np.full(columns["runtime"].shape, np.nan)
        if tasks is not None:
            each = expected_costs(self.experiment, tasks.reshape(-1, tasks.shape[-1]).astype(np.int64))
            costs = added_up(self.record_at, each.reshape(costs.shape))
        return columns | {"expected_cost": costs}


def has_expected_costs(experiment: Experiment) -> bool:
    """Whether the expected costs of its recorded allocations are computed: workers do not change, and few are used."""
    scenario = experiment.scenario
    pairs = len(experiment.record_at()) * experiment.seeds * min(scenario.pool.n, scenario.budget)
    return scenario.stationary and pairs <= _MOST


def expected_costs(experiment: Experiment, allocations: NDArray[np.int64]) -> Floats:
    """Expected round time + price * expected worker time of allocations, shape (C, n), in an experiment, (C,)."""
    pool, price = experiment.scenario.pool, experiment.scenario.price
    each = pool.mean() * checked_costs(experiment.scenario.unit_costs, pool.n)
    costs = expected_round_times(pool, allocations)
    with np.errstate(invalid="ignore"):
        work = np.where(allocations > 0, allocations * each, 0.0).sum(axis=1)
    return costs + price * work if price > 0 else costs


def added_up(rounds: NDArray[np.int64], values: Floats) -> Floats:
    """The sum over rounds 1 to each of ``rounds`` of values that are known in these, shape (rounds, rows).

    Between two of them the values are interpolated linearly; before the first they are those of the first.

    >>> added_up(np.array([1, 2, 5]), np.array([[4.0], [3.0], [0.0]])).ravel()  # 4, 3, and then 2, 1, 0
    array([ 4.,  7., 10.])
    """
    gaps = np.diff(rounds, prepend=0)[:, None]
    before = np.concatenate([values[:1], values[:-1]])
    with np.errstate(invalid="ignore"):  # the expected cost may be infinite
        steps = gaps * (before + values) / 2 + np.where(values == before, 0.0, (values - before) / 2)
    return np.cumsum(steps, axis=0)


def with_cost_regret(records: pl.DataFrame, least: float | None) -> pl.DataFrame:
    """Records with the column cost_regret, where ``least`` is the least expected cost of a round; null if unknown."""
    if "expected_cost" not in records.columns:
        return records
    cost = pl.col("expected_cost").fill_nan(None)  # polars holds NaN <= NaN, and the regret would be 0
    regret = cost - pl.lit(least, pl.Float64) * pl.col("round")
    return records.with_columns(cost_regret=pl.when(regret.abs() <= _EXACT * cost).then(0.0).otherwise(regret))


def best_allocation(scenario: Scenario) -> Optimum | None:
    """The best allocation that is found for a scenario; None where workers change or all means are infinite."""
    if not scenario.stationary or not np.isfinite(scenario.pool.mean()).any():
        return None
    return optimal_allocation(scenario.pool, scenario.budget, scenario.price, scenario.unit_costs)


def gap_in_words(best: Optimum) -> list[str]:
    """What is to be said beside a cost regret: nothing where the allocation is proved to be the best one.

    >>> from ata_gym.pools import exponential
    >>> from ata_gym.theory.optimal.allocation import optimal_allocation
    >>> gap_in_words(optimal_allocation(exponential([1.0, 2.0]), 4))
    []
    """
    if best.gap == 0.0:
        return []
    return [
        f"Cost regret is against an allocation of expected cost {best.cost:.6g} a round, which is not proved to be the "
        f"best: another one may cost up to {best.gap:.3g} less ({100 * best.gap / best.cost:.2g} %), and the regrets "
        "may be larger by that in each round."
    ]
