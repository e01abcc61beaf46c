"""What the rows of an env did in their last rounds, recorded step by step where an env is made to be seen."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ata_gym.envs.rendering.timeline import CANCELLED, DONE, LOST, RUNNING, Timeline
from ata_gym.simulation.dispatch import RoundState
from ata_gym.simulation.rounds import task_starts
from ata_gym.typing import Floats, Ints, Mask

_RECENT = 20
"""Rounds of whose times ``Timeline.longest`` is the longest."""


class Recorder:
    """The last rounds of E rows; ``state`` is their ``BatchState``.

    A backend tells how long tasks took, but not when they were started: its workers are taken to run them one after the
    other from the round's start.
    """

    def __init__(self, state: Any, rows: int) -> None:
        n, budget = state.scenario.pool.n, state.scenario.budget
        self._state, self._budget, self._within = state, budget, hasattr(state, "round_state")
        self._worker = np.full((rows, budget), -1)
        self._start, self._end = np.zeros((2, rows, budget))
        self._elapsed, self._stopped, self._dies, self._mean, self._spent, self._counts = np.zeros((6, rows, n))
        self._lost, self._running = np.zeros((2, rows, n), np.bool_)
        self._tasks, self._present = np.zeros((rows, n), np.int64), np.ones((rows, n), np.bool_)
        self._given, self._is_given = np.zeros((rows, n)), np.zeros(rows, np.bool_)
        self._time, self._worker_time, self._runtime, self._total, self._price = np.zeros((5, rows))
        self._round, self._over = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
        self._recent = np.zeros((rows, _RECENT))
        self._before: tuple[Any, ...] = ()
        self.start_episode(slice(None))

    def start_episode(self, rows: Mask | slice) -> None:
        """Forget the rounds of some rows: the first of their episodes is to come."""
        self._worker[rows] = -1
        for field in (
            *(self._elapsed, self._tasks, self._spent, self._counts, self._recent, self._round, self._over),
            *(self._time, self._worker_time, self._runtime, self._total, self._is_given, self._lost, self._running),
        ):
            field[rows] = 0
        self._take_conditions(rows, *self._conditions())

    def begin_step(self) -> None:
        """Remember what the coming step starts from."""
        state, process = self._state, self._state.process
        rows = state.keys.copy(), state.episode.copy(), state.round.copy(), state.started.copy()
        self._before = process.distributions, *rows, process.disturbances, self._conditions()

    def end_step(self, action: NDArray[Any], played: Mask | None, seen: dict[str, Any], info: dict[str, Any]) -> None:
        """Record a step of the rows that ``played`` (None: all) from what they saw, and from their info."""
        rows = np.ones(len(self._round), np.bool_) if played is None else played
        if not rows.any():
            return
        distributions, keys, episode, round, started, disturbances, conditions = self._before
        self._take_conditions(rows, *conditions)
        self._round[rows] = round[rows] + 1
        sums = info["round_time"], info["worker_time"], info["runtime"], info["total_worker_time"]
        for field, value in zip((self._time, self._worker_time, self._runtime, self._total), sums, strict=True):
            field[rows] = value[rows]
        if self._within:
            self._record_result(rows, seen, info["round_over"])
        else:
            now = distributions, keys, episode, round, started, action, self._budget, disturbances
            simulated = self._state.simulated
            start = task_starts(*now) if simulated else _one_after_the_other(seen["worker"], seen["duration"])
            self._worker[rows], self._start[rows] = seen["worker"][rows], start[rows]
            self._end[rows] = (start + seen["duration"])[rows]
            self._tasks[rows], self._over[rows] = action[rows], True
        over = rows & self._over
        self._elapsed[over] = seen["elapsed"][over]
        self._spent[over] += seen["elapsed"][over]  # else slow workers, whose tasks are cancelled, would look fast
        self._lost[over] = self._lost_ones(info.get("lost", 0))[over]
        self._running[over] = False
        self._recent[over, (self._round[over] - 1) % _RECENT] = self._time[over]
        which, place = np.nonzero(np.where(rows[:, None], seen["worker"], -1) >= 0)
        np.add.at(self._spent, (which, seen["worker"][which, place]), seen["duration"][which, place])
        np.add.at(self._counts, (which, seen["worker"][which, place]), 1.0)

    def show_estimates(self, estimates: Floats | None) -> None:
        """Show these estimates of the mean task times, (n,) or (E, n), while the episodes last; None: the default."""
        self._is_given[:] = estimates is not None
        if estimates is not None:
            self._given[:] = estimates

    def timeline(self, row: int) -> Timeline:
        """What happened in the last round of a row."""
        done = np.flatnonzero(self._worker[row] >= 0)
        cut = np.flatnonzero((self._elapsed[row] > 0) | self._running[row])
        time, lost, running = float(self._time[row]), self._lost[row], self._running[row]
        stopped = np.where(lost, self._dies[row], time)[cut]
        worker = np.concatenate([self._worker[row, done], cut])
        start = np.concatenate([self._start[row, done], np.maximum(stopped - self._elapsed[row, cut], 0.0)])
        end = np.concatenate([self._end[row, done], stopped])
        kind = np.concatenate(
            [np.full(len(done), DONE), np.where(lost, LOST, np.where(running, RUNNING, CANCELLED))[cut]]
        )
        order = np.argsort(worker, kind="stable")  # what was cut is the last of its worker
        spent, none = self._spent[row], self._counts[row] == 0
        own = np.where(none & (spent == 0.0), np.nan, spent / np.maximum(self._counts[row], 1.0))
        given = bool(self._is_given[row])
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
            price=float(self._price[row]),
            tasks=np.bincount(worker, minlength=self._tasks.shape[1]) if self._within else self._tasks[row].copy(),
            estimate=self._given[row].copy() if given else own,
            at_least=none & (spent > 0.0) & (not given),
            mean=self._mean[row].copy(),
            dies=self._dies[row].copy(),
            present=self._present[row].copy(),
            longest=float(max(self._recent[row].max(), time)),
        )

    def _conditions(self) -> tuple[Any, ...]:
        """What the workers are like in the coming round: exact means, deaths, who is there; and the price."""
        conditions = self._state.conditions()
        with np.errstate(over="ignore", invalid="ignore"):
            mean = conditions.means(self._state.scenario.catalogue)
        present = self._state.present()
        shape = self._mean.shape
        there = np.ones(shape, np.bool_) if present is None else present
        return mean, np.broadcast_to(conditions.dies, shape), there, np.broadcast_to(self._state.prices, shape[:1])

    def _take_conditions(self, rows: Mask | slice, mean: Floats, dies: Floats, present: Mask, price: Floats) -> None:
        for field, value in (
            (self._mean, mean), (self._dies, dies), (self._present, present), (self._price, price)
        ):  # fmt: skip
            field[rows] = value[rows]

    def _record_result(self, rows: Mask, seen: dict[str, Any], over: Mask) -> None:
        """Add the result of a step of dispatch, and what the workers are doing then."""
        now: RoundState = self._state.round_state
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

    def _lost_ones(self, number: Ints | int) -> Mask:
        """Whose task was lost, (E, n), where ``number`` were, (E,): those that died before the last result.

        Of those that died at its moment, the lowest ones died before it.
        """
        time, cut = self._time[:, None], self._elapsed > 0
        before, at_the_end = cut & (self._dies < time), cut & (self._dies == time)
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
