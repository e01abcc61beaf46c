"""Tianshou collects and learns on every form whose actions it knows. Run by ``nox -s tianshou``."""

import importlib.util
from typing import Any

import gymnasium as gym
import pytest

from tests.envs.playing import LISTED, name

if importlib.util.find_spec("tianshou") is None:
    pytest.skip("tianshou is not installed", allow_module_level=True)

pytestmark = [pytest.mark.library, pytest.mark.filterwarnings("default")]
SIZE = 64
SHORT: dict[str, Any] = {
    "max_epochs": 1,
    "epoch_num_steps": SIZE,
    "collection_step_num_env_steps": SIZE // 2,
    "batch_size": 16,
    "show_progress": False,
    "verbose": False,
}


@pytest.mark.parametrize(
    "form",
    [form for form in LISTED if form["observation"] != "feedback"],
    ids=name,
)
def test_ppo_trains(form: dict[str, str]) -> None:
    from tianshou.algorithm import PPO
    from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OnPolicyTrainerParams
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.continuous import ContinuousActorProbabilistic
    from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
    from torch.distributions import Bernoulli, Categorical, Independent, Normal

    env = gym.make(**form)
    net, other = (Net(state_shape=env.observation_space.shape, hidden_sizes=[16]) for _ in range(2))
    dist: Any
    if form["action"] == "shares":
        actor: Any = ContinuousActorProbabilistic(
            preprocess_net=net,
            action_shape=env.action_space.shape,
        )
        dist = lambda numbers: Independent(Normal(*numbers), 1)  # noqa: E731
    else:
        several = form["action"] == "dispatch"
        if several:
            shape = env.action_space.shape
        else:
            shape = env.action_space.n
        actor = DiscreteActor(preprocess_net=net, action_shape=shape, softmax_output=False)

        def dist(logits):
            if several:
                return Independent(Bernoulli(logits=logits), 1)
            return Categorical(logits=logits)

    policy = ProbabilisticActorPolicy(
        actor=actor,
        dist_fn=dist,
        action_space=env.action_space,
        action_scaling=False,
        action_bound_method=None,
    )
    algorithm = PPO(
        policy=policy,
        critic=DiscreteCritic(preprocess_net=other),
        optim=AdamOptimizerFactory(lr=1e-3),
    )
    envs = DummyVectorEnv([lambda: gym.make(**form, horizon=1)] * 2)
    collector = Collector(algorithm, envs, VectorReplayBuffer(256, len(envs)))
    before = [weight.clone() for weight in policy.parameters()]
    result = algorithm.run_training(OnPolicyTrainerParams(training_collector=collector, **SHORT))
    assert result.train_step == SIZE
    assert result.train_episode > 0
    assert any((a != b).any() for a, b in zip(before, policy.parameters(), strict=True))
