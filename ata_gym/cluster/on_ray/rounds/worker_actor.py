"""One worker: its present actor, and the tasks that were sent to it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from ata_gym.typing import Worker
from ata_gym.utils.validation import short, whole_number

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
    incarnation: int  # the number of the actor that has it, among those of the worker, counted from 1
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
        self.incarnation, self.losses, self.cancels = 0, 0, 0
        """``losses`` and ``cancels`` count lost actors and cancelled rounds since the last result."""
        self.actor: Any = None
        self.beginning: Any = None
        """Ray's reference to the end of ``begin``, while the actor is starting."""
        self.tasks: deque[Started] = deque()
        self.why, self.due = "", inf
        """Why it is away (empty if it is present), and when a new actor is made."""

    def launch(self, make_task: Any) -> None:
        """Make an actor; it has started when ``begin`` has ended. ``make_task`` is a reference."""
        self.why, self.due = f"{self.why}; a new actor is starting" if self.why else "its actor is starting", inf
        self.incarnation += 1
        self.actor = self._class.remote()
        self.beginning = self.actor.begin.remote(make_task, self.name)

    def fits(self, resources: Mapping[str, float]) -> bool:
        """Whether an idle node with these resources, as in ``ray.nodes()``, has room for the actor."""
        given = {"num_cpus": 1} | self.options
        asked = dict(given.get("resources") or {})
        asked |= {name: given.get(option) or 0 for option, name in _RESOURCES.items()}
        if kind := given.get("accelerator_type"):
            asked[f"accelerator_type:{kind}"] = 0.001
        return all(resources.get(name, 0.0) >= amount for name, amount in asked.items())

    def arrive(self) -> None:
        """Note that the actor has started."""
        self.why, self.beginning = "", None

    def send(self, stamp: int, sample: int, payload: list[Any]) -> None:
        """Send a task."""
        report, value = self.actor.run.options(num_returns=2).remote(stamp, sample, payload)
        self.tasks.append(Started(self.name, self.incarnation, stamp, sample, report, value, time.monotonic()))

    def answered(self) -> None:
        """Note that the first task is answered; the next one begins."""
        if not self.tasks.popleft().late:
            self.losses = self.cancels = 0
        if self.tasks:
            self.tasks[0].begun = time.monotonic()

    def awaited(self) -> Any:
        """The reference to the next answer of the actor; None if none will come.

        If the value of a task is needed, it is awaited, so that Ray fetches it meanwhile.
        """
        if self.beginning is not None or not self.tasks:
            return self.beginning
        first = self.tasks[0]
        return first.report if first.late else first.value

    def give_up(self, ray: Any, why: str, due: float) -> tuple[Started, ...]:
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
    if isinstance(workers, Mapping):
        options = dict(workers)
    elif isinstance(workers, str) or not isinstance(workers, Iterable):
        options = {name: {} for name in range(whole_number("workers", workers))}
    else:
        names = list(workers)
        options = {name: {} for name in names}
        if len(options) < len(names):
            raise ValueError(f"each worker must have a name of its own; of {short(names)}, two are the same")
    for name, own in options.items():
        if type(name) not in (str, int) or not isinstance(own, Mapping):
            raise ValueError(f"workers must be names, or a dict of Ray's actor options by name, not {short(workers)}")
    if not options:
        raise ValueError("there must be one worker at least")
    return options
