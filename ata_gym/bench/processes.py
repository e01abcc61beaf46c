"""Policies side by side, one process for each."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import wait as wait_for_any
from typing import Any, NamedTuple

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.run import Run, play_to_end
from ata_gym.bench.store import Folder


class Task(NamedTuple):
    """A policy to be played."""

    experiment: Experiment
    policy: str
    folder: Folder
    """Where its results go."""
    run_of: type[Run] = Run
    """What is recorded."""


Failures = dict[Task, Exception]


def play_all(
    experiment: Experiment,
    policies: Sequence[str],
    folder: Folder,
    run_of: type[Run] = Run,
    *,
    jobs: int | None = None,
    save_every: float = 10.0,
    progress: Callable[[str, int], None] = lambda _policy, _round: None,
) -> dict[str, Exception]:
    """Play every policy of an experiment that has not finished yet.

    Parameters
    ----------
    experiment, policies, folder
        What to play, who plays, and where the results go.
    run_of
        What is recorded.
    jobs, save_every
        As for :func:`play_tasks`.
    progress
        Told a policy and how many rounds it has played, several times a second.

    Returns
    -------
    What went wrong, for each policy that failed; the others have their results.

    Raises
    ------
    KeyboardInterrupt
        As :func:`play_tasks`.
    """
    tasks = [Task(experiment, policy, folder, run_of) for policy in dict.fromkeys(policies)]
    failures = play_tasks(
        tasks, jobs=jobs, save_every=save_every, progress=lambda task, rounds: progress(task.policy, rounds)
    )
    return {task.policy: error for task, error in failures.items()}


Progress = Callable[[Task, int], None]
"""Told a task and how many of its rounds are played."""


def play_tasks(
    tasks: Sequence[Task],
    *,
    jobs: int | None = None,
    save_every: float = 10.0,
    progress: Progress = lambda _task, _round: None,
) -> Failures:
    """Play every task that has not finished yet; results do not depend on ``jobs``.

    Parameters
    ----------
    tasks
        Who plays what.
    jobs
        Processes side by side, by default one for each task, but no more than there are processors. With one, the
        tasks are done one after the other in this process.
    save_every
        Seconds between checkpoints.
    progress
        Called several times a second.

    Returns
    -------
    What went wrong, for each task that failed; the others have their results.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C; the same call goes on from the checkpoints.
    """
    todo = [task for task in tasks if not task.folder.finished(task.policy)]
    for task in tasks:
        if task not in todo:
            progress(task, task.experiment.rounds)
    jobs = min(len(todo), jobs or os.cpu_count() or 1)
    play = _one_after_the_other if jobs <= 1 else _side_by_side
    failures = play(todo, jobs, save_every, progress)
    for task in todo:
        note = task.folder.failure(task.policy)
        if task in failures:
            note.parent.mkdir(exist_ok=True)
            note.write_text("".join(traceback.format_exception(failures[task])), "utf-8")
        else:
            note.unlink(missing_ok=True)
    return failures


def _one_after_the_other(todo: list[Task], jobs: int, save_every: float, progress: Progress) -> Failures:
    del jobs
    failures: Failures = {}
    for task in todo:
        try:
            seconds = play_to_end(*task, save_every=save_every, progress=partial(progress, task))
        except Exception as error:  # a policy of the user's may raise anything
            failures[task] = error
        else:
            _note(task, seconds)
    return failures


def _side_by_side(todo: list[Task], jobs: int, save_every: float, progress: Progress) -> Failures:
    context = multiprocessing.get_context("spawn")  # a fork would copy the threads of numerical libraries
    shared = context.RawArray("q", len(todo) + 1)  # rounds played of each task, and whether to stop
    failures: Failures = {}
    with ProcessPoolExecutor(jobs, context, _begin, (shared,)) as executor:
        with _deaf_to_interrupts():  # the processes start here, and inherit it
            waiting: dict[Future[float | None], Task] = {
                executor.submit(_work, place, task, save_every): task for place, task in enumerate(todo)
            }
        pending = set(waiting)
        try:
            while pending:
                done, pending = wait(pending, timeout=0.1, return_when=FIRST_COMPLETED)
                for task, rounds in zip(todo, shared, strict=False):
                    progress(task, rounds)
                for future in done:
                    error = future.exception()
                    if isinstance(error, Exception):
                        failures[waiting[future]] = error
                    else:
                        _note(waiting[future], future.result())
        finally:
            shared[-1] = 1
            executor.shutdown(cancel_futures=True)
    return failures


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C for a moment, so that a process that starts now leaves it to its parent."""
    if threading.current_thread() is not threading.main_thread():  # Python hears signals in the main thread only
        yield
        return
    hearing = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, hearing)


def _note(task: Task, seconds: float | None) -> None:
    if seconds is not None:
        task.folder.note_timing(task.policy, seconds, task.experiment.rounds * task.experiment.seeds)


_shared: Any = None
"""In a process of the pool: the array that it shares with its parent."""


def _begin(shared: Any) -> None:
    """Prepare a process of the pool: it does not outlive its parent, and leaves Ctrl-C to it."""
    global _shared  # noqa: PLW0603 - an initializer has no other way to hand something on
    _shared = shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it is not inherited
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait_for_any([parent.sentinel])
        os._exit(1)  # a thread cannot end the process in any gentler way

    threading.Thread(target=follow, daemon=True).start()


def _work(place: int, task: Task, save_every: float) -> float | None:
    def progress(rounds: int) -> None:
        _shared[place] = rounds

    return play_to_end(*task, save_every=save_every, progress=progress, stop=lambda: bool(_shared[-1]))
