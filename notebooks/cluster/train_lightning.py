"""Train with Lightning on unequal workers: `torchrun --nproc-per-node 4 train_lightning.py`."""

from __future__ import annotations

import argparse
import os

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from ata_gym.cluster import TaskSampler, TaskStrategy, TorchAllocator
from ata_gym.training import make_problem

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--cpu", action="store_true", help="train on the CPU")
parser.add_argument("--out", default="lightning")
arguments = parser.parse_args()

torch.manual_seed(0)
digits = make_problem("digits")
data = TensorDataset(*digits.training_samples(range(digits.size)))


class Digits(pl.LightningModule):
    """Your module, as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.model = digits.build()

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _number: int) -> torch.Tensor:
        x, y = batch
        return cross_entropy(self.model(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


if not arguments.cpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("gloo" if arguments.cpu else "nccl")
allocator = TorchAllocator(budget=64)  # these lines are new
loader = DataLoader(data, batch_sampler=TaskSampler(allocator, data, tasks_per_pass=16))
trainer = pl.Trainer(
    strategy=TaskStrategy(allocator),
    accelerator="cpu" if arguments.cpu else "gpu",
    logger=False,
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=dist.get_world_size() // int(os.environ["LOCAL_WORLD_SIZE"]),
    max_steps=arguments.steps,
    gradient_clip_val=1.0,
    default_root_dir=arguments.out,
    enable_progress_bar=False,
)
trainer.fit(Digits(), loader)
if trainer.is_global_zero:
    print(allocator.last)
