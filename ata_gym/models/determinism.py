"""The same bits each time, whatever the number of cores."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def deterministic(threads: int = 1) -> Iterator[None]:
    """Make torch give the same bits each time, on a CPU whatever its number of cores.

    Within the block torch uses deterministic algorithms; it warns of an operation that has none.

    Args:
        threads: The number of torch's threads, on which the order of a sum depends.
    """
    # Without this variable cuBLAS is not deterministic.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    previous_threads = torch.get_num_threads()
    strict = torch.are_deterministic_algorithms_enabled()
    lenient = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.set_num_threads(previous_threads)
        torch.use_deterministic_algorithms(strict, warn_only=lenient)
