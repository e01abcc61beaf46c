#!/usr/bin/env bash
# fedlab 1.3.0, torch 2.13.0 on a CPU, with nvidia-ml-py 13.615.71 and tqdm 4.70.1
#
# FedDyn in FedLab regularises nothing. Its clients add the two terms of the paper to the loss, but compute them from a copy of
# the weights that has no gradient, so that they train as in FedAvg. Its server takes its own weights once from the sum of those
# of the clients, where once for each client is meant, and divides by alpha what it has multiplied by alpha. So alpha changes
# nothing, and the server goes beyond its clients even where they agree. Here two clients have the losses 2 (w - 1)^2 and
# w^2 / 2, whose sum has its minimum at 0.8: FedAvg ends at 0.60, FedDyn at 1.54 with each alpha, and by the paper's Algorithm 1
# in plain Python at 0.80.
# FedNova, by default, multiplies its mean over the clients of a round once more by the number of all clients over that of the
# round. With a sample_ratio of 0.1 each round goes ten times too far: ten equal clients diverge, where FedNova should be FedAvg.
# It concerns comparisons of strategies under FedLab, in which FedDyn and FedNova look worse than FedAvg. For FedNova call
# setup_optim("weighted_com"); FedDyn has to be written anew, as in the two functions by definition below; SCAFFOLD is right.
. "$(dirname "$0")/fresh.bash"
install torch==2.13.0 numpy==2.4.6 nvidia-ml-py==13.615.71 tqdm==4.70.1
install_alone fedlab==1.3.0

expect "losses 2 (w - 1)^2 and w^2 / 2, 200 rounds of two clients, the minimum is at 0.80
FedAvg 0.60, SCAFFOLD 0.80
FedDyn, alpha 0.1: 1.54, by definition 0.80
FedDyn, alpha 1.0: 1.54, by definition 0.80
FedDyn, alpha 10.0: 1.54, by definition 0.80
a client in its first round: FedAvg 0.99
a client in its first round: FedDyn, alpha 0.1: 0.99, by definition 0.97
a client in its first round: FedDyn, alpha 1.0: 0.99, by definition 0.80
a client in its first round: FedDyn, alpha 10.0: 0.99, by definition 0.29
ten clients with the loss (w - 1)^2, five rounds
sample_ratio 1.0: FedAvg 1, FedNova 1, with weighted_com 1
sample_ratio 0.5: FedAvg 1, FedNova 1.3, with weighted_com 1
sample_ratio 0.1: FedAvg 1, FedNova 3.13e+04, with weighted_com 1" <<'PY'
import random
import sys
from unittest.mock import MagicMock

import torch

# data sets, which need torchvision, and of which nothing is used here
sys.modules["fedlab.contrib.dataset"] = sys.modules["fedlab.contrib.dataset.basic_dataset"] = MagicMock()
from fedlab.contrib import algorithm

RATE, STEPS = 0.1, 10
ROOT = 2**0.5


class Loaders:
    """A batch of one row (x, y) for each client, whose loss is (x w - y)^2."""

    def __init__(self, rows):
        self.batches = [[(torch.tensor([[x]]), torch.tensor([[y]]))] for x, y in rows]

    def get_dataloader(self, client, batch_size):
        return self.batches[client]


def play(name, rows, rounds, server=(), client=(), sample_ratio=1.0):
    """The weight of the server after the rounds; it begins at 0."""
    random.seed(0)
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    handler = getattr(algorithm, f"{name}ServerHandler")(model, rounds, sample_ratio)
    handler.num_clients = len(rows)
    if name != "FedAvg":
        handler.setup_optim(*server)
    trainer = getattr(algorithm, f"{name}SerialClientTrainer")(torch.nn.Linear(1, 1, bias=False), len(rows))
    trainer.setup_dataset(Loaders(rows))
    trainer.setup_optim(STEPS, 1, RATE, *client)
    trainer.criterion = torch.nn.MSELoss()
    while not handler.if_stop:
        trainer.local_process(handler.downlink_package, handler.sample_clients())
        for package in trainer.uplink_package:
            handler.load(package)
    return handler.model_parameters.item()


def train_once(name, *settings):
    """The weight that a client with the loss 2 (w - 1)^2 sends after its first round."""
    trainer = getattr(algorithm, f"{name}SerialClientTrainer")(torch.nn.Linear(1, 1, bias=False), 1)
    trainer.setup_dataset(Loaders([(ROOT, ROOT)]))
    trainer.setup_optim(STEPS, 1, RATE, *settings)
    trainer.criterion = torch.nn.MSELoss()
    trainer.local_process([torch.zeros(1)], [0])
    return trainer.uplink_package[0][0].item()


def train_by_definition(row, weight, gradient, alpha):
    (x, y), end = row, weight
    for _ in range(STEPS):
        end -= RATE * (2 * x * (x * end - y) - gradient + alpha * (end - weight))
    return end


def feddyn_by_definition(rows, rounds, alpha):
    """Algorithm 1 of Acar et al., 2021, with the same steps of each client."""
    weight, state, gradients = 0.0, 0.0, [0.0] * len(rows)
    for _ in range(rounds):
        ends = [train_by_definition(row, weight, gradient, alpha) for row, gradient in zip(rows, gradients)]
        gradients = [gradient - alpha * (end - weight) for gradient, end in zip(gradients, ends)]
        state -= alpha * sum(end - weight for end in ends) / len(rows)
        weight = sum(ends) / len(ends) - state / alpha
    return weight


TWO, TEN = [(ROOT, ROOT), (1 / ROOT, 0.0)], [(1.0, 1.0)] * 10
print("losses 2 (w - 1)^2 and w^2 / 2, 200 rounds of two clients, the minimum is at 0.80")
print(f"FedAvg {play('FedAvg', TWO, 200):.2f}, SCAFFOLD {play('Scaffold', TWO, 200, server=(1.0,)):.2f}")
for alpha in (0.1, 1.0, 10.0):
    found = play("FedDyn", TWO, 200, server=(alpha,), client=(alpha,))
    print(f"FedDyn, alpha {alpha}: {found:.2f}, by definition {feddyn_by_definition(TWO, 200, alpha):.2f}")
print(f"a client in its first round: FedAvg {train_once('FedAvg'):.2f}")
for alpha in (0.1, 1.0, 10.0):
    right = train_by_definition(TWO[0], 0.0, 0.0, alpha)
    print(f"a client in its first round: FedDyn, alpha {alpha}: {train_once('FedDyn', alpha):.2f}, by definition {right:.2f}")
print("ten clients with the loss (w - 1)^2, five rounds")
for sample_ratio in (1.0, 0.5, 0.1):
    fedavg = play("FedAvg", TEN, 5, sample_ratio=sample_ratio)
    fednova = play("FedNova", TEN, 5, sample_ratio=sample_ratio)
    right = play("FedNova", TEN, 5, server=("weighted_com",), sample_ratio=sample_ratio)
    print(f"sample_ratio {sample_ratio}: FedAvg {fedavg:.3g}, FedNova {fednova:.3g}, with weighted_com {right:.3g}")
PY
