"""Kernels that are compiled side by side, in processes of their own.

numba compiles one kernel at a time in a process.
"""

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
    """Compile kernels in several processes, the first ones first.

    A kernel that does not compile ends its process; it is compiled again, and fails, where it is
    used.

    Args:
        names: The kernels, each as ``module:name``.
        processes: The number of processes.

    Yields:
        For each kernel, when it is done, whether it was compiled.
    """
    options: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.DEVNULL,
    }
    options |= {
        "bufsize": 0,
        "env": os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    }
    idle = SimpleQueue[Any]()

    def compile_one(name: str) -> bool:
        """Compile a kernel in the next idle process."""
        child = idle.get()
        answer = b""
        # An OSError means that the process has ended.
        with suppress(OSError):
            child.stdin.write(f"{name}\n".encode())
            answer = child.stdout.readline()
        idle.put(child)
        return bool(answer)

    with ThreadPoolExecutor(processes) as threads, ExitStack() as stack:
        for _ in range(processes):
            process = subprocess.Popen([sys.executable, "-P", "-c", _CHILD], **options)
            child = stack.enter_context(process)
            stack.callback(child.kill)
            idle.put(child)
        for future in as_completed([threads.submit(compile_one, name) for name in names]):
            yield future.result()
