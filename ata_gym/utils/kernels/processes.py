"""Kernels that are compiled side by side, in processes of their own.

numba compiles one kernel at a time in a process.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

_CHILD = """import gc, sys
from ata_gym.utils.extras import load_object
gc.disable()
for name in sys.stdin: load_object("kernel", name.strip()).compile(); print(flush=True)"""
"""What a process runs.

Without a garbage collector it takes 6 % less time and 130 MB more.
"""


def compile_in_processes(names: Sequence[str], processes: int) -> dict[str, Future[bool]]:
    """Begin to compile kernels in several processes, the first ones first.

    This process goes on meanwhile. A kernel that no process has begun can be cancelled. A kernel
    that does not compile ends its process; it is compiled again, and fails, where it is used. Where
    this process ends, the others keep the kernel that they compile, and end, too.

    Args:
        names: The kernels, each as ``module:name``.
        processes: The number of processes.

    Returns:
        For each name, whether it was compiled, once that is known.
    """
    futures: dict[str, Future[bool]] = {name: Future() for name in names}
    waiting = SimpleQueue[tuple[str, Future[bool]]]()
    for item in futures.items():
        waiting.put(item)
    for _ in range(processes):
        # a thread that is no daemon would keep a program that has ended
        threading.Thread(target=_serve, args=(waiting,), daemon=True).start()
    return futures


def is_compiling_process() -> bool:
    """Whether this process is one that ``compile_in_processes`` has started."""
    return _CHILD in sys.orig_argv


def _serve(waiting: SimpleQueue[tuple[str, Future[bool]]]) -> None:
    """Hand one kernel after the other to a process, until none is waiting."""
    child: subprocess.Popen[bytes] | None = None
    with suppress(OSError):
        child = _start()
    with suppress(Empty):
        while True:
            name, future = waiting.get_nowait()
            if future.set_running_or_notify_cancel():
                future.set_result(child is not None and _compile(child, name))
    if child is not None:
        # the end of the names does not reach it where a fork of this process holds its pipe open
        with child:
            child.kill()


def _start() -> subprocess.Popen[bytes] | None:
    """Start a process that compiles the kernels whose names it reads; None without a Python."""
    if not sys.executable:
        return None
    # as in an import, what is no text is left out, and an empty text is the working directory
    folders = [folder or os.curdir for folder in sys.path if isinstance(folder, str)]
    options: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.DEVNULL,
        "bufsize": 0,
        "env": os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
    }
    return subprocess.Popen([sys.executable, "-P", "-c", _CHILD], **options)


def _compile(child: subprocess.Popen[bytes], name: str) -> bool:
    """Compile a kernel in a process, and return whether it was compiled."""
    assert child.stdin is not None
    assert child.stdout is not None
    # An OSError means that the process has ended.
    with suppress(OSError):
        child.stdin.write(f"{name}\n".encode())
        return bool(child.stdout.readline())
    return False
