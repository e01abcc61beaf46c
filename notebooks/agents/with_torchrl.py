"""TorchRL: PPO gives out one task at a time, on the native rows; the masks are kept."""

import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.modules import MLP, MaskedCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from ata_gym.rl.torchrl import make_env

ID = "ata_gym/TaskAllocation-v0"
ROUNDS = 5
PICKS = 8
FORM = {"observation": "flat", "action": "assign", "reward_unit": "even round", "horizon": ROUNDS}
torch.manual_seed(0)
env = make_env(ID, n_envs=32, seed=0, **FORM)
n = env.action_spec.n
inputs = env.observation_spec["observation"].shape[-1]
logits = MLP(inputs, n, num_cells=[64], activation_class=nn.Tanh)
actor = ProbabilisticActor(
    TensorDictModule(logits, ["observation"], ["logits"]),
    in_keys={"logits": "logits", "mask": "action_mask"},
    spec=env.action_spec,
    distribution_class=MaskedCategorical,
    return_log_prob=True,
)
critic = ValueOperator(
    MLP(inputs, 1, num_cells=[64], activation_class=nn.Tanh),
    in_keys=["observation"],
)
loss = ClipPPOLoss(actor, critic, entropy_coeff=0.001)
advantage = GAE(gamma=1.0, lmbda=0.95, value_network=critic)
optimizer = torch.optim.Adam(loss.parameters(), lr=2e-3)
for steps in Collector(env, actor, frames_per_batch=32 * 40, total_frames=30 * 32 * 40):
    with torch.no_grad():
        advantage(steps)
    for _ in range(8):
        values = loss(steps)
        optimizer.zero_grad()
        sum(values[key] for key in ("loss_objective", "loss_critic", "loss_entropy")).backward()
        optimizer.step()
for name, policy in (("PPO", actor), ("uniform", None)):
    rows = make_env(ID, n_envs=64, seed=1_000_000, **FORM)
    print(f"{name}: {rows.rollout(ROUNDS * PICKS, policy)['next', 'reward'].sum(1).mean():.2f}")
