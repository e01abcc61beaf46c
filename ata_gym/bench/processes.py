"""The policies of an experiment side by side, one process for each."""

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
from typing import Any

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.run import play_to_end
from ata_gym.bench.store import Folder

Progress = Callable[[str, int], None]
"""Told a policy and how many rounds it has played."""


def play_all(
    experiment: Experiment,
    policies: Sequence[str],
    folder: Folder,
    *,
    jobs: int | None = None,
    save_every: float = 10.0,
    progress: Progress = lambda _policy, _round: None,
) -> dict[str, Exception]:
    """Play every policy that has not finished yet; results do not depend on ``jobs``.

    Parameters
    ----------
    experiment, policies, folder
        What to play, who plays, and where the results go.
    jobs
        Processes side by side, by default one for each policy, but no more than there are processors. With one, the
        policies are played one after the other in this process.
    save_every
        Seconds between checkpoints.
    progress
        Called several times a second.

    Returns
    -------
    What went wrong, for each policy that failed; the others have their results.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C; the same call goes on from the checkpoints.
    """
    todo = [policy for policy in dict.fromkeys(policies) if not folder.finished(policy)]
    for policy in policies:
        if policy not in todo:
            progress(policy, experiment.rounds)
    jobs = min(len(todo), jobs or os.cpu_count() or 1)
    play = _one_after_the_other if jobs <= 1 else _side_by_side
    failures = play(experiment, todo, folder, jobs, save_every, progress)
    for policy in todo:
        if policy in failures:
            folder.failure(policy).parent.mkdir(exist_ok=True)
            folder.failure(policy).write_text("".join(traceback.format_exception(failures[policy])), "utf-8")
        else:
            folder.failure(policy).unlink(missing_ok=True)
    return failures


def _one_after_the_other(
    experiment: Experiment, todo: list[str], folder: Folder, jobs: int, save_every: float, progress: Progress
) -> dict[str, Exception]:
    del jobs
    failures: dict[str, Exception] = {}
    for policy in todo:
        try:
            seconds = play_to_end(
                experiment,
                policy,
                folder,
                save_every=save_every,
                progress=partial(progress, policy),
            )
        except Exception as error:  # a policy of the user's may raise anything
            failures[policy] = error
        else:
            _note(folder, experiment, policy, seconds)
    return failures


def _side_by_side(
    experiment: Experiment, todo: list[str], folder: Folder, jobs: int, save_every: float, progress: Progress
) -> dict[str, Exception]:
    context = multiprocessing.get_context("spawn")  # a fork would copy the threads of numerical libraries
    shared = context.RawArray("q", len(todo) + 1)  # rounds played by each policy, and whether to stop
    failures: dict[str, Exception] = {}
    with ProcessPoolExecutor(jobs, context, _begin, (shared,)) as executor:
        with _deaf_to_interrupts():  # the processes start here, and inherit it
            waiting: dict[Future[float | None], str] = {
                executor.submit(_work, place, experiment, policy, folder, save_every): policy
                for place, policy in enumerate(todo)
            }
        pending = set(waiting)
        try:
            while pending:
                done, pending = wait(pending, timeout=0.1, return_when=FIRST_COMPLETED)
                for policy, rounds in zip(todo, shared, strict=False):
                    progress(policy, rounds)
                for future in done:
                    error = future.exception()
                    if isinstance(error, Exception):
                        failures[waiting[future]] = error
                    else:
                        _note(folder, experiment, waiting[future], future.result())
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


def _note(folder: Folder, experiment: Experiment, policy: str, seconds: float | None) -> None:
    if seconds is not None:
        folder.note_timing(policy, seconds, experiment.rounds * experiment.seeds)


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


def _work(place: int, experiment: Experiment, policy: str, folder: Folder, save_every: float) -> float | None:
    def progress(rounds: int) -> None:
        _shared[place] = rounds

    return play_to_end(
        experiment, policy, folder, save_every=save_every, progress=progress, stop=lambda: bool(_shared[-1])
    )
