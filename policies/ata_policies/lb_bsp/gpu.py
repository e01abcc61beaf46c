"""LB-BSP in GPU clusters: moves from straggler to leader, and the optimum of a profiled time model; memory limits.

Chen, Weng, Wang, B. Li and B. Li, "Semi-dynamic load balancing", SoCC 2020. The time of a GPU over the batch is
piecewise linear (their poster, SoCC 2018): flat until the device is full, then rising. All constants are ours, and so
are the way in which a profile is measured, its fit, and its integer optimum.
"""

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import helper, kernel
from ata_gym.utils.ranges import Allocations, Counts, Times, Unending, Wholes, Whose, Within, all_tasks
from ata_gym.utils.validation import real, whole_number
from ata_policies.lb_bsp.predictors import LastRound
from ata_policies.observations import Observation
from ata_policies.policy import AllocationPolicy, State
from ata_policies.setting import Setting

_SIZES = 4
_GAIN = 0.5  # a flat part must halve the squared error of the line alone


class Tuning(NamedTuple):
    """The current allocation, and what the next move depends on."""

    allocation: Annotated[Ints, Within(0, all_tasks, totals=lambda size: (size.budget,))]  # (E, n) tasks of each worker
    busy: Unending  # (E, n) time of each worker in the window so far; infinite if it owed results
    rounds: Wholes  # (E,) rounds of the window so far
    step: Wholes  # (E,) tasks that a move shifts
    window: Wholes  # (E,) rounds from decision to decision
    leader: Whose  # (E,) the worker that got tasks in the last move; -1 before the first
    straggler: Whose  # (E,) the worker that gave them


class LbBspGpu(AllocationPolicy):
    """LB-BSP for GPU clusters: at intervals some tasks move from the slowest worker to the fastest that has memory.

    After each window of W rounds, s is the worker with the longest mean time in a round, and l the one with the
    shortest among those whose memory holds D tasks more. If the two differ by more than ``tolerance`` times the longer,
    D tasks move from s to l. If the last move went from l to s, D is halved first (to 1 at least) and W doubled (to
    ``longest`` at most). A worker that gave fewer results than it had tasks counts as the slowest. The first allocation
    is even.

    - ``step``: the first D; by default a quarter of an even load, at least 1.
    - ``window``, ``longest``: the first W, and the largest.
    - ``tolerance``: the relative difference of times up to which nothing moves.
    - ``memory``: tasks that each worker's memory holds in a round: a number for all, or one for each; by default no
      limit.
    - ``least``: tasks that each worker keeps, where B >= n ``least``.
    """

    belief = LastRound
    nonstationary = True
    source = "Chen et al., LB-BSP, SoCC 2020"
    constants = "D = B / 4 n; W = 5 to 80; tolerance 5 %"
    assumes = "speeds that last for many windows"

    def __init__(
        self, setting: Setting, *, step: int | None = None, window: int = 5, longest: int = 80,
        tolerance: float = 0.05, memory: ArrayLike | None = None, least: int = 1, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(setting, seed=seed)
        self.step = max(setting.budget // (4 * setting.n), 1) if step is None else whole_number("step", step)
        self.window, self.longest = whole_number("window", window), whole_number("longest", longest, least=window)
        self.tolerance = real("tolerance", tolerance, up_to=1.0)
        self.memory = memory_limits(memory, setting)
        self.least = min(whole_number("least", least, least=0), setting.budget // setting.n)

    def first_plan(self, rows: int) -> Tuning:
        n = self.setting.n
        even = balanced(*np.zeros((2, n)), np.ones(n), self.memory, self.setting.budget)
        others = (np.full(rows, value) for value in (0, self.step, self.window, -1, -1))  # rounds to straggler
        return Tuning(np.tile(even, (rows, 1)), np.zeros((rows, n)), *others)

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        belief, plan = state.belief, state.plan
        played = state.round > 1
        owed = played[:, None] & (belief.tasks < plan.allocation)
        plan = plan._replace(busy=plan.busy + np.where(owed, np.inf, belief.busy), rounds=plan.rounds + played)
        state = state._replace(plan=self._tuned(plan))
        return self.allocate(state), state

    def _tuned(self, plan: Tuning) -> Tuning:
        rows = np.arange(len(plan.rounds))
        over = plan.rounds >= plan.window
        spare = plan.allocation - self.least
        straggler = np.argmax(np.where(spare > 0, plan.busy, -1.0), axis=1)
        wanted = np.minimum(plan.step, spare[rows, straggler])
        held = plan.allocation + wanted[:, None] <= self.memory
        held[rows, straggler] = False
        times = np.where(held, plan.busy, np.inf)
        leader = np.argmin(times, axis=1)
        moves = over & (times[rows, leader] < (1.0 - self.tolerance) * plan.busy[rows, straggler]) & (wanted > 0)
        back = moves & (leader == plan.straggler) & (straggler == plan.leader)
        step = np.where(back, np.maximum(plan.step // 2, 1), plan.step)
        window = np.where(back, np.minimum(2 * plan.window, self.longest), plan.window)
        moved = np.where(moves, np.minimum(step, wanted), 0)
        allocation = plan.allocation.copy()
        allocation[rows, straggler] -= moved
        allocation[rows, leader] += moved
        return Tuning(
            allocation=allocation, busy=np.where(over[:, None], 0.0, plan.busy), rounds=np.where(over, 0, plan.rounds),
            step=step, window=window, leader=np.where(moves, leader, plan.leader),
            straggler=np.where(moves, straggler, plan.straggler),
        )  # fmt: skip

    def allocate(self, state: State) -> Ints:
        return np.copy(state.plan.allocation)


class ProfilePlan(NamedTuple):
    """The measurements at each of m batch sizes, and the optimum."""

    sizes: Counts  # (E, n, m) results in rounds of this size, added up
    times: Times  # (E, n, m) times of these rounds, added up
    rounds: Counts  # (E, n, m) how many they were
    allocation: Allocations  # (E, n) the optimum under the profile; 0 while it is measured


class LbBspProfiled(AllocationPolicy):
    """LB-BSP for GPU clusters with a profile: min max of max(t_i, a_i + b_i x_i), in integers, under memory limits.

    A worker's round of x tasks takes t below saturation and a + b x above. The profile is measured in the first rounds,
    by loads in the proportions 1 to 4, in turn for each worker: each is measured at four sizes, ``repeats`` times each.
    After that the allocation stays, even where workers change.

    - ``repeats``: how often each of the four sizes is measured.
    - ``memory``: as for ``LbBspGpu``.
    """

    belief = LastRound
    nonstationary = True
    source = "Chen et al., LB-BSP, SoCC 2020"
    constants = "4 sizes, 5 times each"
    assumes = "speeds that do not change"

    def __init__(self, setting: Setting, *, repeats: int = 5, memory: ArrayLike | None = None, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.repeats, self.memory = whole_number("repeats", repeats), memory_limits(memory, setting)

    def first_plan(self, rows: int) -> ProfilePlan:
        sizes, times, rounds = np.zeros((3, rows, self.setting.n, _SIZES))
        return ProfilePlan(sizes, times, rounds, np.zeros((rows, self.setting.n), np.int64))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        belief, last = state.belief, state.round - 1
        plan: ProfilePlan = state.plan
        begun = (last > 0) & (last <= _SIZES * self.repeats)
        slot = (np.arange(_SIZES) == (last - 1)[:, None] % _SIZES) & begun[:, None]
        measured = slot[:, None] & (belief.tasks > 0)[..., None]
        plan = plan._replace(
            sizes=plan.sizes + measured * belief.tasks[..., None],
            times=plan.times + measured * belief.busy[..., None],
            rounds=plan.rounds + measured,
        )
        done = last == _SIZES * self.repeats
        if done.any():
            optimum = balanced(*fitted(plan.sizes, plan.times, plan.rounds), self.memory, self.setting.budget)
            plan = plan._replace(allocation=np.where(done[:, None], optimum, plan.allocation))
        state = state._replace(plan=plan)
        return self.allocate(state), state

    def allocate(self, state: State) -> Ints:
        n = self.setting.n
        part = 1.0 + (np.arange(n) + state.round[:, None]) % _SIZES
        sizes: Ints = balanced(*np.zeros((2, n)), 1.0 / part, self.memory, self.setting.budget)
        known = state.plan.allocation.any(axis=1, keepdims=True)
        return np.where(known, state.plan.allocation, sizes)


def memory_limits(memory: ArrayLike | None, setting: Setting) -> Ints:
    """How many tasks each worker's memory holds, shape (n,); or a ValueError."""
    n, budget = setting.n, setting.budget
    given = np.asarray(budget if memory is None else memory)
    if given.dtype.kind not in "iu" or given.shape not in {(), (n,)} or (given < 0).any():
        raise ValueError(f"memory must be a whole number of at least 0, or one for each of the {n} workers: {memory!r}")
    limits = np.broadcast_to(np.minimum(given, budget).astype(np.int64), n).copy()
    if limits.sum() < budget:
        raise ValueError(f"memory must hold the budget of {budget} tasks, not only {limits.sum()}")
    return limits


@helper()
def _tasks_until(flat: float, intercept: float, slope: float, most: int, level: float) -> np.int64:
    """How many tasks a worker can end by a moment, ``most`` at most."""
    if level < flat:
        return np.int64(0)
    low, high = np.int64(0), np.int64(most)
    while low < high:  # halved each time; not by division, whose rounding may be many tasks wrong
        middle = (low + high + 1) // 2
        if intercept + slope * middle <= level:
            low = middle
        else:
            high = middle - 1
    return low


@helper()
def _fill(flat: Floats, intercept: Floats, slope: Floats, most: Ints, level: float, out: Ints) -> int:
    total = 0
    for i in range(len(out)):
        out[i] = _tasks_until(flat[i], intercept[i], slope[i], most[i], level)
        total += out[i]
    return total


@kernel("(n),(n),(n),(n),()->(n)")
def balanced(flat: Floats, intercept: Floats, slope: Floats, most: Ints, budget: Ints, out: Ints) -> None:
    """The integers x that minimise the longest max(t_i, a_i + b_i x_i) of those with x_i > 0, and sum to the budget.

    The level of time is found by bisection; the tasks that are left then go, one after the other, to the worker that
    would finish first. x_i = 0 takes no time. t, a, b > 0 and ``most``, bounds of x that together hold the budget, have
    shape (..., n).
    """
    low, high = 0.0, 0.0
    for i in range(len(out)):
        high = max(high, flat[i], intercept[i] + slope[i] * most[i])
    level = 0.5 * high
    while low < level < high:  # halved each time, until no number is in between
        if _fill(flat, intercept, slope, most, level, out) <= budget[0]:
            low = level
        else:
            high = level
        level = 0.5 * (low + high)
    left = budget[0] - _fill(flat, intercept, slope, most, low, out)
    while left > 0:  # after each pass the worker has no more tasks that end as soon
        first, soonest = -1, np.inf
        for i in range(len(out)):
            ready = max(flat[i], intercept[i] + slope[i] * (out[i] + 1))
            if out[i] < most[i] and ready < soonest:
                first, soonest = i, ready
        until = _tasks_until(flat[first], intercept[first], slope[first], most[first], soonest)
        more = min(until - out[first], left)
        out[first] += more
        left -= more


def fitted(sizes: Floats, times: Floats, rounds: Floats) -> tuple[Floats, Floats, Floats]:
    """Fit max(t, a + b x) by least squares to m measured points of each worker: t, a and b, of shape (..., n).

    A line with a >= 0, or a flat part over the smallest sizes and a line over the others, if that halves the squared
    error. A worker that was never measured counts as the mean of the others. The sizes and times of a point are added
    up over its ``rounds``, shape (..., n, m).
    """
    number = np.maximum(rounds, 1.0)
    x, y = sizes / number, times / number
    order = np.argsort(np.where(rounds > 0, x, np.inf), axis=-1, kind="stable")
    x, y = np.take_along_axis(x, order, -1), np.take_along_axis(y, order, -1)
    t, a, b = _fit(x, y, (rounds > 0).sum(axis=-1))
    known = b > 0.0
    mean = b.sum(axis=-1, keepdims=True) / np.maximum(known.sum(axis=-1, keepdims=True), 1)
    return t, a, np.where(known, b, np.where(mean > 0.0, mean, 1.0))


@kernel("(m),(m),()->(),(),()")
def _fit(x: Floats, y: Floats, points: Ints, t: Floats, a: Floats, b: Floats) -> None:
    m = points[0]
    t[0], a[0], b[0] = 0.0, 0.0, 0.0
    square, product = 0.0, 0.0
    for k in range(m):
        square += x[k] * x[k]
        product += x[k] * y[k]
    if m == 0 or product <= 0.0:
        return
    origin = product / square  # where no line rises
    best = np.inf
    for flat in range(max(m - 1, 1)):  # points of the flat part
        level, mean_x, mean_y, spread, slope = 0.0, 0.0, 0.0, 0.0, 0.0
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
            slope, intercept = origin, 0.0
        elif not rises:
            continue
        error = 0.0
        for k in range(m):
            error += (y[k] - max(level, intercept + slope * x[k])) ** 2
        if error < best:
            best = error * (_GAIN if flat == 0 else 1.0)
            t[0], a[0], b[0] = level, intercept, slope
