"""One step of dispatch for a batch of rows: from a decision to the next result."""

from typing import Annotated, NamedTuple, Self, TypeAlias

import numpy as np

from ata_gym.pools.distributions import Distributions
from ata_gym.simulation.disturbances import Disturbances, alive, checked, end_of_task, gives_result
from ata_gym.simulation.keys import NoiseKeys
from ata_gym.simulation.task_times import LAYOUT, TaskTimes, kernel_arguments, time_of
from ata_gym.typing import Bits, Floats, Ints, Keys, Mask
from ata_gym.utils.compiled import kernel, phase
from ata_gym.utils.ranges import Flags, Tasks, Wholes, Within, all_tasks

Moments: TypeAlias = Annotated[Floats, Within(0.0, float(np.finfo(np.float32).max))]
"""Times of a round, which float32 can hold."""


class RoundState(NamedTuple):
    """Where E rows are inside their rounds, with n workers."""

    missing: Annotated[Ints, Within(1, all_tasks)]  # (E,) results that the round still needs; B where it has not begun
    tasks: Tasks  # (E, n) tasks that each worker has started in the round
    running: Flags  # (E, n) 1 where a worker is running a task
    begun: Moments  # (E, n) when each worker's latest task began, counted from the round's start
    duration: Moments  # (E, n) its task time
    finish: Moments  # (E, n) when it ends, or ended; 0 before the first
    idle: Moments  # (E, n) how long the worker had been idle in the round before it
    now: Moments  # (E,) time since the round's start
    spent: Moments  # (E,) worker time since the round's start
    lost: Wholes  # (E,) tasks that died with their worker, in this round, or in the last one where it has not begun

    @classmethod
    def start(cls, rows: int, n: int, budget: int) -> Self:
        """The start of a round, where all workers are idle."""
        tasks, running = np.zeros((rows, n), np.int64), np.zeros((rows, n), np.int8)
        times = [*np.zeros((4, rows, n)), *np.zeros((2, rows))]
        return cls(*[np.full(rows, budget), tasks, running, *times, np.zeros(rows, np.int64)])


class Completion(NamedTuple):
    """What E rows know at the next result."""

    worker: Ints  # (E,) the worker whose result came in
    duration: Floats  # (E,) its task time
    elapsed: Floats  # (E, n) at the round's end, how long each worker's cancelled task had run; else 0
    age: Floats  # (E, n) how long each running task has run
    round_over: Mask  # (E,) whether this was the B-th result
    round_time: Floats  # (E,) when it came in, counted from the round's start
    worker_time: Floats  # (E,) time that all workers were busy, from the round's start until then
    started: Ints  # (E, n) tasks that each worker has started in the episode so far
    round_state: RoundState  # where the rows are inside their rounds now, after the B-th result at the next one's start


@phase
def _start(times: TaskTimes, row: RoundState, started: Ints, dies: Floats, action: Bits, everybody: bool) -> None:
    now = row.now[0]
    for i in range(len(action)):
        if row.running[i] == 0 and (action[i] != 0 or everybody) and alive(dies[i], now):
            row.duration[i] = time_of(times, i, started[i])
            row.idle[i] += now - row.finish[i]  # exactly 0 where it restarts at once
            row.begun[i], row.finish[i] = now, end_of_task(now, row.duration[i], dies[i])
            row.running[i] = 1
            row.tasks[i] += 1
            started[i] += 1


@phase
def _go_on(times: TaskTimes, row: RoundState, started: Ints, dies: Floats, action: Bits) -> int:
    everybody = False
    while True:  # to a result, or the next death, once for a worker; if nobody runs, everybody starts, or it ends
        _start(times, row, started, dies, action, everybody)
        i = -1  # whose task ends first
        for j in range(len(action)):
            if row.running[j] != 0 and (i < 0 or row.finish[j] < row.finish[i]):
                i = j
        if i < 0:  # no worker is running a task
            if everybody:  # nor does any live, which the callers rule out
                return i
            everybody = True
            continue
        everybody = False
        row.now[0] = row.finish[i]
        row.running[i] = 0
        if gives_result(row.begun[i], row.duration[i], dies[i], row.now[0]):
            return i
        row.lost[0] += 1


@phase
def _measure(row: RoundState, dies: Floats, over: bool, elapsed: Floats, age: Floats) -> None:
    """Add up the worker time, and say how long the tasks that are running have run, or were cancelled or lost."""
    now, total = row.now[0], 0.0
    for i in range(len(dies)):
        running = row.running[i] != 0
        total += (now if running else row.finish[i]) - row.idle[i]
        since = now - row.begun[i] if running else 0.0
        elapsed[i] = since if over else 0.0
        age[i] = 0.0 if over else since
    if over and row.lost[0] > 0:
        for i in range(len(dies)):
            if not gives_result(row.begun[i], row.duration[i], dies[i], row.finish[i]) and row.running[i] == 0:
                elapsed[i] = row.finish[i] - row.begun[i]
    row.spent[0] = total


@phase
def _begin_round(row: RoundState, budget: int) -> None:
    row.missing[0] = budget
    row.now[0] = row.spent[0] = 0.0
    for i in range(len(row.tasks)):
        row.tasks[i], row.running[i] = 0, 0
        row.begun[i] = row.duration[i] = row.finish[i] = row.idle[i] = 0.0


@kernel(
    f"{LAYOUT}(),(),(),(),(n),(n),(n),(),(n),(n),(n),(n),(n),(n),(),(),(),(),(),(n),(n),(),(),()", tuple(range(14, 32))
)
def _run_dispatch(
    family: Ints, shift: Floats, scale: Floats, shape: Floats, table: Floats, first: Ints, length: Ints, noise: Floats,
    key: Keys, episode: Ints, round_index: Ints, budget: Ints, action: Bits, dies: Floats,
    started: Ints, missing: Ints, tasks: Ints, running: Bits, begun: Floats, duration: Floats, finish: Floats,
    idle: Floats, now: Floats, spent: Floats, lost: Ints,
    worker: Ints, time: Floats, elapsed: Floats, age: Floats, round_over: Mask, round_time: Floats, worker_time: Floats,
) -> None:  # fmt: skip
    times = TaskTimes(family, shift, scale, shape, table, first, length, noise, key[0], episode[0], round_index[0])
    row = RoundState(missing, tasks, running, begun, duration, finish, idle, now, spent, lost)
    if missing[0] == budget[0]:  # the round begins
        lost[0] = 0
    i = _go_on(times, row, started, dies, action)
    missing[0] -= 1
    over = missing[0] == 0
    _measure(row, dies, over, elapsed, age)
    worker[0], time[0], round_over[0] = i, duration[i], over
    round_time[0], worker_time[0] = now[0], spent[0]
    if over:
        _begin_round(row, budget[0])


def dispatch_step(
    distributions: Distributions, noise_keys: NoiseKeys, round_state: RoundState, action: Bits, budget: int,
    disturbances: Disturbances | None = None,
) -> Completion:  # fmt: skip
    """Go on from one decision to the next result, of which the round needs B.

    ``action``, shape (E, n), has 1 for each worker that starts a task if it is idle, else 0; if no worker would be
    running, all start. The other parameters are those of :func:`allocation_round`, but ``started`` of the noise keys
    counts the tasks of this round too, and the disturbances are the same in all steps of a round.

    A worker that dies is no longer running and starts no task; what it lost is its ``elapsed`` at the round's end. If
    the last running worker dies, all living workers start at that moment. Tasks are not handed on: the policy decides.
    If all workers of a row die, ValueError is raised.

    Of results at the same moment the lowest worker's comes first. A worker's busy time is its time since the round's
    start minus its idle gaps, so that a worker which always restarts at once has the bits of ``race_round``.
    """
    rows, n = action.shape
    noise, dies, _ = checked(disturbances, n)
    after, there = noise_keys.started.copy(), RoundState._make([part.copy() for part in round_state])
    elapsed, age = np.empty((2, rows, n))
    duration, round_time, worker_time = np.empty((3, rows))
    seen = np.empty(rows, np.int64), duration, elapsed, age, np.empty(rows, np.bool_), round_time, worker_time
    of_tasks = kernel_arguments(distributions, noise)
    _run_dispatch(*of_tasks, *noise_keys[:3], budget, action, dies, after, *there, *seen)
    return Completion(*seen, after, there)
