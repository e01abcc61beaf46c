"""The record of one round on real workers, as a line of text, as scalars, and for a trace."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ata_gym.typing import Worker
from ata_gym.utils.validation import first_of
from ata_policies.propensities import Propensities

_MOST_NAMED = 16
"""The most workers in a sentence."""


@dataclass(frozen=True)
class RoundRecord:
    """A round that has ended.

    Times are in seconds. Workers have the names that the policy knows.

    Example:
        >>> seconds = {"a": (0.5, 0.5), "b": (1.5,)}
        >>> estimates = {"b": 1.2}
        >>> record = RoundRecord(3, {"a": 2, "b": 1}, seconds, round_time=1.6, estimates=estimates)
        >>> record.waited_for, record.worker_time, round(record.idle["a"], 3)
        ('b', 2.5, 0.5)
        >>> print(record)
        round 3: 1.6 s, waited for b; a 2 in 1 s, b 1 in 1.5 s (1.2 expected)
    """

    round: int
    """The number of the round, counted from 1, over restarts."""
    tasks: Mapping[Worker, int]
    """The number of tasks that each worker was given, maybe 0."""
    seconds: Mapping[Worker, tuple[float, ...]]
    """The task times of each worker's results, in the order of their starts."""
    round_time: float
    """The time until the last needed result of the round was in, communication included."""
    estimates: Mapping[Worker, float] = field(default_factory=dict)
    """The mean task times that the policy believed when it decided.

    Workers of which it believed nothing are left out."""
    communication: float = 0.0
    """The part of the round time in which all workers waited for the network."""
    wasted: Mapping[Worker, float] = field(default_factory=dict)
    """The worker time without a result that counts, of tasks that were cancelled, late or lost."""
    away: Mapping[Worker, str] = field(default_factory=dict)
    """The workers that are away, and why."""
    loss: float | None = None
    """The mean loss of the tasks, if it is known; with weights, the mean by weight."""
    latency: Mapping[Worker, float] = field(default_factory=dict)
    """What each worker spent in the round besides its tasks, such as before the first of them.

    It is empty where it is not measured. It is a part of the time that a worker was busy."""
    weight: float = 0.0
    """The sum of the weights of the losses, such as tokens; 0 where they have no weights."""
    propensities: Propensities | None = None
    """How likely the allocation was, as ``Allocator.propensities`` says; None if it is not known.

    A ``TraceRecorder`` writes them."""

    @property
    def busy(self) -> dict[Worker, float]:
        """The seconds in which each worker computed results that count, with its latency."""
        return {
            worker: sum(self.seconds.get(worker, ()), self.latency.get(worker, 0.0))
            for worker in self.tasks
        }

    @property
    def worker_time(self) -> float:
        """The time that all workers were busy, including wasted time."""
        return sum(self.busy.values()) + sum(self.wasted.values())

    @property
    def waited_for(self) -> Worker | None:
        """The worker whose results took longest; None if there are no results."""
        busy = self.busy
        if any(busy.values()):
            return max(busy, key=busy.__getitem__)
        return None

    @property
    def idle(self) -> dict[Worker, float]:
        """The seconds in which each worker waited for the slowest worker."""
        longest = max(self.busy.values(), default=0.0)
        return {worker: longest - busy for worker, busy in self.busy.items()}

    def scalars(self) -> dict[str, float]:
        """All numbers by name, as ``SummaryWriter.add_scalar`` takes them one by one.

        Example:
            >>> record = RoundRecord(1, {"a": 1}, {"a": (2.0,)}, round_time=2.5, communication=0.5)
            >>> record.scalars()["time/idle/a"]
            0.0
        """
        scalars: dict[str, float] = {
            "time/round": self.round_time,
            "time/communication": self.communication,
            "time/worker_time": self.worker_time,
            "time/wasted": float(sum(self.wasted.values())),
            "workers/away": float(len(self.away)),
        }
        if self.loss is not None:
            scalars["loss"] = self.loss
        idle = self.idle
        busy = self.busy
        for worker, count in self.tasks.items():
            scalars |= {f"tasks/{worker}": float(count), f"time/busy/{worker}": busy[worker]}
            scalars[f"time/idle/{worker}"] = idle[worker]
            if seconds := self.seconds.get(worker):
                scalars[f"task_time/{worker}"] = sum(seconds) / len(seconds)
            if worker in self.latency:
                scalars[f"time/latency/{worker}"] = self.latency[worker]
            if worker in self.estimates:
                scalars[f"task_time/{worker}/expected"] = self.estimates[worker]
        return scalars

    def write(self, writer: Any) -> None:
        """Write the scalars to a ``SummaryWriter`` of ``torch.utils.tensorboard``.

        An object with the same ``add_scalar`` will do.
        """
        for name, value in self.scalars().items():
            writer.add_scalar(name, value, self.round)

    def __str__(self) -> str:
        text = f"round {self.round}: {self.round_time:.3g} s"
        if self.waited_for is not None:
            text += f", waited for {self.waited_for}"
        if self.communication:
            text += f", communication {self.communication:.2g} s"
        if any(self.wasted.values()):
            text += f", wasted {sum(self.wasted.values()):.3g} s"
        if self.loss is not None:
            text += f", loss {self.loss:.4g}"
        present = [self._text_of(worker) for worker in self.tasks if worker not in self.away]
        text += f"; {first_of(present, _MOST_NAMED)}"
        if self.away:
            absent = [f"{name} ({reason})" for name, reason in self.away.items()]
            return f"{text}; away: {first_of(absent, _MOST_NAMED)}"
        return text

    def _text_of(self, worker: Worker) -> str:
        seconds = self.seconds.get(worker, ())
        text = f"{worker} {self.tasks[worker]}"
        if len(seconds) != self.tasks[worker]:
            text += f", {len(seconds)} done"
        if seconds:
            text += f" in {sum(seconds):.3g} s"
            if worker in self.estimates:
                text += f" ({self.estimates[worker] * len(seconds):.3g} expected)"
        return text
