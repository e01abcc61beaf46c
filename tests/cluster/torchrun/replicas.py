"""Replicas of torchft on loopback that are killed, stopped and started again within steps.

Each replica writes what it computes in each round, before and after it is known whether the round
counts, so that it can be seen afterwards what a step used. As a script it plays one long training,
and prints what happened:

    python -m tests.cluster.torchrun.replicas --kills 20 --stop 20
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from ata_gym.utils.files.atomic import write_whole
from tests.cluster.torchrun.processes import CONTEXT
from tests.waiting import PATIENCE, until

BUDGET = 8
SAMPLES = 50
SAMPLES_OF_TASK = 4
ROUNDS_OF_STEP = 2
TIMES = {"replica_0": 0.001, "replica_1": 0.002, "replica_2": 0.004}
HEARTBEAT_SECONDS = 3.0
"""A replica without a heartbeat for so long is left out."""


def parts_of_training() -> tuple[Any, Any, Any]:
    """The data, the model in double precision, and its optimiser."""
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    numbers = torch.arange(SAMPLES)
    waves = torch.sin(numbers[:, None] * torch.tensor([1.0, 2.0, 3.0, 5.0], dtype=torch.float64))
    pairs = TensorDataset(numbers, waves)
    torch.manual_seed(0)
    # It is convex, so that rounding does not grow from step to step.
    model = nn.Sequential(nn.BatchNorm1d(4, affine=False), nn.Linear(4, 1)).double()
    return pairs, model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def loss_of(model: Any, x: Any) -> Any:
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


def same(tensor: Any, other: Any) -> bool:
    """Whether two gradients are the same, or neither of them is there."""
    import torch

    if tensor is None or other is None:
        return tensor is other
    return torch.equal(tensor, other)


def weights_of(model: Any) -> list[float]:
    return [number for weight in model.parameters() for number in weight.flatten().tolist()]


def manager_of(address: str, model: Any, optimizer: Any, name: str, **options: Any) -> Any:
    import torch.distributed as dist
    from torchft import Manager, ProcessGroupGloo

    def load(state: Any) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    timeout = timedelta(seconds=20)
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


def train(folder: Path, name: str, address: str) -> None:
    import torch
    from torch.utils.data import DataLoader

    from ata_gym.cluster import TaskSampler, TorchAllocator

    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "RUST_LOG": "error"}
    torch.set_num_threads(1)
    pairs, model, optimizer = parts_of_training()
    manager = manager_of(address, model, optimizer, name)
    allocator = TorchAllocator(
        BUDGET, "certainty-equivalence", manager=manager, check_every=1, patience=1.0
    )
    loader = DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs, samples=SAMPLES_OF_TASK))
    last = folder / "rounds"
    with (folder / f"{name}.jsonl").open("a") as file:

        def tell(**what: Any) -> None:
            file.write(json.dumps({"name": name, "pid": os.getpid(), **what}) + "\n")
            file.flush()

        tell(began=time.time())
        # The training ends once the file says how many rounds it has.
        while not (last.exists() and allocator.rounds >= int(last.read_text())):
            samples: list[int] = []
            with allocator.round(model) as share:
                # The state may have come from another replica only now.
                statistics = [buffer.clone() for buffer in model.buffers()]
                older = [old.gradient for old in allocator._gradients._old_gradients]
                for numbers, x in share.take(loader):
                    samples += numbers.tolist()
                    time.sleep(TIMES[name])
                    share.backward(loss_of(model, x))
                share.reduce()
                attempt = {"round": allocator.rounds + 1, "quorum": manager._quorum_id}
                tell(computed=samples, rank=allocator._ranks.rank, **attempt)
            if not share.committed:
                assert all(map(torch.equal, statistics[:2], list(model.buffers())[:2]))
                assert all(map(same, older, (p.grad for p in model.parameters())))
                tell(dropped=True, **attempt)
                continue
            if allocator.rounds % ROUNDS_OF_STEP == 0:
                optimizer.step()
                optimizer.zero_grad()
            assert allocator.rounds == manager.current_step() == attempt["round"]
            tell(
                committed=True,
                tasks=allocator.last.tasks,
                weights=weights_of(model),
                statistics=[*model[0].running_mean.tolist(), *model[0].running_var.tolist()],
                loss=allocator.last.loss,
                **attempt,
            )
        tell(done=True, expected=allocator._allocator.expected_times())
    manager.shutdown(wait=False)
    # Threads of torchft may still wait for others.
    os._exit(0)


def alone(rounds: int) -> list[dict[str, Any]]:
    """The samples, weights and loss of each round of one process that computes all tasks."""
    from types import SimpleNamespace

    import torch

    from ata_gym.cluster import TaskSampler

    torch.set_num_threads(1)
    pairs, model, optimizer = parts_of_training()
    lines = []
    for number in range(rounds):
        share = SimpleNamespace(tasks=BUDGET, first=0, done=0, orders=[])
        in_round = SimpleNamespace(budget=BUDGET, rounds=number, share=share)
        samples = []
        total = 0.0
        for batch in TaskSampler(in_round, pairs, samples=SAMPLES_OF_TASK):
            loss = loss_of(model, pairs[batch][1]) / BUDGET
            loss.backward()
            total += loss.item()
            samples += batch
        if (number + 1) % ROUNDS_OF_STEP == 0:
            optimizer.step()
            optimizer.zero_grad()
        lines.append({"samples": samples, "weights": weights_of(model), "loss": total})
    return lines


def serve_lighthouse(pipe: Any) -> None:
    os.environ["RUST_LOG"] = "error"
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(
        bind="127.0.0.1:0",
        min_replicas=1,
        join_timeout_ms=2000,
        quorum_tick_ms=20,
        heartbeat_timeout_ms=int(1000 * HEARTBEAT_SECONDS),
    )
    pipe.send(server.address())
    pipe.recv()


@contextmanager
def lighthouse() -> Iterator[str]:
    """The address of a lighthouse on loopback."""
    pipe, other_pipe = CONTEXT.Pipe()
    process = CONTEXT.Process(target=serve_lighthouse, args=(other_pipe,), daemon=True)
    process.start()
    other_pipe.close()
    assert pipe.poll(PATIENCE)
    address = pipe.recv()
    try:
        yield address.replace(address.split("/")[2].rpartition(":")[0], "127.0.0.1")
    finally:
        process.kill()
        process.join()


class Replicas:
    """Replicas by name, each in a process of its own."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.address = address
        self.running: dict[str, Any] = {}

    def start(self, name: str) -> None:
        arguments = (self.folder, name, self.address)
        process = CONTEXT.Process(target=train, args=arguments, daemon=True)
        process.start()
        self.running[name] = process

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.join()

    def lines(self) -> list[dict[str, Any]]:
        """What the replicas wrote so far, in whole lines."""
        return [
            json.loads(line)
            for path in sorted(self.folder.glob("replica_*.jsonl"))
            for line in path.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]

    def committed(self, name: str | None = None) -> int:
        """The last round that a replica, or any, committed."""
        numbers = [
            line["round"]
            for line in self.lines()
            if "committed" in line and name in (None, line["name"])
        ]
        return max(numbers, default=0)

    def takes_part(self, name: str) -> bool:
        """Whether the process of a replica that runs now has committed a round."""
        pid = self.running[name].pid
        return any("committed" in line and line["pid"] == pid for line in self.lines())

    def end(self, rounds: int) -> None:
        """Let the replicas end after so many rounds more, and wait until they have."""
        write_whole(
            self.folder / "rounds", lambda path: path.write_text(str(self.committed() + rounds))
        )
        try:
            for name, process in self.running.items():
                process.join(PATIENCE)
                assert process.exitcode == 0, f"{name} ended with {process.exitcode}"
        finally:
            for process in self.running.values():
                process.kill()
                process.join()


def check(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Fail unless each step that counts has the B tasks of its round, and one process's weights.

    Returns:
        What happened, in numbers.
    """
    rounds = max(line["round"] for line in lines if "committed" in line)
    expected = alone(rounds)
    farthest = 0.0
    for number in range(1, rounds + 1):
        right = expected[number - 1]
        of_round = [line for line in lines if line.get("round") == number]
        committed = [line for line in of_round if "committed" in line]
        assert committed, f"no replica committed round {number}"
        for line in committed:
            assert sum(line["tasks"].values()) == BUDGET
            computed = [
                other
                for other in of_round
                if "computed" in other and other["quorum"] == line["quorum"]
            ]
            ranks = list(line["tasks"])
            samples: list[int] = []
            for rank, name in enumerate(ranks):
                wanted = line["tasks"][name] * SAMPLES_OF_TASK
                part = [other for other in computed if other["name"] == name]
                # A replica may be killed after its part was sent, and before it wrote so.
                if part:
                    (one,) = part
                    assert one["rank"] == rank
                    assert len(one["computed"]) == wanted
                    samples += one["computed"]
                else:
                    samples += right["samples"][len(samples) : len(samples) + wanted]
            assert samples == right["samples"], (number, line["quorum"])
            apart = np.abs(np.subtract(line["weights"], right["weights"])).max()
            farthest = max(farthest, float(apart))
            assert apart <= 1e-12, f"round {number}: weights are {apart} apart"
            np.testing.assert_allclose(line["loss"], right["loss"], rtol=0, atol=1e-12)
            np.testing.assert_allclose(line["statistics"], committed[0]["statistics"], atol=1e-9)
    for line in lines:
        for worker, mean in line.get("expected", {}).items():
            assert 0.0 < mean < 1.0, f"{worker} is believed to need {mean} s for a task"
    quorums = {line["quorum"] for line in lines if "committed" in line}
    attempts = {(line["round"], line["quorum"]) for line in lines if "dropped" in line}
    return {
        "rounds": rounds,
        "quorums": len(quorums),
        "rounds begun again": len(attempts),
        "starts": Counter(line["name"] for line in lines if "began" in line),
        "greatest difference of a weight": farthest,
    }


def attempt(
    rng: np.random.Generator,
    folder: Path,
    *,
    kills: int = 3,
    rounds: int = 20,
    stop: float = 0.0,
    talk: bool = False,
) -> dict[str, Any]:
    """Train while replicas are killed at random moments and come back.

    Args:
        rng: The moments.
        folder: Where the replicas write.
        kills: How many are killed.
        rounds: The steps of the training after that.
        stop: The seconds for which a replica is stopped, once.
        talk: Whether to print what happens.
    """

    def say(text: str) -> None:
        if talk:
            print(f"{time.monotonic() - start:7.2f} s, round {replicas.committed()}: {text}")
            sys.stdout.flush()

    start = time.monotonic()
    with lighthouse() as address:
        replicas = Replicas(folder, address)
        names = list(TIMES)
        for name in names:
            replicas.start(name)
        try:
            for number in range(kills):
                until(
                    lambda: all(map(replicas.takes_part, names)),
                    about=f"all take part before kill {number + 1}",
                )
                time.sleep(rng.uniform(0.0, 0.3))
                victim = str(rng.choice(names))
                replicas.kill(victim)
                say(f"{victim} is killed ({number + 1} of {kills})")
                before = replicas.committed()
                if rng.random() < 0.7:
                    until(lambda before=before: replicas.committed() > before + 1, about="a step")
                replicas.start(victim)
                say(f"{victim} is started again")
            if stop:
                until(lambda: all(map(replicas.takes_part, names)), about="all before the stop")
                victim = str(rng.choice(names))
                os.kill(replicas.running[victim].pid, signal.SIGSTOP)
                say(f"{victim} is stopped for {stop:g} s")
                time.sleep(stop)
                os.kill(replicas.running[victim].pid, signal.SIGCONT)
                say(f"{victim} goes on")
            until(lambda: all(map(replicas.takes_part, names)), about="all before the end")
        finally:
            replicas.end(rounds)
        say("all replicas are done")
    return check(replicas.lines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--stop", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        told = attempt(
            np.random.default_rng(options.seed),
            Path(folder),
            kills=options.kills,
            rounds=options.rounds,
            stop=options.stop,
            talk=True,
        )
    for name, value in told.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
