"""Jobs run side by side, by default in processes of this machine.

Each process is an executor of its own, since a larger pool ends all its processes when the system
kills one, and does not tell which job that one had.
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

from ata_gym.bench.runner.policy_run import Job, play_to_end
from ata_gym.bench.store.folder import check_code, discard
from ata_gym.bench.store.provenance import Provenance
from ata_gym.utils.errors import portable
from ata_gym.utils.files.manifest import remove_listed, write_listed
from ata_gym.utils.process.machine import processors
from ata_gym.utils.process.signals import stop_requested
from ata_policies.registry import load

Failures = dict[Job, Exception]
"""What went wrong, for each job that failed."""
Outcomes = Generator[tuple[Job, float | Exception | None]]
"""Jobs as they end, each with its outcome.

The outcome is the seconds that the job took, or what went wrong, or None if it was stopped.
"""
Progress = Callable[[Job, int], None]
"""It gets a job and the rounds that the job has played, at least about twice a second."""
Runner = Callable[[list[Job], int | None, float, Progress], Outcomes]
"""What runs jobs, and leaves results and checkpoints in the folders of the jobs.

It gets the jobs, how many may run at once (None: as many as it has processors for), the seconds
between checkpoints, and what to call with the progress.
"""


class KilledError(RuntimeError):
    """The process of a job ended without an answer."""

    def __init__(self) -> None:
        super().__init__(
            "its worker process was killed by the system, often for lack of memory, or crashed; the"
            " same command goes on from its last checkpoint, and fewer processes (--jobs) need less"
            " memory",
        )


class NotStartedError(RuntimeError):
    """The processes of jobs ended before they began."""

    def __init__(self) -> None:
        super().__init__(
            'put what the script runs under if __name__ == "__main__": or give jobs=1: its worker'
            " processes, each of which imports the script, ended before they began",
        )


def leave_to_parent() -> None:
    """End this process if it is a worker that is still importing the script of its parent.

    The script would otherwise start processes of its own; the parent does the work.
    """
    for frame, _ in traceback.walk_stack(None):
        # A spawned process imports the script of its parent under this name.
        if frame.f_globals.get("__name__") == "__mp_main__" and frame.f_code.co_name == "<module>":
            # Its parent says why this one has ended.
            raise SystemExit(1)


def on_this_machine(
    todo: list[Job],
    processes: int | None,
    save_every: float,
    progress: Progress,
) -> Outcomes:
    """Run jobs in processes of this machine, by default as many as it has processors.

    Where there is one job or one process, it runs in this process.
    """
    processes = min(len(todo), processes or processors())
    if processes > 1:
        return _side_by_side(todo, processes, save_every, progress)
    return _in_turn(todo, save_every, progress)


class Effort(NamedTuple):
    """How jobs are done; results do not depend on it."""

    jobs: int | None = None
    """How many run side by side: by default all, up to one for each processor.

    With 1 they run in this process.
    """
    save_every: float = 10.0
    """Seconds between two checkpoints of a job."""
    rerun_changed: bool = False
    """Whether results that other code has made are made anew; otherwise they are refused."""
    runner: Runner = on_this_machine
    """What runs the jobs."""


USUAL = Effort()


def play_jobs(
    jobs: Sequence[Job],
    effort: Effort = USUAL,
    progress: Progress = lambda _job, _rounds: None,
) -> Failures:
    """Play every job that has not finished yet, from its checkpoint.

    Args:
        jobs: What is played.
        effort: How it is done.
        progress: It is called with a job and the number of its rounds that are over.

    Returns:
        What went wrong, for each job that failed.

    Raises:
        ValueError: If results were made by other code than there is now, unless ``effort`` says
            that these are made anew.
        NotStartedError: If no worker process begins.
    """
    leave_to_parent()
    check_code((job.product() for job in jobs), effort.rerun_changed)
    todo = []
    for job in jobs:
        if job.folder.finished(job.policy):
            # A process that is killed after it has written the results leaves its checkpoint.
            discard(job.folder.checkpoint(job.policy))
            progress(job, job.experiment.rounds)
        else:
            todo.append(job)
    failures: Failures = {}
    with closing(effort.runner(todo, effort.jobs, effort.save_every, progress)) as outcomes:
        for job, outcome in outcomes:
            failure_file = job.folder.failure(job.policy)
            if isinstance(outcome, Exception):
                failures[job] = outcome
                write_traceback(failure_file, outcome)
            elif outcome is not None:
                remove_listed(failure_file)
                rounds = job.experiment.rounds * job.experiment.seeds
                job.folder.note_timing(job.policy, outcome, rounds)
    return failures


def write_traceback(path: Path, error: Exception) -> None:
    """Write the traceback of an error to a file."""
    path.parent.mkdir(exist_ok=True)
    text = "".join(traceback.format_exception(error)).encode("utf-8", "replace")
    write_listed(path, partial(Path.write_bytes, data=text))


def _in_turn(todo: list[Job], save_every: float, progress: Progress) -> Outcomes:
    """Run jobs in this process, one after the other."""
    with stop_requested() as stop:
        for job in todo:
            try:
                outcome: float | Exception | None = play_to_end(
                    job,
                    save_every=save_every,
                    progress=partial(progress, job),
                    stop=stop,
                )
            except Exception as error:
                # A policy of the user's may raise anything.
                outcome = error
            yield job, outcome
            if stop():
                return


def _length_of(job: Job) -> tuple[bool, int]:
    """Return what tells long jobs from short ones: the greater it is, the longer the job takes.

    Policies that name kernels of their own decide in many steps. Side by side, the longest jobs
    begin first, so that none of them is left alone at the end (Graham, "Bounds on multiprocessing
    timing anomalies", SIAM J. Appl. Math. 1969).
    """
    experiment = job.experiment
    return bool(load(job.policy).kernels), experiment.rounds * experiment.seeds


def _side_by_side(
    todo: list[Job],
    processes: int,
    save_every: float,
    progress: Progress,
) -> Outcomes:
    """Run jobs in processes of this machine, each process a job at a time."""
    # A fork would copy the threads of numerical libraries.
    context = multiprocessing.get_context("spawn")
    # The rounds that each job has played, and at the end whether to stop: 0 or 1.
    shared = context.RawArray("q", [_NOT_BEGUN] * len(todo) + [0])
    waiting = deque(sorted(enumerate(todo), key=lambda pair: _length_of(pair[1]), reverse=True))
    running: dict[Future[float | None], tuple[Job, ProcessPoolExecutor]] = {}

    def start(executor: "ProcessPoolExecutor | None" = None) -> None:
        """Give the next job to a process, by default a new one."""
        executor = executor or ProcessPoolExecutor(1, context, _begin, (shared,))
        place, job = waiting.popleft()
        # A new process starts here, and inherits which signals are held back.
        with _interrupts_held():
            running[executor.submit(_work, place, job, save_every, job.product().by)] = (
                job,
                executor,
            )

    try:
        for _ in range(processes):
            start()
        while running:
            completed, _ = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
            for job, rounds in zip(todo, shared, strict=False):
                progress(job, max(rounds, 0))
            for future in completed:
                job, executor = running.pop(future)
                error = future.exception()
                # The process of a broken executor has died, and takes no other job.
                broken = isinstance(error, BrokenProcessPool)
                if broken or not waiting:
                    executor.shutdown()
                if broken and all(rounds == _NOT_BEGUN for rounds in shared[:-1]):
                    raise NotStartedError
                if waiting and broken:
                    start()
                elif waiting:
                    start(executor)
                if broken:
                    yield job, KilledError()
                elif isinstance(error, Exception):
                    yield job, error
                else:
                    yield job, future.result()
    finally:
        shared[-1] = 1
        for _, executor in running.values():
            executor.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back while a process starts, which leaves them to its parent."""
    # Windows has no masks of signals.
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


_NOT_BEGUN = -1  # the rounds of a job whose process has not begun

_shared: Any = None  # in a worker process: the array that it shares with its parent


def _begin(shared: Any) -> None:
    """Prepare a worker process: it ends with its parent, and leaves signals to its parent."""
    global _shared  # noqa: PLW0603 - an initializer has no other way to hand something on
    _shared = shared
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        # They are held back already, except on Windows.
        signal.signal(signal_number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait_for_any([parent.sentinel])
        # A thread cannot end the process in any gentler way.
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _work(place: int, job: Job, save_every: float, made_by: Provenance) -> float | None:
    """Play a job in a worker process, whose progress is at ``place`` of the shared array."""

    def progress(rounds: int) -> None:
        _shared[place] = rounds

    progress(0)
    try:
        return play_to_end(
            job,
            save_every=save_every,
            progress=progress,
            stop=lambda: bool(_shared[-1]),
            made_by=made_by,
        )
    except Exception as error:
        # A policy of the user's may raise anything.
        raise portable(error)  # noqa: B904 - it is the error, or has it as its cause
