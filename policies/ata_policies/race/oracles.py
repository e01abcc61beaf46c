"""The race of least cost where the distributions are known, always or for each round."""

import numpy as np

from ata_gym.changes import Conditions
from ata_gym.theory.simulated.slices import slice_means
from ata_gym.typing import Floats, Ints, Mask
from ata_policies.allocation.oracles import DynamicAllocation
from ata_policies.beliefs.belief import NoPlan
from ata_policies.beliefs.moments import Totals
from ata_policies.planning.races.search import RaceSearch, best_race, race_allocation
from ata_policies.policy import AllocationPolicy, State
from ata_policies.setting import Setting

_SLICES = 64  # equally likely times of a worker
_MOST_TIMES = 2**24  # task times with which a race is chosen at first
_REPLICATES = 128  # rounds played with each candidate later


class RaceOracle(AllocationPolicy[Totals, NoPlan]):
    """The best race for the price with the distributions known.

    E[round time] + price * E[worker time] is least. The race is found before the first round, by
    ``ata_policies.planning.races.search.best_race``, and kept.
    """

    env_id = "ata_gym/TaskRace-v0"
    source = "ours"
    constants = "none"
    knows = "the distributions"
    assumes = "independent times"
    priced = True
    uses_latency = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        pool = setting.known_pool("race-oracle")
        self.fixed = best_race(pool, setting.budget, setting.price).allocation

    def allocate(self, state: State[Totals, NoPlan]) -> Ints:
        return np.tile(self.fixed, (len(state.round), 1))


class RaceDynamicOracle(DynamicAllocation):
    """The best race for the price under the distributions of the coming round. Ours.

    Workers are ranked by their means, with the mean latency where they pay one. How many of the
    fastest race, and for how many tasks, is searched (``RaceSearch``) for the workers as they are
    without changes, or for all that they are drawn from, and from there again where a mean differs
    from the one planned for by more than the tolerance. Noise in common and outliers are left out;
    workers that are away start nothing.
    """

    env_id = "ata_gym/TaskRace-v0"
    constants = "64 slices, 128 replicates, tolerance 10 %"
    knows = "the distributions, of each round"
    priced = True

    def __init__(self, setting: Setting, *, tolerance: float = 0.1, seed: int = 0) -> None:
        super().__init__(setting, tolerance=tolerance, seed=seed)
        self.times = slice_means(self.pool, _SLICES)
        self.by_round = np.array([family == "trace-by-round" for family in self.pool.families])
        rounds = int(np.clip(_MOST_TIMES // (setting.n * setting.budget), 16, 1024))
        means = self.times.mean(axis=1)
        if self.pool.latency is None:
            self.latency = None
            ranking = means
        else:
            self.latency = slice_means(self.pool.latency, _SLICES)
            ranking = means + self.latency.mean(axis=1)
        search = RaceSearch(
            self.times,
            means,
            setting.budget,
            setting.price,
            replicates=rounds,
            latency=self.latency,
            ranking=ranking,
        )
        self.size = search.search()[:2]

    def legal(self, tasks: Ints) -> Mask:
        return np.greater_equal(tasks, self.setting.budget)

    def plan(self, conditions: Conditions, mean: Floats, latency: Floats) -> Ints:
        present = np.isfinite(mean)
        times = self.times[conditions.distribution] * conditions.factor[:, None]
        # The time of a record by round is known before the round.
        by_round = self.by_round[conditions.distribution, None]
        times = np.where(by_round, mean[:, None], times)[present]
        budget = self.setting.budget
        price = self.setting.price
        ranking = mean[present]
        drawn_latency = None
        mean_latency = None
        if self.latency is not None:
            drawn_latency = self._latencies(conditions, latency)[present]
            mean_latency = latency[present]
            ranking = ranking + mean_latency
        search = RaceSearch(
            times,
            mean[present],
            budget,
            price,
            replicates=_REPLICATES,
            latency=drawn_latency,
            ranking=ranking,
        )
        choice = search.search_from(*self.size)
        allocation = np.zeros(len(mean), np.int64)
        allocation[present] = race_allocation(
            mean[present], choice.fastest, choice.tasks, budget, mean_latency, ranking
        )
        return allocation

    def _latencies(self, conditions: Conditions, mean_latency: Floats) -> Floats:
        """Return equally likely latencies of each worker in a row, (n, 64)."""
        assert self.latency is not None
        assert self.pool.latency is not None
        by_round = np.isin(self.pool.latency.families, "trace-by-round")
        latency = self.latency[conditions.distribution] * conditions.latency_factor[:, None]
        return np.where(by_round[conditions.distribution, None], mean_latency[:, None], latency)
