"""Real processes with a process group on loopback, which are kept for all tests of a run."""

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tests.waiting import PATIENCE

CONTEXT = multiprocessing.get_context("forkserver")
# A rank whose loader has worker processes starts a fork server of its own.
if multiprocessing.parent_process() is None:
    PRELOADED = [
        "torch._dynamo",
        "torch.distributed.fsdp",
        "torch.distributed.pipelining",
        "torch.distributed.tensor.parallel",
        "torch.utils.tensorboard",
        "sklearn.datasets",
        "transformers.trainer",
        "lightning.pytorch",
        "ata_gym.cluster.torchrun.torch_allocator",
    ]
else:
    PRELOADED = ["ata_gym.cluster.torchrun.torch_allocator"]
CONTEXT.set_forkserver_preload(PRELOADED)
_ranks: list[tuple[Any, Any]] = []
"""The processes, each with the pipe to it."""


def on_ranks(
    size: int,
    work: Callable[..., Any],
    *arguments: Any,
    backend: str = "gloo",
) -> list[Any]:
    """What ``work(*arguments)`` gives on each rank of a group; an exception is raised again as a
    RuntimeError.
    """
    while len(_ranks) < size:
        parent_pipe, child_pipe = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_serve, args=(child_pipe,), daemon=True)
        process.start()
        child_pipe.close()
        _ranks.append((process, parent_pipe))
    with tempfile.TemporaryDirectory() as folder:
        for rank, (_, pipe) in enumerate(_ranks[:size]):
            pipe.send((rank, size, folder, backend, work, arguments))
        answers = [_answer(pipe) for _, pipe in _ranks[:size]]
    failed = [text for good, text in answers if not good]
    if failed:  # its process has ended, and the others may wait for it
        while _ranks:
            process, pipe = _ranks.pop()
            process.kill()
            process.join()
            pipe.close()
        raise RuntimeError(failed[0])
    return [answer for _, answer in answers]


@contextmanager
def as_torchrun(
    work: Callable[..., Any],
    *arguments: Any,
    size: int,
    restarts: int = 0,
) -> Iterator[Future[Any]]:
    """The end of ``work(*arguments)`` in processes that torchrun's own agent starts, in another
    thread.
    """
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        1,
        1,
        size,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        run_id="test",
        max_restarts=restarts,
        monitor_interval=0.1,
        start_method=CONTEXT.get_start_method(),
    )
    with (
        mock.patch.dict(os.environ, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"),
        ThreadPoolExecutor(1) as threads,
    ):
        yield threads.submit(elastic_launch(config, work), *arguments)


def _answer(pipe: Any) -> tuple[bool, Any]:
    try:
        if pipe.poll(PATIENCE):
            good, answer = pipe.recv()
            return good, answer
    except EOFError:
        return False, "a rank ended without an answer"
    return False, f"a rank gave no answer in {PATIENCE:g} s"


def _serve(pipe: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    while True:
        rank, size, folder, backend, work, arguments = pipe.recv()
        os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "LOCAL_RANK": str(rank)}
        # What this process has drawn for another test does not tell it from other ranks.
        torch.manual_seed(0)
        try:
            if "nccl" in backend:
                torch.cuda.set_device(rank % torch.cuda.device_count())
            dist.init_process_group(
                backend,
                init_method=f"file://{folder}/store",
                rank=rank,
                world_size=size,
            )
            pipe.send((True, work(*arguments)))
            dist.destroy_process_group()
        except BaseException:
            pipe.send((False, traceback.format_exc()))
            os._exit(1)  # so that no other rank waits for this one
