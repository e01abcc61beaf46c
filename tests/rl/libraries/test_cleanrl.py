"""The loops of CleanRL, in small: Gymnasium's vector envs of single envs, and the native rows in their place.

CleanRL is a set of scripts, not a package; these loops keep to what its ``ppo.py`` and ``dqn.py`` do with the envs.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from tests.envs.playing import LISTED, arguments, name

torch = pytest.importorskip("torch", reason="torch is not installed")

ARRAYS = [form for form in LISTED if form["observation"] != "feedback"]
CHOICES = [form for form in ARRAYS if form["action"] in ("assign", "start") and form["observation"] == "flat"]


def several(form: dict[str, str], **options: Any) -> Any:
    """As CleanRL's ``make_env``."""

    def make_env() -> Any:
        return gym.wrappers.RecordEpisodeStatistics(gym.make(**form, **options))

    return gym.vector.SyncVectorEnv([make_env] * 4, autoreset_mode=AutoresetMode.SAME_STEP)


def native(form: dict[str, str], **options: Any) -> Any:
    env_id, own = arguments(form)
    envs = gym.make_vec(env_id, 4, autoreset_mode=AutoresetMode.SAME_STEP, **own, **options)
    return gym.wrappers.vector.RecordEpisodeStatistics(envs)


class Agent(torch.nn.Module):
    """An actor and a critic; it reads what it needs from the single spaces, as CleanRL's agents do."""

    def __init__(self, envs: Any) -> None:
        super().__init__()
        space, inputs = envs.single_action_space, int(np.prod(envs.single_observation_space.shape))
        self.kind = (
            type(space) if isinstance(space, (gym.spaces.Box, gym.spaces.Discrete)) else gym.spaces.MultiDiscrete
        )
        self.nvec = tuple(space.nvec) if self.kind is gym.spaces.MultiDiscrete else ()
        outputs = {gym.spaces.Box: lambda: space.shape[0], gym.spaces.Discrete: lambda: int(space.n)}
        self.actor = torch.nn.Linear(inputs, outputs.get(self.kind, lambda: int(space.nvec.sum()))())
        self.critic = torch.nn.Linear(inputs, 1)

    def act(self, observation: Any, action: Any = None) -> tuple[Any, Any, Any]:
        flat = observation.flatten(1)
        numbers = self.actor(flat)
        if self.kind is gym.spaces.Box:
            parts = [torch.distributions.Independent(torch.distributions.Normal(numbers, 0.5), 1)]
        else:
            rows = numbers.split(self.nvec, dim=1) if self.nvec else [numbers]
            parts = [torch.distributions.Categorical(logits=row) for row in rows]
        if action is None:
            drawn = [part.sample() for part in parts]
            action = torch.stack(drawn, dim=-1) if self.nvec else drawn[0]
        taken = action.unbind(-1) if self.nvec else [action]
        chance = sum(part.log_prob(one) for part, one in zip(parts, taken, strict=True))
        return action, chance, self.critic(flat).squeeze(-1)


@pytest.mark.parametrize("form", ARRAYS, ids=name)
@pytest.mark.parametrize("made", [several, native])
def test_ppo(form: dict[str, str], made: Any) -> None:
    torch.manual_seed(0)
    envs = made(form, horizon=2)
    assert envs.single_observation_space.dtype == np.float32
    agent, steps = Agent(envs), 64
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2, eps=1e-5)
    before = [weight.clone() for weight in agent.parameters()]
    obs = torch.zeros((steps, 4, *envs.single_observation_space.shape))
    actions = torch.zeros((steps, 4, *envs.single_action_space.shape))
    chances, rewards, dones, values = (torch.zeros((steps, 4)) for _ in range(4))
    observation, _ = envs.reset(seed=1)
    returns = []
    for step in range(steps):
        obs[step] = torch.Tensor(observation)
        with torch.no_grad():
            action, chances[step], values[step] = agent.act(obs[step])
        actions[step] = action
        observation, reward, terminated, truncated, info = envs.step(action.numpy())
        rewards[step], dones[step] = torch.tensor(reward), torch.Tensor(np.logical_or(terminated, truncated))
        if "final_info" in info:
            episode = info.get("episode", info["final_info"].get("episode"))
            returns += episode["r"][truncated].tolist()
            assert all(info["final_obs"][e] in envs.single_observation_space for e in np.flatnonzero(truncated))
    assert len(returns) == dones.sum() > 0
    assert max(returns) < 0
    advantages = rewards + 0.99 * (1 - dones) * torch.cat([values[1:], values[-1:]]) - values
    _, new, value = agent.act(obs.flatten(0, 1), actions.flatten(0, 1))
    ratio = (new - chances.flatten()).exp()
    assert torch.allclose(ratio, torch.ones_like(ratio), atol=1e-4)  # the actions are kept as floats, as CleanRL does
    gain = torch.min(advantages.flatten() * ratio, advantages.flatten() * ratio.clamp(0.8, 1.2))
    (-gain.mean() + ((advantages + values).flatten() - value).pow(2).mean()).backward()
    optimizer.step()
    assert any((a != b).any() for a, b in zip(before, agent.parameters(), strict=True))


@pytest.mark.parametrize("form", CHOICES, ids=name)
@pytest.mark.parametrize("made", [several, native])
def test_dqn(form: dict[str, str], made: Any) -> None:
    """It takes one choice at a time: ``assert isinstance(envs.single_action_space, gym.spaces.Discrete)``."""
    torch.manual_seed(0)
    chance = np.random.default_rng(0)
    envs = made(form, horizon=2)
    assert isinstance(envs.single_action_space, gym.spaces.Discrete)
    envs.single_action_space.seed(0)
    size = int(np.array(envs.single_observation_space.shape).prod())
    net = torch.nn.Linear(size, int(envs.single_action_space.n))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    before = net.weight.clone()
    kept, ends = [], 0
    observation, _ = envs.reset(seed=1)
    for _ in range(64):
        actions = np.array([envs.single_action_space.sample() for _ in range(4)])
        if chance.random() > 0.5:
            actions = torch.argmax(net(torch.Tensor(observation)), dim=1).numpy()
        after, rewards, terminations, truncations, infos = envs.step(actions)
        real = after.copy()
        for e in np.flatnonzero(truncations):
            real[e] = infos["final_obs"][e]
            ends += 1
        kept.append((observation, real, actions, rewards, terminations))
        observation = after
    assert ends > 0
    obs, after, actions, rewards, ended = (torch.as_tensor(np.concatenate(part)) for part in zip(*kept, strict=True))
    assert obs.dtype == after.dtype == torch.float32
    with torch.no_grad():
        target = rewards.float() + 0.99 * net(after).amax(dim=1) * (1 - ended.float())
    loss = torch.nn.functional.mse_loss(target, net(obs).gather(1, actions[:, None]).squeeze(1))
    loss.backward()
    optimizer.step()
    assert (net.weight != before).any()
