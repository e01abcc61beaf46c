#!/usr/bin/env bash
# pfl 0.6.0, torch 2.13.0 on a CPU
#
# SCAFFOLD in pfl (pfl-research) moves away from the optimum that it is made to reach. Its control variates are weights after
# training less those before it, so that they have the sign of a step; what it adds to each gradient, the server's variate less
# the client's, is right for those with the sign of a gradient. So the drift of a client is doubled where it should be cancelled.
# And with Option I, InMemoryUserStateStorage keeps for each client the same buffer of the model, which the next client fills.
# Here two clients have the losses 2 (w - 1)^2 and w^2 / 2, whose sum has its minimum at 0.8: FedAvg ends at 0.69, Option I at
# 0.21, and Option II, the customary one, is beyond -10000000000 after 50 rounds.
# It concerns whoever compares strategies there, and finds SCAFFOLD weak or unstable. A storage that copies, and the two variates
# exchanged on the way to the bridge of torch, as in the last two lines, give what the paper's Algorithm 1 gives in numpy.
. "$(dirname "$0")/fresh.bash"
install pfl==0.6.0 torch==2.13.0 numpy==2.4.6

expect "FedAvg of pfl: w after 1, 5, 10, 50 rounds 0.461 0.69 0.692 0.693
SCAFFOLD of pfl, Option I: w after 1, 5, 10, 50 rounds 0.461 0.215 0.212 0.212
SCAFFOLD of pfl, Option II: w after 1, 5, 10, 50 rounds 0.461 -0.149 -11.7 -1.12e+10
with copies, Option I: w after 1, 5, 10, 50 rounds 0.461 0.516 0.53 0.531
with copies, Option II: w after 1, 5, 10, 50 rounds 0.461 -0.149 -11.7 -1.12e+10
SCAFFOLD of the paper, Option I: w after 1, 5, 10, 50 rounds 0.461 0.799 0.8 0.8
SCAFFOLD of the paper, Option II: w after 1, 5, 10, 50 rounds 0.461 0.807 0.8 0.8
with copies and exchanged, Option I: w after 1, 5, 10, 50 rounds 0.461 0.799 0.8 0.8
with copies and exchanged, Option II: w after 1, 5, 10, 50 rounds 0.461 0.807 0.8 0.8" <<'PY'
import logging

logging.disable()
import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.internal.bridge.pytorch.scaffold import PyTorchSCAFFOLDBridge as Bridge
from pfl.internal.ops import pytorch_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

set_framework_module(pytorch_ops)
CLIENTS = {"0": (4.0, 1.0), "1": (1.0, 0.0)}  # curvature and minimum of the loss
ROUNDS, STEPS, RATE = 50, 5, 0.1


class Quadratic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(1))

    def loss(self, curvature, minimum, eval=False):
        return (curvature * (self.w - minimum) ** 2 / 2).mean()

    def metrics(self, *inputs, **options):
        return {}


class Record(TrainingProcessCallback):
    def __init__(self, module):
        self.module, self.weights = module, []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.weights.append(self.module.w.item())
        return False, Metrics()


class CopyingStorage(InMemoryUserStateStorage):
    def save_state(self, state, user_id, key=None):
        super().save_state(state.apply_elementwise(torch.clone), user_id, key)


def report(name, weights):
    print(f"{name}: w after 1, 5, 10, 50 rounds", *(f"{weights[number - 1]:.3g}" for number in (1, 5, 10, 50)))


def run(name, algorithm, params):
    module = Quadratic()
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    tensors = {user: [torch.tensor([value]) for value in values] for user, values in CLIENTS.items()}
    data = FederatedDataset(
        lambda user: Dataset(raw_data=tensors[user], user_id=user), get_user_sampler("minimize_reuse", list(CLIENTS))
    )
    training = NNTrainHyperParams(local_num_epochs=STEPS, local_learning_rate=RATE, local_batch_size=None)
    record = Record(module)
    algorithm.run(params, SimulatedBackend(data, data), model, training, callbacks=[record], send_metrics_to_platform=False)
    report(name, record.weights)


def run_scaffold(name, storage):
    for option, use_gradient in (("I", True), ("II", False)):
        params = SCAFFOLDParams(ROUNDS, ROUNDS + 1, 2, None, 2, use_gradient, storage())
        run(f"{name}, Option {option}", SCAFFOLD(), params)


def by_the_paper(option):
    """Algorithm 1 of the paper, where both clients take part in each round."""
    curvature, minimum = np.array(list(CLIENTS.values())).T
    w, own, weights = 0.0, np.zeros(2), []
    for _ in range(ROUNDS):
        local = np.full(2, w)
        for _ in range(STEPS):
            local = local - RATE * (curvature * (local - minimum) - own + own.mean())
        gradient = curvature * (w - minimum)
        own = gradient if option == "I" else own - own.mean() + (w - local) / (STEPS * RATE)
        w = local.mean()
        weights.append(w)
    report(f"SCAFFOLD of the paper, Option {option}", weights)


run("FedAvg of pfl", FederatedAveraging(), NNAlgorithmParams(ROUNDS, ROUNDS + 1, 2, None))
run_scaffold("SCAFFOLD of pfl", InMemoryUserStateStorage)
run_scaffold("with copies", CopyingStorage)
by_the_paper("I")
by_the_paper("II")
do_sgd = Bridge.do_control_variate_sgd
Bridge.do_control_variate_sgd = staticmethod(
    lambda model, data, params, local_c, server_c: do_sgd(model, data, params, local_c=server_c, server_c=local_c)
)
run_scaffold("with copies and exchanged", CopyingStorage)
PY
