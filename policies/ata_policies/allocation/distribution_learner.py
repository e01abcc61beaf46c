"""The expected cost of a round itself: a learner of whole distributions that minimises it."""

from typing import Any, NamedTuple

import numpy as np

from ata_gym.envs.interface.worker_features import RoundFeatures
from ata_gym.scenarios import SPLITS
from ata_gym.theory.allocation.beta_rule import allocate_by_cost
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.ranges import Allocations, Counts, Tasks, Wholes
from ata_gym.utils.validation import real
from ata_policies.allocation.experts import Experts
from ata_policies.beliefs.availability import Availability
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.moments import LatencyBelief
from ata_policies.explanation import listed
from ata_policies.learned.network import Network, read_network
from ata_policies.learned.policy import WEIGHTS
from ata_policies.observations import Observation, with_latency_spread
from ata_policies.planning.plan import Problem, make_plans
from ata_policies.policy import Policy, State
from ata_policies.setting import Setting

_WORKERS_TOGETHER = 1024
"""Workers of the rows whose plans are made together: more would not fit into the cache."""
_FORESEEN_PER_ROUND = 4.0
"""Rounds to come for each round so far, where the horizon is not known."""
_PLANS = 1
_CHOICE = 2
"""What a row draws random numbers for: its plans, and who decides."""


class AllocationPlan(NamedTuple):
    """What is played until the next plan."""

    allocation: Allocations
    """(E, n) the tasks of each worker."""
    best: Tasks
    """(E, n) the allocation without tasks for learning: where the next search begins."""
    due: Wholes
    """(E,) the round of the next plan."""
    since: Counts
    """(E,) rounds since the whole belief last began anew, in the last round."""
    reach: Counts
    """(E,) rounds that the belief reached back in the last round."""
    changes: Counts
    """(E,) how often the whole belief has begun anew."""
    availability: Availability
    """Which workers are there."""
    awaited: Wholes
    """(E, n) rounds until it is known what came of each worker's last trial."""
    experts: Experts | tuple[()]
    """What is known of a network beside the plan; empty where there is none."""


class DistributionLearner(Policy[DistributionBelief, AllocationPlan]):
    """Learns each worker's whole distribution and minimises the expected cost of a round itself.

    The cost is round time + price * worker time. The policy is ours. Its belief counts task times
    in bins (``DistributionBelief``). A plan is made in five steps:

    1. What is known (``learn_rows``): a worker's mean follows from its times and from the
       population of the workers (``learn_population``). Rare huge times of all workers stand in
       part for its own (``borrow_tails``).
    2. Where to search (``choose_candidates``): the fastest workers, and the workers in use.
    3. The search (``search``): the allocation of least expected cost on these distributions.
    4. Who is tried in order to learn (``explore``). The rounds left in which this can pay are known
       from the horizon. Where it is not known, they are four times as many as there were, so
       that no worker is given up for good. Where everything has begun anew, they are no more than
       the rounds since then, or the rounds between two such changes. Where the belief forgets, so
       that m rounds count, they are fewer by the factor that 2 m is less than the rounds since
       then.
    5. When the next plan is due: in the next round where the search is not over, and else after 10
       to 20 % of the rounds that count, by the row's own randomness. It is due sooner where a
       worker, tried or in use, is hardly known.

    Workers that were far slower or faster in a round than usual (``DistributionBelief``, suspects)
    count as slow or fast at once. They are probed, with one task in place of the task that would
    take longest, to see whether they are as usual.

    What all workers of a round have in common is divided out of its times before they are compared
    (a common factor). Where it slows them down, a worker out of use is probed now and then to see
    whether it has it too. The first tasks of a worker may be slow (age): its first results no
    longer count where later ones are far shorter. One that is known from its first tasks only
    counts as faster later, by as much as the others became faster after theirs. Its next task
    counts as slow as theirs were at that age, so that it is tried where what it gains later is
    worth that.

    Where the workers' levels move (``DistributionBelief.moves``), a network that was trained on
    changing workers (``Learned``) decides some of the rounds in place of the plan: each with the
    probability that its rounds cost less than the other's rounds (``Experts``). What either of them
    asks of the workers is learned by both. There is no network where results are late (``delay``),
    nor where workers' prices differ, which it was not trained on.

    Where a worker begins anew, or workers come or go, the plan is made again at once. Workers that
    owe results get nothing but probes, the more seldom the more a late round costs
    (``Availability``).

    Args:
        weight: Tasks that the other workers' shapes count for in a worker's own, above 0.
        network: Whether the network decides some rounds where levels move.
    """

    belief = DistributionBelief
    source = "ours"
    constants = "weight 5, plans after 10 to 20 % of the rounds"
    assumes = "task times do not depend on each other; finite means"
    priced = uses_unit_costs = True
    uses_latency = True
    nonstationary = True
    trained_on = SPLITS["train"]
    kernels = (
        "ata_policies.planning.local_search",
        "ata_policies.beliefs.distributions.observing",
        "ata_policies.planning.fewer_tasks",
        "ata_policies.beliefs.distributions.adjustments.age",
        "ata_policies.beliefs.distributions.slices",
        "ata_policies.beliefs.distributions.tails",
        "ata_gym.theory.allocation.beta_rule",
        "ata_policies.planning.population",
        "ata_policies.planning.knowledge",
        "ata_policies.planning.exploration",
        "ata_policies.planning.trial_choice",
        "ata_policies.learned.network",
        "ata_gym.envs.interface.worker_features",
    )

    def __init__(
        self, setting: Setting, *, weight: float = 5.0, network: bool = True, seed: int = 0
    ) -> None:
        super().__init__(setting, seed=seed)
        self.weight = real("weight", weight)
        self._prices = setting.prices
        self._usual_price = float(np.median(self._prices))
        self._network: Network | None = None
        if network and setting.delay == 0 and np.ptp(self._prices) == 0.0:
            self._network = read_network(WEIGHTS)
        self._of_round = RoundFeatures(setting.budget, self._prices[0], setting.horizon)

    def first_plan(self, rows: int) -> AllocationPlan:
        no_tasks = np.zeros((rows, self.setting.n), np.int64)
        zeros = np.zeros(rows)
        availability = Availability.full(rows, self.setting.n)
        experts: Experts | tuple[()] = ()
        if self._network is not None:
            experts = Experts.begin(self._network, rows, self.setting.n)
        return AllocationPlan(
            no_tasks, no_tasks, no_tasks[:, 0], zeros, zeros, zeros, availability, no_tasks, experts
        )

    def act(
        self, state: State[DistributionBelief, AllocationPlan], observation: Observation
    ) -> tuple[Ints, State[DistributionBelief, AllocationPlan]]:
        plan = state.plan
        since = state.belief.since
        reach = state.belief.reach
        alarmed = state.belief.alarmed()
        probes = state.belief.probes()
        moves = state.belief.moves()
        available_before = plan.availability.available()
        availability = plan.availability.observed(
            observation, self.setting.deadline, self.setting.delay
        )
        available = availability.available()
        # neither number falls unless the belief began anew or forgot
        restarted = since < plan.since
        forgot = reach < plan.reach
        plan = plan._replace(since=since, reach=reach, changes=plan.changes + restarted)
        replanned = (
            (state.round >= plan.due)
            | restarted
            | forgot
            | (available_before != available).any(axis=1)
        )
        replanned |= ~plan.allocation.any(axis=1)
        replanned |= alarmed | (probes & (plan.allocation == 0)).any(axis=1)
        if replanned.any():
            plan = plan._replace(
                allocation=plan.allocation.copy(),
                best=plan.best.copy(),
                due=plan.due.copy(),
            )
            draws = state.round_uniforms(self.setting.n + 2, _PLANS)
            # rows without any result of a worker that is there have nothing to plan on
            has_results = (available & (state.belief.counts > 0.0)).any(axis=1)
            if (replanned & ~has_results).any():
                self._begin(state, plan, available, np.flatnonzero(replanned & ~has_results))
            rows = np.flatnonzero(replanned & has_results)
            size = max(1, _WORKERS_TOGETHER // self.setting.n)
            for start in range(0, rows.size, size):
                self._plan(state, plan, available, probes, draws, rows[start : start + size])
        if self.setting.delay > 0:
            tried = plan.allocation > plan.best
            awaited = np.where(tried, self.setting.delay, np.maximum(plan.awaited - 1, 0))
            plan = plan._replace(awaited=awaited)
        tasks = plan.allocation.copy()
        if isinstance(plan.experts, Experts) and (moves | plan.experts.tracked).any():
            tasks, experts = self._choose(state, plan.experts, tasks, available, moves, observation)
            plan = plan._replace(experts=experts)
        availability = availability._replace(allocation=tasks.copy())
        return tasks, state._replace(plan=plan._replace(availability=availability))

    def _choose(
        self,
        state: State[DistributionBelief, AllocationPlan],
        experts: Experts,
        tasks: Ints,
        available: Mask,
        moves: Mask,
        observation: Observation,
    ) -> tuple[Ints, Experts]:
        """Let the network decide some of the rounds of the rows where levels move.

        Args:
            state: What is known.
            experts: What is known of the network's side.
            tasks: (E, n) the tasks by the plan.
            available: (E, n) the workers that are there.
            moves: (E,) where levels move.
            observation: The feedback of the last round.
        """
        assert self._network is not None
        last_tasks = state.plan.availability.allocation
        experts = experts.with_costs(observation, self._prices)
        # the network was trained on whole shares
        whole = with_latency_spread(observation)
        experts = experts.with_workers(state.belief, moves, last_tasks, whole)
        uniforms = state.round_uniforms(self.setting.n + 1, _CHOICE)
        return experts.decide(
            self._network, self._of_round, state.round, tasks, available, moves, uniforms
        )

    def last_action(self, state: State[DistributionBelief, AllocationPlan]) -> Ints:
        return np.asarray(state.plan.availability.allocation)

    def describe_plan(self, state: State[DistributionBelief, AllocationPlan], row: int) -> str:
        plan = state.plan
        tried = plan.allocation[row] > plan.best[row]
        text = f"this allocation until round {plan.due[row] - 1}; {state.belief.describe(row)}"
        if tried.any():
            text = f"{text}; tried for what is learned: {listed(tried)}"
        if isinstance(plan.experts, Experts):
            return f"{text}{plan.experts.describe(row)}"
        return text

    def _begin(
        self,
        state: State[DistributionBelief, AllocationPlan],
        plan: AllocationPlan,
        available: Mask,
        rows: Ints,
    ) -> None:
        """Write a plan for rows without results: each available worker counts as never tried."""
        zeros = np.zeros((rows.size, self.setting.n))
        keys = state.round_keys()[rows]
        # workers whose first results are awaited come last, where there are enough others
        others = available[rows] & (plan.awaited[rows] == 0)
        enough = others.sum(axis=1, keepdims=True) >= self.setting.budget
        plan.allocation[rows] = allocate_by_cost(
            zeros,
            zeros,
            self.setting.budget,
            keys,
            zeros == 0.0,
            np.where(enough, others, available[rows]),
        )
        plan.best[rows] = 0
        plan.due[rows] = state.round[rows] + 1

    def _plan(
        self,
        state: State[DistributionBelief, AllocationPlan],
        plan: AllocationPlan,
        available: Mask,
        probes: Mask,
        draws: Floats,
        rows: Ints,
    ) -> None:
        """Write a new plan for these rows."""
        # a slice copies nothing
        index: Any
        if rows.size == 1:
            index = slice(rows[0], rows[0] + 1)
        else:
            index = rows
        problem = self._problem(state, plan, index)
        assert isinstance(state.latency, LatencyBelief)
        plan.allocation[index], plan.best[index], pause = make_plans(
            state.belief,
            state.latency,
            index,
            available[index],
            probes[index],
            plan.best[index],
            problem,
            draws[index],
        )
        plan.due[index] = state.round[index] + 1 + pause

    def _problem(
        self, state: State[DistributionBelief, AllocationPlan], plan: AllocationPlan, rows: Any
    ) -> Problem:
        """Return what the plans of these rows are to minimise, and the rounds left for learning."""
        horizon = self.setting.horizon
        budget = self.setting.budget
        round = state.round[rows].astype(np.float64)
        since = plan.since[rows]
        changes = plan.changes[rows]
        longest: Any
        if horizon is None:
            rounds_left = _FORESEEN_PER_ROUND * (since + 1.0)
            longest = np.inf
        else:
            rounds_left = np.maximum(horizon - round, 0.0)
            longest = rounds_left
        # after a change, the next one is expected after as many rounds as between two so far
        until_change = np.minimum(longest, np.maximum(since, round / np.maximum(changes, 1.0)))
        # rounds whose results count; fewer than those since the change where the belief forgets
        memory = state.belief.counts[rows].sum(axis=1) / budget
        share = np.minimum(1.0, 2.0 * memory / np.maximum(since, 1.0))
        rounds_left = np.where(changes > 0.0, until_change, rounds_left) * share
        reach = np.minimum(plan.reach[rows], memory)
        awaited = plan.awaited[rows] > 0
        return Problem(
            budget, self._prices, self._usual_price, self.weight, rounds_left, reach, awaited
        )
