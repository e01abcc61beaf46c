"""Dispatch where the distributions are known, which learners are measured against; and GTA."""

from typing import Annotated, NamedTuple

import numpy as np

from ata_gym.changes import Conditions
from ata_gym.theory.simulated.slices import known_sample
from ata_gym.typing import Floats, Ints
from ata_gym.utils.ranges import Times, Within
from ata_policies.dispatch.margin import Workers, by_margin
from ata_policies.dispatch.shadow import ShadowSearch
from ata_policies.observations import Observation, at_work
from ata_policies.planning.race_search import best_race
from ata_policies.policy import DispatchPolicy, State
from ata_policies.setting import Setting

_SLICES, _SIMULATED = 64, 192  # of a worker's distribution; and rounds with each shadow price before one is chosen


def best_shadow(workers: Workers, setting: Setting) -> Floats:
    """The shadow prices, (E,), that are chosen for E rows of known workers; see ``ShadowSearch``."""
    search = ShadowSearch.start(len(workers.mean))
    for _ in range(_SIMULATED):
        search = search.go_on(workers, setting.budget, setting.price)
    return search.shadow(workers, setting.price)


class DispatchOracle(DispatchPolicy):
    """The rule of the default learner with the distributions known, and the shadow price chosen by them.

    A table of how many missing results each worker needs to start, tuned for the price, cost as much or more. Ours.
    A round costs tens of ATA's, as it is B decisions, each of which looks at every worker's sample.
    """

    source = "ours"
    constants = "64 slices, 192 simulated rounds with each shadow price"
    knows = "the distributions"
    priced = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        times = known_sample(setting.known_pool("dispatch-oracle"), _SLICES)
        self.workers = Workers.of(times[None], setting.budget)
        self.shadow = best_shadow(self.workers, setting)

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        return by_margin(self.workers, self.shadow, *at_work(seen)).astype(np.int64), state


class KnownRound(NamedTuple):
    """What the rule is applied to in E rows."""

    workers: Workers  # those of the round; infinite times of those who are away
    shadow: Times  # (E,) the shadow price
    drawn: Annotated[Ints, Within(-1)]
    """(E, n) for which distributions it was chosen, sorted, where workers are drawn anew; -1: not yet."""


class DispatchDynamicOracle(DispatchPolicy):
    """The rule of ``dispatch-oracle`` under the distributions of each round. Ours.

    The shadow price is chosen once, for the workers as they are without changes; where workers are drawn anew, for each
    draw, as they are in its first round. Noise in common and outliers are left out; workers that are away start
    nothing.
    """

    source = "ours"
    constants = "64 slices, 192 simulated rounds with each shadow price"
    knows = "the distributions, of each round"
    priced = True
    nonstationary = True
    privileged = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.pool = setting.known_pool("dispatch-dynamic-oracle", dynamic=True)
        self.times = known_sample(self.pool, _SLICES)
        self.by_round = np.array([family == "trace-by-round" for family in self.pool.families])
        workers = Workers.of(self.times[None], setting.budget)
        self.shadow = np.ones(1) if setting.drawn else best_shadow(workers, setting)

    def first_plan(self, rows: int) -> KnownRound:
        n = self.setting.n
        workers = Workers.of(np.full((rows, n, _SLICES), np.inf), self.setting.budget)
        return KnownRound(workers, np.tile(self.shadow, rows), np.full((rows, n), -1))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        raise TypeError("a dynamic oracle acts on privileged information: call act_knowing")

    def act_knowing(self, state: State, seen: Observation, conditions: Conditions) -> tuple[Ints, State]:
        fresh = np.flatnonzero(self.begins(seen))
        if fresh.size:
            who, mean = conditions.distribution[fresh], conditions.means(self.pool)[fresh]
            times = self.times[who] * conditions.factor[fresh, :, None]
            times = np.where(self.by_round[who][..., None], mean[..., None], times)
            away = conditions.dies[fresh] == 0.0
            now = Workers.of(np.where(away[..., None], np.inf, times), self.setting.budget)
            workers = Workers._make(part.copy() for part in state.plan.workers)
            for old, new in zip(workers, now, strict=True):
                old[fresh] = new
            plan = self._follow_draws(state.plan._replace(workers=workers), fresh, np.sort(who, axis=1))
            state = state._replace(plan=plan)
        known: Workers = state.plan.workers
        there = np.isfinite(known.mean)
        return by_margin(known, state.plan.shadow, *at_work(seen)).astype(np.int64) * there, state

    def _follow_draws(self, plan: KnownRound, fresh: Ints, drawn: Ints) -> KnownRound:
        other = (drawn != plan.drawn[fresh]).any(axis=1)
        if not self.setting.drawn or not other.any():
            return plan
        again, shadow, known = fresh[other], plan.shadow.copy(), plan.drawn.copy()
        shadow[again] = best_shadow(Workers._make(part[again] for part in plan.workers), self.setting)
        known[again] = drawn[other]
        return plan._replace(shadow=shadow, drawn=known)


class DispatchCaps(DispatchPolicy):
    """A race as dispatch: each worker starts up to so many tasks as in the best race for the price (``best_race``).

    The rounds are those of ``race-oracle`` in ``ata_gym/TaskRace-v0``. A round costs more than five of ATA's, as it is
    B decisions.
    """

    source = "ours, after Chen, Pan, Monga, Bengio and Jozefowicz, 2016"
    constants = "m and d by the price"
    knows = "the distributions"
    priced = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.caps = best_race(setting.known_pool("dispatch-caps"), setting.budget, setting.price).allocation

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        return (seen["started"] < self.caps).astype(np.int64), state


class DispatchGta(DispatchPolicy):
    """GTA as dispatch: all workers always work.

    A round costs more than five of ATA's, as it is B decisions.
    """

    source = "Tyurin and Richtárik, 2023; Maranjyan et al., ATA, ICML 2025"
    learns = False
    constants = "none"

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        return np.ones_like(seen["started"]), state
