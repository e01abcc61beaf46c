"""The expected cost of a round itself: a learner of whole distributions that minimises it."""

from typing import Any, NamedTuple

import numpy as np

from ata_gym.theory.allocation.beta_rule import allocate_by_cost
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.ranges import Allocations, Counts, Tasks, Wholes
from ata_gym.utils.validation import real
from ata_policies.beliefs.availability import LONGEST, PAUSE, Availability, results_of
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.explanation import listed
from ata_policies.observations import Observation
from ata_policies.planning.plan import Problem, make_plans
from ata_policies.policy import Policy, State
from ata_policies.setting import Setting

_TOGETHER = 1024  # workers of the rows whose plans are made together: more would not fit into the cache
_FORESEEN = 1_000.0  # rounds for which the workers are taken to stay as they are where nothing is known of that


class AllocationPlan(NamedTuple):
    """What is played until the next plan."""

    allocation: Allocations  # (E, n)
    best: Tasks  # (E, n) without what is done for the sake of learning: where the next search begins
    due: Wholes  # (E,) the round of the next plan
    since: Counts  # (E,) rounds since the whole belief last began anew, in the last round
    reach: Counts  # (E,) rounds that the belief reached back in the last round
    changes: Counts  # (E,) how often the whole belief has begun anew
    availability: Availability  # which workers are there


class DistributionLearner(Policy):
    """Learns each worker's whole distribution and minimises the expected round time + price * worker time itself. Ours.

    Its belief counts task times in bins (``DistributionBelief``). A plan is made in five steps:

    1. What is known (``learn_rows``): a worker's mean is what its times, with rare huge ones in part those of all
       workers (``borrow_tails``), and the population of the workers (``learn_population``) say together.
    2. Where to search (``choose_candidates``): the fastest workers, and those in use.
    3. The search (``search``): the allocation of least expected cost on these distributions.
    4. Who is tried for the sake of what is learned (``explore``). As many rounds are left for it to pay as the horizon
       says, or, where that is not known, as many as there were, and at least 1,000. Where everything has begun anew,
       they are no more than the rounds since then, or the rounds between two such changes. Where the belief forgets, so
       that m rounds count, they are fewer by the factor that 2 m is less than the rounds since then.
    5. When the next plan is due: in the next round where the search is not over, and else after 10 to 20 % of the
       rounds that count, by the row's own randomness, but sooner where a worker, tried or in use, is hardly known.

    Workers that were far slower or faster in a round than usual (``DistributionBelief``, suspects) count as that at
    once, and are probed, with one task in place of the one that would take longest, to see whether they are as usual.

    Where a worker begins anew, or workers come or go, the plan is made again at once. Workers that owe results get
    nothing but probes after 8 to 64 rounds (``Availability``).

    - ``weight``: tasks that the other workers' shapes count for in a worker's own, above 0.
    """

    belief = DistributionBelief
    source = "ours"
    constants = "weight 5, plans after 10 to 20 % of the rounds"
    assumes = "task times do not depend on each other; finite means"
    priced = tells_costs = True
    nonstationary = True
    kernels = (
        "ata_policies.planning.local_search", "ata_policies.beliefs.distributions.observing",
        "ata_policies.planning.fewer_tasks", "ata_policies.beliefs.distributions.slices",
        "ata_gym.theory.allocation.beta_rule", "ata_policies.planning.knowledge", "ata_policies.planning.exploration",
    )  # fmt: skip

    def __init__(self, setting: Setting, *, weight: float = 5.0, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.weight, self._prices = real("weight", weight), setting.prices

    def first_plan(self, rows: int) -> AllocationPlan:
        zeros, none = np.zeros((rows, self.setting.n), np.int64), np.zeros(rows)
        there = Availability.full(rows, self.setting.n, PAUSE)
        return AllocationPlan(zeros, zeros, zeros[:, 0], none, none, none, there)

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        plan: AllocationPlan = state.plan
        since, reach = state.belief.since, state.belief.reach
        alarmed, probes = state.belief.alarmed(), state.belief.probes()
        before, availability = plan.availability.available(), plan.availability
        availability = availability.after(results_of(seen["worker"], self.setting.n), PAUSE, LONGEST)
        there, anew, forgot = availability.available(), since < plan.since, reach < plan.reach
        plan = plan._replace(since=since, reach=reach, changes=plan.changes + anew)
        again = (state.round >= plan.due) | anew | forgot | (before != there).any(axis=1)
        again |= ~plan.allocation.any(axis=1)
        again |= alarmed | (probes & (plan.allocation == 0)).any(axis=1)
        if again.any():
            plan = plan._replace(allocation=plan.allocation.copy(), best=plan.best.copy(), due=plan.due.copy())
            draws = state.round_uniforms(self.setting.n + 2, 1)
            known = (there & (state.belief.counts > 0.0)).any(axis=1)
            if (again & ~known).any():
                self._begin(state, plan, there, np.flatnonzero(again & ~known))
            rows, size = np.flatnonzero(again & known), max(1, _TOGETHER // self.setting.n)
            for first in range(0, rows.size, size):
                self._plan(state, plan, there, probes, draws, rows[first : first + size])
        availability = availability._replace(asked=plan.allocation)
        return plan.allocation.copy(), state._replace(plan=plan._replace(availability=availability))

    def last_action(self, state: State) -> Ints:
        return np.asarray(state.plan.availability.asked)

    def plan_in_words(self, state: State, row: int) -> str:
        plan: AllocationPlan = state.plan
        tried = plan.allocation[row] > plan.best[row]
        words = f"this allocation until round {plan.due[row] - 1}; {state.belief.reach[row]:.0f} rounds count"
        return f"{words}; tried for what is learned: {listed(tried)}" if tried.any() else words

    def _begin(self, state: State, plan: AllocationPlan, there: Mask, rows: Ints) -> None:
        none, keys = np.zeros((rows.size, self.setting.n)), state.round_keys()[rows]
        plan.allocation[rows] = allocate_by_cost(none, none, self.setting.budget, keys, none == 0.0, there[rows])
        plan.best[rows], plan.due[rows] = 0, state.round[rows] + 1

    def _plan(self, state: State, plan: AllocationPlan, there: Mask, probes: Mask, draws: Floats, rows: Ints) -> None:
        e = slice(rows[0], rows[0] + 1) if rows.size == 1 else rows  # a slice copies nothing
        problem = self._problem(state, plan, e)
        plan.allocation[e], plan.best[e], pause = make_plans(
            state.belief, e, there[e], probes[e], plan.best[e], problem, draws[e]
        )
        plan.due[e] = state.round[e] + 1 + pause

    def _problem(self, state: State, plan: AllocationPlan, rows: Any) -> Problem:
        horizon, budget = self.setting.horizon, self.setting.budget
        round, since, changes = state.round[rows].astype(np.float64), plan.since[rows], plan.changes[rows]
        left = np.maximum(since, _FORESEEN) if horizon is None else np.maximum(horizon - round, 0.0)
        most = np.inf if horizon is None else left
        again = np.minimum(most, np.maximum(since, round / np.maximum(changes, 1.0)))
        memory = state.belief.counts[rows].sum(axis=1) / budget
        left = np.where(changes > 0.0, again, left) * np.minimum(1.0, 2.0 * memory / np.maximum(since, 1.0))
        return Problem(budget, self._prices, self.weight, left, np.minimum(plan.reach[rows], memory))
