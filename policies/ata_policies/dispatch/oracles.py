"""Dispatch where the pool is known, which learners are measured against; and GTA."""

from __future__ import annotations

import numpy as np

from ata_gym.theory.simulated.slices import known_sample
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import whole_number
from ata_policies.dispatch.margin import Workers, by_margin
from ata_policies.dispatch.shadow import ShadowSearch
from ata_policies.observations import Observation, at_work
from ata_policies.planning.race_search import best_race
from ata_policies.planning.races import race_allocation
from ata_policies.policy import DispatchPolicy, Setting, State

_SLICES, _SIMULATED = 64, 1536


def best_shadow(workers: Workers, setting: Setting) -> Floats:
    """The shadow prices, (E,), that are chosen for E rows of known workers; see ``ShadowSearch``."""
    search = ShadowSearch.start(len(workers.mean), setting.n, setting.price)
    for _ in range(_SIMULATED):
        search = search.go_on(workers, setting.budget, setting.price)
    return search.shadow()


class DispatchOracle(DispatchPolicy):
    """The rule of the default learner with the distributions known, and the shadow price chosen by them.

    A table of how many missing results each worker needs to start, tuned for the price, cost as much or more. Ours.
    A round costs tens of ATA's, as it is B decisions, each of which looks at every worker's sample.
    """

    source = "ours"
    constants = "64 slices, 1536 simulated rounds"
    knows = "the distributions"
    priced = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        times = known_sample(setting.known_pool("dispatch-oracle"), _SLICES)
        self.workers = Workers.of(times[None], setting.budget)
        self.shadow = best_shadow(self.workers, setting)

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Apply the rule."""
        return by_margin(self.workers, self.shadow, *at_work(seen)).astype(np.int64), state


class DispatchCaps(DispatchPolicy):
    """A race as dispatch: the m fastest start up to B + d tasks, shared out by RAS on the true means, at most B each.

    Without m and d it is the best race for the price (``ata_policies.planning.race_search.best_race``): the rounds of
    ``race-oracle`` in ``ata_gym/TaskRace-v0``. A round costs more than five of ATA's, as it is B decisions.

    - ``m``, ``d``: workers in the race, from 1 to n, and tasks to spare, at least 0.
    """

    source = "ours, after Chen, Pan, Monga, Bengio and Jozefowicz, 2016"
    constants = "m and d by the price"
    knows = "the distributions"
    priced = True

    def __init__(self, setting: Setting, *, m: int | None = None, d: int | None = None, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        pool = setting.known_pool("dispatch-caps")
        if m is None and d is None:
            self.caps = best_race(pool, setting.budget, setting.price).allocation
        else:
            workers = setting.n if m is None else min(whole_number("m", m), setting.n)
            tasks = setting.budget + (0 if d is None else whole_number("d", d, least=0))
            self.caps = race_allocation(pool.mean(), workers, tasks, setting.budget)

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Start one more task of each worker that has started fewer than its cap."""
        return (seen["started"] < self.caps).astype(np.int64), state


class DispatchGta(DispatchPolicy):
    """GTA as dispatch: all workers always work.

    A round costs more than five of ATA's, as it is B decisions.
    """

    source = "Tyurin and Richtárik, 2023; Maranjyan et al., ATA, ICML 2025"
    learns = False
    constants = "none"

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Start all that are idle."""
        return np.ones_like(seen["started"]), state
