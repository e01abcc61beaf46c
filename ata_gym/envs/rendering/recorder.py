"""What the rows of an env did in their last rounds, recorded step by step where an env is made to be seen."""

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ata_gym.envs.rendering.timeline import CANCELLED, DONE, LOST, RUNNING, Timeline
from ata_gym.envs.states.batch_state import BatchState, Feedback
from ata_gym.envs.states.dispatch import DispatchState
from ata_gym.simulation.rounds import race_round
from ata_gym.typing import Floats, Ints, Mask

_RECENT = 20  # rounds of whose times ``Timeline.longest`` is the longest


class Recorder:
    """The last rounds of the E rows of a state.

    A backend tells how long tasks took, but not when they were started: its workers are taken to run them one after the
    other from the round's start.
    """

    def __init__(self, state: BatchState) -> None:
        self._state, self._dispatch = state, state if isinstance(state, DispatchState) else None
        shape = state.rows, state.scenario.pool.n
        self._spent, self._counts = np.zeros((2, *shape))  # in the episode: time spent on tasks, and results
        self._estimates: list[Floats | None] = [None] * state.rows  # those that were given
        self._recent: list[deque[float]] = [deque(maxlen=_RECENT) for _ in range(state.rows)]  # round times
        self._timelines = [Timeline.empty(shape[1], state.scenario.budget)] * state.rows
        self.start_episode(slice(None))

    def start_episode(self, rows: Mask | slice) -> None:
        """Forget the rounds of some rows: the first of their episodes is to come."""
        self._spent[rows] = self._counts[rows] = 0.0
        coming = self._conditions()
        for row in np.arange(self._state.rows)[rows].tolist():
            self._estimates[row] = None
            self._recent[row].clear()
            fresh = Timeline.empty(self._spent.shape[1], self._state.scenario.budget)
            self._timelines[row] = fresh._replace(**{name: field[row] for name, field in coming.items()})

    def begin_step(self, action: NDArray[Any]) -> None:
        """Note what the coming step starts from, and when the tasks of a simulated round will be started."""
        state, process = self._state, self._state.process
        self._round, self._coming = state.round + 1, self._conditions()
        if state.simulated and self._dispatch is None:
            self._starts = np.empty((len(action), state.scenario.budget))
            now = process.distributions, state.noise_keys(), action, state.scenario.budget, process.disturbances
            race_round(*now, begun=self._starts)

    def end_step(
        self, action: NDArray[Any], played: Mask | None, seen: Feedback, info: dict[str, NDArray[Any]]
    ) -> None:
        """Record a step of the rows that ``played`` (None: all) from what they saw, and from their info."""
        if self._dispatch is None and not self._state.simulated:
            self._starts = _one_after_the_other(seen["worker"], seen["duration"])
        for row in range(self._state.rows) if played is None else np.flatnonzero(played).tolist():
            own = {name: value[row].item() for name, value in info.items()}
            self._record(row, action[row], {name: field[row] for name, field in seen.items()}, own)

    def show_estimates(self, estimates: Floats | None) -> None:
        """Show these estimates of the mean task times, (n,) or (E, n), while the episodes last; None: the default."""
        rows, n = self._spent.shape
        self._estimates = [None] * rows if estimates is None else list(np.array(np.broadcast_to(estimates, (rows, n))))

    def timeline(self, row: int) -> Timeline:
        """What happened in the last round of a row."""
        spent, none, given = self._spent[row], self._counts[row] == 0, self._estimates[row]
        own = np.where(none & (spent == 0.0), np.nan, spent / np.maximum(self._counts[row], 1.0))
        at_least = none & (spent > 0.0) & (given is None)
        return self._timelines[row]._replace(estimate=own if given is None else given, at_least=at_least)

    def _conditions(self) -> dict[str, NDArray[Any]]:
        conditions, present = self._state.conditions(), self._state.present()
        with np.errstate(over="ignore", invalid="ignore"):
            mean = conditions.means(self._state.scenario.catalogue)
        there = np.ones(mean.shape, np.bool_) if present is None else present
        price = np.broadcast_to(self._state.prices, len(mean))
        return {"mean": mean, "dies": conditions.dies, "present": there, "price": price}

    def _record(self, row: int, action: NDArray[Any], seen: Feedback, info: dict[str, Any]) -> None:
        over, time = info.get("round_over", True), info["round_time"]
        if over:
            self._spent[row] += seen["elapsed"]  # else slow workers, whose tasks are cancelled, would look fast
            self._recent[row].append(time)
        np.add.at(self._spent[row], seen["worker"], seen["duration"])
        np.add.at(self._counts[row], seen["worker"], 1.0)
        own = {name: field[row] for name, field in self._coming.items()}
        elapsed, lost, running = self._unfinished(row, over, seen["elapsed"], info, own["dies"])
        cut = np.flatnonzero((elapsed > 0) | running)
        stopped = np.where(lost, own["dies"], time)[cut]
        cut_so = np.where(lost, LOST, np.where(running, RUNNING, CANCELLED))[cut]
        done, begun, in_at = self._results(row, seen, time)
        worker = np.append(done, cut)
        order = np.argsort(worker, kind="stable")  # what was cut is the last of its worker
        self._timelines[row] = self._timelines[row]._replace(
            **own, round=int(self._round[row]), over=over, worker=worker[order],
            start=np.append(begun, np.maximum(stopped - elapsed[cut], 0.0))[order],
            end=np.append(in_at, stopped)[order],
            kind=np.append(np.full(len(done), DONE), cut_so)[order].astype(np.int8), time=time,
            worker_time=info["worker_time"], runtime=info["runtime"], total_worker_time=info["total_worker_time"],
            tasks=action.copy() if self._dispatch is None else np.bincount(worker, minlength=len(action)),
            longest=max(*self._recent[row], time, 0.0),
        )  # fmt: skip

    def _results(self, row: int, seen: Feedback, time: float) -> tuple[Ints, Floats, Floats]:
        worker, duration, before = seen["worker"], seen["duration"], self._timelines[row]
        if self._dispatch is None:
            start = self._starts[row]
            return worker, start, start + duration
        results = worker, np.maximum(time - duration, 0.0), np.full(1, time)
        if before.round != self._round[row]:
            return results
        done = before.kind == DONE
        worker, start, end = (
            np.append(field[done], new)
            for field, new in zip((before.worker, before.start, before.end), results, strict=True)
        )
        return worker, start, end

    def _unfinished(
        self, row: int, over: bool, elapsed: Floats, info: dict[str, Any], dies: Floats
    ) -> tuple[Floats, Mask, Mask]:
        if self._dispatch is not None and not over:
            now = self._dispatch.round_state
            running = now.running[row] != 0
            lost = ~running & (now.begun[row] + now.duration[row] > now.finish[row])
            since = np.where(running, now.now[row], now.finish[row]) - now.begun[row]
            return np.where(running | lost, since, 0.0), lost, running
        cut, time = elapsed > 0, info["round_time"]
        before, at_the_end = cut & (dies < time), cut & (dies == time)
        more = info.get("lost", 0) - before.sum()  # of those that died at the end, the lowest ones died before it
        return elapsed, before | (at_the_end & (np.cumsum(at_the_end) <= more)), np.zeros(len(cut), np.bool_)


def _one_after_the_other(worker: Ints, duration: Floats) -> Floats:
    """When each task is started if every worker runs its tasks without a gap, (E, B); ``worker`` is ascending.

    >>> _one_after_the_other(np.array([[0, 0, 2]]), np.array([[1.0, 5.0, 3.0]]))
    array([[0., 1., 0.]])
    """
    start = np.cumsum(duration, axis=1) - duration
    first = np.diff(worker, axis=1, prepend=-1) > 0
    return start - np.maximum.accumulate(np.where(first, start, 0.0), axis=1)
