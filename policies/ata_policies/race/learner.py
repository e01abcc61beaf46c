"""Races whose size follows from the price of worker time and from learned distributions."""

import math
from typing import Annotated, NamedTuple

import numpy as np

from ata_gym.simulation.keys import derive_keys, uniforms
from ata_gym.typing import Floats, Ints, Keys, Mask
from ata_gym.utils.compiled import kernel
from ata_gym.utils.ranges import Wholes, Within, all_tasks
from ata_gym.utils.trees import map_leaves
from ata_gym.utils.validation import non_negative
from ata_policies.beliefs.availability import counted, signs_of_life
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.distributions.retries import falling_due, first_of, to_try_again
from ata_policies.beliefs.distributions.slices import own_sample, sample
from ata_policies.beliefs.moments import LatencyBelief
from ata_policies.observations import LONGEST_TIME, Observation, with_latency_spread
from ata_policies.planning.races.search import EVERYTHING, STRIDE, RaceSearch, race_allocation
from ata_policies.policy import AllocationPolicy, State
from ata_policies.race.latencies import RaceLatencies
from ata_policies.race.rates import Rates, learn_rates
from ata_policies.race.size import Doubt, tries, workers_needed, worth_their_time
from ata_policies.setting import Setting

_LONGEST_INTERVAL = 128  # rounds between two choices, at most
_SLICES = 64  # equally likely task times of a worker in the simulated rounds
_LARGEST_SHAPE = 16.0  # the largest shape of a worker's task times; the least is 1 over it
_LARGEST_FACTOR = 1e6  # the largest factor by which a worker's rate may be wrong
_REPLICATES = 64  # rounds played with each candidate
_FEWEST_REPLICATES = 16  # the least number of them, where B is large
_RESULTS = 2048  # results of all these rounds, where they are fewer than 64
_MOST_TASKS = 60_000  # tasks that may be started in all rounds together when a race is chosen
_MORE_CANDIDATES = 64  # candidates besides twice as many as are in the race


class RacePlan(NamedTuple):
    """The race that was chosen last in each row, and the workers in it."""

    solved: Wholes
    """(E,) rounds since everything last began anew when it was chosen; 0 before the first."""
    stride: Annotated[Ints, Within(0, STRIDE)]
    """(E,) steps with which the search goes on next; 0: it is done."""
    fastest: Annotated[Ints, Within(1, lambda size: size.n)]
    """(E,) workers in the race."""
    tasks: Annotated[Ints, Within(all_tasks, EVERYTHING)]
    """(E,) tasks shared out among them."""
    shape: Annotated[Floats, Within(0.01, 100.0)]
    """(E, n) 1 / (coefficient of variation)^2 of each worker's task times."""
    racing: Mask
    """(E, n) workers in the last race."""
    away: Mask
    """(E, n) workers that did nothing in the last race that they were in."""
    doubt: Doubt
    """Whether a race of so few workers is still right; without a price only."""


class RaceLearner(AllocationPolicy[DistributionBelief, RacePlan]):
    """Learns the distributions, and chooses the race of least cost for the price.

    That is how many of the fastest workers race, and for how many tasks. At intervals that grow, it
    chooses the race of m workers and B + d tasks (as ``RaceCaps``, from d = 0 to B tasks for each)
    that has the least

        E[round time] + price * E[worker time]

    in rounds simulated on samples of the learned distributions (see
    ``ata_policies.planning.races.search.RaceSearch``), where each worker's rate is uncertain
    (``learn_rates``). The m workers are the workers of the highest expected rates. Beside them,
    with B tasks each, take part

    - workers whose rate, drawn as in Thompson sampling, is as high: so none is given up for good;
    - about ``explore`` m / sqrt(k) of the next fastest in round k: otherwise too little would be
      learned of a worker whose tasks were mostly cancelled;
    - workers never tried, as long as that pays (``tries``); without a price all of them, so the
      first round is GTA's;
    - workers long out of use, which may have changed (``to_try_again``);
    - workers that died in a race and would be among the fastest, so that it is noticed when they
      are back.

    No round waits for any of these.

    Where workers pay latencies, these are learned apart from the task times (``LatencyBelief``).
    The race is shared out by the latency and the time per result, workers are ranked by
    ``time_with_latency`` in the round of least proxy loss, and simulated rounds have log-normal
    latencies.

    At price 0, of the races within ``tolerance`` of the least round time it takes the one with the
    least worker time: GTA, the fastest, is hardly faster than the race of the best few workers, and
    its worker time is far more. But as many workers race as are needed (``workers_needed``), as far
    as is known by then; and all race while there is ``Doubt``, since a race took far longer than
    usual. Ours.

    Args:
        tolerance: A share of the round time, at least 0; counts only at price 0.
        explore: How many of the next fastest take part, as a multiple of m / sqrt(k); at least 0.
    """

    belief = DistributionBelief
    env_id = "ata_gym/TaskRace-v0"
    kernels = (
        "ata_policies.beliefs.distributions.observing",
        "ata_gym.theory.allocation.smallest_multiples",
        "ata_gym.simulation.race",
    )
    source = "ours, after Thompson, 1933"
    constants = "tolerance 0.5 %, explore 1/4, 64 replicates, 60,000 simulated tasks"
    assumes = "that the next rounds are like those that the belief counts"
    priced = True
    uses_latency = True

    def __init__(
        self,
        setting: Setting,
        *,
        tolerance: float = 0.005,
        explore: float = 0.25,
        seed: int = 0,
    ) -> None:
        super().__init__(setting, seed=seed)
        self.tolerance = non_negative("tolerance", tolerance)
        self.explore = non_negative("explore", explore)
        self.replicates = min(_REPLICATES, max(_RESULTS // setting.budget, _FEWEST_REPLICATES))

    def first_plan(self, rows: int) -> RacePlan:
        zeros = np.zeros(rows, np.int64)
        shape = (rows, self.setting.n)
        nobody = np.zeros(shape, np.bool_)
        doubt = Doubt(np.zeros(rows), zeros)
        return RacePlan(
            zeros,
            zeros,
            zeros + self.setting.n,
            zeros + EVERYTHING,
            np.ones(shape),
            nobody,
            nobody,
            doubt,
        )

    def act(
        self, state: State[DistributionBelief, RacePlan], observation: Observation
    ) -> tuple[Ints, State[DistributionBelief, RacePlan]]:
        plan = state.plan
        if "latency" in observation:
            observation = with_latency_spread(observation)
        # Who was in the race and gave no sign of life is away, until it gives one.
        away = (plan.away | plan.racing) & ~signs_of_life(
            observation["worker"], observation["elapsed"]
        )
        feedback = counted(observation)
        rows = np.flatnonzero(self._due(state))
        late = _latencies(state)
        untried = _untried(state.belief, late)
        # Where no worker that was tried is left, those that are away are asked again.
        plan = plan._replace(away=away & ~(away | untried).all(axis=1, keepdims=True))
        if self.setting.price == 0.0:
            plan = plan._replace(doubt=plan.doubt.updated(*feedback))
        if rows.size:
            plan = self._planned(state.belief, late, plan, rows)
        state = state._replace(plan=plan)
        allocation = self._start(state, late, untried)
        return allocation, state._replace(plan=plan._replace(racing=allocation > 0))

    def allocate(self, state: State[DistributionBelief, RacePlan]) -> Ints:
        late = _latencies(state)
        return self._start(state, late, _untried(state.belief, late))

    def away(self, state: State[DistributionBelief, RacePlan]) -> Mask:
        return np.asarray(state.plan.away)

    def note_absences(
        self, state: State[DistributionBelief, RacePlan], absent: Mask, back: Mask
    ) -> State[DistributionBelief, RacePlan]:
        plan = state.plan
        away = (plan.away | absent) & ~back
        racing = plan.racing & ~(absent | back)
        return state._replace(plan=plan._replace(away=away, racing=racing))

    def note_tasks(
        self, state: State[DistributionBelief, RacePlan], tasks: Ints
    ) -> State[DistributionBelief, RacePlan]:
        racing = np.broadcast_to(tasks > 0, state.plan.racing.shape).copy()
        return state._replace(plan=state.plan._replace(racing=racing))

    def describe_plan(self, state: State[DistributionBelief, RacePlan], row: int) -> str:
        plan = state.plan
        if plan.tasks[row] >= EVERYTHING:
            tasks = "B tasks each"
        else:
            tasks = f"{plan.tasks[row]} tasks"
        ago = f"chosen {plan.solved[row]:.0f} rounds after everything last began anew"
        return (
            f"the {plan.fastest[row]} fastest race for {tasks}, {ago}; {state.belief.describe(row)}"
        )

    def _due(self, state: State[DistributionBelief, RacePlan]) -> Mask:
        """Return the rows that choose a race now: at growing intervals, or in an open search."""
        pace = uniforms(state.key, 1)[:, 0]
        plan = state.plan
        since = state.belief.since
        # 2 to 8 rounds, and 10 to 20 % of the rounds so far: each row has its own pace
        interval = np.minimum(
            (0.1 + 0.1 * pace) * plan.solved + 2.0 + 6.0 * pace, _LONGEST_INTERVAL
        )
        due: Mask = (
            (since >= plan.solved + interval)
            | (since < plan.solved)
            | (plan.stride > 0)
            | (since == 1.0)
        )
        return due

    def _start(
        self,
        state: State[DistributionBelief, RacePlan],
        late: RaceLatencies | None,
        untried: Mask,
    ) -> Ints:
        """Share out the tasks of the race, and add the workers that are tried beside it."""
        plan = state.plan
        belief = state.belief
        budget = self.setting.budget
        rates = learn_rates(belief.counts, belief.busy, plan.shape)
        times = np.where(untried | plan.away, np.inf, rates.typical())
        has_race = np.isfinite(times).any(axis=1, keepdims=True)
        # where nobody is known, any finite scores will do: the row has no race
        scores = np.where(has_race, times, 1.0)
        ranking = times
        latency = None
        if late is not None:
            until = late.until(scores, budget)
            ranking = late.ranking(times, until)
            latency = late.mean
        race = has_race * race_allocation(
            scores,
            plan.fastest,
            plan.tasks,
            budget,
            latency,
            np.where(has_race, ranking, 1.0),
        )
        keys = state.round_keys()
        drawn = rates.draw(keys)
        if late is not None:
            drawn = late.ranking(drawn, until)
        slowest = np.max(np.where(race > 0, ranking, 0.0), axis=1, keepdims=True)
        tried = ~untried & (drawn <= slowest)
        tried |= self._to_try(state, untried, keys) | self._next_fastest(state, ranking)
        tried |= to_try_again(belief, self.setting.price) | (plan.doubt.races > 0)[:, None]
        return np.where((race == 0) & tried, budget, race)

    def _next_fastest(self, state: State[DistributionBelief, RacePlan], ranking: Floats) -> Mask:
        """Return the m fastest and some of the next fastest, in rounds in which some are due."""
        since = np.maximum(state.belief.since, 1.0)
        m = state.plan.fastest
        # explore m / sqrt(k) per round add up to 2 explore m sqrt(k)
        extra = falling_due(
            np.multiply(2.0 * self.explore, m, dtype=np.float64),
            np.sqrt(since),
            np.sqrt(since - 1.0),
        )
        return np.asarray(first_of(ranking, np.where(extra > 0, m + extra, 0)))

    def _to_try(
        self, state: State[DistributionBelief, RacePlan], untried: Mask, keys: Keys
    ) -> Mask:
        """Return the workers never tried that are tried in this round, chosen at random."""
        untried_count = untried.sum(axis=1)
        horizon = self.setting.horizon
        if not untried_count.any():
            return untried
        draws = uniforms(derive_keys(keys, 0, 2), self.setting.n)
        # without a horizon, as many rounds are expected as have passed since everything began anew
        if horizon is None:
            rounds_left = np.maximum(state.belief.since, 1.0)
        else:
            rounds_left = np.maximum(horizon - state.round + 1, 1.0)
        number = tries(
            self.setting.n - untried_count,
            state.plan.fastest,
            rounds_left,
            self.setting.budget,
            self.setting.price,
        )
        return np.asarray(first_of(np.where(untried, draws, np.inf), number))

    def _planned(
        self,
        belief: DistributionBelief,
        late: RaceLatencies | None,
        old_plan: RacePlan,
        rows: Ints,
    ) -> RacePlan:
        """Return the plan with a race chosen in some rows."""
        plan: RacePlan = map_leaves(np.copy, old_plan)
        price = self.setting.price
        budget = self.setting.budget
        for e in rows.tolist():
            row_belief = belief.take_rows([e])
            row_late = None
            if late is not None:
                row_late = late.take_row(e)
            rates = learn_rates(row_belief.counts, row_belief.busy, plan.shape[[e]])
            untried = _untried(row_belief, row_late)
            typical = np.where(untried | plan.away[e], np.inf, rates.typical())
            known_count = int((typical < np.inf).sum())
            if row_late is None or known_count == 0:
                ranking = typical[0]
            else:
                ranking = row_late.ranking(typical, row_late.until(typical, budget))[0]
            is_first = row_belief.since[0] <= 1.0
            plan.solved[e] = row_belief.since[0]
            if price == 0.0:
                busy = row_belief.busy
                if row_late is not None:
                    busy = busy + row_late.totals
                least_workers = workers_needed(
                    row_belief._replace(busy=busy), ranking, 2.0 * self.tolerance
                )
            else:
                least_workers = 1
            # nobody to choose, or nobody to leave out
            if known_count == 0 or (price == 0.0 and least_workers == known_count):
                plan.fastest[e] = self.setting.n
                plan.tasks[e] = EVERYTHING
                plan.stride[e] = 0
            elif is_first and price > 0.0:
                # one round tells too little for a search
                plan.fastest[e] = worth_their_time(ranking, price)
                plan.tasks[e] = budget + 2 * budget // 5
            else:
                number = min(
                    known_count, 2 * max(int(plan.fastest[e]), least_workers) + _MORE_CANDIDATES
                )
                candidates = np.argsort(ranking, kind="stable")[:number]
                self._choose(
                    plan,
                    e,
                    row_belief.take_workers(candidates[None]),
                    rates,
                    candidates,
                    least_workers,
                    row_late,
                    ranking,
                )
        return plan

    def _choose(
        self,
        plan: RacePlan,
        e: int,
        belief: DistributionBelief,
        rates: Rates,
        candidates: Ints,
        least_workers: int,
        late: RaceLatencies | None,
        ranking: Floats,
    ) -> None:
        """Search the race of row ``e`` among its candidates, and write it into the plan."""
        own_times = own_sample(belief, _SLICES)
        shape = _shape(sample(belief, _SLICES, own_times))[0]
        # workers that are no candidates get the geometric mean
        plan.shape[e] = np.exp(np.log(shape).mean())
        plan.shape[e, candidates] = shape
        # the own times have the mean of the belief; the factors bring them to the uncertain rates
        typical = rates.typical()[0, candidates]
        times = own_times[0]
        mean = belief.mean()[0]
        latency = None
        if late is not None:
            latency = late.of(candidates)
            # of workers that have not yet begun a task, only the latency is known
            times = np.where(np.isnan(mean)[:, None], typical[:, None], times)
            mean = np.where(np.isnan(mean), typical, mean)
        factors = rates.factors()[0, candidates] * (typical / mean)[:, None]
        search = RaceSearch(
            np.minimum(np.nan_to_num(times, nan=LONGEST_TIME), LONGEST_TIME),
            typical,
            self.setting.budget,
            self.setting.price,
            tolerance=self.tolerance,
            replicates=self.replicates,
            # NaN of extreme times
            factors=np.minimum(np.nan_to_num(factors, nan=1.0), _LARGEST_FACTOR),
            least_workers=least_workers,
            latency=latency,
            ranking=ranking[candidates],
        )
        fastest = int(plan.fastest[e])
        stride = int(plan.stride[e]) or STRIDE
        most_races = _MOST_TASKS // (
            self.replicates * (min(len(candidates), fastest) + self.setting.budget)
        )
        choice = search.search_from(fastest, int(plan.tasks[e]), stride, most_races)
        plan.fastest[e] = choice.fastest
        plan.tasks[e] = choice.tasks
        plan.stride[e] = choice.stride


def _latencies(state: State[DistributionBelief, RacePlan]) -> RaceLatencies | None:
    """Return what is known of the latencies; None where nobody has paid one."""
    if isinstance(state.latency, LatencyBelief) and state.latency.totals.any():
        return RaceLatencies.from_belief(state.latency)
    return None


def _untried(belief: DistributionBelief, late: RaceLatencies | None) -> Mask:
    """Return the workers that have not yet spent any time in a race, (E, n)."""
    if late is None:
        return belief.untried()
    return belief.untried() & ~late.seen


@kernel("(s)->()")
def _shape(times: Floats, shape: Floats) -> None:
    """Compute 1 / (coefficient of variation)^2 of equally likely times, from 1/16 to 16."""
    size = len(times)
    mean = times.mean()
    squares = 0.0
    for s in range(size):
        deviation = times[s] / mean - 1.0  # squares of the times themselves may overflow
        squares += deviation * deviation
    shape[0] = 1.0
    if mean < math.inf:
        if mean * squares > 0.0:
            shape[0] = min(max(size / squares, 1.0 / _LARGEST_SHAPE), _LARGEST_SHAPE)
        else:
            shape[0] = _LARGEST_SHAPE
