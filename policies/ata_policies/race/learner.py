"""Races whose size follows from the price of worker time and from the distributions that were learned."""

import math
from typing import Annotated, NamedTuple

import numpy as np

from ata_gym.simulation.keys import derive_keys, uniforms
from ata_gym.typing import Floats, Ints, Keys, Mask
from ata_gym.utils.compiled import kernel
from ata_gym.utils.ranges import Wholes, Within, all_tasks
from ata_gym.utils.trees import map_leaves
from ata_gym.utils.validation import non_negative
from ata_policies.beliefs.availability import signs_of_life
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.distributions.retries import falling_due, first_of, to_try_again
from ata_policies.beliefs.distributions.slices import own_sample, sample
from ata_policies.observations import LONGEST, Observation
from ata_policies.planning.race_search import EVERYTHING, STRIDE, RaceSearch, race_allocation
from ata_policies.policy import AllocationPolicy, State
from ata_policies.race.rates import Rates, learn_rates
from ata_policies.race.size import Doubt, needed, tries, worth_their_time
from ata_policies.setting import Setting

_LONGEST = 128  # rounds between two choices, at most
_SLICES = 64  # equally likely task times of a worker in the simulated rounds
_SHARPEST = 16.0  # the largest shape of a worker's task times; the least is 1 over it
_LARGEST = 1e6  # the largest factor by which a worker's rate may be wrong
_REPLICATES, _FEWEST = 64, 16  # rounds played with each candidate, and the least where B is large
_RESULTS = 2048  # results of all these rounds, where they are fewer than 64
_WORK = 60_000  # tasks that may be started in all rounds together when a race is chosen
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
    """

    belief = DistributionBelief
    env_id = "ata_gym/TaskRace-v0"
    kernels = (
        "ata_policies.beliefs.distributions.observing", "ata_gym.theory.allocation.smallest_multiples",
        "ata_gym.simulation.race",
    )  # fmt: skip
    source = "ours, after Thompson, 1933"
    constants = "tolerance 0.5 %, explore 1/4, 64 replicates, 60,000 simulated tasks"
    assumes = "that the next rounds are like those that the belief counts"
    priced = True

    def __init__(self, setting: Setting, *, tolerance: float = 0.005, explore: float = 0.25, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.tolerance, self.explore = non_negative("tolerance", tolerance), non_negative("explore", explore)
        self.replicates = min(_REPLICATES, max(_RESULTS // setting.budget, _FEWEST))

    def first_plan(self, rows: int) -> RacePlan:
        zeros, shape = np.zeros(rows, np.int64), (rows, self.setting.n)
        nobody, doubt = np.zeros(shape, np.bool_), Doubt(np.zeros(rows), zeros)
        return RacePlan(zeros, zeros, zeros + self.setting.n, zeros + EVERYTHING, np.ones(shape), nobody, nobody, doubt)

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        plan: RacePlan = state.plan
        away = (plan.away | plan.asked) & ~signs_of_life(seen["worker"], seen["elapsed"])
        rows, untried = np.flatnonzero(self._due(state)), state.belief.untried()
        plan = plan._replace(away=away & ~(away | untried).all(axis=1, keepdims=True))
        if self.setting.price == 0.0:
            plan = plan._replace(doubt=plan.doubt.after(seen["worker"], seen["duration"], seen["elapsed"]))
        if rows.size:
            plan = self._planned(state.belief, plan, rows)
        state = state._replace(plan=plan)
        allocation = self._start(state, untried)
        return allocation, state._replace(plan=plan._replace(asked=allocation > 0))

    def allocate(self, state: State) -> Ints:
        return self._start(state, state.belief.untried())

    def away(self, state: State) -> Mask:
        return np.asarray(state.plan.away)

    def note_absences(self, state: State, absent: Mask, back: Mask) -> State:
        plan: RacePlan = state.plan
        away, asked = (plan.away | absent) & ~back, plan.asked & ~(absent | back)
        return state._replace(plan=plan._replace(away=away, asked=asked))

    def plan_in_words(self, state: State, row: int) -> str:
        plan: RacePlan = state.plan
        tasks = "B tasks each" if plan.tasks[row] >= EVERYTHING else f"{plan.tasks[row]} tasks"
        ago = f"chosen {plan.solved[row]:.0f} rounds after everything last began anew"
        return f"the {plan.fastest[row]} fastest race for {tasks}, {ago}; {state.belief.reach[row]:.0f} rounds count"

    def _due(self, state: State) -> Mask:
        pace = uniforms(state.key, 1)[:, 0]
        plan, since = state.plan, state.belief.since
        interval = np.minimum((0.1 + 0.1 * pace) * plan.solved + 2.0 + 6.0 * pace, _LONGEST)
        due: Mask = (since >= plan.solved + interval) | (since < plan.solved) | (plan.stride > 0) | (since == 1.0)
        return due

    def _start(self, state: State, untried: Mask) -> Ints:
        plan, belief, budget = state.plan, state.belief, self.setting.budget
        rates = learn_rates(belief.counts, belief.busy, plan.shape)
        there = np.where(untried | plan.away, np.inf, rates.typical())
        known = np.isfinite(there).any(axis=1, keepdims=True)
        race = known * race_allocation(np.where(known, there, 1.0), plan.fastest, plan.tasks, budget)
        slowest = np.max(np.where(race > 0, there, 0.0), axis=1, keepdims=True)
        keys = state.round_keys()
        more = ~untried & (rates.draw(keys) <= slowest)
        more |= self._to_try(state, untried, keys) | self._next_fastest(state, there)
        more |= to_try_again(belief, self.setting.price) | (plan.doubt.races > 0)[:, None]
        return np.where((race == 0) & more, budget, race)

    def _next_fastest(self, state: State, times: Floats) -> Mask:
        since, m = np.maximum(state.belief.since, 1.0), state.plan.fastest
        extra = falling_due(2.0 * self.explore * m, np.sqrt(since), np.sqrt(since - 1.0))
        return np.asarray(first_of(times, np.where(extra > 0, m + extra, 0)))

    def _to_try(self, state: State, untried: Mask, keys: Keys) -> Mask:
        new, horizon = untried.sum(axis=1), self.setting.horizon
        if not new.any():
            return untried
        lots = uniforms(derive_keys(keys, 0, 2), self.setting.n)
        left = np.maximum(state.belief.since if horizon is None else horizon - state.round + 1, 1.0)
        number = tries(self.setting.n - new, state.plan.fastest, left, self.setting.budget, self.setting.price)
        return np.asarray(first_of(np.where(untried, lots, np.inf), number))

    def _planned(self, belief: DistributionBelief, before: RacePlan, rows: Ints) -> RacePlan:
        plan: RacePlan = map_leaves(np.copy, before)
        price, budget = self.setting.price, self.setting.budget
        for e in rows.tolist():
            own = belief.rows([e])
            rates = learn_rates(own.counts, own.busy, plan.shape[[e]])
            typical = np.where(own.untried() | plan.away[e], np.inf, rates.typical())[0]
            known = int((typical < np.inf).sum())
            first, plan.solved[e] = own.since[0] <= 1.0, own.since[0]
            least = needed(own, typical, 2.0 * self.tolerance) if price == 0.0 else 1
            if known == 0 or (price == 0.0 and least == known):  # nobody to choose, or nobody to leave out
                plan.fastest[e], plan.tasks[e], plan.stride[e] = self.setting.n, EVERYTHING, 0
            elif first and price > 0.0:
                plan.fastest[e], plan.tasks[e] = worth_their_time(typical, price), budget + 2 * budget // 5
            else:
                number = min(known, 2 * max(int(plan.fastest[e]), least) + _MORE)
                candidates = np.argsort(typical, kind="stable")[:number]
                self._choose(plan, e, own.of(candidates[None]), rates, candidates, least)
        return plan

    def _choose(
        self, plan: RacePlan, e: int, belief: DistributionBelief, rates: Rates, candidates: Ints, least: int
    ) -> None:
        own = own_sample(belief, _SLICES)
        shape = _shape(sample(belief, _SLICES, own))[0]
        plan.shape[e] = np.exp(np.log(shape).mean())
        plan.shape[e, candidates] = shape
        typical = rates.typical()[0, candidates]
        factors = rates.factors()[0, candidates] * (typical / belief.mean()[0])[:, None]
        search = RaceSearch(
            np.minimum(np.nan_to_num(own[0], nan=LONGEST), LONGEST),
            typical,
            self.setting.budget,
            self.setting.price,
            tolerance=self.tolerance,
            replicates=self.replicates,
            factors=np.minimum(np.nan_to_num(factors, nan=1.0), _LARGEST),  # NaN of extreme times
            least=least,
        )
        fastest, stride = int(plan.fastest[e]), int(plan.stride[e]) or STRIDE
        most = _WORK // (self.replicates * (min(len(candidates), fastest) + self.setting.budget))
        choice = search.search_from(fastest, int(plan.tasks[e]), stride, most)
        plan.fastest[e], plan.tasks[e], plan.stride[e] = choice.fastest, choice.tasks, choice.stride


@kernel("(s)->()")
def _shape(times: Floats, shape: Floats) -> None:
    size, mean, squares = len(times), times.mean(), 0.0
    for s in range(size):
        off = times[s] / mean - 1.0  # squares of the times themselves may overflow
        squares += off * off
    shape[0] = 1.0
    if mean < math.inf:
        shape[0] = min(max(size / squares, 1.0 / _SHARPEST), _SHARPEST) if mean * squares > 0.0 else _SHARPEST
