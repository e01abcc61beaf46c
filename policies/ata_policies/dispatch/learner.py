"""Dispatch by the worth of a worker's start at a shadow price, with learned distributions."""

from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from ata_gym.typing import Floats, Ints, Keys, Mask
from ata_gym.utils.ranges import Counts, Flags, Reals, Squares, Times, Within, WorkerOrNone
from ata_gym.utils.trees import leaves, map_leaves
from ata_policies.allocation.estimates.thompson import draw_means
from ata_policies.beliefs.availability import counted, signs_of_life
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.distributions.censoring import censored_distributions
from ata_policies.beliefs.distributions.retries import to_try_again
from ata_policies.dispatch.margin import DispatchWorkers, by_margin
from ata_policies.dispatch.shadow import CANDIDATES, ShadowSearch
from ata_policies.observations import Observation, round_progress
from ata_policies.policy import DispatchPolicy, State

_SLICES = 32  # equally likely times of a worker
# at price 0, results per useful worker with which the shadow price is half of its final value
_HASTE = 15
# times the binary logarithm of the rounds: how many may have been simulated with each shadow price
_SIMULATED_ROUNDS = 50.0
# workers whose distributions are computed again in a round, and as many to learn a shape from
_RENEWED_WORKERS = 64


class RoundByRound(NamedTuple):
    """A belief about the distributions that learns the results of a round at its end.

    So a step within the round costs little.
    """

    distributions: DistributionBelief
    """What was learned until the last round's end."""
    worker: WorkerOrNone
    """(E, B) the workers of the results since then; -1 where there is none yet."""
    duration: Times
    """(E, B) their task times."""
    place: Annotated[Ints, Within(0, lambda size: size.budget)]
    """(E,) how many results there are since then, without those that do not count.

    A round is over after B results. Where a loop does not say so, the next ones do not count.
    """

    @classmethod
    def empty(cls, rows: int, n: int, budget: int) -> Self:
        nobody = np.full((rows, budget), -1)
        return cls(
            DistributionBelief.empty(rows, n),
            nobody,
            np.zeros((rows, budget)),
            np.zeros(rows, np.int64),
        )

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats) -> "RoundByRound":
        rows = np.flatnonzero((worker[:, 0] >= 0) & (self.place < self.worker.shape[1]))
        workers = self.worker.copy()
        durations = self.duration.copy()
        place = self.place.copy()
        workers[rows, place[rows]] = worker[rows, 0]
        durations[rows, place[rows]] = duration[rows, 0]
        place[rows] += 1
        return RoundByRound(self.distributions, workers, durations, place)

    def after_round(self, over: Mask, elapsed: Floats) -> "RoundByRound":
        """Return the belief that has learned the round, in rows in which it is over.

        Args:
            over: (E,) rows in which the last result was the last of a round.
            elapsed: (E, n) how long each worker's cancelled task had run.
        """
        ended = over[:, None]
        distributions = self.distributions.observe(
            np.where(ended, self.worker, -1),
            self.duration,
            np.where(ended, elapsed, 0.0),
        )
        workers = np.where(ended, -1, self.worker)
        return RoundByRound(distributions, workers, self.duration, np.where(over, 0, self.place))

    @property
    def counts(self) -> Floats:
        """(E, n) results that count, without the results of this round."""
        return self.distributions.counts

    def mean(self) -> Floats:
        """Return the time spent per result, (E, n), without this round; NaN if never tried."""
        return self.distributions.mean()

    def untried(self) -> Mask:
        """Return which workers have no finished and no cancelled task before this round, (E, n)."""
        return self.distributions.untried()


class DispatchPlan(NamedTuple):
    """What is kept from step to step."""

    workers: DispatchWorkers
    """What the rule knows of the workers."""
    evidence: Squares
    """(E, n) how many results this knowledge is worth; see ``CensoredDistributions``."""
    tasks: Counts
    """(E, n) results and cancelled tasks that counted when a worker's times were computed."""
    level: Reals
    """(E, n) logarithm of the worker's time per result then."""
    factor: Squares
    """(E, n) multiplies the times; drawn for the round."""
    search: ShadowSearch
    """The search for the shadow price."""
    working: Flags
    """(E, n) who should be working since the last step."""
    absent: Flags
    """(E, n) 1 for workers that showed no sign of life since they were asked to work."""


class DispatchLearner(DispatchPolicy[RoundByRound, DispatchPlan]):
    """Learns the distributions, and starts an idle worker if that is worth its worker time.

    The rule is ``by_margin``, on the distributions learned from finished and cancelled tasks
    (``DistributionBelief``), as samples of 32 times (``censored_distributions``). In each round
    every worker's sample is multiplied by a factor drawn as in Thompson sampling: 1 / G, G ~
    Gamma(evidence, rate evidence). Workers never tried work until the first round's end, beside the
    others; some long out of use start where a round begins (``to_try_again``). Nothing is expected
    of a worker that showed no sign of life since it was asked to work (``signs_of_life``).

    At every eighth decision a round is simulated with each of eight shadow prices to choose one
    (``ShadowSearch``). At price 0 it is multiplied by k / (k + 15), for k results per useful
    worker: at first it is not known who is needed. Where a round begins, only the distributions of
    the workers that changed most are computed again. Ours.

    Where workers pay latencies, it learns the times of whole shares, in which a worker's latency is
    spread over its results. With log-normal latencies of median 5 and 20 beside means of 1 to 8, of
    10 to 30 workers, it cost -3 to 4 % more in 300 rounds than ``dispatch-oracle``, at prices 0 and
    0.1.

    A round costs more than 5 times what one of ATA costs, because it is B decisions and not one.
    """

    source = "ours; Thompson, 1933, for the draws"
    constants = (
        "32 slices; eight simulated rounds at every eighth decision; where there is no price, 3 %"
        " of round time"
    )
    assumes = (
        "that workers whose tasks are mostly cancelled have distributions of the shape that the"
        " others have"
    )
    priced = True
    nonstationary = True
    kernels = (
        "ata_policies.dispatch.shadow",
        "ata_policies.beliefs.distributions.observing",
        "ata_gym.simulation.dispatch",
        "ata_policies.beliefs.distributions.slices",
        "ata_policies.dispatch.margin",
    )

    def first_belief(self, rows: int) -> RoundByRound:
        return RoundByRound.empty(rows, self.setting.n, self.setting.budget)

    def first_plan(self, rows: int) -> DispatchPlan:
        n, budget, *_ = self.setting
        workers = DispatchWorkers.from_times(np.full((rows, n, _SLICES), np.inf), budget)
        search = ShadowSearch.start(rows)
        ones = np.ones((rows, n))
        zeros = np.zeros((rows, n))
        nobody = np.zeros((rows, n), np.int8)
        return DispatchPlan(
            workers, ones, zeros, zeros, ones, search, working=nobody, absent=nobody
        )

    def act(
        self, state: State[RoundByRound, DispatchPlan], observation: Observation
    ) -> tuple[Ints, State[RoundByRound, DispatchPlan]]:
        budget = self.setting.budget
        price = self.setting.price
        fresh = self.begins(observation)
        situation = round_progress(observation)
        if fresh.any():
            elapsed = counted(observation)[2]
            state = state._replace(belief=state.belief.after_round(fresh, elapsed))
        belief = state.belief.distributions
        plan = state.plan
        since = np.maximum(belief.since, 1.0)
        retried = np.zeros((1, 1), np.bool_)
        if fresh.any():
            retried = fresh[:, None] & to_try_again(belief, price)
            many_new = self._new(state).sum(axis=1) > _RENEWED_WORKERS
            # apart, so that a row does not depend on its batch
            for rows in (fresh & many_new, fresh & ~many_new):
                if rows.any():
                    plan = self._renewed(state, plan, np.flatnonzero(rows))
        # a round is simulated at every eighth result of the round only
        due = (budget - situation[0]) % CANDIDATES == 0
        awake = (plan.search.rounds < _most_rounds(since, state.key)) & due
        if awake.any():
            search = plan.search.go_on(plan.workers, budget, price, plan.factor, awake)
        else:
            search = plan.search
        shadow = search.shadow(plan.workers, price)
        if price == 0.0:
            shadow = shadow * since * budget / (since * budget + _HASTE * plan.workers.useful)
        alive = signs_of_life(observation["worker"], observation["elapsed"], observation["running"])
        absent = ((plan.working | plan.absent) & ~alive).astype(np.int8)
        action: Any = by_margin(plan.workers, shadow, *situation, plan.factor, absent) | retried
        return action, state._replace(
            plan=plan._replace(search=search, working=action, absent=absent),
        )

    def last_action(self, state: State[RoundByRound, DispatchPlan]) -> Ints:
        return np.asarray(state.plan.working)

    def away(self, state: State[RoundByRound, DispatchPlan]) -> Mask:
        return np.asarray(state.plan.absent != 0)

    def note_absences(
        self, state: State[RoundByRound, DispatchPlan], absent: Mask, back: Mask
    ) -> State[RoundByRound, DispatchPlan]:
        plan = state.plan
        away = (plan.absent | absent) & ~back
        working = plan.working & ~(absent | back)
        return state._replace(
            plan=plan._replace(absent=away.astype(np.int8), working=working.astype(np.int8)),
        )

    def describe_plan(self, state: State[RoundByRound, DispatchPlan], row: int) -> str:
        shadow = state.plan.search.shadow(state.plan.workers, self.setting.price)[row]
        reach = state.belief.distributions.reach[row]
        return (
            f"start who is worth its worker time at the shadow price {shadow:.3g}; {reach:.0f}"
            " rounds count"
        )

    def _new(self, state: State[RoundByRound, DispatchPlan]) -> Mask:
        """Return the workers of whom something is known, but not in the plan, (E, n)."""
        return np.asarray(np.isinf(state.plan.workers.mean) & ~state.belief.distributions.untried())

    def _renewed(
        self, state: State[RoundByRound, DispatchPlan], whole_plan: DispatchPlan, rows: Ints
    ) -> DispatchPlan:
        """Return the plan with new distributions and new draws in some rows."""
        plan: DispatchPlan = map_leaves(lambda leaf: leaf[rows], whole_plan)
        belief = state.belief.distributions.take_rows(rows)
        tasks = belief.counts + belief.cancellations
        level = np.log(np.maximum(belief.busy / np.maximum(belief.counts, 1.0), 1e-300))
        # how much a worker has changed since its times were computed: in level, and in evidence
        change_of_evidence = np.abs(np.log((tasks + 1.0) / (plan.tasks + 1.0)))
        change = np.abs(level - plan.level) + change_of_evidence
        changed_workers = _most_changed(change, belief.counts, self._new(state)[rows])
        places = np.arange(len(rows))[:, None], changed_workers
        times, plan.evidence[places] = censored_distributions(
            belief.take_workers(changed_workers), _SLICES
        )
        plan.workers.times[places] = np.where(np.isnan(times), np.inf, times)
        plan.workers.times[belief.untried()] = np.inf
        plan.tasks[places] = tasks[places]
        plan.level[places] = level[places]
        rounds = np.minimum(
            plan.search.rounds,
            _most_rounds(np.maximum(belief.since, 1.0), state.key[rows]),
        )
        plan = plan._replace(
            workers=DispatchWorkers.from_times(plan.workers.times, self.setting.budget),
            factor=draw_means(plan.evidence, plan.evidence, 1.0, state.round_keys()[rows]),
            search=plan.search._replace(rounds=rounds),
        )
        # the other rows keep their plan
        if len(rows) == len(whole_plan.tasks):
            return plan
        merged_plan: DispatchPlan = map_leaves(np.copy, whole_plan)
        for (_, old_leaf), (_, new_leaf) in zip(leaves(merged_plan), leaves(plan), strict=True):
            old_leaf[rows] = new_leaf
        return merged_plan


def _most_rounds(since: Floats, key: Keys) -> Floats:
    """Return how many rounds may have been simulated with each shadow price, (E,).

    A part below 1 differs from row to row, by the row's key.
    """
    phase = (key >> np.uint64(11)) * 2.0**-53
    return np.asarray(_SIMULATED_ROUNDS * np.log2(since) + phase)


def _most_changed(change: Floats, counts: Floats, is_new: Mask) -> Ints:
    """Return the workers whose distributions are computed again, (E, m).

    They are 128, or all workers where more than 64 are new.
    """
    rows, n = change.shape
    if n <= 2 * _RENEWED_WORKERS or (is_new.sum(axis=1) > _RENEWED_WORKERS).any():
        return np.tile(np.arange(n), (rows, 1))
    # new workers and the 64 with the most results come before all others, whose values are below 1
    urgent = np.where(is_new, 2.0, change / (1.0 + change))
    np.put_along_axis(
        urgent, np.argpartition(-counts, _RENEWED_WORKERS, axis=1)[:, :_RENEWED_WORKERS], 2.0, 1
    )
    return np.argpartition(-urgent, 2 * _RENEWED_WORKERS, axis=1)[:, : 2 * _RENEWED_WORKERS]
