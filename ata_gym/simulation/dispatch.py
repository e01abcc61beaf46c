"""One step of dispatch for a batch of rows: from a decision to the next result."""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

import numpy as np

from ata_gym.pools.distributions import Distributions
from ata_gym.simulation import kernels
from ata_gym.simulation.disturbances import Disturbances, checked
from ata_gym.typing import Bits, Floats, Ints, Keys, Mask
from ata_gym.utils.ranges import Flags, Tasks, Wholes, Within, all_tasks

Moments: TypeAlias = Annotated[Floats, Within(0.0, float(np.finfo(np.float32).max))]
"""Times of a round, which float32 can hold."""


class RoundState(NamedTuple):
    """Where E rows are inside their rounds, with n workers."""

    missing: Annotated[Ints, Within(1, all_tasks)]
    """(E,) results that the round still needs; B where it has not begun."""
    tasks: Tasks
    """(E, n) tasks that each worker has started in the round."""
    running: Flags
    """(E, n) 1 where a worker is running a task."""
    begun: Moments
    """(E, n) when each worker's latest task began, counted from the round's start."""
    duration: Moments
    """(E, n) its task time."""
    finish: Moments
    """(E, n) when it ends, or ended; 0 before the first."""
    idle: Moments
    """(E, n) how long the worker had been idle in the round before it."""
    now: Moments
    """(E,) time since the round's start."""
    spent: Moments
    """(E,) worker time since the round's start."""
    lost: Wholes
    """(E,) tasks that were lost as their worker died, in this round, or in the last one where it has not begun."""

    @classmethod
    def start(cls, rows: int, n: int, budget: int) -> RoundState:
        """The start of a round, where all workers are idle."""
        return cls(
            np.full(rows, budget),
            np.zeros((rows, n), np.int64),
            np.zeros((rows, n), np.int8),
            *np.zeros((4, rows, n)),
            *np.zeros((2, rows)),
            *np.zeros((1, rows), np.int64),
        )


class Completion(NamedTuple):
    """What E rows know at the next result."""

    worker: Ints
    """(E,) the worker whose result came in."""
    duration: Floats
    """(E,) its task time."""
    elapsed: Floats
    """(E, n) at the round's end, how long each worker's cancelled task had run; else 0."""
    age: Floats
    """(E, n) how long each running task has run."""
    round_over: Mask
    """(E,) whether this was the B-th result."""
    round_time: Floats
    """(E,) when it came in, counted from the round's start."""
    worker_time: Floats
    """(E,) time that all workers were busy, from the round's start until then."""
    started: Ints
    """(E, n) tasks that each worker has started in the episode so far."""
    round_state: RoundState
    """Where the rows are inside their rounds now; after the B-th result, at the start of the next round."""


def dispatch_step(
    distributions: Distributions,
    keys: Keys,
    episode: Ints,
    round_index: Ints,
    started: Ints,
    round_state: RoundState,
    action: Bits,
    budget: int,
    disturbances: Disturbances | None = None,
) -> Completion:
    """Go on from one decision to the next result, of which the round needs B.

    ``action``, shape (E, n), has 1 for each worker that starts a task if it is idle, else 0; if no worker would be
    running, all start. The other parameters are those of :func:`allocation_round`, but ``started`` counts the tasks of
    this round too, and the disturbances are the same in all steps of a round.

    A worker that dies is no longer running and starts no task; what it lost is its ``elapsed`` at the round's end. If
    the last running worker dies, all living workers start at that moment. Tasks are not handed on: the policy decides.
    If all workers of a row die, ValueError is raised.

    Of results at the same moment the lowest worker's comes first. A worker's busy time is its time since the round's
    start minus its idle gaps, so that a worker which always restarts at once has the bits of ``race_round``.

    >>> from ata_gym.pools import deterministic
    >>> from ata_gym.simulation.keys import stream_keys
    >>> distributions, keys, zero = deterministic([2.0, 3.0]).distributions, stream_keys(0), np.zeros(1, np.int64)
    >>> started, round_state = np.zeros((1, 2), np.int64), RoundState.start(rows=1, n=2, budget=2)
    >>> both = np.ones((1, 2), np.int8)
    >>> first = dispatch_step(distributions, keys, zero, zero, started, round_state, both, 2)
    >>> second = dispatch_step(distributions, keys, zero, zero, first.started, first.round_state, both, 2)
    >>> second.worker, second.round_time, second.elapsed, second.round_over
    (array([1]), array([3.]), array([[1., 0.]]), array([ True]))
    """
    rows, n = action.shape
    noise, dies, _ = checked(disturbances, n)
    after, there = started.copy(), RoundState._make([part.copy() for part in round_state])
    elapsed, age = np.empty((2, rows, n))
    duration, round_time, worker_time = np.empty((3, rows))
    seen = np.empty(rows, np.int64), duration, elapsed, age, np.empty(rows, np.bool_), round_time, worker_time
    of_tasks = kernels.distribution_arguments(distributions, noise)
    kernels.run_dispatch(*of_tasks, keys, episode, round_index, budget, action, dies, after, *there, *seen)
    return Completion(*seen, after, there)
