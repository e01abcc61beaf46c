"""Kernels on several cores: the rows of a batch in blocks, one block in each thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from queue import SimpleQueue
from threading import Thread

from ata_gym.utils.validation import whole_number

_count: ContextVar[int] = ContextVar("threads", default=1)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Within this block, kernels over many rows run in ``count`` threads; the results keep their bits.

    It applies to envs, policies and functions that this thread calls. It is faster from about a thousand rows of 51
    workers on; kernels over fewer rows take hardly longer than the hand-over to another thread, and run in this one.
    ValueError if the count is not a whole number of at least 1.

    >>> import gymnasium, ata_gym, ata_policies
    >>> envs = gymnasium.make_vec("ata_gym/TaskAllocation-v0", num_envs=512, scenario="icml2025-regret")
    >>> policy = ata_policies.make("ata", envs)
    >>> with ata_gym.threads(2):
    ...     action, state = policy.predict(envs.reset(seed=0)[0])
    ...     observation = envs.step(action)[0]
    """
    token = _count.set(whole_number("threads", count))
    try:
        yield
    finally:
        _count.reset(token)


def thread_count() -> int:
    """In how many threads kernels run here."""
    return _count.get()


def run_together(parts: Sequence[Callable[[], object]]) -> None:
    """Run functions that release the interpreter's lock, the first in this thread and each other in one of its own."""
    helpers = [_free.pop() if _free else _Helper() for _ in parts[1:]]
    for one, part in zip(helpers, parts[1:], strict=True):
        one.todo.put(part)
    parts[0]()
    failed = [error for one in helpers if (error := one.done.get()) is not None]
    _free.extend(helpers)
    if failed:
        raise failed[0]


class _Helper:
    """A thread that waits for work; a queue hands work over in a few microseconds, and an executor needs longer."""

    def __init__(self) -> None:
        self.todo: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self.done: SimpleQueue[BaseException | None] = SimpleQueue()
        Thread(target=self._serve, name="ata-gym-kernel", daemon=True).start()

    def _serve(self) -> None:
        while True:
            part = self.todo.get()
            try:
                part()
            except BaseException as error:
                self.done.put(error)
            else:
                self.done.put(None)


_free: list[_Helper] = []  # threads without work; a list's methods are atomic
if hasattr(os, "register_at_fork"):  # not on every system
    os.register_at_fork(after_in_child=_free.clear)  # a child process has none of these threads
