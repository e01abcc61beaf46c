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

# The group replaces an actor by another one, and an actor runs one task after the other.
_NOT_ALLOWED = {
    "name",
    "lifetime",
    "get_if_exists",
    "max_restarts",
    "max_task_retries",
    "max_concurrency",
    "concurrency_groups",
    "allow_out_of_order_execution",
}
_RESOURCES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
"""The options of an actor that ask for resources of Ray, and the names of these."""


@dataclass
class SentTask:
    """A task that an actor was sent and has not answered."""

    worker: Worker
    stamp: int
    """The stamp of its round."""
    sample: int
    report: Any
    """Ray's reference to the task time."""
    value: Any
    """Ray's reference to the value; None if it is not needed any more."""
    start_time: float
    """When it was sent, or became the first task without an answer, by the clock of the driver."""
    late: bool = False
    """Whether its round is over."""
    counted_seconds: float = 0.0
    """The part of its time that is counted in an earlier round."""


class WorkerActor:
    """The actor of a worker, which can be made anew.

    Args:
        name: The worker's name.
        options: Ray's options of the actor.
        actor_class: A class of Ray.

    Raises:
        ValueError: For options that Ray does not take, or that are set here.
    """

    def __init__(self, name: Worker, options: Mapping[str, Any], actor_class: Any) -> None:
        self.name = name
        self.options = dict(options)
        if refused_options := sorted(_NOT_ALLOWED & self.options.keys()):
            raise ValueError(
                f"worker {name!r}: the option {refused_options[0]} is set here; leave it out",
            )
        ray_options = {"num_cpus": 1} | self.options
        try:
            self._class = actor_class.options(**ray_options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"worker {name!r}: {error}") from error
        self.starts = 0
        """The number of actors that were made so far."""
        self.losses = 0
        """The number of lost actors since the last result."""
        self.cancels = 0
        """The number of cancelled rounds since the last result."""
        self.actor: Any = None
        self.startup: Any = None
        """Ray's reference to the end of ``begin``, while the actor is starting."""
        self.tasks: deque[SentTask] = deque()
        """The tasks that it was sent and has not answered, in the order of their starts."""
        self.absence = ""
        """Why the worker is away; empty if it is present."""
        self.launch_time = inf
        """When a new actor is made, by the monotonic clock."""

    @property
    def unanswered(self) -> list[SentTask]:
        """The tasks of the running round that it was sent and has not answered."""
        return [task for task in self.tasks if not task.late]

    @property
    def has_room(self) -> bool:
        """Whether it can be sent a task: it has fewer than two, and none of an earlier round."""
        return not self.absence and len(self.tasks) < 2 and len(self.unanswered) == len(self.tasks)

    @property
    def awaited(self) -> Any:
        """The reference to the next answer of the actor; None if none will come.

        If the value of a task is needed, it is awaited, so that Ray fetches it meanwhile.
        """
        if self.startup is not None or not self.tasks:
            return self.startup
        task = self.tasks[0]
        if task.late:
            return task.report
        return task.value

    def launch(self, make_task: Any, finite_only: bool) -> None:
        """Make an actor; it has started when ``TaskActor.begin`` has ended.

        Args:
            make_task: Ray's reference to the function that makes the task function.
            finite_only: Whether the values of tasks must be finite.
        """
        if self.absence:
            self.absence = f"{self.absence}; a new actor is starting"
        else:
            self.absence = "its actor is starting"
        self.launch_time = inf
        self.starts += 1
        self.actor = self._class.remote()
        self.startup = self.actor.begin.remote(make_task, self.name, finite_only)

    def fits(self, resources: Mapping[str, float]) -> bool:
        """Whether an idle node with these resources has room for the actor.

        Args:
            resources: The amounts by name, as in ``ray.nodes()``.
        """
        options = {"num_cpus": 1} | self.options
        requested = dict(options.get("resources") or {})
        requested |= {name: options.get(option) or 0 for option, name in _RESOURCES.items()}
        # Ray asks for a small part of a resource that only nodes with this kind have.
        if kind := options.get("accelerator_type"):
            requested[f"accelerator_type:{kind}"] = 0.001
        return all(resources.get(name, 0.0) >= amount for name, amount in requested.items())

    def send(self, stamp: int, sample: int, payload: list[Any]) -> None:
        """Send a task."""
        report, value = self.actor.run.options(num_returns=2).remote(stamp, sample, payload)
        self.tasks.append(SentTask(self.name, stamp, sample, report, value, time.monotonic()))

    def answered(self) -> None:
        """Note that the first task is answered; the next task begins."""
        if not self.tasks.popleft().late:
            self.losses = self.cancels = 0
        if self.tasks:
            self.tasks[0].start_time = time.monotonic()

    def give_up(self, ray: Any, reason: str, launch_time: float = inf) -> tuple[SentTask, ...]:
        """Kill the actor, and return the tasks that it has not answered.

        Args:
            ray: The module.
            reason: Why the worker is away from now on.
            launch_time: When a new actor is to be made, by the monotonic clock.
        """
        tasks = tuple(self.tasks)
        if self.actor is not None:
            ray.kill(self.actor)
        self.actor = self.startup = None
        self.tasks.clear()
        self.absence = reason
        self.launch_time = launch_time
        return tasks


def with_options(
    workers: int | Iterable[Worker] | Mapping[Worker, Mapping[str, Any]],
) -> dict[Worker, Mapping[str, Any]]:
    """The options of each worker.

    Args:
        workers: The number of workers, their names, or their options by name.

    Raises:
        ValueError: If ``workers`` is anything else.
    """
    if isinstance(workers, Mapping):
        options = dict(workers)
    else:
        options = {name: {} for name in checked_names(workers)}
    checked_names(options)
    if not all(isinstance(worker_options, Mapping) for worker_options in options.values()):
        raise ValueError(
            "workers must be names, or a dict of Ray's actor options by name, not"
            f" {short(workers)}",
        )
    return options
