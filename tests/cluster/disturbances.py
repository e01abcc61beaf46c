"""What happens to the workers of a training: they are killed, ended or stopped at any moment."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Protocol

import numpy as np

STOP_SECONDS = (1.0, 20.0)
"""For how long a process is stopped: also longer than Ray's deadline of the tests, and than a
replica of torchft may be without a heartbeat."""


class Kind(Enum):
    KILL = "SIGKILL in a round"
    START = "SIGKILL in a round, and of the successor while it starts"
    STOP = "SIGSTOP, then SIGCONT"
    TERM = "SIGTERM"


class Workers(Protocol):
    """The workers of an engine; each is a process, which has a successor when it has ended."""

    names: tuple[str, ...]

    def wait_for_all(self) -> None:
        """Wait until each worker takes part, with the process that it has now."""

    def pid(self, name: str) -> int:
        """The process of a worker that takes part."""

    def replaced(self, name: str) -> int:
        """Wait for the successor of a process that was killed, and return its number as soon as
        it has one.
        """


def drawn_kinds(rng: np.random.Generator, number: int) -> list[Kind]:
    """So many disturbances in random order, each kind as often as the others, or once more."""
    kinds = [list(Kind)[place % len(Kind)] for place in range(number)]
    return [kinds[place] for place in rng.permutation(number)]


def disturb(
    rng: np.random.Generator,
    workers: Workers,
    kinds: Iterable[Kind],
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Disturb one worker after the other at random moments, each time when all take part."""
    for kind in kinds:
        workers.wait_for_all()
        time.sleep(rng.uniform(0.0, 0.3))
        name = str(rng.choice(workers.names))
        pid = workers.pid(name)
        if kind is Kind.STOP:
            seconds = rng.uniform(*STOP_SECONDS)
            say(f"{name}: SIGSTOP for {seconds:.1f} s")
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            # It may count as lost by now, and be killed.
            _send(pid, signal.SIGCONT)
            continue
        say(f"{name}: {kind.value}")
        _send(pid, signal.SIGTERM if kind is Kind.TERM else signal.SIGKILL)
        successor = workers.replaced(name)
        if kind is Kind.START:
            time.sleep(rng.uniform(0.0, 0.2))
            _send(successor, signal.SIGKILL)
            workers.replaced(name)
    workers.wait_for_all()


@contextmanager
def in_thread(work: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Run something beside the block, which is told by a function whether it has ended.

    Its error is raised at the end of the block.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield lambda: not thread.is_alive()
    thread.join()
    for error in errors:
        raise error


def counted(kinds: Iterable[Kind]) -> str:
    """How often each kind was there."""
    counts = Counter(kinds)
    return ", ".join(f"{counts[kind]} x {kind.value}" for kind in Kind if counts[kind])


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
