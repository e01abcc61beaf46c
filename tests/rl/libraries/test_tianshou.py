"""Tianshou collects and learns on every form whose actions it knows. Run by ``nox -s tianshou``."""

from __future__ import annotations

import importlib.util
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.envs.playing import EVERY_FORM, LISTED, name, same

if importlib.util.find_spec("tianshou") is None:
    pytest.skip("tianshou is not installed", allow_module_level=True)

pytestmark = [pytest.mark.library, pytest.mark.filterwarnings("default")]
SIZE = 64
SHORT: dict[str, Any] = {
    "max_epochs": 1, "epoch_num_steps": SIZE, "collection_step_num_env_steps": SIZE // 2, "batch_size": 16,
    "show_progress": False, "verbose": False,
}  # fmt: skip


@pytest.mark.parametrize("form", [form for form in LISTED if form["observation"] != "feedback"], ids=name)
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
        actor: Any = ContinuousActorProbabilistic(preprocess_net=net, action_shape=env.action_space.shape)
        dist = lambda numbers: Independent(Normal(*numbers), 1)  # noqa: E731
    else:
        several = form["action"] == "dispatch"
        shape = env.action_space.shape if several else env.action_space.n
        actor = DiscreteActor(preprocess_net=net, action_shape=shape, softmax_output=False)
        dist = lambda logits: Independent(Bernoulli(logits=logits), 1) if several else Categorical(logits=logits)  # noqa: E731
    policy = ProbabilisticActorPolicy(
        actor=actor, dist_fn=dist, action_space=env.action_space, action_scaling=False, action_bound_method=None
    )
    algorithm = PPO(policy=policy, critic=DiscreteCritic(preprocess_net=other), optim=AdamOptimizerFactory(lr=1e-3))
    envs = DummyVectorEnv([lambda: gym.make(**form, horizon=1)] * 2)
    collector = Collector(algorithm, envs, VectorReplayBuffer(256, len(envs)))
    before = [weight.clone() for weight in policy.parameters()]
    told = algorithm.run_training(OnPolicyTrainerParams(training_collector=collector, **SHORT))
    assert told.train_step == SIZE
    assert told.train_episode > 0
    assert any((a != b).any() for a, b in zip(before, policy.parameters(), strict=True))


class ShowMask(gym.ObservationWrapper[Any, Any, Any]):
    """The mask beside the observation, where Tianshou looks for it."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        choices = gym.spaces.MultiBinary(int(env.action_space.n))  # type: ignore[attr-defined]
        self.observation_space = gym.spaces.Dict({"obs": env.observation_space, "mask": choices})

    def observation(self, observation: Any) -> Any:
        return {"obs": observation, "mask": self.get_wrapper_attr("action_masks")()}


MASKED = [form for form in EVERY_FORM if form["action"] in ("assign", "start") and form["observation"] == "flat"]


@pytest.mark.parametrize("form", MASKED, ids=name)
def test_dqn_picks_what_the_mask_allows(form: dict[str, str]) -> None:
    from tianshou.algorithm import DQN
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OffPolicyTrainerParams
    from tianshou.utils.net.common import Net

    form = form | {"scenario": "drawn-3-to-16-v1"}
    env = gym.make(**form)
    net = Net(state_shape=env.observation_space.shape, action_shape=int(env.action_space.n), hidden_sizes=[16])  # type: ignore[attr-defined]
    policy = DiscreteQLearningPolicy(model=net, action_space=env.action_space, eps_training=0.5)
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), target_update_freq=4)
    buffer = VectorReplayBuffer(256, 2)
    collector = Collector(algorithm, DummyVectorEnv([lambda: ShowMask(gym.make(**form))] * 2), buffer, True)
    before = [weight.clone() for weight in net.parameters()]
    algorithm.run_training(OffPolicyTrainerParams(training_collector=collector, **SHORT))
    steps, _ = buffer.sample(0)
    masks = np.asarray(steps.obs.mask)
    assert len(masks) == SIZE
    assert not masks.all()
    assert masks[np.arange(SIZE), steps.act].all()
    assert any((a != b).any() for a, b in zip(before, net.parameters(), strict=True))


@pytest.mark.parametrize("form", EVERY_FORM, ids=name)
def test_processes_give_the_same_as_this_one(form: dict[str, str]) -> None:
    from tianshou.env import DummyVectorEnv, SubprocVectorEnv

    makers = [lambda: gym.make(**form, horizon=2)] * 2
    here, processes = DummyVectorEnv(makers), SubprocVectorEnv(makers)
    space = gym.make(**form).action_space
    space.seed(0)
    try:
        firsts = [envs.reset(seed=3)[0] for envs in (here, processes)]
        assert all(same(a, b) for a, b in zip(*firsts, strict=True))
        for _ in range(3):
            actions = np.stack([space.sample() for _ in range(2)])
            ours, theirs = here.step(actions), processes.step(actions)
            assert all(same(a, b) for a, b in zip(ours[0], theirs[0], strict=True))
            assert ours[1].tolist() == theirs[1].tolist()
            done = np.flatnonzero(ours[3])
            if len(done):
                here.reset(done)
                processes.reset(done)
    finally:
        processes.close()
