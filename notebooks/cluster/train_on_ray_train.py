"""Train with Ray Train on unequal workers: `python train_on_ray_train.py --workers 4`.

It needs the extras cluster and integrations. With --address it runs on the cluster of this node.
The same --out again goes on from the last checkpoint, maybe with another number of workers.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import ray.train
import torch
from ray.train.torch import TorchConfig, TorchTrainer, get_device, prepare_model
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from ata_gym.cluster import TaskSampler, TorchAllocator, connect_ray
from ata_gym.training import make_problem

STATE = "state.pt"


def train(options: dict[str, Any]) -> None:
    """The loop of each worker of Ray Train, as under torchrun."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    device = get_device()
    digits = make_problem("digits")  # your model and your dataset here
    data = TensorDataset(*digits.training_samples(range(digits.size)))
    model = prepare_model(digits.build())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    allocator = TorchAllocator(options["budget"])  # these lines are new
    # without prepare_data_loader, which would replace the sampler
    loader = DataLoader(data, batch_sampler=TaskSampler(allocator, data))
    parts = {"model": model, "optimizer": optimizer, "allocator": allocator}
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder, STATE), map_location=device, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])

    rank = ray.train.get_context().get_world_rank()
    pause = options["pauses"][rank]
    while allocator.rounds < options["steps"]:
        with allocator.round(model) as share:
            for x, y in share.take(loader):
                began = perf_counter()
                share.backward(cross_entropy(model(x.to(device)), y.to(device)))
                sleep(max(0.0, began + pause - perf_counter()))
            share.reduce()
        optimizer.step()
        optimizer.zero_grad()
        last = allocator.last
        metrics = {"round": last.round, "loss": last.loss, "tasks": last.tasks, "line": str(last)}
        if allocator.rounds % options["save_every"] and allocator.rounds < options["steps"]:
            continue
        # All workers report, outside of rounds: it is a barrier. The checkpoint is of one of them.
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if rank == 0:
                states = {name: part.state_dict() for name, part in parts.items()}
                torch.save(states, Path(folder, STATE))
                saved = ray.train.Checkpoint.from_directory(folder)
            ray.train.report(metrics, checkpoint=saved)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--address",
        help="of a Ray cluster; without it, one is started here, on loopback only",
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpu", action="store_true", help="a GPU for each worker")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--budget", type=int, default=64, help="tasks of a step, over all workers")
    parser.add_argument("--save-every", type=int, default=50, help="steps")
    parser.add_argument("--failures", type=int, default=3, help="restarts after a worker died")
    parser.add_argument("--emulate", help="seconds of a task on each worker, such as 0.001,0.004")
    parser.add_argument("--out", type=Path, default=Path("ray-train"))
    given = parser.parse_args()
    if given.emulate is None:
        pauses = [0.0] * given.workers
    else:
        pauses = [float(each) for each in given.emulate.split(",")]
    if len(pauses) != given.workers:
        parser.error(f"--emulate needs a time for each of {given.workers} workers")

    # a worker needs a processor, and waits for it; a cluster that is started here has enough
    connect_ray(given.address, num_cpus=given.workers)
    trainer = TorchTrainer(
        train,
        train_loop_config={
            "steps": given.steps,
            "budget": given.budget,
            "save_every": given.save_every,
            "pauses": pauses,
        },
        torch_config=TorchConfig(backend="nccl" if given.gpu else "gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=given.workers, use_gpu=given.gpu),
        run_config=ray.train.RunConfig(
            name=given.out.name,
            storage_path=str(given.out.absolute().parent),
            failure_config=ray.train.FailureConfig(max_failures=given.failures),
        ),
    )
    result = trainer.fit()
    print(result.metrics["line"])
