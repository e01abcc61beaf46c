"""Policies of dispatch for loops that do real work: who starts one more task at each result."""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import numpy as np

from ata_gym.typing import Ints, Mask, Worker
from ata_gym.utils.ranges import Flags, Tasks, Times, Wholes, Within, WorkerOrNone, all_tasks
from ata_policies.allocator.named_workers import NamedWorkers, checked_seconds
from ata_policies.observations import Observation


class DispatchedRound(NamedTuple):
    """The memory of the round, and of the last result for the next decision."""

    present: Mask
    """(n,) which places have a worker that is there."""
    due: Mask
    """Whether a decision is to be made."""
    missing: Annotated[Ints, Within(1, all_tasks)]
    """Results that the round still needs; B where it has not begun."""
    started: Tasks
    """(n,) tasks that each worker has started in the round."""
    running: Flags
    """(n,) 1 where a worker is running a task."""
    begun: Times
    """(n,) when that task began, counted from the round's start."""
    time: Times
    """The time of the last result, counted from the round's start."""
    died: Mask
    """(n,) workers that were lost in the round."""
    worker: WorkerOrNone
    """(1,) whose result the last one was; -1 before the first."""
    duration: Times
    """(1,) the time of that result."""
    elapsed: Times
    """(n,) how long each worker's cancelled or lost task had run.

    It is for the decision at the round's end.
    """
    age: Times
    """(n,) how long each running task had run at the last result."""
    answered: Mask
    """(n,) workers with a result in the round, since their start."""
    warm_up: Mask
    """(n,) workers whose times at the last result, and at the round's end, do not count."""
    until_known: Wholes
    """(n,) the state of each worker's warm-up, see ``WarmUp``."""


class Dispatcher(NamedWorkers):
    """A dispatcher decides at each result which workers start one more task.

    It learns from the times of these tasks. A round needs B results; it ends with the B-th, and the
    tasks that are running are cancelled. The dispatcher drives the policies of
    ``ata_gym/TaskDispatch-v0`` as ``Allocator`` drives policies of rounds: with an env's times, it
    decides as in the env.

    The time of a task, and its age, count from the moment when ``start`` named its worker until the
    result is in, as the one who calls it sees them. So they hold what the worker spends before it
    begins, such as a transfer of the model: this latency belongs to the time of a worker's first
    task in a round, and is not told apart. (The env shows it beside that task's time, and its
    policies learn from the sum.)

    It takes the arguments of ``Allocator``, except ``start_more``. Of ``limits``, the most is how
    many tasks a worker starts in a round, if it is below B. While a worker has started fewer than
    its least, it starts another one whenever it is idle.

    In the example, the second result is the round's last: the second task of "a", which has run for
    0.5, is to be cancelled.

    Example:
        >>> dispatcher = Dispatcher(["a", "b"], budget=2)
        >>> dispatcher.start()
        ('a', 'b')
        >>> dispatcher.finished("a", 1.0)
        False
        >>> dispatcher.start()
        ('a',)
        >>> dispatcher.finished("b", 1.5)
        True
        >>> dispatcher.start()
        ('a', 'b')
    """

    _round: DispatchedRound
    _env_id = "ata_gym/TaskDispatch-v0"

    @property
    def missing(self) -> int:
        """Results that the round still needs; B before it begins."""
        return int(self._round.missing)

    @property
    def running(self) -> tuple[Worker, ...]:
        """The workers that are running a task."""
        return self._named(self._round.running > 0)

    def start(self) -> tuple[Worker, ...]:
        """Return the workers that start one task now.

        Call it at a round's start, after each result, and after a loss. If no worker would be
        running a task, all start that are there and were not lost in the round.

        Raises:
            ValueError: If no worker is there that could start within its limits.
        """
        current_round = self._round
        least, most = self._least_and_most(allow_more=True)
        startable = current_round.present & ~current_round.died & (current_round.running == 0)
        startable &= (current_round.started < most) | (most == self.budget)
        if not (startable | (current_round.running > 0)).any():
            raise ValueError("no worker is there that could start within its limits: let one join")
        starts = np.zeros_like(startable)
        if current_round.due:
            observation: Observation = {
                "worker": current_round.worker,
                "duration": current_round.duration,
                "started": current_round.started,
                "running": current_round.running,
                "age": current_round.age,
            }
            # as in the env, the policy learns what was cancelled only when a round is over
            round_over = current_round.missing == self.budget
            if round_over:
                elapsed = current_round.elapsed
            else:
                elapsed = np.zeros_like(current_round.elapsed)
            observation |= {"missing": current_round.missing[None], "elapsed": elapsed}
            if current_round.warm_up.any():
                observation["warm_up"] = current_round.warm_up
            starts = startable & (
                (self._decide(observation) != 0) | (current_round.started < least)
            )
            if round_over:
                current_round = current_round._replace(elapsed=np.zeros_like(current_round.elapsed))
        if not (starts | (current_round.running > 0)).any():
            starts = startable
        self._round = current_round._replace(
            due=np.array(False),
            started=current_round.started + starts,
            running=(current_round.running | starts).astype(np.int8),
            begun=np.where(starts, current_round.time, current_round.begun),
        )
        return self._named(starts)

    def finished(
        self,
        worker: Worker,
        seconds: float,
        ages: Mapping[Worker, float] | None = None,
    ) -> bool:
        """Learn that a worker's task is done, and return whether this ends the round.

        Running tasks are to be cancelled then.

        Args:
            worker: Whose task is done.
            seconds: The time that it took.
            ages: How long tasks of others have run by now. By default their ages are computed as if
                each task had begun at the moment of the result before its ``start``.

        Raises:
            ValueError: If the worker runs no task, ``start`` was not called since the last result,
                or a time is wrong; nothing has changed then.
        """
        current_round = self._round
        place = self._running("worker", worker)
        if current_round.due:
            raise ValueError("call start() after each result, before the next one is reported")
        duration = checked_seconds(worker, seconds)
        reported_ages = {
            self._running("ages", name): checked_seconds(name, age)
            for name, age in (ages or {}).items()
        }
        if place in reported_ages:
            raise ValueError(
                f"worker {worker!r} has finished its task: its time is seconds, and it has no age",
            )
        running = current_round.running.copy()
        running[place] = 0
        moment = current_round.begun[place] + duration
        # ages that are reported move the beginnings of their tasks; others follow from these
        age = np.where(running > 0, np.maximum(moment - current_round.begun, 0.0), 0.0)
        age[list(reported_ages)] = list(reported_ages.values())
        begun = current_round.begun.copy()
        begun[list(reported_ages)] = moment - age[list(reported_ages)]
        answered = current_round.answered.copy()
        answered[place] = True
        round_over = bool(current_round.missing == 1)
        next_round = current_round._replace(
            due=np.array(True),
            missing=current_round.missing - 1,
            running=running,
            begun=begun,
            time=np.asarray(moment),
            worker=np.array([place]),
            duration=np.array([duration]),
            age=age,
            answered=answered,
            warm_up=self._warm_up.active(current_round.until_known),
        )
        if round_over:
            elapsed = np.where(running > 0, age, current_round.elapsed)
            next_round = self._first_round(len(running))._replace(
                present=current_round.present,
                worker=next_round.worker,
                duration=next_round.duration,
                elapsed=elapsed,
                warm_up=next_round.warm_up,
                until_known=self._warm_up.after_round(current_round.until_known, answered, elapsed),
            )
        self._round = next_round
        return round_over

    def lost(self, worker: Worker, seconds: float = 0.0) -> None:
        """Learn that a worker died after it had run its task for so long.

        It begins its warm-up again, and starts no other task until the round's end. Call ``start``
        then, because someone must be running. The policy may start the worker again in the next
        round: let it ``leave`` if it must not.

        Args:
            worker: Who died.
            seconds: How long its task had run.

        Raises:
            ValueError: If the worker runs no task, or the time is wrong.
        """
        current_round = self._round
        place = self._running("worker", worker)
        age = checked_seconds(worker, seconds)
        is_lost = np.arange(len(current_round.present)) == place
        self._round = current_round._replace(
            running=np.where(is_lost, 0, current_round.running).astype(np.int8),
            time=np.maximum(current_round.time, current_round.begun[place] + age),
            died=current_round.died | is_lost,
            elapsed=np.where(is_lost, age, current_round.elapsed),
            age=np.where(is_lost, 0.0, current_round.age),
        )
        self._round = self._after_start(self._round, is_lost)

    def _after_start(self, round: DispatchedRound, started: Mask) -> DispatchedRound:
        after_start: DispatchedRound = super()._after_start(round, started)
        return after_start._replace(answered=round.answered & ~started)

    def join(self, worker: Worker) -> None:
        """Let a worker come back, or a new one come; a lost one that has left can start again.

        Raises:
            ValueError: If it is there already, or the policy cannot be made for one worker more.
        """
        super().join(worker)
        joined = np.arange(len(self._names)) == self._place(worker)
        self._round = self._round._replace(died=self._round.died & ~joined)

    def leave(self, worker: Worker) -> None:
        """Let a worker leave as in ``Allocator``; a task that it was running is lost.

        Raises:
            ValueError: If the worker is not there.
        """
        if worker in self.running:
            self.lost(worker)
        super().leave(worker)

    def _first_round(self, n: int) -> DispatchedRound:
        no_tasks = np.zeros(n, np.int64)
        zeros = np.zeros(n)
        nobody = np.zeros(n, np.bool_)
        progress = {"due": np.array(True), "missing": np.array(self.budget), "time": np.array(0.0)}
        last_result = {
            "worker": np.array([-1]),
            "duration": np.zeros(1),
            "elapsed": zeros,
            "age": zeros,
        }
        return DispatchedRound(
            present=~nobody,
            started=no_tasks,
            running=no_tasks.astype(np.int8),
            begun=zeros,
            died=nobody,
            answered=nobody,
            warm_up=nobody,
            until_known=np.full(n, self._warm_up.at_start),
            **progress,
            **last_result,
        )

    def _running(self, argument: str, worker: Worker) -> int:
        """Return the place of a worker, or raise a ValueError if it runs no task."""
        place = self._place(worker)
        if not self._round.running[place]:
            raise ValueError(
                f"{argument}: worker {worker!r} is running no task; {list(self.running)} are",
            )
        return place
