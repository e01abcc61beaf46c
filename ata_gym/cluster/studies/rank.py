"""What each process of an emulated cluster does, started by torchrun with this module.

It trains a real model on real samples. A task that is computed before its emulated time has passed waits for the rest.
"""

import json
import os
import pickle
import sys
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import ata_gym.cluster.needs_torch  # noqa: F401 - before what needs torch

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from ata_gym.cluster.studies.emulation import Emulation, Training
from ata_gym.cluster.torchrun.task_sampler import TaskSampler
from ata_gym.cluster.torchrun.torch_allocator import TorchAllocator
from ata_gym.training.problem import make_problem
from ata_gym.training.problems.classification import Classification


def samples_of(training: Training) -> Classification:
    """The problem to train; ValueError as of ``make_problem``, or if it has no labelled samples."""
    name = training.problem
    made = make_problem(name, training.data)
    if not isinstance(made, Classification):
        raise ValueError(f"the problem must have labelled samples, as digits and cifar100 have, and {name} has none")  # noqa: TRY004
    return made


def play(out: Path, emulation: Emulation, policy: str, training: Training, waits: bool) -> None:
    """Train for all rounds; the first rank writes a line of JSON for each.

    ``waits`` says whether tasks take their emulated times; if not, only losses are asked for.
    """
    torch.set_num_threads(1)
    torch.manual_seed(training.seed)
    problem = samples_of(training)
    # Adam makes the rounding of float32 grow from step to step where gradients are small; in double precision what is
    # left of a difference between two splits of the tasks is a mistake.
    model = problem.build().double()
    model.register_forward_pre_hook(lambda _, inputs: (inputs[0].double(),))
    optimizer = torch.optim.Adam(model.parameters(), lr=problem.learning_rates["adam"])
    rank = dist.get_rank()
    allocator = TorchAllocator(emulation.budget, policy, name=f"worker {rank}", seed=training.seed)
    sampler = TaskSampler(allocator, problem.size, seed=training.seed)
    loader: DataLoader[Any] = DataLoader(range(problem.size), batch_sampler=sampler, collate_fn=problem.at)  # type: ignore[arg-type]
    with Path(out if rank == 0 else os.devnull).open("w", encoding="utf-8") as file:
        last = perf_counter()
        for number in range(1, emulation.rounds + 1):
            if emulation.absent(number + 1) == rank:  # a rank says so one round before
                allocator.leave()
            else:
                allocator.join()
            seconds = float(emulation.task_times(number)[rank]) if waits else 0.0
            stall = emulation.stalls(number, rank) if waits else 0.0
            with allocator.round(model) as share:
                for batch in share.take(loader):
                    began = perf_counter()
                    share.backward(problem.loss(model, batch).mean())
                    sleep(max(0.0, began + seconds + stall - perf_counter()))
                    stall = 0.0
                share.reduce()
            optimizer.step()
            optimizer.zero_grad()
            now = perf_counter()
            record = allocator.last
            assert record is not None
            shares = {"tasks": list(record.tasks.values()), "busy": list(record.busy.values())}
            line = {"round": number, "seconds": now - last, "communication": record.communication, **shares}
            file.write(json.dumps(line | {"loss": record.loss}) + "\n")
            file.flush()
            last = now


if __name__ == "__main__":
    dist.init_process_group("gloo")
    try:
        for work in pickle.loads(Path(sys.argv[1]).read_bytes()):
            play(*work)
    finally:
        dist.destroy_process_group()
