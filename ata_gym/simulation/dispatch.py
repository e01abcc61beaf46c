"""One step of dispatch for a batch of rows: from a decision to the next result."""

from typing import Annotated, NamedTuple, Self, TypeAlias

import numpy as np

from ata_gym.pools.distributions import Distributions
from ata_gym.simulation.disturbances import (
    Disturbances,
    alive,
    checked_disturbances,
    end_of_task,
    gives_result,
)
from ata_gym.simulation.keys import NoiseKeys
from ata_gym.simulation.task_times import LAYOUT, TaskTimes, kernel_arguments, time_of
from ata_gym.typing import Bits, Floats, Ints, Keys, Mask
from ata_gym.utils.compiled import kernel, phase
from ata_gym.utils.ranges import Flags, Tasks, Wholes, Within, all_tasks

Moments: TypeAlias = Annotated[Floats, Within(0.0, float(np.finfo(np.float32).max))]
"""Times of a round, which float32 can hold."""


class RoundState(NamedTuple):
    """The state of E rows inside their rounds, with n workers."""

    missing: Annotated[Ints, Within(1, all_tasks)]
    """The results that the round still needs, shape (E,); B where it has not begun."""
    tasks: Tasks
    """The tasks that each worker has started in the round, shape (E, n)."""
    running: Flags
    """1 where a worker is running a task, shape (E, n)."""
    task_start: Moments
    """When each worker's latest task began, counted from the round's start, shape (E, n)."""
    duration: Moments
    """The time of each worker's latest task, shape (E, n)."""
    finish: Moments
    """When the latest task ends, or ended, shape (E, n); 0 before the first."""
    idle: Moments
    """How long the worker had been idle in the round before it, shape (E, n)."""
    time: Moments
    """The time since the round's start, shape (E,)."""
    worker_time: Moments
    """The worker time since the round's start, shape (E,)."""
    lost: Wholes
    """The tasks that were lost when their worker died, shape (E,).

    They are counted in this round, or in the last one where this one has not begun.
    """
    latency: Moments
    """The latency before each worker's first task of the round, shape (E, n).

    It is 0 for a worker that has started none.
    """

    @classmethod
    def start(cls, rows: int, n: int, budget: int) -> Self:
        """The start of a round, where all workers are idle.

        Args:
            rows: The number of rows, E.
            n: The number of workers.
            budget: The results that a round needs, B.
        """
        tasks = np.zeros((rows, n), np.int64)
        running = np.zeros((rows, n), np.int8)
        task_start, duration, finish, idle, latency = np.zeros((5, rows, n))
        time, worker_time = np.zeros((2, rows))
        return cls(
            np.full(rows, budget),
            tasks,
            running,
            task_start,
            duration,
            finish,
            idle,
            time,
            worker_time,
            np.zeros(rows, np.int64),
            latency,
        )


class Completion(NamedTuple):
    """What E rows know at the next result."""

    worker: Ints
    """The worker whose result came in, shape (E,)."""
    duration: Floats
    """The task time of the result, shape (E,)."""
    elapsed: Floats
    """How long each worker's cancelled task had run at the round's end, else 0, shape (E, n)."""
    age: Floats
    """How long ago each running task was started, shape (E, n), with a latency before it."""
    round_over: Mask
    """Whether this was the B-th result, shape (E,)."""
    round_time: Floats
    """When the result came in, counted from the round's start, shape (E,)."""
    worker_time: Floats
    """The time that all workers were busy, from the round's start until then, shape (E,)."""
    started: Ints
    """The tasks that each worker has started in the episode so far, shape (E, n)."""
    round_state: RoundState
    """The state of the rows now; after the B-th result it is the start of the next round."""
    latency: Floats
    """The time that a worker spent in the round before its first task, shape (E, n).

    It stands beside the first result of the worker in the round. At the round's end it stands
    there, too, for workers without a result, as far as it was paid. Else it is 0.
    """


@phase
def _start(
    times: TaskTimes,
    row: RoundState,
    started: Ints,
    death_time: Floats,
    latency: Floats,
    action: Bits,
    start_all: bool,
) -> None:
    """Start a task on each idle living worker that the action names, or on all of them.

    A worker's first task of the round begins after its latency.
    """
    time = row.time[0]
    for i in range(len(action)):
        if row.running[i] == 0 and (action[i] != 0 or start_all) and alive(death_time[i], time):
            row.duration[i] = time_of(times, i, started[i])
            # The gap is exactly 0 where the worker restarts at once.
            row.idle[i] += time - row.finish[i]
            row.task_start[i] = time
            if row.tasks[i] == 0:
                row.task_start[i] = time + latency[i]
                row.latency[i] = latency[i]
            row.finish[i] = end_of_task(row.task_start[i], row.duration[i], death_time[i])
            row.running[i] = 1
            row.tasks[i] += 1
            started[i] += 1


@phase
def _run_to_result(
    times: TaskTimes,
    row: RoundState,
    started: Ints,
    death_time: Floats,
    latency: Floats,
    action: Bits,
) -> int:
    """Start tasks and go on to the next result; return its worker."""
    start_all = False
    # Each pass goes to a result, or to the next death, once for a worker. If no worker is running a
    # task, the next pass starts all of them, or ends the loop.
    while True:
        _start(times, row, started, death_time, latency, action, start_all)
        # The worker whose task ends first, of equals the lowest.
        i = -1
        for j in range(len(action)):
            if row.running[j] != 0 and (i < 0 or row.finish[j] < row.finish[i]):
                i = j
        if i < 0:
            # After a start of all workers none can be alive, which the callers rule out.
            if start_all:
                return i
            start_all = True
            continue
        start_all = False
        row.time[0] = row.finish[i]
        row.running[i] = 0
        if gives_result(row.task_start[i], row.duration[i], death_time[i], row.time[0]):
            return i
        row.lost[0] += 1


@phase
def _measure(
    row: RoundState,
    death_time: Floats,
    result_worker: int,
    round_over: bool,
    elapsed: Floats,
    age: Floats,
    paid: Floats,
) -> None:
    """Add up the worker time, and measure how long tasks have run.

    ``elapsed`` gets the times of cancelled and lost tasks if the round is over, and ``age`` the
    times since running tasks were started if it is not. ``paid`` gets the latency of
    ``result_worker`` if the result is its first one in the round, and the latencies of workers
    without a result if the round is over.
    """
    time = row.time[0]
    total = 0.0
    for i in range(len(death_time)):
        if row.running[i] != 0:
            busy_until = time
            run_time = time - row.task_start[i]
            if row.tasks[i] == 1:
                # At most the time of the round, whatever the rounding is.
                run_time = min(run_time + row.latency[i], time)
        else:
            busy_until = row.finish[i]
            run_time = 0.0
        unfinished = row.running[i] != 0 or not gives_result(
            row.task_start[i], row.duration[i], death_time[i], row.finish[i]
        )
        if row.tasks[i] == 1 and (i == result_worker or (round_over and unfinished)):
            # Less what is still to come, or what the worker's death spared it.
            paid[i] = row.latency[i] - max(row.task_start[i] - busy_until, 0.0)
        else:
            paid[i] = 0.0
        total += busy_until - row.idle[i]
        if round_over:
            if unfinished:
                elapsed[i] = max(busy_until - row.task_start[i], 0.0)
            else:
                elapsed[i] = 0.0
            age[i] = 0.0
        else:
            elapsed[i] = 0.0
            age[i] = run_time
    row.worker_time[0] = total


@phase
def _begin_round(row: RoundState, budget: int) -> None:
    """Put a row at the start of a round; ``lost`` stays until the first step of the round."""
    row.missing[0] = budget
    row.time[0] = row.worker_time[0] = 0.0
    for i in range(len(row.tasks)):
        row.tasks[i] = 0
        row.running[i] = 0
        row.task_start[i] = row.duration[i] = row.finish[i] = row.idle[i] = 0.0
        row.latency[i] = 0.0


@kernel(
    f"{LAYOUT}(),(),(),(),(n),(n),(n),(n),(),(n),(n),(n),(n),(n),(n),(),(),(),(n),"
    "(),(),(n),(n),(),(),(),(n)",
    tuple(range(15, 35)),
)
def _run_dispatch(
    family: Ints,
    shift: Floats,
    scale: Floats,
    shape: Floats,
    table: Floats,
    record_start: Ints,
    length: Ints,
    noise: Floats,
    key: Keys,
    episode: Ints,
    round_index: Ints,
    budget: Ints,
    action: Bits,
    death_time: Floats,
    latency: Floats,
    started: Ints,
    missing: Ints,
    tasks: Ints,
    running: Bits,
    task_start: Floats,
    duration: Floats,
    finish: Floats,
    idle: Floats,
    time: Floats,
    worker_time: Floats,
    lost: Ints,
    full_latency: Floats,
    result_worker: Ints,
    result_duration: Floats,
    elapsed: Floats,
    age: Floats,
    round_over: Mask,
    result_round_time: Floats,
    result_worker_time: Floats,
    paid: Floats,
) -> None:
    times = TaskTimes(
        family,
        shift,
        scale,
        shape,
        table,
        record_start,
        length,
        noise,
        key[0],
        episode[0],
        round_index[0],
    )
    row = RoundState(
        missing,
        tasks,
        running,
        task_start,
        duration,
        finish,
        idle,
        time,
        worker_time,
        lost,
        full_latency,
    )
    # The round begins with this step.
    if missing[0] == budget[0]:
        lost[0] = 0
    i = _run_to_result(times, row, started, death_time, latency, action)
    missing[0] -= 1
    round_over[0] = missing[0] == 0
    _measure(row, death_time, i, round_over[0], elapsed, age, paid)
    result_worker[0] = i
    result_duration[0] = duration[i]
    result_round_time[0] = time[0]
    result_worker_time[0] = worker_time[0]
    if round_over[0]:
        _begin_round(row, budget[0])


def dispatch_step(
    distributions: Distributions,
    noise_keys: NoiseKeys,
    round_state: RoundState,
    action: Bits,
    budget: int,
    disturbances: Disturbances | None = None,
) -> Completion:
    """Go on from one decision to the next result, of which the round needs B.

    A worker that dies is no longer running and starts no task. The time of its lost task is its
    ``elapsed`` at the round's end. If the last running worker dies, all living workers start at
    that moment. Tasks are not handed on: the policy decides.

    A worker pays its latency once in a round, before its first task. Of results at the same moment
    the lowest worker's comes first. A worker's busy time is its time since the round's start minus
    its idle gaps. So a worker that always restarts at once has the same bits as in ``race_round``.

    Args:
        distributions: The distributions, alike in all rows or with a row axis.
        noise_keys: The keys and counters of the noise; ``started`` counts the tasks of this round,
            too.
        round_state: The state of the rows inside their rounds; it is not changed.
        action: 1 for each worker that starts a task if it is idle, else 0, shape (E, n). If no
            worker would be running, all start.
        budget: The results that a round needs, B.
        disturbances: The disturbances, the same in all steps of a round; by default there are none.

    Raises:
        ValueError: If all workers of a row die.
    """
    rows, n = action.shape
    noise, death_time, _, latency = checked_disturbances(disturbances, n)
    # The kernel works in these copies, so that the caller keeps the state of before.
    started = noise_keys.started.copy()
    next_state = RoundState._make([part.copy() for part in round_state])
    elapsed, age, paid = np.empty((3, rows, n))
    duration, round_time, worker_time = np.empty((3, rows))
    outputs = (
        np.empty(rows, np.int64),
        duration,
        elapsed,
        age,
        np.empty(rows, np.bool_),
        round_time,
        worker_time,
    )
    task_arguments = kernel_arguments(distributions, noise)
    _run_dispatch(
        *task_arguments,
        noise_keys.keys,
        noise_keys.episode,
        noise_keys.round_index,
        budget,
        action,
        death_time,
        latency,
        started,
        *next_state,
        *outputs,
        paid,
    )
    return Completion(*outputs, started, next_state, paid)
