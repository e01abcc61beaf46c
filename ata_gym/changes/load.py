"""Changes that follow the load: heat, leaks, caches and links, by the tasks that a worker is given.

They have no random numbers of their own. Their state follows from the tasks and busy times of the
rounds before, and ``ShareTime`` from the allocation of the round itself.
"""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.changes import change as limits
from ata_gym.changes.change import Change, LastRound, RoundContext, set_number
from ata_gym.changes.conditions import Conditions
from ata_gym.changes.faults import with_deaths
from ata_gym.typing import Floats
from ata_gym.utils.validation import flag

_AT_LEAST_1 = {"low": 1}


class FollowsLoad(Change):
    """The memory of the coming round follows from what the last round asked of the workers."""

    follows_load: ClassVar[bool] = True

    def next_memory(self, context: RoundContext, memory: Floats) -> Floats:
        if context.last_round is None:
            return memory
        return self.memory_after(context.last_round, memory)

    @abstractmethod
    def memory_after(self, last_round: LastRound, memory: Floats) -> Floats:
        """The memory after a round, shape (E, slots, n).

        Args:
            last_round: The round that has ended.
            memory: The memory in that round, shape (E, slots, n).
        """


class _ThrottlingColumns(NamedTuple):
    """The columns of the memory of ``Throttling``."""

    heat: int = 0
    """The heat, from 0 to 1."""
    throttled: int = 1
    """1 where the worker is throttled, else 0."""


_THROTTLING = _ThrottlingColumns()


@dataclass(frozen=True)
class Throttling(FollowsLoad):
    """A worker that is busy for long becomes hot, and is slow until it has cooled.

    Heat is between 0 and 1. In a round of time T in which a worker is busy for a share u of the
    time, it goes from h to ``u + (h - u) exp(-T / time_constant)``, as if the busy time were spread
    evenly over the round. A worker whose heat is ``hot`` or more at a round's start is throttled in
    that round and the next ones, until its heat is ``cool`` or less at a round's start. At the
    start of an episode the heat is 0.

    Example:
        >>> import gymnasium, ata_gym
        >>> env = gymnasium.make(
        ...     "ata_gym/TaskAllocation-v0",
        ...     pool={"family": "deterministic", "scale": [1.0, 1.0]},
        ...     changes=[Throttling(time_constant=4.0, hot=0.5, cool=0.3, factor=2.0)],
        ...     budget=3,
        ... ).unwrapped
        >>> _ = env.reset(seed=0), env.step(np.array([3, 0]))
        >>> env.means()
        array([2., 1.])
    """

    time_constant: float = field(metadata=limits.POSITIVE)
    """The time in which the distance to the final heat falls to 1/e, in units of time."""
    hot: float = field(metadata=limits.SHARE)
    """The heat from which on a worker is throttled, between 0 and 1."""
    cool: float
    """The heat from which on it is no longer throttled, from 0 to ``hot``."""
    factor: float = field(metadata=_AT_LEAST_1)
    """The factor of the task times of a throttled worker."""

    slots: ClassVar[int] = len(_THROTTLING)

    def __post_init__(self) -> None:
        super().__post_init__()
        set_number(self, "cool", 0, self.hot)

    def ranges(self, n: int) -> list[tuple[float, float]]:
        return [(0.0, 1.0), (0.0, 1.0)]

    def memory_after(self, last_round: LastRound, memory: Floats) -> Floats:
        round_time = last_round.round_time[:, None]
        # a round may take no time at all, and then the heat stays
        share = np.divide(
            last_round.busy_time,
            round_time,
            out=np.zeros_like(last_round.busy_time),
            where=round_time > 0,
        )
        rest = np.exp(-round_time / self.time_constant)
        heat = np.clip(share + (memory[:, _THROTTLING.heat] - share) * rest, 0.0, 1.0)
        was_throttled = memory[:, _THROTTLING.throttled] > 0
        throttled = (heat >= self.hot) | (was_throttled & (heat > self.cool))
        return np.stack([heat, throttled], axis=1)

    def longest_time(self, time: float, tasks: int) -> float:
        return time * self.factor

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        throttled = memory[:, _THROTTLING.throttled] > 0
        return conditions.scaled(np.where(throttled, self.factor, 1.0))


class _LeakColumns(NamedTuple):
    """The columns of the memory of ``Leak``."""

    tasks: int = 0
    """The tasks that the worker has started since its last restart."""
    rounds_away: int = 1
    """The rounds for which the worker is still away, with this one."""


_LEAK = _LeakColumns()


@dataclass(frozen=True)
class Leak(FollowsLoad):
    """Each task leaves a bit behind and slows the next ones, until the worker restarts.

    The task times of a round are multiplied by ``1 + growth * k``, where k counts the tasks that
    the worker started in earlier rounds since its last restart. With ``restart`` of them or more it
    restarts: it is away for the next ``away`` rounds, as under ``Spot``, and k is 0 again. A worker
    that was away, or died, for another reason has restarted as well.
    """

    growth: float = field(metadata=limits.POSITIVE)
    """How much longer each task makes the later ones, as a share of their times."""
    restart: int = field(metadata=limits.COUNT)
    """The number of tasks after which a worker restarts."""
    away: int = field(default=0, metadata=limits.WHOLE)
    """The number of rounds that a restart takes; with 0 it happens between two rounds."""
    deadline: float = field(default=0.0, metadata=limits.NON_NEGATIVE)
    """The time of a round from which tasks of workers that are away are handed on."""

    slots: ClassVar[int] = len(_LEAK)

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self)["faulty"] = self.away > 0

    def ranges(self, n: int) -> list[tuple[float, float]]:
        return [(0.0, self.restart - 1), (0.0, self.away)]

    def memory_after(self, last_round: LastRound, memory: Floats) -> Floats:
        rounds_away = memory[:, _LEAK.rounds_away]
        # Where all workers would be away, one lives: the tasks of its restart do not count.
        keeps = (rounds_away == 0) & ~last_round.absent
        tasks = np.where(keeps, memory[:, _LEAK.tasks] + last_round.tasks, 0.0)
        restarts = tasks >= self.restart
        rounds_away = np.where(restarts, self.away, np.maximum(rounds_away - 1, 0.0))
        return np.stack([np.where(restarts, 0.0, tasks), rounds_away], axis=1)

    def longest_time(self, time: float, tasks: int) -> float:
        return max(time * (1 + self.growth * (self.restart - 1)), self.deadline)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        slowed = conditions.scaled(1 + self.growth * memory[:, _LEAK.tasks])
        death_time = np.where(memory[:, _LEAK.rounds_away] > 0, 0.0, np.inf)
        return with_deaths(slowed, death_time, self.deadline)


@dataclass(frozen=True)
class ColdAfterIdle(FollowsLoad):
    """A worker without a task for some rounds is slow in the next round in which it has one.

    Its caches are lost, or its container was stopped. It is slow for one round, whatever the number
    of its tasks. A worker that was away or died is cold as well. At the start of an episode all
    workers are warm.
    """

    idle: int = field(metadata=limits.COUNT)
    """The number of rounds without a task after which a worker is cold."""
    factor: float = field(metadata=_AT_LEAST_1)
    """The factor of the task times of a cold worker."""

    slots: ClassVar[int] = 1

    def ranges(self, n: int) -> list[tuple[float, float]]:
        return [(0.0, self.idle)]

    def memory_after(self, last_round: LastRound, memory: Floats) -> Floats:
        idle_rounds = np.where(last_round.tasks > 0, 0.0, np.minimum(memory[:, 0] + 1, self.idle))
        return np.where(last_round.absent, float(self.idle), idle_rounds)[:, None]

    def longest_time(self, time: float, tasks: int) -> float:
        return time * self.factor

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        return conditions.scaled(np.where(memory[:, 0] >= self.idle, self.factor, 1.0))


@dataclass(frozen=True)
class Warming(FollowsLoad):
    """The first tasks of a worker are slow: compilation, autotuning, empty caches.

    All tasks of a round have one factor, which follows from the number k of tasks that the worker
    has started in earlier rounds: in the first round in which it works, all of its tasks are slow.
    The factor is ``factor`` until k is ``tasks``, and 1 from then on. With ``smooth=True`` it is
    ``factor ** (1 - k / tasks)`` until then. A worker that was away or died begins again.
    """

    tasks: int = field(metadata=limits.COUNT)
    """The number of tasks after which a worker is warm."""
    factor: float = field(metadata=_AT_LEAST_1)
    """The factor of the task times of a worker that has run none."""
    smooth: bool = False
    """Whether the factor falls with each task, in place of all at once."""

    slots: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self)["smooth"] = flag("smooth of Warming", self.smooth)

    def ranges(self, n: int) -> list[tuple[float, float]]:
        return [(0.0, self.tasks)]

    def memory_after(self, last_round: LastRound, memory: Floats) -> Floats:
        tasks = np.minimum(memory[:, 0] + last_round.tasks, self.tasks)
        return np.where(last_round.absent, 0.0, tasks)[:, None]

    def longest_time(self, time: float, tasks: int) -> float:
        return time * self.factor

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        missing = 1 - memory[:, 0] / self.tasks
        if not self.smooth:
            missing = np.ceil(missing)
        return conditions.scaled(self.factor**missing)


@dataclass(frozen=True)
class ShareTime(Change):
    """The time of a share is not its number of tasks times the time of one.

    A share of x tasks takes ``max(x, saturation) * (1 + slope * (x - 1))`` task times. Below
    ``saturation`` tasks a device is not full, and a share costs as much as that many, which is the
    piecewise law of LB-BSP's GPU workers, max(t0, b x). With ``slope`` the link of a worker carries
    all of its results, and the more there are, the longer each takes. x is the number of tasks in
    the allocation; tasks that are handed on do not count.

    It needs the allocation before the round begins, and is for ``TaskAllocation-v0`` alone. The
    conditions that an env tells before the round are without it, and so are the mean task times.
    """

    saturation: float = field(default=1.0, metadata=_AT_LEAST_1)
    """The number of tasks below which a share takes no less time."""
    slope: float = field(default=0.0, metadata=limits.NON_NEGATIVE)
    """How much longer each task of a share makes the others, as a share of their times."""

    follows_load: ClassVar[bool] = True
    needs_allocation: ClassVar[bool] = True

    def longest_time(self, time: float, tasks: int) -> float:
        return time * self.saturation * (1 + self.slope * (tasks - 1))

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        return conditions

    def apply_allocation(
        self, conditions: Conditions, memory: Floats, allocation: NDArray[np.integer[Any]]
    ) -> Conditions:
        # the times of a worker without a task do not matter
        share = np.maximum(allocation, 1)
        factor = np.maximum(share, self.saturation) / share * (1 + self.slope * (share - 1))
        return conditions.scaled(factor)
