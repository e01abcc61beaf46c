"""LB-BSP in GPU clusters: moves from straggler to leader, and the optimum of a time profile.

Both keep to memory limits. Chen, Weng, Wang, B. Li and B. Li, "Semi-dynamic load balancing", SoCC
2020. The time of a GPU over the batch is piecewise linear (their poster, SoCC 2018): flat until the
device is full, then rising. All constants are ours, and so are the way in which a profile is
measured, its fit, and its integer optimum.
"""

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import helper, kernel
from ata_gym.utils.ranges import (
    Allocations,
    Counts,
    NonNegative,
    Times,
    Wholes,
    Within,
    WorkerOrNone,
    all_tasks,
)
from ata_gym.utils.validation import real, whole_number
from ata_policies.lb_bsp.predictors import LastRound
from ata_policies.observations import Observation
from ata_policies.policy import AllocationPolicy, State
from ata_policies.setting import Setting

_SIZES = 4
"""Batch sizes at which each worker is measured."""
_GAIN = 0.5
"""A flat part must reduce the squared error of the line alone by this factor."""


class Tuning(NamedTuple):
    """The current allocation, and what the next move depends on."""

    allocation: Annotated[Ints, Within(0, all_tasks, totals=lambda size: (size.budget,))]
    """(E, n) tasks of each worker."""
    busy: NonNegative
    """(E, n) time of each worker in the window so far; infinite if it owed results."""
    rounds: Wholes
    """(E,) rounds of the window so far."""
    step: Wholes
    """(E,) tasks that a move shifts."""
    window: Wholes
    """(E,) rounds from decision to decision."""
    leader: WorkerOrNone
    """(E,) the worker that got tasks in the last move; -1 before the first."""
    straggler: WorkerOrNone
    """(E,) the worker that these tasks were taken from; -1 before the first move."""


class LbBspGpu(AllocationPolicy[LastRound, Tuning]):
    """LB-BSP for GPU clusters: at intervals some tasks move from the slowest to a fast worker.

    After each window of W rounds, s is the worker with the longest mean time in a round. Of the
    workers whose memory holds D tasks more, l is the one with the shortest mean time. If the two
    times differ by more than ``tolerance`` times the longer, D tasks move from s to l. If the last
    move went from l to s, D is halved first (to 1 at least) and W doubled (to ``longest`` at most).
    A worker that gave fewer results than it had tasks counts as the slowest. The first allocation
    is even. Its times are the times of whole shares, with the latency, if workers pay one.

    Args:
        step: The first D; by default a quarter of an even load, at least 1.
        window: The first W.
        longest: The largest W.
        tolerance: The relative difference of times up to which nothing moves.
        memory: Tasks that each worker's memory holds in a round: a number for all, or one for each;
            by default no limit.
        least: Tasks that each worker keeps, where B >= n ``least``.
    """

    belief = LastRound
    nonstationary = True
    source = "Chen et al., LB-BSP, SoCC 2020"
    constants = "D = B / 4 n; W = 5 to 80; tolerance 5 %"
    assumes = "speeds that last for many windows"

    def __init__(
        self,
        setting: Setting,
        *,
        step: int | None = None,
        window: int = 5,
        longest: int = 80,
        tolerance: float = 0.05,
        memory: ArrayLike | None = None,
        least: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(setting, seed=seed)
        if step is None:
            self.step = max(setting.budget // (4 * setting.n), 1)
        else:
            self.step = whole_number("step", step)
        self.window = whole_number("window", window)
        self.longest = whole_number("longest", longest, least=window)
        self.tolerance = real("tolerance", tolerance, up_to=1.0)
        self.memory = memory_limits(memory, setting)
        self.least = min(whole_number("least", least, least=0), setting.budget // setting.n)

    def first_plan(self, rows: int) -> Tuning:
        n = self.setting.n
        even = balanced(*np.zeros((2, n)), np.ones(n), self.memory, self.setting.budget)
        return Tuning(
            allocation=np.tile(even, (rows, 1)),
            busy=np.zeros((rows, n)),
            rounds=np.full(rows, 0),
            step=np.full(rows, self.step),
            window=np.full(rows, self.window),
            leader=np.full(rows, -1),
            straggler=np.full(rows, -1),
        )

    def act(
        self, state: State[LastRound, Tuning], observation: Observation
    ) -> tuple[Ints, State[LastRound, Tuning]]:
        belief = state.belief
        plan = state.plan
        played = state.round > 1 + self.setting.delay
        if "warm_up" in observation:
            # the times of a round are compared: one in which a worker's do not count is left out
            played &= ~observation["warm_up"].any(axis=1)
        # where results come late, the observation holds the tasks that they are of
        allocation = observation.get("allocation", plan.allocation)
        owes = played[:, None] & (belief.tasks < allocation)
        plan = plan._replace(
            busy=plan.busy + np.where(owes, np.inf, belief.busy),
            rounds=plan.rounds + played,
        )
        state = state._replace(plan=self._tuned(plan))
        return self.allocate(state), state

    def _tuned(self, plan: Tuning) -> Tuning:
        """Return the plan after the moves that are due."""
        rows = np.arange(len(plan.rounds))
        window_over = plan.rounds >= plan.window
        spare = plan.allocation - self.least
        straggler = np.argmax(np.where(spare > 0, plan.busy, -1.0), axis=1)
        tasks_wanted = np.minimum(plan.step, spare[rows, straggler])
        # a leader has memory for the tasks that move, and is not the straggler
        has_memory = plan.allocation + tasks_wanted[:, None] <= self.memory
        has_memory[rows, straggler] = False
        times = np.where(has_memory, plan.busy, np.inf)
        leader = np.argmin(times, axis=1)
        differ = times[rows, leader] < (1.0 - self.tolerance) * plan.busy[rows, straggler]
        moves = window_over & differ & (tasks_wanted > 0)
        reverses = moves & (leader == plan.straggler) & (straggler == plan.leader)
        step = np.where(reverses, np.maximum(plan.step // 2, 1), plan.step)
        window = np.where(reverses, np.minimum(2 * plan.window, self.longest), plan.window)
        tasks_moved = np.where(moves, np.minimum(step, tasks_wanted), 0)
        allocation = plan.allocation.copy()
        allocation[rows, straggler] -= tasks_moved
        allocation[rows, leader] += tasks_moved
        return Tuning(
            allocation=allocation,
            busy=np.where(window_over[:, None], 0.0, plan.busy),
            rounds=np.where(window_over, 0, plan.rounds),
            step=step,
            window=window,
            leader=np.where(moves, leader, plan.leader),
            straggler=np.where(moves, straggler, plan.straggler),
        )

    def allocate(self, state: State[LastRound, Tuning]) -> Ints:
        return np.copy(state.plan.allocation)


class ProfilePlan(NamedTuple):
    """The measurements at each of m batch sizes, and the optimum."""

    sizes: Counts
    """(E, n, m) results in rounds of this size, added up."""
    times: Times
    """(E, n, m) times of these rounds, added up."""
    rounds: Counts
    """(E, n, m) how many they were."""
    allocation: Allocations
    """(E, n) the optimum under the profile; 0 while it is measured."""


class LbBspProfiled(AllocationPolicy[LastRound, ProfilePlan]):
    """LB-BSP for GPU clusters with a profile: minimises the longest max(t_i, a_i + b_i x_i).

    The loads x_i are integers within memory limits. A worker's round of x tasks takes t below
    saturation and a + b x above; a latency is a part of both. The profile is measured in the first
    rounds, by loads in the proportions 1 to 4, in turn for each worker: each is measured at four
    sizes, ``repeats`` times each. After that the allocation stays, even where workers change.

    Args:
        repeats: How often each of the four sizes is measured.
        memory: Tasks that each worker's memory holds in a round: a number for all, or one for each;
            by default no limit.
    """

    belief = LastRound
    nonstationary = True
    source = "Chen et al., LB-BSP, SoCC 2020"
    constants = "4 sizes, 5 times each"
    assumes = "speeds that do not change"

    def __init__(
        self,
        setting: Setting,
        *,
        repeats: int = 5,
        memory: ArrayLike | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(setting, seed=seed)
        self.repeats = whole_number("repeats", repeats)
        self.memory = memory_limits(memory, setting)

    def first_plan(self, rows: int) -> ProfilePlan:
        sizes, times, rounds = np.zeros((3, rows, self.setting.n, _SIZES))
        return ProfilePlan(sizes, times, rounds, np.zeros((rows, self.setting.n), np.int64))

    def act(
        self, state: State[LastRound, ProfilePlan], observation: Observation
    ) -> tuple[Ints, State[LastRound, ProfilePlan]]:
        belief = state.belief
        last_round = state.round - 1 - self.setting.delay
        plan = state.plan
        measuring = (last_round > 0) & (last_round <= _SIZES * self.repeats)
        # the proportions move on by one each round, so that round r measures the size r modulo 4
        slot = (np.arange(_SIZES) == (last_round - 1)[:, None] % _SIZES) & measuring[:, None]
        measured = slot[:, None] & (belief.tasks > 0)[..., None]
        plan = plan._replace(
            sizes=plan.sizes + measured * belief.tasks[..., None],
            times=plan.times + measured * belief.busy[..., None],
            rounds=plan.rounds + measured,
        )
        complete = last_round == _SIZES * self.repeats
        if complete.any():
            profile = fitted(plan.sizes, plan.times, plan.rounds)
            optimum = balanced(*profile, self.memory, self.setting.budget)
            plan = plan._replace(allocation=np.where(complete[:, None], optimum, plan.allocation))
        state = state._replace(plan=plan)
        return self.allocate(state), state

    def allocate(self, state: State[LastRound, ProfilePlan]) -> Ints:
        n = self.setting.n
        # while the profile is measured, worker i has the proportion 1 + (i + k) modulo 4 in round k
        proportions = 1.0 + (np.arange(n) + state.round[:, None]) % _SIZES
        sizes: Ints = balanced(
            *np.zeros((2, n)),
            1.0 / proportions,
            self.memory,
            self.setting.budget,
        )
        profiled = state.plan.allocation.any(axis=1, keepdims=True)
        return np.where(profiled, state.plan.allocation, sizes)


def memory_limits(memory: ArrayLike | None, setting: Setting) -> Ints:
    """Return how many tasks each worker's memory holds, (n,), at most B.

    Args:
        memory: A number for all workers, or one for each, (n,); None for no limit.
        setting: The number of workers and the budget B.

    Raises:
        ValueError: If these are no whole numbers of at least 0, or together hold less than B.
    """
    n = setting.n
    budget = setting.budget
    if memory is None:
        values = np.asarray(budget)
    else:
        values = np.asarray(memory)
    if values.dtype.kind not in "iu" or values.shape not in {(), (n,)} or (values < 0).any():
        raise ValueError(
            f"memory must be a whole number of at least 0, or one for each of the {n} workers:"
            f" {memory!r}",
        )
    limits = np.broadcast_to(np.minimum(values, budget).astype(np.int64), n).copy()
    if limits.sum() < budget:
        raise ValueError(f"memory must hold the budget of {budget} tasks, not only {limits.sum()}")
    return limits


@helper()
def _tasks_until(flat: float, intercept: float, slope: float, limit: int, level: float) -> np.int64:
    """Return how many tasks a worker can end by the moment ``level``, ``limit`` at most."""
    if level < flat:
        return np.int64(0)
    low = np.int64(0)
    high = np.int64(limit)
    # bisection, since a division may be many tasks wrong by rounding
    while low < high:
        middle = (low + high + 1) // 2
        if intercept + slope * middle <= level:
            low = middle
        else:
            high = middle - 1
    return low


@helper()
def _fill(
    flat: Floats,
    intercept: Floats,
    slope: Floats,
    limit: Ints,
    level: float,
    out: Ints,
) -> int:
    """Write how many tasks each worker can end by the moment ``level``, and return their sum."""
    total = 0
    for i in range(len(out)):
        out[i] = _tasks_until(flat[i], intercept[i], slope[i], limit[i], level)
        total += out[i]
    return total


@kernel("(n),(n),(n),(n),()->(n)")
def balanced(
    flat: Floats,
    intercept: Floats,
    slope: Floats,
    limit: Ints,
    budget: Ints,
    out: Ints,
) -> None:
    """Find the integers x that minimise the longest max(t_i, a_i + b_i x_i) and sum to B.

    Only workers with x_i > 0 count: x_i = 0 takes no time. The time is found by bisection; the
    tasks that are left then go, one after the other, to the worker that would finish first.

    Args:
        flat: (n,) the times t below saturation, at least 0.
        intercept: (n,) a, at least 0.
        slope: (n,) b, above 0.
        limit: (n,) bounds of x that together hold the budget.
        budget: The sum B of x.
        out: (n,) the integers x.
    """
    low = 0.0
    high = 0.0
    for i in range(len(out)):
        high = max(high, flat[i], intercept[i] + slope[i] * limit[i])
    level = 0.5 * high
    # bisection, until no floating-point number is in between
    while low < level < high:
        if _fill(flat, intercept, slope, limit, level, out) <= budget[0]:
            low = level
        else:
            high = level
        level = 0.5 * (low + high)
    tasks_left = budget[0] - _fill(flat, intercept, slope, limit, low, out)
    # after each pass the worker has no more tasks that end as soon
    while tasks_left > 0:
        worker = -1
        soonest = np.inf
        for i in range(len(out)):
            end = max(flat[i], intercept[i] + slope[i] * (out[i] + 1))
            if out[i] < limit[i] and end < soonest:
                worker = i
                soonest = end
        tasks_then = _tasks_until(
            flat[worker],
            intercept[worker],
            slope[worker],
            limit[worker],
            soonest,
        )
        tasks = min(tasks_then - out[worker], tasks_left)
        out[worker] += tasks
        tasks_left -= tasks


def fitted(sizes: Floats, times: Floats, rounds: Floats) -> tuple[Floats, Floats, Floats]:
    """Fit max(t, a + b x) by least squares to m measured points of each worker.

    The fit is a line with a >= 0, or a flat part over the smallest sizes and a line over the others
    if this halves the squared error. A worker that was never measured counts as the mean of the
    others.

    Args:
        sizes: (..., n, m) the size of each point, added up over its rounds.
        times: (..., n, m) the time of each point, added up over its rounds.
        rounds: (..., n, m) the rounds of each point.

    Returns:
        t, a and b, (..., n) each.
    """
    number = np.maximum(rounds, 1.0)
    x = sizes / number
    y = times / number
    # points in the order of their sizes, with those that were not measured at the end
    order = np.argsort(np.where(rounds > 0, x, np.inf), axis=-1, kind="stable")
    x = np.take_along_axis(x, order, -1)
    y = np.take_along_axis(y, order, -1)
    t, a, b = _fit(x, y, (rounds > 0).sum(axis=-1))
    measured = b > 0.0
    count = measured.sum(axis=-1, keepdims=True)
    mean = b.sum(axis=-1, keepdims=True) / np.maximum(count, 1)
    usual = np.where(mean > 0.0, mean, 1.0)
    return t, a, np.where(measured, b, usual)


@kernel("(m),(m),()->(),(),()")
def _fit(x: Floats, y: Floats, points: Ints, t: Floats, a: Floats, b: Floats) -> None:
    """Fit one worker's points, see ``fitted``; all three are 0 without a point above 0."""
    m = points[0]
    t[0] = 0.0
    a[0] = 0.0
    b[0] = 0.0
    square = 0.0
    product = 0.0
    for k in range(m):
        square += x[k] * x[k]
        product += x[k] * y[k]
    if m == 0 or product <= 0.0:
        return
    # the slope of a line through the origin, for points on which no line rises
    origin = product / square
    least_error = np.inf
    # ``flat`` is how many points the flat part has; 0 is a line alone
    for flat in range(max(m - 1, 1)):
        level = 0.0
        mean_x = 0.0
        mean_y = 0.0
        spread = 0.0
        slope = 0.0
        for k in range(flat):
            level += y[k] / flat
        for k in range(flat, m):
            mean_x += x[k] / (m - flat)
            mean_y += y[k] / (m - flat)
        for k in range(flat, m):
            spread += (x[k] - mean_x) ** 2
            slope += (x[k] - mean_x) * (y[k] - mean_y)
        rises = slope > 0.0
        if rises:
            slope /= spread
        intercept = mean_y - slope * mean_x
        if flat == 0 and (intercept < 0.0 or not rises):
            slope = origin
            intercept = 0.0
        elif not rises:
            continue
        error = 0.0
        for k in range(m):
            error += (y[k] - max(level, intercept + slope * x[k])) ** 2
        if error < least_error:
            least_error = error * (_GAIN if flat == 0 else 1.0)
            t[0] = level
            a[0] = intercept
            b[0] = slope
