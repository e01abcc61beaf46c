"""What the rows of an env did in their last rounds, recorded step by step where an env is made to be seen."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.envs.rendering.timeline import CANCELLED, DONE, LOST, RUNNING, Timeline
from ata_gym.envs.states.batch_state import BatchState, Feedback
from ata_gym.envs.states.dispatch import DispatchState
from ata_gym.pools.distributions import Distributions
from ata_gym.simulation.dispatch import RoundState
from ata_gym.simulation.disturbances import Disturbances
from ata_gym.simulation.keys import NoiseKeys
from ata_gym.simulation.rounds import race_round
from ata_gym.typing import Floats, Ints, Mask

_RECENT = 20  # rounds of whose times ``Timeline.longest`` is the longest


class _Conditions(NamedTuple):
    """What the workers of E rows are like in a round, and the price."""

    mean: Floats
    dies: Floats
    present: Mask
    price: Floats


class _Before(NamedTuple):
    """What a step starts from."""

    distributions: Distributions
    noise_keys: NoiseKeys
    disturbances: Disturbances | None
    conditions: _Conditions


class Recorder:
    """The last rounds of the E rows of a state.

    A backend tells how long tasks took, but not when they were started: its workers are taken to run them one after the
    other from the round's start.
    """

    def __init__(self, state: BatchState) -> None:
        rows, n, budget = state.rows, state.scenario.pool.n, state.scenario.budget
        self._state, self._budget = state, budget
        self._worker = np.full((rows, budget), -1)
        self._start, self._end = np.zeros((2, rows, budget))
        self._elapsed, self._spent, self._counts = np.zeros((3, rows, n))
        self._lost, self._running = np.zeros((2, rows, n), np.bool_)
        self._tasks = np.zeros((rows, n), np.int64)
        self._estimates, self._has_estimates = np.zeros((rows, n)), np.zeros(rows, np.bool_)
        self._time, self._worker_time, self._runtime, self._total = np.zeros((4, rows))
        self._round, self._over = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
        self._recent = np.zeros((rows, _RECENT))
        self._arrays = [field for field in vars(self).values() if isinstance(field, np.ndarray)]
        self._conditions = _Conditions(
            np.zeros((rows, n)), np.zeros((rows, n)), np.ones((rows, n), np.bool_), np.zeros(rows)
        )
        self.begin_step()
        self.start_episode(slice(None))

    def start_episode(self, rows: Mask | slice) -> None:
        """Forget the rounds of some rows: the first of their episodes is to come."""
        for field in self._arrays:
            field[rows] = 0
        self._worker[rows] = -1
        self._take_conditions(rows, self._coming())

    def begin_step(self) -> None:
        """Remember what the coming step starts from."""
        state, process = self._state, self._state.process
        noise_keys = NoiseKeys._make(part.copy() for part in state.noise_keys())
        self._before = _Before(process.distributions, noise_keys, process.disturbances, self._coming())

    def end_step(
        self, action: NDArray[Any], played: Mask | None, seen: Feedback, info: dict[str, NDArray[Any]]
    ) -> None:
        """Record a step of the rows that ``played`` (None: all) from what they saw, and from their info."""
        rows = np.ones(len(self._round), np.bool_) if played is None else played
        if not rows.any():
            return
        self._take_conditions(rows, self._before.conditions)
        self._round[rows] = self._before.noise_keys.round_index[rows] + 1
        sums = info["round_time"], info["worker_time"], info["runtime"], info["total_worker_time"]
        for field, value in zip((self._time, self._worker_time, self._runtime, self._total), sums, strict=True):
            field[rows] = value[rows]
        if isinstance(self._state, DispatchState):
            self._record_result(rows, seen, info["round_over"], self._state.round_state)
        else:
            self._record_round(rows, seen, action)
        over = rows & self._over
        self._elapsed[over] = seen["elapsed"][over]
        self._spent[over] += seen["elapsed"][over]  # else slow workers, whose tasks are cancelled, would look fast
        self._lost[over] = self._lost_tasks(info.get("lost", np.zeros(len(rows), np.int64)))[over]
        self._running[over] = False
        self._recent[over, (self._round[over] - 1) % _RECENT] = self._time[over]
        which, place = np.nonzero(np.where(rows[:, None], seen["worker"], -1) >= 0)
        np.add.at(self._spent, (which, seen["worker"][which, place]), seen["duration"][which, place])
        np.add.at(self._counts, (which, seen["worker"][which, place]), 1.0)

    def show_estimates(self, estimates: Floats | None) -> None:
        """Show these estimates of the mean task times, (n,) or (E, n), while the episodes last; None: the default."""
        self._has_estimates[:] = estimates is not None
        if estimates is not None:
            self._estimates[:] = estimates

    def timeline(self, row: int) -> Timeline:
        """What happened in the last round of a row."""
        conditions = _Conditions(*(field[row].copy() for field in self._conditions))
        done = np.flatnonzero(self._worker[row] >= 0)
        cut = np.flatnonzero((self._elapsed[row] > 0) | self._running[row])
        time, lost, running = float(self._time[row]), self._lost[row], self._running[row]
        stopped = np.where(lost, conditions.dies, time)[cut]
        worker = np.concatenate([self._worker[row, done], cut])
        start = np.concatenate([self._start[row, done], np.maximum(stopped - self._elapsed[row, cut], 0.0)])
        end = np.concatenate([self._end[row, done], stopped])
        kind = np.concatenate(
            [np.full(len(done), DONE), np.where(lost, LOST, np.where(running, RUNNING, CANCELLED))[cut]]
        )
        order = np.argsort(worker, kind="stable")  # what was cut is the last of its worker
        spent, none = self._spent[row], self._counts[row] == 0
        own = np.where(none & (spent == 0.0), np.nan, spent / np.maximum(self._counts[row], 1.0))
        given, dispatch = bool(self._has_estimates[row]), isinstance(self._state, DispatchState)
        return Timeline(
            round=int(self._round[row]),
            budget=self._budget,
            over=bool(self._over[row]),
            worker=worker[order],
            start=start[order],
            end=end[order],
            kind=kind[order].astype(np.int8),
            time=time,
            worker_time=float(self._worker_time[row]),
            runtime=float(self._runtime[row]),
            total_worker_time=float(self._total[row]),
            price=float(conditions.price),
            tasks=np.bincount(worker, minlength=self._tasks.shape[1]) if dispatch else self._tasks[row].copy(),
            estimate=self._estimates[row].copy() if given else own,
            at_least=none & (spent > 0.0) & (not given),
            mean=conditions.mean,
            dies=conditions.dies,
            present=conditions.present,
            longest=float(max(self._recent[row].max(), time)),
        )

    def _coming(self) -> _Conditions:
        """The conditions of the coming round."""
        conditions, present = self._state.conditions(), self._state.present()
        with np.errstate(over="ignore", invalid="ignore"):
            mean = conditions.means(self._state.scenario.catalogue)
        dies = np.broadcast_to(conditions.dies, mean.shape)
        places = np.ones(mean.shape, np.bool_) if present is None else present
        return _Conditions(mean, dies, places, np.broadcast_to(self._state.prices, mean.shape[:1]))

    def _take_conditions(self, rows: Mask | slice, conditions: _Conditions) -> None:
        for field, value in zip(self._conditions, conditions, strict=True):
            field[rows] = value[rows]

    def _record_round(self, rows: Mask, seen: Feedback, allocation: Ints) -> None:
        """Take the results of whole rounds, and when their tasks were started."""
        now = self._before
        if self._state.simulated:
            start = np.empty(seen["duration"].shape)
            race_round(now.distributions, now.noise_keys, allocation, self._budget, now.disturbances, start)
        else:
            start = _one_after_the_other(seen["worker"], seen["duration"])
        self._worker[rows], self._start[rows] = seen["worker"][rows], start[rows]
        self._end[rows] = (start + seen["duration"])[rows]
        self._tasks[rows], self._over[rows] = allocation[rows], True

    def _record_result(self, rows: Mask, seen: Feedback, over: Mask, now: RoundState) -> None:
        """Add the result of a step of dispatch, and what the workers are doing then."""
        missing = np.where(over, 0, now.missing)
        self._worker[rows & (missing == self._budget - 1)] = -1  # the first result of a round
        which = np.flatnonzero(rows)
        place = self._budget - 1 - missing[which]
        worker, duration = seen["worker"][which, 0], seen["duration"][which, 0]
        self._worker[which, place], self._end[which, place] = worker, self._time[which]
        self._start[which, place] = np.maximum(self._time[which] - duration, 0.0)
        self._over[rows] = over[rows]
        running = now.running != 0
        lost = ~running & (now.begun + now.duration > now.finish)
        since = np.where(running, now.now[:, None], now.finish) - now.begun
        self._running[rows], self._lost[rows] = running[rows], lost[rows]
        self._elapsed[rows] = np.where(running | lost, since, 0.0)[rows]

    def _lost_tasks(self, number: Ints) -> Mask:
        """Which workers lost a task, (E, n), where ``number`` tasks were lost, (E,): those that died before the end.

        Of the workers that died at the moment of the last result, the lowest ones died before it.
        """
        time, dies, cut = self._time[:, None], self._conditions.dies, self._elapsed > 0
        before, at_the_end = cut & (dies < time), cut & (dies == time)
        more = np.reshape(number - before.sum(axis=1), (-1, 1))
        lost: Mask = before | (at_the_end & (np.cumsum(at_the_end, axis=1) <= more))
        return lost


def _one_after_the_other(worker: Ints, duration: Floats) -> Floats:
    """When each task is started if every worker runs its tasks without a gap, (E, B); ``worker`` is ascending.

    >>> _one_after_the_other(np.array([[0, 0, 2]]), np.array([[1.0, 5.0, 3.0]]))
    array([[0., 1., 0.]])
    """
    start = np.cumsum(duration, axis=1) - duration
    first = np.diff(worker, axis=1, prepend=-1) > 0
    return start - np.maximum.accumulate(np.where(first, start, 0.0), axis=1)
