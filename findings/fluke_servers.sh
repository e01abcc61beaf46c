#!/usr/bin/env bash
# fluke-fl 0.8.1, torch 2.13.0 on a CPU, with omegaconf 2.4.0, pyyaml 6.0.4, diskcache 5.6.3 and cerberus 1.3.8
#
# Three strategies of fluke are others than those that they are named after. FedDyn sums up alpha times the weights of the server
# less those of the client, where the authors' code sums up those of the client less those of the server. So the penalty, and the
# server, go the other way, and the drift of clients grows in place of being cancelled. Here two clients have the losses
# 2 (w - 1)^2 and w^2 / 2, whose sum has its minimum at 0.8: with alpha 0.1 the weight is beyond -1000000 after 200 rounds.
# FedAVGM puts back the old weights after its first round, all training of which is lost. FedOpt takes its learning rate twice,
# for the aggregated weights and for the step: with Adam's division this is as if tau were tau / lr, a thousand times as large by
# default, so that where changes are small it is no longer adaptive: here it is three times too slow.
# It concerns comparisons of strategies with fluke, in which FedDyn diverges or does harm and FedOpt looks slow. The other sign is
# four lines in a subclass, as below; for FedOpt give tau times lr; count FedAVGM from its second round. SCAFFOLD is right.
. "$(dirname "$0")/fresh.bash"
install torch==2.13.0 numpy==2.4.6 pyyaml==6.0.4 diskcache==5.6.3 cerberus==1.3.8
install_alone fluke-fl==0.8.1 omegaconf==2.4.0

expect "losses 2 (w - 1)^2 and w^2 / 2 of two clients, the minimum is at 0.80
round 1: FedAvg 0.50, FedAVGM with momentum 0 0.00
round 2: FedAvg 0.59, FedAVGM with momentum 0 0.50
round 3: FedAvg 0.60, FedAVGM with momentum 0 0.59
round 200: FedAvg 0.60, FedAVGM with momentum 0 0.60
round 200: SCAFFOLD 0.80
round 200: FedDyn, alpha 0.01: 0.59, with the other sign 0.73
round 200: FedDyn, alpha 0.1: -1.3e+06, with the other sign 0.8
round 200: FedDyn, alpha 1.0: nan, with the other sign 0.8
round 20: FedOpt, lr 0.001: 0.039, by definition 0.118, with tau times lr 0.118
round 20: FedOpt, lr 0.01: 0.719, by definition 0.786, with tau times lr 0.786" <<'PY'
import sys
from unittest.mock import MagicMock

import torch._dynamo
from torch.nn.utils import parameters_to_vector

# plots, tables, metrics and data sets, of which nothing is used here
for package, parts in (
    ("matplotlib", ("pyplot",)),
    ("pandas", ()),
    ("PIL", ()),
    ("psutil", ()),
    ("rich", ("console", "logging", "panel", "pretty", "progress")),
    ("seaborn", ()),
    ("sklearn", ("model_selection",)),
    ("torchmetrics", ()),
    ("torchvision", ("datasets", "datasets.utils", "transforms")),
):
    for name in (package, *(f"{package}.{part}" for part in parts)):
        sys.modules[name] = MagicMock()
from fluke import DDict
from fluke.algorithms import CentralizedFL, fedavgm, feddyn, fedopt, scaffold
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader

RATE, EPOCHS = 0.1, 10
ROOT = 2**0.5
ROWS = ((ROOT, ROOT), (1 / ROOT, 0.0))  # x and y, loss (x w - y)^2


def load(x, y):
    return FastDataLoader(torch.tensor([[x]]), torch.tensor([[y]]), num_labels=1, skip_singleton=False)


def play(kind, rounds, server=None, client=None):
    """The weight of the server after the rounds; it begins at 0."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    clients = [
        kind.get_client_class(None)(
            index=index,
            train_set=load(*row),
            test_set=None,
            optimizer_cfg=OptimizerConfigurator(DDict(name="SGD", lr=RATE)),
            loss_fn=torch.nn.MSELoss(),
            local_epochs=EPOCHS,
            clipping=0,
            **(client or {}),
        )
        for index, row in enumerate(ROWS)
    ]
    server = kind.get_server_class(None)(model=model, test_set=None, clients=clients, **(server or {}))
    kind(len(clients), None, None, clients, server).run(rounds, 1.0)
    return model.weight.item()


def fedopt_by_definition(rounds, rate, tau):
    """FedAdam, Algorithm 2 of Reddi et al., 2021, with v of 0 at first, as in fluke."""
    weight, m, v = 0.0, 0.0, 0.0
    for _ in range(rounds):
        ends = []
        for x, y in ROWS:
            end = weight
            for _ in range(EPOCHS):
                end -= RATE * 2 * x * (x * end - y)
            ends.append(end)
        change = sum(ends) / len(ends) - weight
        m, v = 0.9 * m + 0.1 * change, 0.999 * v + 0.001 * change**2
        weight += rate * m / (v**0.5 + tau)
    return weight


class MendedClient(feddyn.FedDynClient):
    """It keeps its weights less those of the server, summed over rounds, as the paper's own code does."""

    def fit(self, *args):
        summed, start = self.prev_grads.clone(), parameters_to_vector(self.model.parameters()).detach()
        loss = super().fit(*args)
        self.prev_grads = summed + parameters_to_vector(self.model.parameters()).detach() - start
        return loss


class MendedFedDyn(feddyn.FedDyn):
    def get_client_class(self):
        return MendedClient


print("losses 2 (w - 1)^2 and w^2 / 2 of two clients, the minimum is at 0.80")
for rounds in (1, 2, 3, 200):
    without = play(fedavgm.FedAVGM, rounds, {"momentum": 0.0})
    print(f"round {rounds}: FedAvg {play(CentralizedFL, rounds):.2f}, FedAVGM with momentum 0 {without:.2f}")
print(f"round 200: SCAFFOLD {play(scaffold.SCAFFOLD, 200):.2f}")
for alpha in (0.01, 0.1, 1.0):
    settings = {"alpha": alpha}
    found = [play(kind, 200, settings, settings) for kind in (feddyn.FedDyn, MendedFedDyn)]
    print(f"round 200: FedDyn, alpha {alpha}: {found[0]:.2g}, with the other sign {found[1]:.2g}")
for rate in (0.001, 0.01):
    right = fedopt_by_definition(20, rate, 0.0001)
    found, mended = [play(fedopt.FedOpt, 20, {"lr": rate, "tau": tau}) for tau in (0.0001, 0.0001 * rate)]
    print(f"round 20: FedOpt, lr {rate}: {found:.3f}, by definition {right:.3f}, with tau times lr {mended:.3f}")
PY
