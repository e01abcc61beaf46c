"""Replicas of torchft on loopback that are killed, stopped and started again within steps."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from tests.cluster.disturbances import Kind, disturb, drawn_kinds
from tests.cluster.torchrun.journal import BUDGET, SECONDS, Journal, check, parts_of_training, train
from tests.cluster.torchrun.processes import CONTEXT
from tests.waiting import PATIENCE, until

NAMES = ("replica_0", "replica_1", "replica_2")
ROUNDS_OF_STEP = 2
HEARTBEAT_SECONDS = 3.0
"""A replica without a heartbeat for so long is left out."""
TIMEOUT_SECONDS = 20.0
"""The timeout of the Manager, and of its process group."""


def manager_of(address: str, model: Any, optimizer: Any, name: str, **options: Any) -> Any:
    import torch.distributed as dist
    from torchft import Manager, ProcessGroupGloo

    def load(state: Any) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    timeout = timedelta(seconds=TIMEOUT_SECONDS)
    manager = Manager(
        pg=ProcessGroupGloo(timeout),
        **{
            "load_state_dict": load,
            "state_dict": lambda: {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
            },
            "min_replica_size": 1,
            "use_async_quorum": False,
            "replica_id": name,
            "lighthouse_addr": address,
            "store_addr": "127.0.0.1",
            "store_port": store.port,
            "rank": 0,
            "world_size": 1,
            "hostname": "127.0.0.1",
            "timeout": timeout,
            **options,
        },
    )
    # The store ends with its last reference.
    manager.own_store = store
    return manager


def train_replica(folder: Path, name: str, address: str) -> None:
    journal = Journal(folder)
    tell = journal.writer(name)
    tell(starts=True)

    import torch

    from ata_gym.cluster import TorchAllocator

    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "RUST_LOG": "error"}
    torch.set_num_threads(1)
    training = parts_of_training()
    _, model, optimizer = training
    manager = manager_of(address, model, optimizer, name)
    allocator = TorchAllocator(
        BUDGET, "certainty-equivalence", manager=manager, check_every=1, patience=1.0
    )

    def check_step() -> None:
        assert allocator.rounds == manager.current_step()

    seconds = SECONDS[NAMES.index(name)]
    train(
        journal,
        tell,
        allocator,
        training,
        seconds,
        lambda: manager._quorum_id,
        check_step,
        ROUNDS_OF_STEP,
    )
    manager.shutdown(wait=False)
    # Threads of torchft may still wait for others.
    os._exit(0)


def make_lighthouse() -> Any:
    from torchft.coordination import LighthouseServer

    return LighthouseServer(
        bind="127.0.0.1:0",
        min_replicas=1,
        join_timeout_ms=2000,
        quorum_tick_ms=20,
        heartbeat_timeout_ms=int(1000 * HEARTBEAT_SECONDS),
    )


def address_of(lighthouse: Any) -> str:
    """The address of a lighthouse of this machine, on loopback."""
    address: str = lighthouse.address()
    return address.replace(address.split("/")[2].rpartition(":")[0], "127.0.0.1")


def serve_lighthouse(pipe: Any) -> None:
    os.environ["RUST_LOG"] = "error"
    server = make_lighthouse()
    pipe.send(address_of(server))
    pipe.recv()


@contextmanager
def lighthouse() -> Iterator[str]:
    """The address of a lighthouse on loopback, in a process of its own."""
    pipe, other_pipe = CONTEXT.Pipe()
    process = CONTEXT.Process(target=serve_lighthouse, args=(other_pipe,), daemon=True)
    process.start()
    other_pipe.close()
    assert pipe.poll(PATIENCE)
    try:
        yield pipe.recv()
    finally:
        process.kill()
        process.join()


def together(work: Callable[..., Any], *arguments: Any, names: Sequence[str]) -> list[Any]:
    """What ``work(name, *arguments)`` gives in a process for each name."""
    running = []
    for name in names:
        pipe, other_pipe = CONTEXT.Pipe()
        process = CONTEXT.Process(
            target=_send, args=(other_pipe, work, name, *arguments), daemon=True
        )
        process.start()
        other_pipe.close()
        running.append((process, pipe))
    try:
        answers = []
        for _, pipe in running:
            assert pipe.poll(PATIENCE)
            answers.append(pipe.recv())
        return answers
    finally:
        for process, _ in running:
            process.kill()
            process.join()


def _send(pipe: Any, work: Callable[..., Any], name: str, *arguments: Any) -> None:
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "RUST_LOG": "error"}
    import torch

    torch.set_num_threads(1)
    pipe.send(work(name, *arguments))
    # The threads of torchft would go on.
    os._exit(0)


class _Replicas:
    """Replicas by name, each in a process of its own."""

    names = NAMES

    def __init__(self, rng: np.random.Generator, folder: Path, address: str) -> None:
        self._rng = rng
        self._folder = folder
        self._address = address
        self._journal = Journal(folder)
        self._processes: dict[str, Any] = {}
        for name in NAMES:
            self._start(name)

    def _start(self, name: str) -> None:
        arguments = (self._folder, name, self._address)
        process = CONTEXT.Process(target=train_replica, args=arguments, daemon=True)
        process.start()
        self._processes[name] = process

    def wait_for_all(self) -> None:
        def all_take_part() -> bool:
            committed = {line["pid"] for line in self._journal.lines() if "committed" in line}
            for name, process in self._processes.items():
                assert process.is_alive(), f"{name} ended with {process.exitcode}"
            return committed >= {process.pid for process in self._processes.values()}

        until(all_take_part, about="all replicas take part")

    def pid(self, name: str) -> int:
        pid: int = self._processes[name].pid
        return pid

    def replaced(self, name: str) -> int:
        self._processes[name].join(PATIENCE)
        assert not self._processes[name].is_alive(), f"{name} goes on"
        before = self._journal.committed()
        # It comes back at once, or when the others have gone on without it.
        if self._rng.random() < 0.7:
            until(lambda: self._journal.committed() > before + 1, about="a step of the others")
        self._start(name)
        return self.pid(name)

    def end(self, rounds: int) -> None:
        """Let the replicas end after so many rounds more, and wait until they have."""
        self._journal.let_end(rounds)
        try:
            for name, process in self._processes.items():
                process.join(PATIENCE)
                assert process.exitcode == 0, f"{name} ended with {process.exitcode}"
        finally:
            for process in self._processes.values():
                process.kill()
                process.join()


def attempt(
    rng: np.random.Generator,
    folder: Path,
    kinds: Sequence[Kind] = (),
    *,
    rounds: int = 20,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Train while replicas are disturbed, by default three times, and so many rounds more."""
    kinds = kinds or drawn_kinds(rng, 3)
    with lighthouse() as address:
        replicas = _Replicas(rng, folder, address)
        try:
            disturb(rng, replicas, kinds, say)
        finally:
            replicas.end(rounds)
    return check(Journal(folder).lines(), kinds, ROUNDS_OF_STEP)
