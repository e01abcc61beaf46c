"""The record of the last rounds of the rows of an env, kept where the env is rendered."""

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ata_gym.envs.rendering.timeline import CANCELLED, DONE, LOST, RUNNING, Timeline
from ata_gym.envs.states.batch_state import BatchState, Feedback
from ata_gym.envs.states.dispatch import DispatchState
from ata_gym.simulation.rounds import race_round
from ata_gym.typing import Floats, Ints, Mask

_RECENT_ROUNDS = 20
"""The number of rounds of which ``Timeline.longest`` is the longest time."""


class Recorder:
    """The last rounds of the E rows of a state.

    A backend tells how long tasks took, but not when they were started: its workers are taken to
    run them one after the other from the round's start.
    """

    def __init__(self, state: BatchState) -> None:
        self._state = state
        self._dispatch = state if isinstance(state, DispatchState) else None
        shape = state.rows, state.scenario.pool.n
        self._worker_times = np.zeros(shape)
        """The time that each worker has spent on tasks in the episode, shape (E, n)."""
        self._counts = np.zeros(shape)
        """The results of each worker in the episode, shape (E, n)."""
        self._estimates: list[Floats | None] = [None] * state.rows
        """The estimates of each row that ``show_estimates`` got, or None."""
        self._recent: list[deque[float]] = [deque(maxlen=_RECENT_ROUNDS) for _ in range(state.rows)]
        """The last round times of each row."""
        self._timelines = [Timeline.empty(shape[1], state.scenario.budget)] * state.rows
        self.start_episode(slice(None))

    def start_episode(self, rows: Mask | slice) -> None:
        """Forget the rounds of some rows, whose episodes start now."""
        self._worker_times[rows] = 0.0
        self._counts[rows] = 0.0
        conditions = self._conditions()
        for row in np.arange(self._state.rows)[rows].tolist():
            self._estimates[row] = None
            self._recent[row].clear()
            timeline = Timeline.empty(self._worker_times.shape[1], self._state.scenario.budget)
            self._timelines[row] = timeline._replace(
                **{name: field[row] for name, field in conditions.items()},
            )

    def begin_step(self, action: NDArray[Any]) -> None:
        """Note the conditions of the coming step, and when tasks of a simulated round start.

        Args:
            action: The action of the env in each row, shape (E, n).
        """
        state = self._state
        self._round = state.round + 1
        self._next_conditions = self._conditions()
        if state.simulated and self._dispatch is None:
            # The step has the same noise, and so this race gives the same times.
            self._starts = np.empty((len(action), state.scenario.budget))
            distributions, disturbances = state.process.under(action)
            race_round(
                distributions,
                state.noise_keys(),
                action,
                state.scenario.budget,
                disturbances,
                task_start=self._starts,
            )

    def end_step(
        self,
        action: NDArray[Any],
        stepped: Mask | None,
        feedback: Feedback,
        info: dict[str, NDArray[Any]],
    ) -> None:
        """Record a step from the feedback and the info.

        Args:
            action: The action of the env in each row, shape (E, n).
            stepped: The rows that took the step, shape (E,); None means all.
            feedback: The feedback, with a leading row axis.
            info: The info, with a leading row axis.
        """
        if self._dispatch is None and not self._state.simulated:
            self._starts = _consecutive_starts(feedback["worker"], feedback["duration"])
        if stepped is None:
            rows = np.arange(self._state.rows)
        else:
            rows = np.flatnonzero(stepped)
        for row in rows.tolist():
            row_info = {name: value[row].item() for name, value in info.items()}
            self._record(
                row, action[row], {name: field[row] for name, field in feedback.items()}, row_info
            )

    def show_estimates(self, estimates: Floats | None) -> None:
        """Show these estimates of the mean task times while the episodes last.

        Args:
            estimates: The estimates, shape (n,) or (E, n), in units of time; None means the
                default.
        """
        rows, n = self._worker_times.shape
        if estimates is None:
            self._estimates = [None] * rows
        else:
            self._estimates = list(np.array(np.broadcast_to(estimates, (rows, n))))

    def timeline(self, row: int) -> Timeline:
        """The timeline of the last round of a row."""
        worker_time = self._worker_times[row]
        without_results = self._counts[row] == 0
        estimate = self._estimates[row]
        is_lower_bound = without_results & (worker_time > 0.0) & (estimate is None)
        if estimate is None:
            mean = worker_time / np.maximum(self._counts[row], 1.0)
            estimate = np.where(without_results & (worker_time == 0.0), np.nan, mean)
        return self._timelines[row]._replace(estimate=estimate, is_lower_bound=is_lower_bound)

    def _conditions(self) -> dict[str, NDArray[Any]]:
        """The fields of the timelines that no step changes, with a leading row axis."""
        conditions = self._state.conditions()
        present = self._state.present()
        with np.errstate(over="ignore", invalid="ignore"):
            mean = conditions.means(self._state.scenario.catalogue)
        if present is None:
            presence = np.ones(mean.shape, np.bool_)
        else:
            presence = present
        price = np.broadcast_to(self._state.prices, len(mean))
        return {
            "mean": mean,
            "death_time": conditions.death_time,
            "present": presence,
            "price": price,
        }

    def _record(
        self, row: int, action: NDArray[Any], feedback: Feedback, info: dict[str, Any]
    ) -> None:
        """Record a step of one row."""
        round_over = info.get("round_over", True)
        time = info["round_time"]
        if round_over:
            # Without these times slow workers, whose tasks are cancelled, would look fast.
            self._worker_times[row] += feedback["elapsed"]
            self._recent[row].append(time)
        np.add.at(self._worker_times[row], feedback["worker"], feedback["duration"])
        np.add.at(self._counts[row], feedback["worker"], 1.0)
        conditions = {name: field[row] for name, field in self._next_conditions.items()}
        elapsed, lost, running = self._unfinished(
            row, round_over, feedback["elapsed"], info, conditions["death_time"]
        )
        unfinished = np.flatnonzero((elapsed > 0) | running)
        unfinished_end = np.where(lost, conditions["death_time"], time)[unfinished]
        unfinished_kind = np.where(lost, LOST, np.where(running, RUNNING, CANCELLED))[unfinished]
        result_worker, result_start, result_end = self._results(row, feedback, time)
        worker = np.append(result_worker, unfinished)
        # The sort is stable, so that an unfinished task is the last one of its worker.
        order = np.argsort(worker, kind="stable")
        start = np.append(result_start, np.maximum(unfinished_end - elapsed[unfinished], 0.0))
        end = np.append(result_end, unfinished_end)
        kind = np.append(np.full(len(result_worker), DONE), unfinished_kind)
        if self._dispatch is None:
            tasks = action.copy()
        else:
            tasks = np.bincount(worker, minlength=len(action))
        self._timelines[row] = self._timelines[row]._replace(
            **conditions,
            round=int(self._round[row]),
            round_over=round_over,
            worker=worker[order],
            start=start[order],
            end=end[order],
            kind=kind[order].astype(np.int8),
            time=time,
            worker_time=info["worker_time"],
            runtime=info["runtime"],
            total_worker_time=info["total_worker_time"],
            tasks=tasks,
            longest=max(*self._recent[row], time, 0.0),
        )

    def _results(self, row: int, feedback: Feedback, time: float) -> tuple[Ints, Floats, Floats]:
        """The results of the round so far: their workers, and the starts and ends of the tasks."""
        worker = feedback["worker"]
        duration = feedback["duration"]
        timeline = self._timelines[row]
        if self._dispatch is None:
            start = self._starts[row]
            return worker, start, start + duration
        results = worker, np.maximum(time - duration, 0.0), np.full(1, time)
        if timeline.round != self._round[row]:
            return results
        # In dispatch a step has one result, which is added to the results of the round before it.
        is_result = timeline.kind == DONE
        worker, start, end = (
            np.append(field[is_result], value)
            for field, value in zip(
                (timeline.worker, timeline.start, timeline.end), results, strict=True
            )
        )
        return worker, start, end

    def _unfinished(
        self,
        row: int,
        round_over: bool,
        elapsed: Floats,
        info: dict[str, Any],
        death_time: Floats,
    ) -> tuple[Floats, Mask, Mask]:
        """How long each worker's unfinished task has run, and whether it is lost or is running."""
        if self._dispatch is not None and not round_over:
            round_state = self._dispatch.round_state
            running = round_state.running[row] != 0
            # A worker that died has an end before begin + duration.
            lost = ~running & (
                round_state.task_start[row] + round_state.duration[row] > round_state.finish[row]
            )
            run_time = (
                np.where(running, round_state.time[row], round_state.finish[row])
                - round_state.task_start[row]
            )
            return np.where(running | lost, run_time, 0.0), lost, running
        unfinished = elapsed > 0
        time = info["round_time"]
        died_before = unfinished & (death_time < time)
        died_at_end = unfinished & (death_time == time)
        # Of the workers that died at the moment of the end, the lowest ones died before it: events
        # of the same moment happen in the order of the workers.
        lost_at_end = info.get("lost", 0) - died_before.sum()
        lost = died_before | (died_at_end & (np.cumsum(died_at_end) <= lost_at_end))
        return elapsed, lost, np.zeros(len(unfinished), np.bool_)


def _consecutive_starts(worker: Ints, duration: Floats) -> Floats:
    """When each task starts if every worker runs its tasks without a gap, shape (E, B).

    The workers of the results are in ascending order.

    Example:
        >>> _consecutive_starts(np.array([[0, 0, 2]]), np.array([[1.0, 5.0, 3.0]]))
        array([[0., 1., 0.]])
    """
    # The start as if one worker ran all tasks, less the start of its worker's first task.
    start = np.cumsum(duration, axis=1) - duration
    is_first = np.diff(worker, axis=1, prepend=-1) > 0
    return start - np.maximum.accumulate(np.where(is_first, start, 0.0), axis=1)
