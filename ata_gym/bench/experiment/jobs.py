"""Jobs run side by side, by default in processes of this machine.

Each process is an executor of its own, since a larger pool ends all its processes when the system kills one, and does
not tell which job that one had.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from functools import partial
from multiprocessing.connection import wait as wait_for_any
from pathlib import Path
from typing import Any, NamedTuple

from ata_gym.bench.experiment.provenance import Provenance
from ata_gym.bench.experiment.run import Job, play_to_end
from ata_gym.bench.experiment.store import check_code, discard
from ata_gym.utils.errors import portable
from ata_gym.utils.machine import processors
from ata_gym.utils.manifest import remove_listed, write_listed
from ata_gym.utils.signals import stop_requested

Failures = dict[Job, Exception]
Outcomes = Generator[tuple[Job, float | Exception | None]]
"""Jobs as they end, and the seconds that each took, or what went wrong, or None for one that was stopped."""
Progress = Callable[[Job, int], None]
"""Called with a job and the number of rounds that it has played, about twice a second or more often."""
Runner = Callable[[list[Job], int | None, float, Progress], Outcomes]
"""What runs jobs: it gets them, how many may run at once (None: as many as it has processors for), the seconds between
checkpoints, and what to call with the progress. It leaves results and checkpoints in the folders of the jobs."""


class KilledError(RuntimeError):
    """The process of a job ended without an answer."""

    def __init__(self) -> None:
        super().__init__(
            "its worker process was killed by the system, often for lack of memory, or crashed; the same command goes "
            "on from its last checkpoint, and fewer processes (--jobs) need less memory"
        )


class NotStartedError(RuntimeError):
    """The processes of jobs end before they begin."""

    def __init__(self) -> None:
        super().__init__(
            'put what the script runs under if __name__ == "__main__": or give jobs=1: its worker processes, each of '
            "which imports the script, ended before they began"
        )


def leave_to_parent() -> None:
    """End this process if it is a worker that only imports the script of its parent, which does the work itself."""
    for frame, _ in traceback.walk_stack(None):
        if frame.f_globals.get("__name__") == "__mp_main__" and frame.f_code.co_name == "<module>":
            raise SystemExit(1)  # its parent says why


def on_this_machine(todo: list[Job], processes: int | None, save_every: float, progress: Progress) -> Outcomes:
    """Run jobs in processes of this machine, by default as many as processors; a single one runs in this process."""
    processes = min(len(todo), processes or processors())
    if processes > 1:
        return _side_by_side(todo, processes, save_every, progress)
    return _in_turn(todo, save_every, progress)


class Effort(NamedTuple):
    """How jobs are done; results do not depend on it."""

    jobs: int | None = None
    """How many run side by side: by default all, up to one for each processor; 1 runs them in this process."""
    save_every: float = 10.0  # seconds between two checkpoints of a job
    rerun_changed: bool = False  # whether results that other code has made are made anew; otherwise they are refused
    runner: Runner = on_this_machine


USUAL = Effort()


def play_jobs(jobs: Sequence[Job], effort: Effort = USUAL, progress: Progress = lambda _job, _rounds: None) -> Failures:
    """Play every job that has not finished yet, from its checkpoint; return what went wrong, for each that failed.

    ValueError if results were made by other code than there is now, unless these are to be made anew; NotStartedError
    if no worker process begins.
    """
    leave_to_parent()
    check_code((job.made() for job in jobs), effort.rerun_changed)
    todo = []
    for job in jobs:
        if job.folder.finished(job.policy):
            discard(job.folder.checkpoint(job.policy))  # of a process that was killed between the two
            progress(job, job.experiment.rounds)
        else:
            todo.append(job)
    failures: Failures = {}
    with closing(effort.runner(todo, effort.jobs, effort.save_every, progress)) as outcomes:
        for job, outcome in outcomes:
            note = job.folder.failure(job.policy)
            if isinstance(outcome, Exception):
                failures[job] = outcome
                note.parent.mkdir(exist_ok=True)
                told = "".join(traceback.format_exception(outcome)).encode("utf-8", "replace")
                write_listed(note, partial(Path.write_bytes, data=told))
            elif outcome is not None:
                remove_listed(note)
                job.folder.note_timing(job.policy, outcome, job.experiment.rounds * job.experiment.seeds)
    return failures


def _in_turn(todo: list[Job], save_every: float, progress: Progress) -> Outcomes:
    with stop_requested() as stop:
        for job in todo:
            try:
                outcome: float | Exception | None = play_to_end(
                    job, save_every=save_every, progress=partial(progress, job), stop=stop
                )
            except Exception as error:  # a policy of the user's may raise anything
                outcome = error
            yield job, outcome
            if stop():
                return


def _side_by_side(todo: list[Job], processes: int, save_every: float, progress: Progress) -> Outcomes:
    context = multiprocessing.get_context("spawn")  # a fork would copy the threads of numerical libraries
    shared = context.RawArray("q", [_NOT_BEGUN] * len(todo) + [0])  # rounds played of each job, and whether to stop
    waiting = deque(enumerate(todo))
    running: dict[Future[float | None], tuple[Job, ProcessPoolExecutor]] = {}

    def start(executor: "ProcessPoolExecutor | None" = None) -> None:
        executor = executor or ProcessPoolExecutor(1, context, _begin, (shared,))
        place, job = waiting.popleft()
        with _interrupts_held():  # the process starts here, and inherits it
            running[executor.submit(_work, place, job, save_every, job.made().by)] = job, executor

    try:
        for _ in range(processes):
            start()
        while running:
            done, _ = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
            for job, rounds in zip(todo, shared, strict=False):
                progress(job, max(rounds, 0))
            for future in done:
                job, executor = running.pop(future)
                error = future.exception()
                broken = isinstance(error, BrokenProcessPool)
                if broken or not waiting:
                    executor.shutdown()
                if broken and all(rounds == _NOT_BEGUN for rounds in shared[:-1]):
                    raise NotStartedError
                if waiting:
                    start(None if broken else executor)
                failure = KilledError() if broken else error
                yield job, failure if isinstance(failure, Exception) else future.result()
    finally:
        shared[-1] = 1
        for _, executor in running.values():
            executor.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back for a moment, so that a process that starts now leaves them to its parent."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_NOT_BEGUN = -1

_shared: Any = None  # in a worker process: the array that it shares with its parent


def _begin(shared: Any) -> None:  # prepare a worker process: it ends with its parent, and leaves signals to it
    global _shared  # noqa: PLW0603 - an initializer has no other way to hand something on
    _shared = shared
    for which in (signal.SIGINT, signal.SIGTERM):
        signal.signal(which, signal.SIG_IGN)  # where it is not held back already
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait_for_any([parent.sentinel])
        os._exit(1)  # a thread cannot end the process in any gentler way

    threading.Thread(target=follow, daemon=True).start()


def _work(place: int, job: Job, save_every: float, made_by: Provenance) -> float | None:
    def progress(rounds: int) -> None:
        _shared[place] = rounds

    progress(0)
    try:
        return play_to_end(
            job, save_every=save_every, progress=progress, stop=lambda: bool(_shared[-1]), made_by=made_by
        )
    except Exception as error:  # a policy of the user's may raise anything
        raise portable(error)  # noqa: B904 - it is the error, or has it as its cause
