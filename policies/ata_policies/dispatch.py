"""Policies of TaskDispatch that learn the laws of the task times, or know them, and set their own knob by the price.

Whatever is fixed within a round is worked out once, where the round begins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.dispatching import Rule, simulate_dispatch
from ata_gym.planning import due
from ata_gym.simulation import Floats, Ints
from ata_policies.censored import censored_laws
from ata_policies.dispatch_rules import by_margin
from ata_policies.laws import LawBelief
from ata_policies.policy import DispatchPolicy, Observation, State
from ata_policies.thompson import draw_means

_FACTORS = np.array([0.4, 0.55, 0.7, 0.85, 1.0, 1.2, 1.5])
_FREE = 2.0 ** np.arange(-8.0, -3.5, 0.5)
"""The shadow prices that are tried: times the price, or where there is none."""
_TOLERANCE = 1.003
"""Without a price, so much longer a round may take for the sake of less worker time."""
_EARLY = 8
"""Rounds at first in which the laws are estimated every time; the shadow price is chosen from the last of them on."""
_HASTE = 30
"""Without a price, the round in which the shadow price is half of what it will be."""
_SLICES = 32


class RoundByRound(NamedTuple):
    """A belief about the laws that takes the results of a round in at its end, so that a step costs little."""

    laws: LawBelief
    """What was learned until the last round's end."""
    worker: Ints
    """(E, B) whose results came in since; -1 where there is none yet."""
    time: Floats
    """(E, B) their task times."""
    place: Ints
    """(E,) how many they are."""

    @classmethod
    def empty(cls, rows: int, n: int, budget: int) -> RoundByRound:
        """Nothing seen yet."""
        nobody = np.full((rows, budget), -1)
        return cls(LawBelief.empty(rows, n), nobody, np.zeros((rows, budget)), np.zeros(rows, np.int64))

    def observe(self, worker: Ints, time: Floats, elapsed: Floats) -> RoundByRound:
        """Return the belief after one more result; the arguments are those of ``Belief.observe`` with R = 1.

        >>> seen = RoundByRound.empty(1, 2, budget=2).observe(np.array([[0]]), np.array([[3.0]]), np.zeros((1, 2)))
        >>> seen.laws.counts, seen.counts
        (array([[0., 0.]]), array([[1., 0.]]))
        >>> seen = seen.observe(np.array([[0]]), np.array([[5.0]]), np.array([[0.0, 6.0]]))
        >>> seen.laws.counts, seen.laws.busy
        (array([[2., 0.]]), array([[8., 6.]]))
        """
        rows = np.flatnonzero(worker[:, 0] >= 0)
        workers, times, place = self.worker.copy(), self.time.copy(), self.place.copy()
        workers[rows, place[rows]], times[rows, place[rows]] = worker[rows, 0], time[rows, 0]
        place[rows] += 1
        laws, full = self.laws, place == workers.shape[1]
        if full.any():
            complete = full[:, None]
            laws = laws.observe(np.where(complete, workers, -1), times, np.where(complete, elapsed, 0.0))
            workers[full], place[full] = -1, 0
        return RoundByRound(laws, workers, times, place)

    @property
    def counts(self) -> Floats:
        """(E, n) results, those of this round included."""
        counts = self.laws.counts.copy()
        rows, places = np.nonzero(self.worker >= 0)
        np.add.at(counts, (rows, self.worker[rows, places]), 1.0)
        return counts


class Plan(NamedTuple):
    """What is kept from round to round."""

    solved: Ints
    """(E,) the round in which all but the draws was last worked out."""
    shadow: Floats
    """(E,) the price that ``by_margin`` goes by."""
    times: Floats
    """(E, n, S) equally likely task times of each worker; infinite for workers never tried."""
    evidence: Floats
    """(E, n) how sure they are; see ``CensoredLaws``."""
    mean: Floats
    """(E, n) time per result; infinite for workers never tried."""
    order: Ints
    """(E, n) the workers, fastest first."""
    factor: Floats
    """(E, n) what was drawn for the round."""


def choose_shadow(laws: Floats, budget: int, price: float, replicates: int = 256, start: float | None = None) -> float:
    """The shadow price with which ``by_margin`` costs least, by simulation.

    With a price, that is the least round time + price * worker time of some multiples of the price. Without one, it is
    the highest shadow price whose round time is within 0.3 % of the shortest.

    Parameters
    ----------
    laws
        (n, S) equally likely task times of each worker; infinite for workers never tried, who are left out.
    replicates
        Rounds played with each candidate; for more than 64 workers in proportion fewer, but at least a quarter.
    start
        The shadow price from which only one step is taken; by default all are tried.
    """
    candidates = _FACTORS * price if price > 0.0 else _FREE
    known = laws[np.isfinite(laws[:, 0])]
    nobody = np.zeros(len(known))
    at_first = _rule(known, budget, candidates[0])(np.array([budget]), nobody.astype(np.int8)[None], nobody[None])[0]
    useful = known[at_first != 0]  # whoever is not worth a start for a whole round is hardly so for its rest
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

    That is E[min(X, t)] / P(X <= t), where t is B times the least median of a task time: close to the mean, but for
    seldom and very long times, which no round sees. It is infinite for workers never tried, and never 0.

    >>> pace(np.array([[1.0, 1.0, 1.0, 997.0], [5.0, 5.0, 5.0, 5.0]]), budget=10)
    array([4.33333333, 5.        ])
    """
    size = times.shape[-1]
    median = times[..., (size - 1) // 2]
    until = budget * np.min(np.where(np.isfinite(median), median, np.inf), axis=-1)[..., None, None]
    done = (times <= until).sum(axis=-1)
    spent = np.minimum(times, until).sum(axis=-1)
    each = np.divide(spent, done, out=times.mean(axis=-1), where=done > 0)
    paces: Floats = np.maximum(np.where(np.isfinite(each), each, np.inf), 1e-300)
    return paces


class DispatchLearner(DispatchPolicy):
    """Learns the laws, and starts an idle worker if that is worth its worker time.

    The rule is ``by_margin``. It sees the laws as learned from finished and cancelled tasks (``LawBelief``), in samples
    of 32 times (``censored_laws``); each round, every worker's sample is multiplied by a factor drawn as in Thompson
    sampling: 1 / G, G ~ Gamma(evidence, rate evidence). Workers never tried work until the first round's end; nobody
    waits for them. The laws and the shadow price (``choose_shadow``) are worked out anew when ``due``, in ever longer
    intervals; the laws also in each of the first 8 rounds. Ours.

    A round costs more than 5 times what one of ATA costs, because it is B decisions and not one, and because of the
    simulations, whose cost per round falls as 1 / round.
    """

    source = "ours; Thompson, 1933, for the draws"
    constants = "32 slices; shadow prices of 0.4 to 1.5 times the price, or 0.3 % of round time where there is none"
    assumes = "that workers whose tasks are mostly cancelled have laws of the shape that the others have"
    priced = True

    def first_belief(self, rows: int) -> RoundByRound:
        """Laws, from cancelled tasks too."""
        return RoundByRound.empty(rows, self.setting.n, self.setting.budget)

    def first_plan(self, rows: int) -> Plan:
        """No law is known."""
        n, price = self.setting.n, self.setting.price
        never = np.full((rows, n, _SLICES), np.inf)
        ones = np.ones((rows, n))
        return Plan(
            solved=np.zeros(rows, np.int64),
            shadow=np.full(rows, price if price > 0.0 else _FREE[0]),
            times=never,
            evidence=ones,
            mean=never[:, :, 0],
            order=np.tile(np.arange(n), (rows, 1)),
            factor=ones,
        )

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Plan where a round begins; then go by the rule."""
        fresh = self.begins(seen)
        if fresh.any():
            state = state._replace(plan=self._planned(state, np.flatnonzero(fresh)))
        plan: Plan = state.plan
        shadow = plan.shadow
        if self.setting.price == 0.0:  # nobody is hurt by more workers, and at first one cannot tell who is needed
            shadow = shadow * state.round / (state.round + _HASTE)
        at = seen["missing"][:, 0], seen["running"], seen["age"]
        action = by_margin(plan.times, plan.mean, plan.order, plan.factor, shadow, *at)
        return np.where(np.isinf(plan.mean), 1, action), state

    def _planned(self, state: State, fresh: Ints) -> Plan:
        """The plan, with new draws in some rows, and all anew where that is due."""
        plan: Plan = state.plan
        round = state.round[fresh]
        again = fresh[(round <= _EARLY) | due(round, plan.solved[fresh])]
        if again.size:
            plan = plan._replace(**{name: part.copy() for name, part in plan._asdict().items()})
            budget, price = self.setting.budget, self.setting.price
            times, plan.evidence[again] = censored_laws(state.belief.laws.rows(again), _SLICES)
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
