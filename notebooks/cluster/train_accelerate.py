"""Train with accelerate on unequal workers: `torchrun --nproc-per-node 4 train_accelerate.py`."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from ata_gym.cluster import TaskSampler, TorchAllocator
from ata_gym.training import make_problem

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--cpu", action="store_true", help="train on the CPU")
parser.add_argument("--checkpoint", type=Path, default=Path("accelerated"))
arguments = parser.parse_args()

accelerator = Accelerator(cpu=arguments.cpu)  # with mixed_precision="fp16" it has a GradScaler
torch.manual_seed(0)
digits = make_problem("digits")  # your model and your dataset here
data = TensorDataset(*digits.training_samples(range(digits.size)))
model = digits.build()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.steps)
model, optimizer = accelerator.prepare(model, optimizer)

allocator = TorchAllocator(budget=64)  # these lines are new
loader = DataLoader(data, batch_sampler=TaskSampler(allocator, data, tasks_per_pass=16))
accelerator.register_for_checkpointing(allocator, scheduler)
if arguments.checkpoint.exists():
    accelerator.load_state(arguments.checkpoint)
while allocator.rounds < arguments.steps:
    with allocator.round(model) as share:
        for x, y in share.take(loader):
            loss = cross_entropy(model(x.to(accelerator.device)), y.to(accelerator.device))
            share.backward(loss, scaler=accelerator.scaler)
        share.reduce()
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if allocator.rounds % 50 == 0:
        accelerator.print(allocator.last)
accelerator.save_state(arguments.checkpoint)
accelerator.end_training()
