"""Stable-Baselines3 drives every form whose actions it knows, through its own vector envs and
through our bridge.
"""

import warnings
from itertools import cycle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ata_gym.envs.interface.interface import select_rows
from tests.envs.playing import ENDING, EVERY_FORM, LISTED, MASKED, arguments, name, same

sb3 = pytest.importorskip("stable_baselines3", reason="extra rl is not installed")

every_form = pytest.mark.parametrize("form", EVERY_FORM, ids=name)
VALUED = [form for form in LISTED if form["action"] != "dispatch"][::3]


def bridge(form: dict[str, str], rows: int = 3, **options: Any) -> Any:
    from ata_gym.rl.sb3.vec_env import make_vec_env

    env_id, form_options = arguments(form)
    return make_vec_env(env_id, n_envs=rows, **form_options, **options)


def monitored(form: dict[str, str], rows: int = 3, **options: Any) -> Any:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    return DummyVecEnv([lambda: Monitor(gym.make(**form, **options))] * rows)


def policy_for(form: dict[str, str]) -> str:
    if form["observation"] == "feedback":
        return "MultiInputPolicy"
    return "MlpPolicy"


@every_form
def test_the_checker_advises_against_matrices_only(form: dict[str, str]) -> None:
    from stable_baselines3.common.env_checker import check_env

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(gym.make(**form))
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == (form["observation"] == "workers")
    assert all("unconventional shape" in sentence for sentence in messages)


@every_form
def test_the_bridge_gives_what_monitored_single_envs_give(form: dict[str, str]) -> None:
    from stable_baselines3.common.monitor import Monitor

    native = bridge(form, **ENDING)
    reference = monitored(form, **ENDING)
    chance = gym.make(**form, **ENDING).action_space
    chance.seed(1)
    assert native.seed(7) == reference.seed(7)
    first = native.reset()
    expected = reference.reset()
    assert same(dict(first), dict(expected)) if isinstance(first, dict) else same(first, expected)
    assert (native.observation_space, native.action_space) == (
        reference.observation_space,
        reference.action_space,
    )
    assert native.env_is_wrapped(Monitor) == reference.env_is_wrapped(Monitor)
    assert native.get_attr("n", indices=[0, 2]) == reference.get_attr("n", indices=[0, 2])
    assert same(
        np.array(native.env_method("means", indices=1)),
        np.array(reference.env_method("means", indices=1)),
    )
    assert native.has_attr("action_masks")
    if form in MASKED:
        assert same(
            np.array(native.env_method("action_masks")),
            np.array(reference.env_method("action_masks")),
        )
    else:
        with pytest.raises(AttributeError, match="have masks"):
            native.env_method("action_masks")
    ends = 0
    for _ in range(60):
        actions = np.stack([chance.sample() for _ in range(3)])
        observation, rewards, dones, infos = native.step(actions)
        expected, other_rewards, other_dones, other_infos = reference.step(actions)
        for e, (info, other) in enumerate(zip(infos, other_infos, strict=True)):
            assert same(select_rows(observation, e), select_rows(expected, e))
            if dones[e]:
                ends += 1
                assert same(info["terminal_observation"], other["terminal_observation"])
                assert info["TimeLimit.truncated"] is other["TimeLimit.truncated"] is True
                # the other ones are rounded
                np.testing.assert_allclose(
                    info["episode"]["r"],
                    other["episode"]["r"],
                    atol=1e-6,
                )
                assert info["episode"]["l"] == other["episode"]["l"]
                assert info.keys() == other.keys()
                # such as the runtime, which a VecMonitor may keep
                numbers = {*info} - {"terminal_observation", "episode"}
                assert all(same(np.array(info[key]), np.array(other[key])) for key in numbers)
        assert (rewards.tobytes(), dones.tolist()) == (
            other_rewards.tobytes(),
            other_dones.tolist(),
        )
    assert ends > 3


def test_the_bridge_gives_pictures_and_numbers_of_the_last_round() -> None:
    from stable_baselines3.common.vec_env import VecMonitor

    pytest.importorskip("matplotlib", reason="extra render is not installed")
    form = {"observation": "workers", "action": "shares"}
    env_id = "ata_gym/TaskAllocation-v0"
    envs = bridge({"id": env_id, **form}, rows=2, render_mode="rgb_array", horizon=2)
    with pytest.warns(UserWarning, match="already wrapped with a `Monitor`"):
        monitor = VecMonitor(envs, info_keywords=("runtime",))
    monitor.reset()
    for _ in range(2):
        infos = monitor.step(np.zeros((2, 5), np.float32))[3]
    runtimes = [info["episode"]["runtime"] for info in infos]
    np.testing.assert_allclose(runtimes, [-info["episode"]["r"] for info in infos], rtol=1e-6)
    pictures = np.array(envs.get_images())
    assert (pictures.shape[0], pictures.shape[-1]) == (2, 3)
    with pytest.raises(ValueError, match='make them with render_mode="rgb_array"'):
        bridge({"id": env_id, **form}).get_images()


@pytest.mark.parametrize(
    ("form", "algorithm"),
    [
        *zip(LISTED, cycle(["PPO", "A2C"]), strict=False),
        *(
            (form, "SAC" if form["action"] == "shares" else "DQN") for form in VALUED
        ),  # they take boxes, and choices
        *((form, "RecurrentPPO") for form in LISTED if form["observation"] == "flat"),
    ],
    ids=str,
)
def test_agents_learn_on_single_envs(form: dict[str, str], algorithm: str) -> None:
    actor_critic: dict[str, Any] = {"n_steps": 8}
    off_policy = {
        "learning_starts": 8,
        "batch_size": 8,
        "buffer_size": 64,
        "policy_kwargs": {"net_arch": [8]},
    }
    short = actor_critic | {"batch_size": 16, "n_epochs": 1}
    recurrent = algorithm == "RecurrentPPO"
    settings = {"PPO": short, "RecurrentPPO": short, "A2C": actor_critic}.get(algorithm, off_policy)
    envs = monitored(form, 1 if settings is off_policy else 2)
    if recurrent:
        library = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    else:
        library = sb3
    if recurrent:
        policy = "MlpLstmPolicy"
    else:
        policy = policy_for(form)
    agent = getattr(library, algorithm)(policy, envs, seed=0, device="cpu", **settings)
    before = [weight.clone() for weight in agent.policy.parameters()]
    agent.learn(32)
    assert any((a != b).any() for a, b in zip(before, agent.policy.parameters(), strict=True))


@pytest.mark.parametrize("form", LISTED[::2], ids=name)
def test_an_agent_of_the_bridge_is_saved_loaded_and_evaluated(
    form: dict[str, str],
    tmp_path: Path,
) -> None:
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    envs = VecNormalize(bridge(form, seed=1, horizon=2), norm_obs=form["observation"] == "flat")
    agent = sb3.PPO(
        policy_for(form),
        envs,
        n_steps=8,
        batch_size=8,
        n_epochs=1,
        seed=0,
        device="cpu",
    )
    agent.learn(48)
    assert envs.ret_rms.count > 40
    agent.save(tmp_path / "agent")
    envs.save(str(tmp_path / "envs.pkl"))
    loaded = sb3.PPO.load(tmp_path / "agent", device="cpu")
    fresh = VecNormalize.load(str(tmp_path / "envs.pkl"), bridge(form, seed=2, horizon=2))
    fresh.training = False
    observation = fresh.reset()
    assert same(
        agent.predict(observation, deterministic=True)[0],
        loaded.predict(observation, deterministic=True)[0],
    )
    results = []
    for envs in (bridge(form, horizon=2), monitored(form, horizon=2)):
        envs.seed(9)
        results.append(
            evaluate_policy(
                loaded,
                envs,
                n_eval_episodes=3,
                return_episode_rewards=True,
                deterministic=True,
            ),
        )
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    assert results[0][1] == results[1][1]


@pytest.mark.parametrize(
    ("form", "make"),
    list(zip(MASKED, cycle([bridge, monitored, monitored, bridge]), strict=False)),
)
def test_maskable_ppo_takes_the_masks(form: dict[str, str], make: Any, tmp_path: Path) -> None:
    """For features of workers with our own policy, which learns, and is saved and loaded as any
    other.
    """
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported

    from ata_gym.rl.sb3.maskable_policy import MaskableWorkersPolicy

    envs = make(form)
    if form["observation"] == "workers":
        policy = MaskableWorkersPolicy
    else:
        policy = policy_for(form)
    assert is_masking_supported(envs)
    agent = contrib.MaskablePPO(
        policy,
        envs,
        n_steps=16,
        batch_size=16,
        n_epochs=1,
        seed=0,
        device="cpu",
    )
    before = [weight.clone() for weight in agent.policy.parameters()]
    agent.learn(96)
    assert any((a != b).any() for a, b in zip(before, agent.policy.parameters(), strict=True))
    observation = envs.reset()
    for _ in range(20):
        masks = get_action_masks(envs)
        actions, _ = agent.predict(observation, action_masks=masks)
        assert masks[np.arange(3), actions].all()
        observation, *_ = envs.step(actions)
    observation = envs.reset()
    masks = get_action_masks(envs)
    masks[:, 0] = False
    agent.save(tmp_path / "agent")
    loaded = contrib.MaskablePPO.load(tmp_path / "agent", device="cpu")
    chosen = [
        one.predict(observation, action_masks=masks, deterministic=True)[0]
        for one in (agent, loaded)
    ]
    assert masks[np.arange(3), chosen[0]].all()
    assert same(*chosen)
