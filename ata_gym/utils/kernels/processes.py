"""Kernels that are compiled side by side, in processes of their own: numba compiles one at a time in a process."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import Any

_CHILD = """import sys
from ata_gym.utils.extras import load_object
for name in sys.stdin: load_object("kernel", name.strip()).compile(); print(flush=True)"""


def compile_in_processes(names: Sequence[str], processes: int) -> Iterator[bool]:
    """Compile kernels, ``module:name``, in so many processes, the first ones first; yield after each whether it is.

    A kernel that does not compile ends its process; it is compiled again, and fails, where it is used.
    """
    how: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    how |= {"bufsize": 0, "env": os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}}
    idle = SimpleQueue[Any]()

    def compile_one(name: str) -> bool:
        child, told = idle.get(), b""
        with suppress(OSError):  # it has ended
            child.stdin.write(f"{name}\n".encode())
            told = child.stdout.readline()
        idle.put(child)
        return bool(told)

    with ThreadPoolExecutor(processes) as threads, ExitStack() as stack:
        for _ in range(processes):
            child = stack.enter_context(subprocess.Popen([sys.executable, "-P", "-c", _CHILD], **how))
            stack.callback(child.kill)
            idle.put(child)
        for done in as_completed([threads.submit(compile_one, name) for name in names]):
            yield done.result()
