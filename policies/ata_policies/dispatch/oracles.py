"""Dispatch where the distributions are known, which learners are measured against; and GTA."""

from typing import Annotated, NamedTuple

import numpy as np

from ata_gym.changes import Conditions
from ata_gym.theory.simulated.slices import slice_means
from ata_gym.typing import Floats, Ints
from ata_gym.utils.ranges import Times, Within
from ata_policies.beliefs.belief import NoPlan
from ata_policies.beliefs.moments import Totals
from ata_policies.dispatch.margin import DispatchWorkers, by_margin
from ata_policies.dispatch.shadow import ShadowSearch
from ata_policies.observations import Observation, round_progress
from ata_policies.planning.race_search import best_race
from ata_policies.policy import DispatchPolicy, State
from ata_policies.setting import Setting

_SLICES = 64  # equally likely times of a worker
_SIMULATED_ROUNDS = 192  # rounds with each shadow price before one is chosen


def best_shadow(workers: DispatchWorkers, setting: Setting) -> Floats:
    """Choose the shadow prices, (E,), for E rows of known workers; see ``ShadowSearch``."""
    search = ShadowSearch.start(len(workers.mean))
    for _ in range(_SIMULATED_ROUNDS):
        search = search.go_on(workers, setting.budget, setting.price)
    return search.shadow(workers, setting.price)


class DispatchOracle(DispatchPolicy[Totals, NoPlan]):
    """The rule of the default learner, with the distributions known.

    They choose the shadow price, too. A table of how many missing results each worker needs to
    start, tuned for the price, cost as much or more. Ours. A round costs tens of ATA's, as it is B
    decisions, each of which looks at every worker's sample.
    """

    source = "ours"
    constants = "64 slices, 192 simulated rounds with each shadow price"
    knows = "the distributions"
    priced = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        times = slice_means(setting.known_pool("dispatch-oracle"), _SLICES)
        self.workers = DispatchWorkers.from_times(times[None], setting.budget)
        self.shadow = best_shadow(self.workers, setting)

    def act(
        self, state: State[Totals, NoPlan], observation: Observation
    ) -> tuple[Ints, State[Totals, NoPlan]]:
        return by_margin(self.workers, self.shadow, *round_progress(observation)).astype(
            np.int64
        ), state


class KnownRound(NamedTuple):
    """What the rule is applied to in E rows."""

    workers: DispatchWorkers
    """The workers as they are in the round; workers that are away have infinite times."""
    shadow: Times
    """(E,) the shadow price."""
    drawn: Annotated[Ints, Within(-1)]
    """(E, n) the distributions for which the shadow price was chosen, sorted.

    Only where workers are drawn anew; -1: not yet.
    """


class DispatchDynamicOracle(DispatchPolicy[Totals, KnownRound]):
    """The rule of ``dispatch-oracle`` under the distributions of each round. Ours.

    The shadow price is chosen once, for the workers as they are without changes; where workers are
    drawn anew, for each draw, as they are in its first round. Noise in common and outliers are left
    out; workers that are away start nothing.
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
        self.times = slice_means(self.pool, _SLICES)
        self.by_round = np.array([family == "trace-by-round" for family in self.pool.families])
        workers = DispatchWorkers.from_times(self.times[None], setting.budget)
        if setting.drawn:
            self.shadow = np.ones(1)
        else:
            self.shadow = best_shadow(workers, setting)

    def first_plan(self, rows: int) -> KnownRound:
        n = self.setting.n
        workers = DispatchWorkers.from_times(
            np.full((rows, n, _SLICES), np.inf), self.setting.budget
        )
        return KnownRound(workers, np.tile(self.shadow, rows), np.full((rows, n), -1))

    def act(
        self, state: State[Totals, KnownRound], observation: Observation
    ) -> tuple[Ints, State[Totals, KnownRound]]:
        raise TypeError("a dynamic oracle acts on privileged information: call act_knowing")

    def act_knowing(
        self,
        state: State[Totals, KnownRound],
        observation: Observation,
        conditions: Conditions,
    ) -> tuple[Ints, State[Totals, KnownRound]]:
        fresh = np.flatnonzero(self.begins(observation))
        if fresh.size:
            distributions = conditions.distribution[fresh]
            mean = conditions.means(self.pool)[fresh]
            times = self.times[distributions] * conditions.factor[fresh, :, None]
            times = np.where(self.by_round[distributions][..., None], mean[..., None], times)
            away = conditions.death_time[fresh] == 0.0
            round_workers = DispatchWorkers.from_times(
                np.where(away[..., None], np.inf, times), self.setting.budget
            )
            workers = DispatchWorkers._make(field.copy() for field in state.plan.workers)
            for old_field, new_field in zip(workers, round_workers, strict=True):
                old_field[fresh] = new_field
            plan = self._follow_draws(
                state.plan._replace(workers=workers),
                fresh,
                np.sort(distributions, axis=1),
            )
            state = state._replace(plan=plan)
        known_workers: DispatchWorkers = state.plan.workers
        present = np.isfinite(known_workers.mean)
        action = by_margin(known_workers, state.plan.shadow, *round_progress(observation)).astype(
            np.int64
        )
        return action * present, state

    def _follow_draws(self, plan: KnownRound, fresh: Ints, drawn: Ints) -> KnownRound:
        """Choose shadow prices anew in the rows whose workers were drawn anew."""
        changed = (drawn != plan.drawn[fresh]).any(axis=1)
        if not self.setting.drawn or not changed.any():
            return plan
        changed_rows = fresh[changed]
        shadow = plan.shadow.copy()
        all_drawn = plan.drawn.copy()
        shadow[changed_rows] = best_shadow(
            DispatchWorkers._make(field[changed_rows] for field in plan.workers),
            self.setting,
        )
        all_drawn[changed_rows] = drawn[changed]
        return plan._replace(shadow=shadow, drawn=all_drawn)


class DispatchCaps(DispatchPolicy[Totals, NoPlan]):
    """A race as dispatch: each worker starts as many tasks as in the best race for the price.

    The race is found by ``best_race``; each worker starts up to its number of tasks there. The
    rounds are the same as the rounds of ``race-oracle`` in ``ata_gym/TaskRace-v0``. A round costs
    more than five of ATA's, as it is B decisions.
    """

    source = "ours, after Chen, Pan, Monga, Bengio and Jozefowicz, 2016"
    constants = "m and d by the price"
    knows = "the distributions"
    priced = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        pool = setting.known_pool("dispatch-caps")
        self.caps = best_race(pool, setting.budget, setting.price).allocation

    def act(
        self, state: State[Totals, NoPlan], observation: Observation
    ) -> tuple[Ints, State[Totals, NoPlan]]:
        return (observation["started"] < self.caps).astype(np.int64), state


class DispatchGta(DispatchPolicy[Totals, NoPlan]):
    """GTA as dispatch: all workers always work.

    A round costs more than five of ATA's, as it is B decisions.
    """

    source = "Tyurin and Richtárik, 2023; Maranjyan et al., ATA, ICML 2025"
    learns = False
    constants = "none"

    def act(
        self, state: State[Totals, NoPlan], observation: Observation
    ) -> tuple[Ints, State[Totals, NoPlan]]:
        return np.ones_like(observation["started"]), state
