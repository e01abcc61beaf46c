"""Train a network on unequal workers: `torchrun --nproc-per-node 4 train.py`, on one machine or on
many.

Every rank runs this file. TorchAllocator says how many tasks of each step are its own, and learns
from their times. The checkpoint holds the model, the optimiser and what is known of the workers; a
restart goes on from it, maybe with other workers.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from time import perf_counter, sleep

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

from ata_gym.cluster import TaskSampler, TorchAllocator
from ata_gym.training import make_problem

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--budget", type=int, default=64, help="tasks of a step, over all workers")
parser.add_argument("--samples", type=int, default=1, help="samples of a task")
parser.add_argument("--tasks-per-pass", type=int, default=1, help="tasks computed in one pass")
parser.add_argument("--policy", default="default")
parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
parser.add_argument("--save-every", type=int, default=100, help="steps")
parser.add_argument("--tensorboard", type=Path, help="folder for TensorBoard")
parser.add_argument(
    "--emulate",
    help="seconds of a task on each worker, such as 0.01,0.01,0.02,0.04, to try it out",
)
arguments = parser.parse_args()

device = torch.device("cpu")
if torch.cuda.is_available():  # each rank has one of its own; CUDA_VISIBLE_DEVICES="" hides them
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
torch.manual_seed(0)

digits = make_problem("digits")  # your model and your dataset here
data = TensorDataset(*digits.training_samples(range(digits.size)))
model = digits.build().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

allocator = TorchAllocator(arguments.budget, arguments.policy)
sampler = TaskSampler(
    allocator, data, samples=arguments.samples, tasks_per_pass=arguments.tasks_per_pass
)
loader = DataLoader(data, batch_sampler=sampler)
if arguments.checkpoint.exists():
    state = torch.load(arguments.checkpoint, map_location=device, weights_only=True)
    for part, name in ((model, "model"), (optimizer, "optimizer"), (allocator, "allocator")):
        part.load_state_dict(state[name])


def save() -> None:
    """Write the checkpoint, whole or not at all."""
    parts = {"model": model, "optimizer": optimizer, "allocator": allocator}
    part = arguments.checkpoint.with_suffix(".part")
    torch.save({name: each.state_dict() for name, each in parts.items()}, part)
    part.replace(arguments.checkpoint)


stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
if arguments.tensorboard and rank == 0:
    writer = SummaryWriter(arguments.tensorboard)
else:
    writer = None
if arguments.emulate is None:
    pause = 0.0
else:
    pause = float(arguments.emulate.split(",")[rank])
while allocator.rounds < arguments.steps:
    with allocator.round(model) as share:
        for x, y in share.take(loader):
            began = perf_counter()
            share.backward(cross_entropy(model(x.to(device)), y.to(device)))
            sleep(max(0.0, began + pause * len(y) / arguments.samples - perf_counter()))
        share.reduce()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        if writer is not None:
            allocator.last.write(writer)
        if allocator.rounds % 20 == 1:
            print(allocator.last, flush=True)
        if (
            stopped
            or allocator.rounds % arguments.save_every == 0
            or allocator.rounds == arguments.steps
        ):
            save()
    if stopped:
        sys.exit(143)
if writer is not None:
    writer.close()
dist.destroy_process_group()
