"""Real processes with a process group on loopback."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch.distributed.fsdp", "ata_gym.cluster.torchrun.torch_allocator"])


def on_ranks(size: int, work: Callable[..., Any], *arguments: Any, backend: str = "gloo") -> list[Any]:
    """What ``work(*arguments)`` gives on each rank of a group; an exception is raised again as a RuntimeError."""
    with tempfile.TemporaryDirectory() as folder:
        pipes = [_context.Pipe(duplex=False) for _ in range(size)]
        processes = [
            _context.Process(target=_rank, args=(rank, size, folder, sender, work, arguments, backend), daemon=True)
            for rank, (_, sender) in enumerate(pipes)
        ]
        for process in processes:
            process.start()
        for _, sender in pipes:
            sender.close()
        try:
            answers = [_answer(receiver) for receiver, _ in pipes]
        finally:
            for process in processes:
                process.join(5)
                process.kill()
                process.join()
                process.close()
            for receiver, _ in pipes:
                receiver.close()
    failed = [text for good, text in answers if not good]
    if failed:
        raise RuntimeError(failed[0])
    return [answer for _, answer in answers]


def _answer(receiver: Any) -> tuple[bool, Any]:
    try:
        if receiver.poll(PATIENCE):
            good, answer = receiver.recv()
            return good, answer
    except EOFError:
        return False, "a rank ended without an answer"
    return False, f"a rank gave no answer in {PATIENCE:g} s"


def _rank(
    rank: int, size: int, folder: str, sender: Any, work: Callable[..., Any], arguments: Any, backend: str
) -> None:
    import torch
    import torch.distributed as dist

    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    try:
        if backend == "nccl":
            torch.cuda.set_device(rank)
        dist.init_process_group(backend, init_method=f"file://{Path(folder)}/store", rank=rank, world_size=size)
        answer = True, work(*arguments)
    except BaseException:
        answer = False, traceback.format_exc()
    sender.send(answer)
    sender.close()
    if dist.is_initialized():
        dist.destroy_process_group()
