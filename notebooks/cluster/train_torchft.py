"""Train a network on replicas that may die and come back, each step with the same global batch.

On one machine: `torchft_lighthouse --min_replicas 1 --bind 127.0.0.1:29510`, and for each replica,
again after it has died, `python train_torchft.py --name replica_0 --lighthouse
http://127.0.0.1:29510`, with a name of its own.
"""

from __future__ import annotations

import argparse
import os
from datetime import timedelta
from time import sleep

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from torchft import Manager, ProcessGroupGloo

from ata_gym.cluster import TaskSampler, TorchAllocator
from ata_gym.training import make_problem

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--name", required=True, help="of this replica, the same after a restart")
parser.add_argument("--lighthouse", required=True, help="address of the lighthouse")
parser.add_argument("--host", default="127.0.0.1", help="of this replica, for the others")
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--budget", type=int, default=64, help="tasks of a step, over all replicas")
parser.add_argument("--pause", type=float, default=0.0, help="seconds more for each task")
arguments = parser.parse_args()

if arguments.host == "127.0.0.1":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
torch.set_num_threads(1)
torch.manual_seed(0)
digits = make_problem("digits")  # your model and your dataset here
data = TensorDataset(*digits.training_samples(range(digits.size)))
model = digits.build()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)


def load(state: dict) -> None:
    """Go on from the state of a replica that is ahead."""
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


store = dist.TCPStore(arguments.host, 0, is_master=True, wait_for_workers=False)
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=10)),
    load_state_dict=load,
    state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
    min_replica_size=1,
    use_async_quorum=False,  # who is there is known before a step begins
    timeout=timedelta(seconds=10),
    replica_id=arguments.name,
    lighthouse_addr=arguments.lighthouse,
    store_addr=arguments.host,
    store_port=store.port,
    rank=0,
    world_size=1,
    hostname=arguments.host,
)
allocator = TorchAllocator(arguments.budget, manager=manager)  # its state travels with the model
loader = DataLoader(data, batch_sampler=TaskSampler(allocator, data))
while allocator.rounds < arguments.steps:
    with allocator.round(model) as share:
        for x, y in share.take(loader):
            share.backward(cross_entropy(model(x), y))
            sleep(arguments.pause)
        share.reduce()
    if share.committed:  # if not, a replica was lost, and the next round has the same tasks
        optimizer.step()
        if allocator.rounds % 20 == 0:
            print(allocator.last, flush=True)
    optimizer.zero_grad()
manager.shutdown(wait=False)
