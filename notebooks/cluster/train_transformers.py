"""Train with the Trainer of transformers on unequal workers: `torchrun --nproc-per-node 4
train_transformers.py`.
"""

from __future__ import annotations

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

from ata_gym.cluster import TaskTrainer, TorchAllocator

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--cpu", action="store_true", help="train on the CPU")
parser.add_argument("--out", default="trained")
own = parser.parse_args()

torch.manual_seed(0)
# your model here
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=64, n_positions=32, n_embd=64, n_layer=2, n_head=4),
)
texts = (torch.arange(32) + torch.randint(64, (2000, 1))) % 64  # your data here
data = [{"input_ids": text, "labels": text} for text in texts]
arguments = TrainingArguments(
    own.out,
    max_steps=own.steps,
    per_device_train_batch_size=2,
    learning_rate=1e-3,
    logging_steps=20,
    use_cpu=own.cpu,
    save_steps=50,
    max_grad_norm=1.0,
    report_to=[],
    disable_tqdm=True,
    ddp_backend="gloo" if own.cpu else None,
)


def tokens(batch: dict[str, torch.Tensor]) -> int:
    """The loss of a language model is the mean over the tokens that it predicts, over all ranks."""
    return int(batch["labels"][:, 1:].ne(-100).sum())


allocator = TorchAllocator(budget=32)  # these two lines are new; a task has two texts
trainer = TaskTrainer(
    model,
    arguments,
    train_dataset=data,
    allocator=allocator,
    tasks_per_pass=4,
    weight_of=tokens,
)
trainer.train()
if trainer.is_world_process_zero():
    print(allocator.last)
