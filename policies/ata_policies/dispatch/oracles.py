"""Dispatch where the distributions are known, which learners are measured against; and GTA."""

from typing import Annotated, NamedTuple, Self

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
from ata_policies.planning.races.search import best_race
from ata_policies.policy import DispatchPolicy, State
from ata_policies.setting import Setting

_SLICES = 64  # equally likely times of a worker
_SIMULATED_ROUNDS = 192  # rounds with each shadow price before one is chosen


class KnownWorkers(NamedTuple):
    """Workers whose distributions are known, in E rows."""

    workers: DispatchWorkers
    """The workers after their first task of a round."""
    first: DispatchWorkers | None
    """The same workers before the end of that task, with their latency; None: they pay none."""

    @classmethod
    def from_times(cls, times: Floats, latency: Floats | None, budget: int) -> Self:
        """Make the workers with these times and latencies, (E, n, S) each."""
        workers = DispatchWorkers.from_times(times, budget)
        if latency is None:
            return cls(workers, None)
        return cls(*workers.delayed(latency, budget))

    def best_shadow(self, setting: Setting) -> Floats:
        """Choose the shadow prices, (E,); see ``ShadowSearch``."""
        search = ShadowSearch.start(len(self.workers.mean))
        for _ in range(_SIMULATED_ROUNDS):
            search = search.go_on(self.workers, setting.budget, setting.price, first=self.first)
        return search.shadow(self.workers, setting.price)

    def action(self, shadow: Floats, observation: Observation) -> Ints:
        """Start workers by the rule ``by_margin``, (E, n).

        A worker without a result in the round goes by the times with a latency; its age holds it,
        too.
        """
        missing, running, age = round_progress(observation)
        workers = self.workers
        if self.first is not None:
            started = observation["started"]
            fresh = ((started == 0) | ((running > 0) & (started == 1)))[..., None]
            workers = workers._replace(
                times=np.where(fresh, self.first.times, workers.times),
                sums=np.where(fresh, self.first.sums, workers.sums),
            )
        return by_margin(workers, shadow, missing, running, age).astype(np.int64)


class DispatchOracle(DispatchPolicy[Totals, NoPlan]):
    """The rule of the default learner, with the distributions known.

    Where workers pay a latency, the time of a worker's first task of the round holds it.

    They choose the shadow price, too. A table of how many missing results each worker needs to
    start, tuned for the price, cost as much or more. Ours. A round costs tens of ATA's, as it is B
    decisions, each of which looks at every worker's sample.
    """

    source = "ours"
    constants = "64 slices, 192 simulated rounds with each shadow price"
    knows = "the distributions"
    priced = True
    uses_latency = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        pool = setting.known_pool("dispatch-oracle")
        latency = None
        if pool.latency is not None:
            latency = slice_means(pool.latency, _SLICES)[None]
        times = slice_means(pool, _SLICES)[None]
        self.known = KnownWorkers.from_times(times, latency, setting.budget)
        self.shadow = self.known.best_shadow(setting)

    def act(
        self, state: State[Totals, NoPlan], observation: Observation
    ) -> tuple[Ints, State[Totals, NoPlan]]:
        return self.known.action(self.shadow, observation), state


class KnownRound(NamedTuple):
    """What the rule is applied to in E rows."""

    workers: DispatchWorkers
    """The workers as they are in the round; workers that are away have infinite times."""
    first: DispatchWorkers
    """The workers before the end of their first task of the round, with their latency.

    Where they pay none these are the workers themselves.
    """
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
    uses_latency = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.pool = setting.known_pool("dispatch-dynamic-oracle", dynamic=True)
        self.times = slice_means(self.pool, _SLICES)
        self.by_round = np.array([family == "trace-by-round" for family in self.pool.families])
        latency = None
        if self.pool.latency is None:
            self.latency = None
        else:
            self.latency = slice_means(self.pool.latency, _SLICES)
            self.late_by_round = np.isin(self.pool.latency.families, "trace-by-round")
            latency = self.latency[None]
        if setting.drawn:
            self.shadow = np.ones(1)
        else:
            known = KnownWorkers.from_times(self.times[None], latency, setting.budget)
            self.shadow = known.best_shadow(setting)

    def first_plan(self, rows: int) -> KnownRound:
        n = self.setting.n
        workers = DispatchWorkers.from_times(
            np.full((rows, n, _SLICES), np.inf), self.setting.budget
        )
        return KnownRound(workers, workers, np.tile(self.shadow, rows), np.full((rows, n), -1))

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
            known = self._of_round(conditions, fresh)
            workers = _with_rows(state.plan.workers, fresh, known.workers)
            first = workers
            if known.first is not None:
                first = _with_rows(state.plan.first, fresh, known.first)
            plan = self._follow_draws(
                state.plan._replace(workers=workers, first=first),
                fresh,
                np.sort(conditions.distribution[fresh], axis=1),
            )
            state = state._replace(plan=plan)
        known = self._known(state.plan)
        present = np.isfinite(known.workers.mean)
        return known.action(state.plan.shadow, observation) * present, state

    def _of_round(self, conditions: Conditions, rows: Ints) -> KnownWorkers:
        """The workers as they are in the round, in some rows."""
        distributions = conditions.distribution[rows]
        mean = conditions.means(self.pool)[rows]
        times = self.times[distributions] * conditions.factor[rows, :, None]
        # The time of a record by round is known before the round.
        times = np.where(self.by_round[distributions][..., None], mean[..., None], times)
        away = conditions.death_time[rows] == 0.0
        times = np.where(away[..., None], np.inf, times)
        latency = None
        if self.latency is not None:
            late = conditions.mean_latency(self.pool)[rows]
            latency = self.latency[distributions] * conditions.latency_factor[rows, :, None]
            by_round = self.late_by_round[distributions][..., None]
            latency = np.where(by_round, late[..., None], latency)
        return KnownWorkers.from_times(times, latency, self.setting.budget)

    def _known(self, plan: KnownRound) -> KnownWorkers:
        """The workers of a plan."""
        if self.latency is None:
            return KnownWorkers(plan.workers, None)
        return KnownWorkers(plan.workers, plan.first)

    def _follow_draws(self, plan: KnownRound, fresh: Ints, drawn: Ints) -> KnownRound:
        """Choose shadow prices anew in the rows whose workers were drawn anew."""
        changed = (drawn != plan.drawn[fresh]).any(axis=1)
        if not self.setting.drawn or not changed.any():
            return plan
        changed_rows = fresh[changed]
        shadow = plan.shadow.copy()
        all_drawn = plan.drawn.copy()
        known = self._known(plan)
        workers = DispatchWorkers._make(field[changed_rows] for field in known.workers)
        first = known.first
        if first is not None:
            first = DispatchWorkers._make(field[changed_rows] for field in first)
        changed_workers = KnownWorkers(workers, first)
        shadow[changed_rows] = changed_workers.best_shadow(self.setting)
        all_drawn[changed_rows] = drawn[changed]
        return plan._replace(shadow=shadow, drawn=all_drawn)


def _with_rows(workers: DispatchWorkers, rows: Ints, others: DispatchWorkers) -> DispatchWorkers:
    """The workers, with others in some rows."""
    changed = DispatchWorkers._make(field.copy() for field in workers)
    for field, new_field in zip(changed, others, strict=True):
        field[rows] = new_field
    return changed


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
    uses_latency = True

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
