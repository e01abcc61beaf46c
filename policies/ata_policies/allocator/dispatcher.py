"""Policies of dispatch for loops that do real work: who starts one more task, decided at each result."""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import numpy as np

from ata_gym.typing import Ints, Mask, Worker
from ata_gym.utils.ranges import Flags, Tasks, Times, Whose, Within, all_tasks
from ata_policies.allocator.limits import bounds
from ata_policies.allocator.named_workers import NamedWorkers, checked_seconds


class DispatchedRound(NamedTuple):
    """The memory of the round, and of the last result for the next decision."""

    there: Mask  # (n,) which places have a worker that is there
    due: Mask  # whether a decision is to be made
    missing: Annotated[Ints, Within(1, all_tasks)]  # results that the round still needs; B where it has not begun
    started: Tasks  # (n,) tasks that each worker has started in the round
    running: Flags  # (n,) 1 where a worker is running a task
    begun: Times  # (n,) when that task began, counted from the round's start
    now: Times  # the time of the last result, counted from the round's start
    died: Mask  # (n,) workers that were lost in the round
    worker: Whose  # (1,) whose result the last one was; -1 before the first
    duration: Times  # (1,) the time of that result
    elapsed: Times  # (n,) how long each worker's cancelled or lost task had run, for the decision at the round's end
    age: Times  # (n,) how long each running task had run at the last result


class Dispatcher(NamedWorkers):
    """A dispatcher says at each result which workers start one more task, and learns from their times.

    A round needs B results; it ends with the B-th, and the tasks that are running are cancelled. It drives the policies
    of ``ata_gym/TaskDispatch-v0`` as ``Allocator`` drives those of rounds: with an env's times, it decides as in the
    env. The parameters are those of ``Allocator``. Of ``limits``, the most is how many tasks a worker starts in a
    round, if it is below B; while it has started fewer than its least, it starts another one whenever it is idle.

    >>> dispatcher = Dispatcher(["a", "b"], budget=2)
    >>> dispatcher.start()
    ('a', 'b')
    >>> dispatcher.finished("a", 1.0)  # whether that was the round's last result
    False
    >>> dispatcher.start()
    ('a',)
    >>> dispatcher.finished("b", 1.5)  # a's task is to be cancelled; it has run for 0.5
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
        """The workers that start one task now; call it at a round's start, after each result, and after a loss.

        If no worker would be running a task, all start that are there and were not lost in the round. ValueError if
        there is none.
        """
        now = self._round
        least, most = bounds(self._limits, self._names, now.there, self.budget, more=True)
        able = now.there & ~now.died & (now.running == 0)
        able &= (now.started < most) | (most == self.budget)
        if not (able | (now.running > 0)).any():
            raise ValueError("no worker is there that could start within its limits: let one join")
        starts = np.zeros_like(able)
        if now.due:
            seen = {name: getattr(now, name) for name in ("worker", "duration", "started", "running", "age")}
            over = now.missing == self.budget  # only then is it seen what was cancelled
            seen |= {"missing": now.missing[None], "elapsed": now.elapsed if over else np.zeros_like(now.elapsed)}
            starts = able & ((self._decide(seen) != 0) | (now.started < least))
            if over:
                now = now._replace(elapsed=np.zeros_like(now.elapsed))
        if not (starts | (now.running > 0)).any():
            starts = able
        self._round = now._replace(
            due=np.array(False), started=now.started + starts, running=(now.running | starts).astype(np.int8),
            begun=np.where(starts, now.now, now.begun),
        )  # fmt: skip
        return self._named(starts)

    def finished(self, worker: Worker, seconds: float, ages: Mapping[Worker, float] | None = None) -> bool:
        """Learn that a worker's task is done; True if that ends the round, and running tasks are to be cancelled.

        - ``seconds``: the time that it took.
        - ``ages``: how long tasks of others have run by now. By default that is computed as if each task had begun at
          the very moment of the result before its ``start``.

        ValueError if the worker runs no task, ``start`` was not called since the last result, or a time is wrong;
        nothing has changed then.
        """
        now, place = self._round, self._running("worker", worker)
        if now.due:
            raise ValueError("call start() after each result, before the next one is reported")
        took = checked_seconds(worker, seconds)
        given = {self._running("ages", name): checked_seconds(name, age) for name, age in (ages or {}).items()}
        if place in given:
            raise ValueError(f"worker {worker!r} has finished its task: its time is seconds, and it has no age")
        running = now.running.copy()
        running[place] = 0
        moment = now.begun[place] + took
        age = np.where(running > 0, np.maximum(moment - now.begun, 0.0), 0.0)
        age[list(given)] = list(given.values())
        begun = now.begun.copy()
        begun[list(given)] = moment - age[list(given)]
        over = bool(now.missing == 1)
        new = now._replace(
            due=np.array(True), missing=now.missing - 1, running=running, begun=begun, now=np.asarray(moment),
            worker=np.array([place]), duration=np.array([took]), age=age,
        )  # fmt: skip
        if over:
            cancelled = np.where(running > 0, age, now.elapsed)
            new = self._first_round(len(running))._replace(
                there=now.there, worker=new.worker, duration=new.duration, elapsed=cancelled
            )
        self._round = new
        return over

    def lost(self, worker: Worker, seconds: float = 0.0) -> None:
        """Learn that a worker died after it had run its task for so long; until the round's end it starts no other.

        Call ``start`` then, because someone must be running. The policy may start the worker again in the next round:
        let it ``leave`` if that must not be. ValueError if it runs no task, or the time is wrong.
        """
        now, place = self._round, self._running("worker", worker)
        ran = checked_seconds(worker, seconds)
        here = np.arange(len(now.there)) == place
        self._round = now._replace(
            running=np.where(here, 0, now.running).astype(np.int8), now=np.maximum(now.now, now.begun[place] + ran),
            died=now.died | here, elapsed=np.where(here, ran, now.elapsed), age=np.where(here, 0.0, now.age),
        )  # fmt: skip

    def join(self, worker: Worker) -> None:
        """As in ``Allocator``; a worker that was lost and has left can start again."""
        super().join(worker)
        joined = np.arange(len(self._names)) == self._place(worker)
        self._round = self._round._replace(died=self._round.died & ~joined)

    def leave(self, worker: Worker) -> None:
        """As in ``Allocator``; a task that the worker was running is lost."""
        if worker in self.running:
            self.lost(worker)
        super().leave(worker)

    def _first_round(self, n: int) -> DispatchedRound:
        none, zeros, nobody = np.zeros(n, np.int64), np.zeros(n), np.zeros(n, np.bool_)
        begun = {"due": np.array(True), "missing": np.array(self.budget), "now": np.array(0.0)}
        last = {"worker": np.array([-1]), "duration": np.zeros(1), "elapsed": zeros, "age": zeros}
        return DispatchedRound(
            there=~nobody, started=none, running=none.astype(np.int8), begun=zeros, died=nobody, **begun, **last
        )

    def _running(self, what: str, worker: Worker) -> int:
        """The place of a worker that runs a task; ValueError if it does not."""
        place = self._place(worker)
        if not self._round.running[place]:
            raise ValueError(f"{what}: worker {worker!r} is running no task; {list(self.running)} are")
        return place
