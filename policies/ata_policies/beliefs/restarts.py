"""A memory that starts anew when a change is detected, and tries idle workers again now and then."""

import math
from dataclasses import dataclass
from typing import Any

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.validation import real
from ata_policies.beliefs.detectors import Cusum, Glr, MonitoredMoments, PageHinkley
from ata_policies.beliefs.memory import Memory

DETECTORS: dict[str, type[MonitoredMoments]] = {"page-hinkley": PageHinkley, "cusum": Cusum, "glr": Glr}
_SHARES = {"everybody": 0.0, "many": 1 / 3, "worker": math.inf}  # of workers whose alarms make everybody start anew


@dataclass(frozen=True)
class Restarts(Memory):
    """Task times that were seen before a detected change do not count.

    After Liu, Lee and Shroff, AAAI 2018; the choice of who starts anew, and the refresh are ours. Workers that owe
    results are left out for 8 to 64 rounds (``Availability``).

    - ``detector``: "page-hinkley", "cusum" or "glr": see ``detectors``.
    - ``restart``: who starts anew at an alarm: the "worker" that raised it; "everybody"; or with "many" that worker
      alone, but everybody once more than a third of the workers with a task have raised one within 10 rounds.
    - ``effective_tasks``: a worker's task counts 1 - 1 / effective_tasks times as much with each later one, so that
      slow changes are followed without an alarm; at least 40, or None: all tasks count alike until an alarm.
    - ``refresh``: every so many rounds, workers without a task for half as many get one, all together; None: never.
      Without it nobody notices that a worker out of use becomes fast.
    - ``threshold``: the statistic at which an alarm is raised, above 0; by default the detector's own.
    """

    detector: str = "page-hinkley"
    restart: str = "many"
    effective_tasks: float | None = 200.0
    refresh: float | None = 2000.0
    threshold: float | None = None

    nonstationary = True
    availability = True
    source = "Liu, Lee and Shroff, AAAI 2018"
    assumes = "workers that change seldom"
    constants = "Page-Hinkley, 48 / shape, drift 0.5 up and 0.25 down; refresh 2000; pause 8 to 64; 200 effective tasks"

    def __post_init__(self) -> None:
        for name, value, known in (("detector", self.detector, DETECTORS), ("restart", self.restart, _SHARES)):
            if value not in known:
                raise ValueError(f"{name} must be {' or '.join(map(repr, known))}, not {value!r}")
        tasks = self.effective_tasks
        if tasks is not None and not 40.0 <= tasks < math.inf:
            raise ValueError(f"effective_tasks must be a finite number of at least 40, or None, not {tasks!r}")
        for name, given in (("refresh", self.refresh), ("threshold", self.threshold)):
            if given is not None:
                real(name, given)

    def start(self, rows: int, n: int, deviations: bool) -> Any:
        """Nothing is known."""
        given = {"memory": self.effective_tasks, "refresh": self.refresh, "threshold": self.threshold}
        chosen = {name: float(value) for name, value in given.items() if value is not None}
        return DETECTORS[self.detector].empty(rows, n, share=_SHARES[self.restart], **chosen)

    def recall(self, belief: MonitoredMoments) -> tuple[MonitoredMoments, Mask]:
        """What counts, without what is known of workers that are to be tried again."""
        untried = belief.untried()
        return belief.forgetting(untried), untried

    def rounds(self, belief: MonitoredMoments, round: Ints) -> Floats:
        """The rounds since everybody started anew, shape (E,)."""
        return belief.rounds_since + 1.0
