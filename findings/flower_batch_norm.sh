#!/usr/bin/env bash
# flwr 1.42.0, torch 2.13.0 on a CPU
#
# ArrayRecord(model.state_dict()), as in Flower's tutorials, holds the buffers of each BatchNorm, too, and strategies take each
# array for weights. num_batches_tracked, the number of batches since the beginning, outweighs all others in a distance. So Krum
# chooses the client whose number of batches is closest to those of others, even where its weights are far off; and clipping for
# differential privacy shrinks the update of all weights: with a clipping norm of 1, a hundred batches leave a hundredth of it.
# FedAdam steps by about eta, however large a change is. So running_var, 1 at first and 0.01 in all clients, comes down for a
# dozen rounds, in which outputs are two to nine times too small, and goes on below 0, where they are nan.
# It concerns models with BatchNorm under any strategy that is more than a mean: send ArrayRecord(dict(model.named_parameters()))
# or its like, load with strict=False, and keep buffers with the clients; or take GroupNorm, which has none.
. "$(dirname "$0")/fresh.bash"
install flwr==1.42.0 torch==2.13.0 numpy==2.4.6

expect "weights of six clients: 1.1 1.2 1.3 1.4 1.5 -9.0
Krum, state_dict: -9.0 is chosen
Krum, parameters alone: 1.3 is chosen
the weight is 1, and 1.5 in all clients after 100 batches
clipping norm 1, without noise, state_dict: 1.005 after a round
clipping norm 1, without noise, parameters alone: 1.500 after a round
FedAvg, round 1: running_var 0.01 in all clients, 0.01 in the server, outputs of the size 1.00
FedAvg, round 10: running_var 0.01 in all clients, 0.01 in the server, outputs of the size 1.00
FedAvg, round 20: running_var 0.01 in all clients, 0.01 in the server, outputs of the size 1.00
FedAdam, round 1: running_var 0.01 in all clients, 0.93 in the server, outputs of the size 0.11
FedAdam, round 10: running_var 0.01 in all clients, 0.13 in the server, outputs of the size 0.28
FedAdam, round 20: running_var 0.01 in all clients, -0.27 in the server, outputs of the size nan" <<'PY'
import logging

logging.disable()
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAdam, FedAvg, Krum
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # a running ServerApp has them
DATA = 0.1 * torch.randn(32, 1, generator=torch.Generator().manual_seed(0))
WEIGHT, VARIANCE = "0.weight", "1.running_var"


class Nodes:
    def get_node_ids(self):
        return range(6)


def make_model(state=None):
    model = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False), torch.nn.BatchNorm1d(1, affine=False))
    torch.nn.init.ones_(model[0].weight)
    if state is not None:
        model.load_state_dict(state, strict=False)
    return model


def train(batches, weight=1.0, state=None):
    """The batches go through BatchNorm; the weight is set as if it had been learned."""
    model = make_model(state)
    torch.nn.init.constant_(model[0].weight, weight)
    for _ in range(batches):
        model(DATA)
    return model


SENT = {
    "state_dict": lambda model: model.state_dict(),
    "parameters alone": lambda model: {name: value.detach() for name, value in model.named_parameters()},
}


def play(strategy, what, model, clients, server_round=1):
    """One round: the strategy's own aggregation of what the clients send."""
    start = ArrayRecord(SENT[what](model))
    list(strategy.configure_train(server_round, start, ConfigRecord(), Nodes()))
    replies = []
    for node, client in enumerate(clients):
        metrics = MetricRecord({"num-examples": 1})
        content = RecordDict({"arrays": ArrayRecord(SENT[what](client)), "metrics": metrics})
        replies.append(Message(content, dst_node_id=node, message_type="train"))
    arrays, _ = strategy.aggregate_train(server_round, replies)
    return arrays.to_torch_state_dict()


WEIGHTS = (1.1, 1.2, 1.3, 1.4, 1.5, -9.0)
BATCHES = (50, 160, 240, 250, 400, 200)
print("weights of six clients:", *WEIGHTS)
for what in SENT:
    clients = [train(batches, weight) for batches, weight in zip(BATCHES, WEIGHTS)]
    strategy = Krum(min_train_nodes=6, num_malicious_nodes=1)
    chosen = play(strategy, what, make_model(), clients)[WEIGHT].item()
    print(f"Krum, {what}: {chosen:.1f} is chosen")

print("the weight is 1, and 1.5 in all clients after 100 batches")
for what in SENT:
    clients = [train(100, weight=1.5)] * 6
    strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(min_train_nodes=6), 0.0, 1.0, 6)
    weight = play(strategy, what, make_model(), clients)[WEIGHT].item()
    print(f"clipping norm 1, without noise, {what}: {weight:.3f} after a round")

for strategy in (FedAvg(min_train_nodes=6), FedAdam(min_train_nodes=6)):
    state = None
    for server_round in range(1, 21):
        client = train(100, state=state)
        state = play(strategy, "state_dict", make_model(state), [client] * 6, server_round)
        if server_round in (1, 10, 20):
            size = make_model(state).eval()(DATA).std().item()
            print(
                f"{type(strategy).__name__}, round {server_round}: running_var {client[1].running_var.item():.2f} in all"
                f" clients, {state[VARIANCE].item():.2f} in the server, outputs of the size {size:.2f}"
            )
PY
