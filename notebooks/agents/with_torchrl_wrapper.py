"""TorchRL's own wrapper: PPO learns shares, on the native rows as they are; the masks of actions
need our bridge.
"""

import gymnasium as gym
import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import ExplorationType, GymWrapper, set_exploration_type
from torchrl.modules import MLP, NormalParamExtractor, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

ID = "ata_gym:ata_gym/TaskAllocation-v0"
FORM = {"observation": "flat", "action": "shares", "reward_unit": "even round", "horizon": 20}


def rows(number: int) -> GymWrapper:
    return GymWrapper(gym.make_vec(ID, num_envs=number, autoreset_mode="Disabled", **FORM))


torch.manual_seed(0)
env = rows(16)
env.set_seed(0)
inputs = env.observation_spec["observation"].shape[-1]
n = env.action_spec.shape[-1]
net = nn.Sequential(
    MLP(inputs, 2 * n, num_cells=[64], activation_class=nn.Tanh),
    NormalParamExtractor("biased_softplus_0.4"),
)
actor = ProbabilisticActor(
    TensorDictModule(net, ["observation"], ["loc", "scale"]),
    in_keys=["loc", "scale"],
    spec=env.action_spec,
    distribution_class=TanhNormal,
    return_log_prob=True,
)
critic = ValueOperator(
    MLP(inputs, 1, num_cells=[64], activation_class=nn.Tanh),
    in_keys=["observation"],
)
loss = ClipPPOLoss(actor, critic, entropy_coeff=0.0)
advantage = GAE(gamma=0.9, lmbda=0.95, value_network=critic)
optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)
for steps in Collector(env, actor, frames_per_batch=16 * 40, total_frames=40 * 16 * 40):
    with torch.no_grad():
        advantage(steps)
    for part in 8 * list(steps.reshape(-1)[torch.randperm(steps.numel())].split(160)):
        values = loss(part)
        optimizer.zero_grad()
        sum(values[key] for key in ("loss_objective", "loss_critic")).backward()
        optimizer.step()
even = TensorDictModule(lambda seen: torch.zeros(*seen.shape[:-1], n), ["observation"], ["action"])
for name, policy in (("PPO", actor), ("uniform", even)):
    test = rows(64)
    test.set_seed(1_000_000)
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        print(
            f"{name}: {test.rollout(FORM['horizon'], policy)['next', 'reward'].sum(1).mean():.2f}",
        )
