"""The record of one round on real workers, as a line of text, as scalars, and for a trace."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ata_gym.typing import Worker


@dataclass(frozen=True)
class RoundRecord:
    """A round that has ended. Times are in seconds; workers are those that the policy knows.

    >>> record = RoundRecord(3, {"a": 2, "b": 1}, {"a": (0.5, 0.5), "b": (1.5,)}, round_time=1.6, estimates={"b": 1.2})
    >>> record.waited_for, record.worker_time, round(record.idle["a"], 3)
    ('b', 2.5, 0.5)
    >>> print(record)
    round 3: 1.6 s, waited for b; a 2 in 1 s, b 1 in 1.5 s (1.2 expected)
    """

    round: int  # counted from 1, over restarts
    tasks: Mapping[Worker, int]  # how many each worker was given, maybe 0
    seconds: Mapping[Worker, tuple[float, ...]]  # the task times of each worker's results, in the order of their starts
    round_time: float  # from the start of the round until its last needed result was in, communication included
    estimates: Mapping[Worker, float] = field(default_factory=dict)
    """The mean task times that the policy believed when it decided, for workers of which it believed anything."""
    communication: float = 0.0  # the part of the round time in which all workers waited for the network
    wasted: Mapping[Worker, float] = field(default_factory=dict)
    """Worker time without a result that counts, of tasks that were cancelled, late or lost."""
    away: Mapping[Worker, str] = field(default_factory=dict)  # workers that are away, and why
    loss: float | None = None  # the mean loss of the tasks, if it is known

    @property
    def busy(self) -> dict[Worker, float]:
        """Seconds in which each worker computed results that count."""
        return {worker: sum(self.seconds.get(worker, ()), 0.0) for worker in self.tasks}

    @property
    def worker_time(self) -> float:
        """The time that all workers were busy, including wasted time."""
        return sum(self.busy.values()) + sum(self.wasted.values())

    @property
    def waited_for(self) -> Worker | None:
        """The worker whose results took longest; None if there are no results."""
        busy = self.busy
        return max(busy, key=busy.__getitem__) if any(busy.values()) else None

    @property
    def idle(self) -> dict[Worker, float]:
        """Seconds in which each worker waited for the slowest one."""
        longest = max(self.busy.values(), default=0.0)
        return {worker: longest - busy for worker, busy in self.busy.items()}

    def scalars(self) -> dict[str, float]:
        """All numbers by name, as ``SummaryWriter.add_scalar`` takes them one by one.

        >>> RoundRecord(1, {"a": 1}, {"a": (2.0,)}, round_time=2.5, communication=0.5).scalars()["time/idle/a"]
        0.0
        """
        named: dict[str, float] = {
            "time/round": self.round_time, "time/communication": self.communication,
            "time/worker_time": self.worker_time, "time/wasted": float(sum(self.wasted.values())),
            "workers/away": float(len(self.away)),
        }  # fmt: skip
        if self.loss is not None:
            named["loss"] = self.loss
        idle, busy = self.idle, self.busy
        for worker, count in self.tasks.items():
            named |= {f"tasks/{worker}": float(count), f"time/busy/{worker}": busy[worker]}
            named[f"time/idle/{worker}"] = idle[worker]
            if own := self.seconds.get(worker):
                named[f"task_time/{worker}"] = busy[worker] / len(own)
            if worker in self.estimates:
                named[f"task_time/{worker}/expected"] = self.estimates[worker]
        return named

    def write(self, writer: Any) -> None:
        """Write the scalars to a ``torch.utils.tensorboard.SummaryWriter``, or to an object with its ``add_scalar``."""
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
        text += f"; {_few([self._text_of(worker) for worker in self.tasks if worker not in self.away])}"
        return f"{text}; away: {_few([f'{who} ({why})' for who, why in self.away.items()])}" if self.away else text

    def _text_of(self, worker: Worker) -> str:
        own = self.seconds.get(worker, ())
        text = f"{worker} {self.tasks[worker]}"
        if len(own) != self.tasks[worker]:
            text += f", {len(own)} done"
        if own:
            text += f" in {sum(own):.3g} s"
            if worker in self.estimates:
                text += f" ({self.estimates[worker] * len(own):.3g} expected)"
        return text


def _few(texts: list[str], most: int = 16) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
