"""Kernels on several cores: the rows of a batch in blocks, one block in each thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

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


def run_together(parts: Sequence[Callable[[], Any]]) -> list[Any]:
    """Call functions that release the interpreter's lock, the first in this thread and each other in one of its own."""
    others = [_executor().submit(part) for part in parts[1:]]
    return [parts[0](), *(other.result() for other in others)]


@cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=256, thread_name_prefix="ata-gym-kernel")  # they start as they are needed


if hasattr(os, "register_at_fork"):  # not on every system
    os.register_at_fork(after_in_child=_executor.cache_clear)  # a child process has none of these threads
