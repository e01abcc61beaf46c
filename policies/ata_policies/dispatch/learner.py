"""Dispatch by the worth of a worker's start at a shadow price, with the distributions learned.

What is fixed within a round is computed once, where the round begins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.theory.simulated.costs import due
from ata_gym.theory.simulated.dispatch import Rule, simulate_dispatch
from ata_gym.typing import Floats, Ints
from ata_policies.allocation.estimates.thompson import draw_means
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.distributions.censoring import censored_distributions
from ata_policies.dispatch.rules import at_work, by_margin
from ata_policies.observations import Observation
from ata_policies.policy import DispatchPolicy, State

_FACTORS = np.array([0.4, 0.55, 0.7, 0.85, 1.0, 1.2, 1.5])  # candidates for the shadow price, times the price
_FREE = 2.0 ** np.arange(-8.0, -3.5, 0.5)  # candidates where the price is 0
_TOLERANCE = 1.003  # at price 0 a round may take this many times the shortest for the sake of less worker time
_EARLY = 8  # in each of the first 8 rounds the distributions are estimated; the shadow price is chosen from round 8 on
_HASTE = 30  # at price 0, the round in which the shadow price is half of its final value
_SLICES = 32


class RoundByRound(NamedTuple):
    """A belief about the distributions that learns the results of a round at its end, so that a step costs little."""

    distributions: DistributionBelief  # what was learned until the last round's end
    worker: Ints  # (E, B) the workers of the results since then; -1 where there is none yet
    duration: Floats  # (E, B) their task times
    place: Ints  # (E,) how many there are

    @classmethod
    def empty(cls, rows: int, n: int, budget: int) -> RoundByRound:
        """Nothing seen yet."""
        nobody = np.full((rows, budget), -1)
        return cls(DistributionBelief.empty(rows, n), nobody, np.zeros((rows, budget)), np.zeros(rows, np.int64))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats) -> RoundByRound:
        """Return the belief after one more result; the arguments are those of ``Belief.observe`` with R = 1."""
        rows = np.flatnonzero(worker[:, 0] >= 0)
        workers, durations, place = self.worker.copy(), self.duration.copy(), self.place.copy()
        workers[rows, place[rows]], durations[rows, place[rows]] = worker[rows, 0], duration[rows, 0]
        place[rows] += 1
        distributions, full = self.distributions, place == workers.shape[1]
        if full.any():
            complete = full[:, None]
            distributions = distributions.observe(
                np.where(complete, workers, -1), durations, np.where(complete, elapsed, 0.0)
            )
            workers[full], place[full] = -1, 0
        return RoundByRound(distributions, workers, durations, place)

    @property
    def counts(self) -> Floats:
        """(E, n) results, those of this round included."""
        counts = self.distributions.counts.copy()
        rows, places = np.nonzero(self.worker >= 0)
        np.add.at(counts, (rows, self.worker[rows, places]), 1.0)
        return counts


class DispatchPlan(NamedTuple):
    """What is kept from round to round."""

    solved: Ints  # (E,) the round in which all but the factors was last computed
    shadow: Floats  # (E,) the shadow price of ``by_margin``
    times: Floats  # (E, n, S) equally likely task times of each worker; infinite for workers never tried
    evidence: Floats  # (E, n) how many results they are worth; see ``CensoredDistributions``
    mean: Floats  # (E, n) time per result; infinite for workers never tried
    order: Ints  # (E, n) the workers, fastest first
    factor: Floats  # (E, n) multiplies the times; drawn for the round


def choose_shadow(
    distributions: Floats, budget: int, price: float, replicates: int = 256, start: float | None = None
) -> float:
    """The shadow price with which ``by_margin`` costs least, by simulation.

    With a price, that is the multiple of the price with the least round time + price * worker time. At price 0 it is
    the highest shadow price whose round time is within 0.3 % of the shortest. By default all candidates are tried, else
    the lowest and the neighbours of ``start``. ``distributions``, (n, S), are equally likely task times of each worker;
    those with infinite ones, as if never tried, are left out. With each candidate ``replicates`` rounds are simulated,
    for more than 64 workers in proportion fewer, but at least a quarter.
    """
    candidates = _FACTORS * price if price > 0.0 else _FREE
    known = distributions[np.isfinite(distributions).all(axis=1)]
    if not len(known):
        return float(candidates[0] if start is None else start)
    nobody = np.zeros(len(known))
    at_first = _rule(known, budget, candidates[0])(np.array([budget]), nobody.astype(np.int8)[None], nobody[None])[0]
    useful = known[at_first != 0]  # a worker that is not worth a start for a whole round is hardly so for its rest
    if start is not None:
        near = int(np.argmin(np.abs(candidates - start)))
        candidates = np.unique(candidates[[0, max(near - 1, 0), near, min(near + 1, candidates.size - 1)]])
    rounds = int(np.clip(replicates * 64 // len(useful), replicates // 4, replicates))
    costs = simulate_dispatch(useful, [_rule(useful, budget, shadow) for shadow in candidates], budget, rounds)
    if price > 0.0:
        return float(candidates[np.argmin(costs.total(price))])
    fast = costs.round_time <= _TOLERANCE * costs.round_time.min()
    return float(candidates[fast].max())


def _rule(times: Floats, budget: int, shadow: float) -> Rule:
    mean = pace(times, budget)
    order = np.argsort(mean, kind="stable")
    ones, price = np.ones(len(times)), np.array(shadow)
    return lambda missing, running, age: by_margin(times, mean, order, ones, price, missing, running, age)


def pace(times: Floats, budget: int) -> Floats:
    """Time per result of each worker in a round, shape (..., n), from equally likely task times (..., n, S).

    That is E[min(X, t)] / P(X <= t), where t is B times the least median of a task time: close to the mean, except
    where rare times are longer than any round. It is infinite for workers never tried, and never 0.

    >>> pace(np.array([[1.0, 1.0, 1.0, 997.0], [5.0, 5.0, 5.0, 5.0]]), budget=10)
    array([4.33333333, 5.        ])
    """
    size = times.shape[-1]
    median = times[..., (size - 1) // 2]
    until = budget * np.min(np.where(np.isfinite(median), median, np.inf), axis=-1)[..., None, None]
    done = (times <= until).sum(axis=-1)
    spent = np.minimum(times, until).sum(axis=-1)
    each = np.divide(spent, done, out=times.mean(axis=-1), where=done > 0)
    return np.maximum(np.where(np.isfinite(each), each, np.inf), 1e-300)


class DispatchLearner(DispatchPolicy):
    """Learns the distributions, and starts an idle worker if that is worth its worker time.

    The rule is ``by_margin``, on the distributions learned from finished and cancelled tasks (``DistributionBelief``),
    as samples of 32 times (``censored_distributions``). In each round every worker's sample is multiplied by a factor
    drawn as in Thompson sampling: 1 / G, G ~ Gamma(evidence, rate evidence). Workers never tried work until the first
    round's end; no round waits for them. The distributions and the shadow price (``choose_shadow``) are computed again
    when ``due``, at intervals that grow; the distributions also in each of the first 8 rounds. Ours.

    A round costs more than 5 times what one of ATA costs, because it is B decisions and not one, and because of the
    simulations, whose cost per round falls as 1 / round.
    """

    source = "ours; Thompson, 1933, for the draws"
    constants = "32 slices; shadow prices of 0.4 to 1.5 times the price, or 0.3 % of round time where there is none"
    assumes = "that workers whose tasks are mostly cancelled have distributions of the shape that the others have"
    priced = True

    def first_belief(self, rows: int) -> RoundByRound:
        """Distributions are learned, from cancelled tasks too."""
        return RoundByRound.empty(rows, self.setting.n, self.setting.budget)

    def first_plan(self, rows: int) -> DispatchPlan:
        """No distribution is known."""
        n, price = self.setting.n, self.setting.price
        solved, shadow = np.zeros(rows, np.int64), np.full(rows, price if price > 0.0 else _FREE[0])
        never, ones = np.full((rows, n, _SLICES), np.inf), np.ones((rows, n))
        return DispatchPlan(solved, shadow, never, ones, never[:, :, 0], np.tile(np.arange(n), (rows, 1)), ones)

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Renew the plan where a round begins, then apply the rule."""
        fresh = self.begins(seen)
        if fresh.any():
            state = state._replace(plan=self._planned(state, np.flatnonzero(fresh)))
        plan: DispatchPlan = state.plan
        shadow = plan.shadow
        if self.setting.price == 0.0:  # more workers cost nothing, and at first it is not known which are needed
            shadow = shadow * state.round / (state.round + _HASTE)
        action = by_margin(plan.times, plan.mean, plan.order, plan.factor, shadow, *at_work(seen))
        return np.where(np.isinf(plan.mean), 1, action), state

    def _planned(self, state: State, fresh: Ints) -> DispatchPlan:
        """The plan, with new factors in some rows, and all computed again where that is due."""
        plan: DispatchPlan = state.plan
        round = state.round[fresh]
        again = fresh[(round <= _EARLY) | due(round, plan.solved[fresh])]
        if again.size:
            plan = plan._replace(**{name: part.copy() for name, part in plan._asdict().items()})
            budget, price = self.setting.budget, self.setting.price
            times, plan.evidence[again] = censored_distributions(state.belief.distributions.rows(again), _SLICES)
            plan.times[again] = np.where(np.isnan(times), np.inf, times)
            plan.mean[again] = pace(plan.times[again], budget)
            plan.order[again] = np.argsort(plan.mean[again], axis=1, kind="stable")
            plan.solved[again] = state.round[again]
            for row in again[state.round[again] >= _EARLY]:
                plan.shadow[row] = choose_shadow(plan.times[row], budget, price, start=plan.shadow[row])
        factor = plan.factor.copy()
        evidence = plan.evidence[fresh]
        factor[fresh] = draw_means(evidence, evidence, 1.0, state.round_keys()[fresh])
        return plan._replace(factor=factor)
