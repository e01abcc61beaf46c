"""Races whose size follows from the price of worker time and from the distributions that were learned."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from ata_gym.simulation.keys import derive_keys, uniforms
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.ranges import Wholes, Within, all_tasks
from ata_gym.utils.trees import map_leaves
from ata_gym.utils.validation import non_negative, whole_number
from ata_policies.beliefs.availability import signs_of_life
from ata_policies.beliefs.distributions.bins import DistributionBelief, own_sample, sample
from ata_policies.beliefs.distributions.retries import falling_due, first_of, to_try_again
from ata_policies.observations import LONGEST, Observation
from ata_policies.planning.race_search import STRIDE, RaceSearch
from ata_policies.planning.races import EVERYTHING, race_allocation
from ata_policies.policy import AllocationPolicy, Setting, State
from ata_policies.race.late import Doubt
from ata_policies.race.rates import Rates, learn_rates
from ata_policies.race.size import needed, tries, worth_their_time

_LONGEST = 128  # rounds between two choices, at most
_SLICES, _SHARPEST, _LARGEST = 64, 16.0, 1e6
_RESULTS = 2048  # that the rounds played with a race have together, where there are fewer of them than ``replicates``
_FEWEST = 16  # of these rounds
_MORE = 64  # candidates besides twice as many as are in the race


class RacePlan(NamedTuple):
    """The race that was chosen last in each row, and what was asked for last."""

    solved: Wholes  # (E,) rounds since everything last began anew when it was chosen; 0 before the first
    stride: Annotated[Ints, Within(0, STRIDE)]  # (E,) steps with which the search goes on next; 0: it is done
    fastest: Annotated[Ints, Within(1, lambda size: size.n)]  # (E,) workers in the race
    tasks: Annotated[Ints, Within(all_tasks, EVERYTHING)]  # (E,) tasks shared out among them
    shape: Annotated[Floats, Within(0.01, 100.0)]  # (E, n) 1 / (coefficient of variation)^2 of each worker's task times
    asked: Mask  # (E, n) workers in the last race
    away: Mask  # (E, n) workers that did nothing in the last race that they were in
    doubt: Doubt  # whether so few are still right; without a price only


class RaceLearner(AllocationPolicy):
    """Learns the distributions, and chooses by the price how many of the fastest race, and for how many tasks.

    At intervals that grow, it chooses the race of m workers and B + d tasks (as ``RaceCaps``, from d = 0 to B tasks for
    each) that has the least

        E[round time] + price * E[worker time]

    in rounds simulated on samples of the learned distributions (see ``ata_policies.planning.race_search.RaceSearch``),
    where each worker's rate is uncertain (``learn_rates``). The m workers are those of the highest expected rates.
    Beside them, with B tasks each, take part

    - those whose rate, drawn as in Thompson sampling, is as high: so none is given up for good;
    - about ``explore`` m / sqrt(k) of the next fastest in round k: otherwise too little would be learned of a worker
      whose tasks were mostly cancelled;
    - workers never tried, as long as that pays (``tries``); without a price all of them, so the first round is GTA's;
    - workers long out of use, which may have changed (``to_try_again``);
    - those that died in a race and would be among the fastest, so that it is noticed when they are back.

    No round waits for any of these. At price 0, of the races within ``tolerance`` of the least round time it takes the
    one with the least worker time: GTA, the fastest, is hardly faster than the race of the best few workers, and its
    worker time is far more. But all workers race that are ``needed``, as far as is known by then; and all race while
    there is ``Doubt``, since a race took far longer than usual. Ours.

    - ``tolerance``, ``explore``: at least 0; the tolerance is a share of the round time and counts only at price 0.
    - ``replicates``: rounds played with each candidate, at least 1; fewer where B is above 32, as such rounds vary
      less.
    - ``work``: tasks that may be started in all these rounds together when a race is chosen, at least 1. The search
      goes on in the next round, after at least one step.
    """

    belief = DistributionBelief
    env_id = "ata_gym/TaskRace-v0"
    source = "ours, after Thompson, 1933"
    constants = "tolerance 0.5 %, explore 1/4, 64 replicates, 60,000 simulated tasks"
    assumes = "that the next rounds are like those that the belief counts"
    priced = True

    def __init__(
        self,
        setting: Setting,
        *,
        tolerance: float = 0.005,
        explore: float = 0.25,
        replicates: int = 64,
        work: int = 60_000,
        seed: int = 0,
    ) -> None:
        super().__init__(setting, seed=seed)
        self.tolerance, self.explore = non_negative("tolerance", tolerance), non_negative("explore", explore)
        self.replicates = min(whole_number("replicates", replicates), max(_RESULTS // setting.budget, _FEWEST))
        self.work = whole_number("work", work)

    def first_plan(self, rows: int) -> RacePlan:
        """B tasks for every worker, as GTA."""
        ones, n = np.ones(rows, np.int64), self.setting.n
        nobody = np.zeros((rows, n), np.bool_)
        race = n * ones, EVERYTHING * ones
        return RacePlan(0 * ones, 0 * ones, *race, np.ones((rows, n)), nobody, nobody, Doubt.start(rows))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Choose the race again where that is due, then start it."""
        plan: RacePlan = state.plan
        away = (plan.away | plan.asked) & ~signs_of_life(seen["worker"], seen["elapsed"])
        nobody = (away | state.belief.untried()).all(axis=1, keepdims=True)
        plan = plan._replace(away=away & ~nobody)
        if self.setting.price == 0.0:
            plan = plan._replace(doubt=plan.doubt.after(seen["worker"], seen["duration"], seen["elapsed"]))
        state = state._replace(plan=plan)
        rows = np.flatnonzero(self._due(state))
        if rows.size:
            state = state._replace(plan=self._planned(state, rows))
        allocation = self.allocate(state)
        return allocation, state._replace(plan=state.plan._replace(asked=allocation > 0))

    def away(self, state: State) -> Mask:
        """The workers that did nothing in the last race that they were in."""
        away: Mask = state.plan.away
        return away

    def note_absences(self, state: State, absent: Mask, back: Mask) -> State:
        """The state in which absent workers are away, and those that are back are not."""
        plan: RacePlan = state.plan
        away, asked = (plan.away | absent) & ~back, plan.asked & ~(absent | back)
        return state._replace(plan=plan._replace(away=away, asked=asked))

    def plan_in_words(self, state: State, row: int) -> str:
        """The race, and when it was chosen."""
        plan: RacePlan = state.plan
        tasks = "B tasks each" if plan.tasks[row] >= EVERYTHING else f"{plan.tasks[row]} tasks"
        ago = f"chosen {plan.solved[row]:.0f} rounds after everything last began anew"
        return f"the {plan.fastest[row]} fastest race for {tasks}, {ago}; {state.belief.reach[row]:.0f} rounds count"

    def _due(self, state: State) -> Mask:
        """Rows whose race is chosen now: the intervals grow with the results, at a pace of the row's own."""
        plan, since = state.plan, state.belief.since
        pace = uniforms(state.key, 1)[:, 0]
        interval = np.minimum((0.1 + 0.1 * pace) * plan.solved + 2.0 + 6.0 * pace, _LONGEST)
        due: Mask = (since >= plan.solved + interval) | (since < plan.solved) | (plan.stride > 0) | (since == 1.0)
        return due

    def allocate(self, state: State) -> Ints:
        """Start the fastest, and those of which more has to be learned."""
        plan, belief, budget = state.plan, state.belief, self.setting.budget
        untried, rates = belief.untried(), learn_rates(belief.counts, belief.busy, plan.shape)
        there = np.where(untried | plan.away, np.inf, rates.typical())
        race = _race(there, plan.fastest, plan.tasks, budget)
        slowest = np.max(np.where(race > 0, there, 0.0), axis=1, keepdims=True)
        more = ~untried & (rates.draw(state.round_keys()) <= slowest)
        more |= self._next_fastest(state, there) | self._to_try(state, untried)
        more |= to_try_again(belief, self.setting.price) | plan.doubt.all_race()[:, None]
        return np.where((race == 0) & more, budget, race)

    def _next_fastest(self, state: State, times: Floats) -> Mask:
        """Which workers take part to learn more of those out of the race, (E, n): the next fastest."""
        since, m = np.maximum(state.belief.since, 1.0), state.plan.fastest
        extra = falling_due(2.0 * self.explore * m, np.sqrt(since), np.sqrt(since - 1.0))
        return first_of(times, np.where(extra > 0, m + extra, 0))

    def _to_try(self, state: State, untried: Mask) -> Mask:
        """Which workers never tried take part, (E, n), drawn by lot."""
        new, horizon = untried.sum(axis=1), self.setting.horizon
        if not new.any():
            return untried
        left = np.maximum(state.belief.since if horizon is None else horizon - state.round + 1, 1.0)
        number = tries(self.setting.n - new, state.plan.fastest, left, self.setting.budget, self.setting.price)
        if (number >= new).all():
            return untried
        lots = uniforms(derive_keys(state.round_keys(), 0, 2), self.setting.n)
        return first_of(np.where(untried, lots, np.inf), number)

    def _planned(self, state: State, rows: Ints) -> RacePlan:
        """The plan, with the race chosen again in some rows."""
        plan: RacePlan = map_leaves(np.copy, state.plan)
        price, budget = self.setting.price, self.setting.budget
        for e in rows.tolist():
            belief = state.belief.rows([e])
            rates = learn_rates(belief.counts, belief.busy, plan.shape[[e]])
            typical = np.where(belief.untried() | plan.away[e], np.inf, rates.typical())[0]
            known = int((typical < np.inf).sum())
            first, plan.solved[e] = belief.since[0] <= 1.0, belief.since[0]
            least = needed(belief, typical, 2.0 * self.tolerance) if price == 0.0 else 1
            if known == 0 or (price == 0.0 and least == known):  # nobody to choose, or nobody to leave out
                plan.fastest[e], plan.tasks[e], plan.stride[e] = self.setting.n, EVERYTHING, 0
            elif first and price > 0.0:
                plan.fastest[e], plan.tasks[e] = worth_their_time(typical, price), budget + 2 * budget // 5
            else:
                number = min(known, 2 * max(int(plan.fastest[e]), least) + _MORE)
                candidates = np.argsort(typical, kind="stable")[:number]
                self._choose(plan, e, belief.of(candidates[None]), rates, candidates, least)
        return plan

    def _choose(
        self, plan: RacePlan, e: int, belief: DistributionBelief, rates: Rates, candidates: Ints, least: int
    ) -> None:
        """Choose the race of a row among some workers, and keep it in the plan."""
        shape = _shape(sample(belief, _SLICES))[0]
        plan.shape[e] = np.exp(np.log(shape).mean())
        plan.shape[e, candidates] = shape
        typical = rates.typical()[0, candidates]
        factors = rates.factors()[0, candidates] * (typical / belief.mean()[0])[:, None]
        factors = np.minimum(np.nan_to_num(factors, nan=1.0), _LARGEST)  # of extreme times
        search = RaceSearch(
            np.minimum(np.nan_to_num(own_sample(belief, _SLICES)[0], nan=LONGEST), LONGEST),
            typical,
            self.setting.budget,
            self.setting.price,
            tolerance=self.tolerance if self.setting.price == 0.0 else 0.0,
            replicates=self.replicates,
            factors=factors,
            least=least,
        )
        fastest, stride = int(plan.fastest[e]), int(plan.stride[e]) or STRIDE
        most = self.work // (self.replicates * (min(len(candidates), fastest) + self.setting.budget))
        choice = search.search_from(fastest, int(plan.tasks[e]), stride, most)
        plan.fastest[e], plan.tasks[e], plan.stride[e] = choice.fastest, choice.tasks, choice.stride


def _race(times: Floats, fastest: Ints, tasks: Ints, budget: int) -> Ints:
    """As ``race_allocation``, but nothing for workers with infinite times."""
    nobody = ~(times < np.inf).any(axis=1, keepdims=True)
    return np.asarray(race_allocation(np.where(nobody, 1.0, times), fastest, tasks, budget) * ~nobody)


def _shape(times: Floats) -> Floats:
    """1 / (coefficient of variation)^2 of samples, within 1/16 and 16; 1 for a worker never tried."""
    exponent = np.frexp(np.nan_to_num(times.mean(axis=-1)))[1]
    scaled = np.ldexp(times, -exponent[..., None])  # squares of the times themselves may overflow
    mean, variance = scaled.mean(axis=-1), scaled.var(axis=-1)
    shape = np.divide(mean**2, variance, out=np.full_like(mean, _SHARPEST), where=variance > 0.0)
    return np.where(np.isfinite(mean), np.clip(shape, 1.0 / _SHARPEST, _SHARPEST), 1.0)
