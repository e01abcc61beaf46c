"""Tianshou: PPO decides at each result which workers start a task, on the env as it is."""

import gymnasium as gym
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams as Params
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch.distributions import Bernoulli, Independent

ID = "ata_gym:ata_gym/TaskDispatch-v0"
ENV = {"observation": "flat", "action": "dispatch", "reward_unit": "even round", "horizon": 5}
torch.manual_seed(0)
env = gym.make(ID, **ENV)
nets = [Net(state_shape=env.observation_space.shape, hidden_sizes=[64]) for _ in range(2)]
actor = DiscreteActor(
    preprocess_net=nets[0],
    action_shape=env.action_space.n_workers,
    softmax_output=False,
)
policy = ProbabilisticActorPolicy(
    actor=actor,
    dist_fn=lambda logits: Independent(Bernoulli(logits=logits), 1),
    action_space=env.action_space,
    action_scaling=False,
    action_bound_method=None,
)
agent = PPO(
    policy=policy,
    critic=DiscreteCritic(preprocess_net=nets[1]),
    optim=AdamOptimizerFactory(lr=1e-3),
)
envs = DummyVectorEnv([lambda: gym.make(ID, **ENV)] * 16)
envs.seed(0)
agent.run_training(
    Params(
        training_collector=Collector(agent, envs, VectorReplayBuffer(1280, 16)),
        max_epochs=1,
        epoch_num_steps=7_680,
        collection_step_num_env_steps=1280,
        batch_size=128,
        update_step_num_repetitions=6,
        show_progress=False,
    ),
)
for name, chosen in (
    ("PPO", lambda seen: policy(Batch(obs=seen, info={})).act.numpy()),
    ("uniform", None),
):
    rows = gym.make_vec(ID, num_envs=64, **ENV)
    rows.action_space.seed(0)
    seen = rows.reset(seed=1_000_000)[0]
    total = 0.0
    for _ in range(ENV["horizon"] * rows.unwrapped.budget):
        seen, reward, *_ = rows.step(chosen(seen) if chosen else rows.action_space.sample())
        total += reward.mean()
    print(f"{name}: {total:.2f}")
