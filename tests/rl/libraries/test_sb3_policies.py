"""The policy classes with a network for workers: which algorithms take them, and how the others are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

sb3 = pytest.importorskip("stable_baselines3", reason="extra rl is not installed")


def rows(env_id: str, action: str, n_envs: int = 3, **options: Any) -> Any:
    from ata_gym.rl.sb3.vec_env import make_vec_env

    return make_vec_env(env_id, n_envs=n_envs, seed=0, observation="workers", action=action, **options)


@pytest.mark.parametrize(("env_id", "action"), [("TaskAllocation", "assign"), ("TaskDispatch", "start")])
def test_maskable_ppo_learns_with_the_network_for_workers(env_id: str, action: str, tmp_path: Any) -> None:
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    from ata_gym.rl.sb3.maskable_policy import MaskableWorkersPolicy

    envs = rows(f"ata_gym/{env_id}-v0", action)
    agent = contrib.MaskablePPO(
        MaskableWorkersPolicy, envs, n_steps=16, batch_size=16, seed=0, device="cpu", policy_kwargs={"hidden": 8}
    )
    before = [weight.clone() for weight in agent.policy.parameters()]
    agent.learn(96)
    assert any((a != b).any() for a, b in zip(before, agent.policy.parameters(), strict=True))
    observation, masks = envs.reset(), np.array(envs.env_method("action_masks"))
    masks[:, 0] = False
    actions, _ = agent.predict(observation, action_masks=masks)
    assert masks[np.arange(3), actions].all()
    agent.save(tmp_path / "agent")
    loaded = contrib.MaskablePPO.load(tmp_path / "agent", device="cpu")
    chosen = [one.predict(observation, action_masks=masks, deterministic=True)[0].tolist() for one in (agent, loaded)]
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize(("algorithm", "action"), [("SAC", "shares"), ("TD3", "shares"), ("DQN", "assign")])
def test_algorithms_that_learn_the_value_of_an_action_are_refused_by_a_sentence(algorithm: str, action: str) -> None:
    from ata_gym.rl.sb3.policy import WorkersPolicy

    envs = rows("ata_gym/TaskAllocation-v0", action, n_envs=1)
    with pytest.raises(AttributeError, match=r'WorkersPolicy .* for PPO and A2C; SAC, TD3 and DQN .* "MlpPolicy"'):
        getattr(sb3, algorithm)(WorkersPolicy, envs, buffer_size=10, device="cpu")


def test_an_agent_without_a_rule_explores_more() -> None:
    from ata_gym.rl.sb3.policy import WorkersPolicy

    envs = rows("ata_gym/TaskAllocation-v0", "shares")
    settings: list[dict[str, Any]] = [{}, {"from_rule": False}, {"from_rule": False, "log_std_init": -3.0}]
    spread = [sb3.PPO(WorkersPolicy, envs, policy_kwargs=one, device="cpu").policy.log_std.item() for one in settings]
    assert spread == [-2.0, -1.0, -3.0]
