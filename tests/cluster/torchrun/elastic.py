"""What each process of a training does that is killed and restarted.

Each rank writes what it computes, before and after each round, so that it can be seen afterwards what a round used.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from time import sleep
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ata_gym.cluster import TaskSampler, TorchAllocator
from ata_gym.utils.atomic import write_whole

BUDGET, SAMPLES = 6, 40
TIMES = (0.001, 0.002, 0.004)


def train(folder: Path, rounds: int) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    torch.manual_seed(0)
    numbers = torch.arange(SAMPLES)
    pairs = TensorDataset(numbers, torch.sin(numbers[:, None] * torch.tensor([1.0, 2.0, 3.0])))
    model, checkpoint = nn.Linear(3, 1), folder / "checkpoint.pt"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    allocator = TorchAllocator(BUDGET, "certainty-equivalence", name=f"worker {rank}")
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        allocator.load_state_dict(state["allocator"])
    loader = DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs))

    def tell(file: Any, **what: Any) -> None:
        file.write(json.dumps({"attempt": attempt, "rank": rank, "pid": os.getpid(), **what}) + "\n")
        file.flush()

    with (folder / f"told-{attempt}-{rank}.jsonl").open("a") as file:
        tell(file, began=allocator.rounds)
        while allocator.rounds < rounds:
            weights = zlib.crc32(model.weight.detach().numpy().tobytes())
            samples = []
            with allocator.round() as share:
                for number, x in share.take(loader):
                    samples.append(int(number))
                    sleep(TIMES[rank % 3])
                    share.backward((model(x) - x.sum()).square().mean())
                share.reduce(model)
            optimizer.step()
            optimizer.zero_grad()
            tell(file, round=allocator.rounds, samples=samples, weights=weights, loss=allocator.last.loss)
            if rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                state["allocator"] = allocator.state_dict()
                write_whole(checkpoint, lambda path, state=state: torch.save(state, path))
        tell(file, done=True, expected=allocator._allocator.expected_times())
