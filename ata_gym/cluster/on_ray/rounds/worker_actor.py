"""One worker: its present actor, and the tasks that were sent to it."""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from ata_gym.typing import Worker
from ata_gym.utils.validation import short
from ata_policies.allocator.named_workers import checked_names

_NOT_ALLOWED = {
    *("name", "lifetime", "get_if_exists", "max_restarts", "max_task_retries"),  # an actor is replaced by another
    *("max_concurrency", "concurrency_groups", "allow_out_of_order_execution"),  # one task after the other
}
_RESOURCES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
"""The options of an actor that ask for resources of Ray, and the names of these."""


@dataclass
class Started:
    """A task that an actor was sent and has not answered."""

    worker: Worker
    stamp: int  # the stamp of its round
    sample: int
    report: Any  # Ray's reference to the task time
    value: Any  # Ray's reference to the value; None if it is not needed any more
    begun: float  # when it was sent, or became the first task without an answer, by the clock of the driver
    late: bool = False  # whether its round is over
    counted: float = 0.0  # the part of its time that is counted in an earlier round


class WorkerActor:
    """The actor of a worker, which can be made anew; ``actor_class`` is a class of Ray."""

    def __init__(self, name: Worker, options: Mapping[str, Any], actor_class: Any) -> None:
        self.name, self.options = name, dict(options)
        if refused := sorted(_NOT_ALLOWED & self.options.keys()):
            raise ValueError(f"worker {name!r}: the option {refused[0]} is set here; leave it out")
        try:
            self._class = actor_class.options(**{"num_cpus": 1} | self.options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"worker {name!r}: {error}") from error
        self.losses, self.cancels = 0, 0  # lost actors, and cancelled rounds, since the last result
        self.actor: Any = None
        self.beginning: Any = None  # Ray's reference to the end of ``begin``, while the actor is starting
        self.tasks: deque[Started] = deque()
        self.why, self.due = "", inf  # why it is away (empty if it is present), and when a new actor is made

    @property
    def unanswered(self) -> list[Started]:
        """The tasks of the running round that it was sent and has not answered."""
        return [task for task in self.tasks if not task.late]

    @property
    def has_room(self) -> bool:
        """Whether it can be sent a task: it has fewer than two, and none of an earlier round."""
        return not self.why and len(self.tasks) < 2 and len(self.unanswered) == len(self.tasks)

    @property
    def awaited(self) -> Any:
        """The reference to the next answer of the actor; None if none will come.

        If the value of a task is needed, it is awaited, so that Ray fetches it meanwhile.
        """
        if self.beginning is not None or not self.tasks:
            return self.beginning
        first = self.tasks[0]
        return first.report if first.late else first.value

    def launch(self, make_task: Any, finite_only: bool) -> None:
        """Make an actor; it has started when ``TaskActor.begin`` has ended. ``make_task`` is a reference."""
        self.why, self.due = f"{self.why}; a new actor is starting" if self.why else "its actor is starting", inf
        self.actor = self._class.remote()
        self.beginning = self.actor.begin.remote(make_task, self.name, finite_only)

    def fits(self, resources: Mapping[str, float]) -> bool:
        """Whether an idle node with these resources, as in ``ray.nodes()``, has room for the actor."""
        given = {"num_cpus": 1} | self.options
        asked = dict(given.get("resources") or {})
        asked |= {name: given.get(option) or 0 for option, name in _RESOURCES.items()}
        if kind := given.get("accelerator_type"):
            asked[f"accelerator_type:{kind}"] = 0.001
        return all(resources.get(name, 0.0) >= amount for name, amount in asked.items())

    def send(self, stamp: int, sample: int, payload: list[Any]) -> None:
        """Send a task."""
        report, value = self.actor.run.options(num_returns=2).remote(stamp, sample, payload)
        self.tasks.append(Started(self.name, stamp, sample, report, value, time.monotonic()))

    def answered(self) -> None:
        """Note that the first task is answered; the next one begins."""
        if not self.tasks.popleft().late:
            self.losses = self.cancels = 0
        if self.tasks:
            self.tasks[0].begun = time.monotonic()

    def give_up(self, ray: Any, why: str, due: float = inf) -> tuple[Started, ...]:
        """Kill the actor, and return the tasks that it has not answered. A new actor is to be made at ``due``."""
        tasks = tuple(self.tasks)
        if self.actor is not None:
            ray.kill(self.actor)
        self.actor = self.beginning = None
        self.tasks.clear()
        self.why, self.due = why, due
        return tasks


def with_options(
    workers: int | Iterable[Worker] | Mapping[Worker, Mapping[str, Any]],
) -> dict[Worker, Mapping[str, Any]]:
    """The options of each worker, from a number, names, or the options by name; ValueError for anything else."""
    options = dict(workers) if isinstance(workers, Mapping) else {name: {} for name in checked_names(workers)}
    checked_names(options)
    if not all(isinstance(own, Mapping) for own in options.values()):
        raise ValueError(f"workers must be names, or a dict of Ray's actor options by name, not {short(workers)}")
    return options
