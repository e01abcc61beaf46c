"""Gymnasium's checker and wrappers take every form of every env."""

import pickle
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from tests.envs.playing import EVERY_FORM, arguments, name, same

every_form = pytest.mark.parametrize("form", EVERY_FORM, ids=name)
cast = pytest.mark.filterwarnings("ignore:.*precision lowered by casting to float32:UserWarning")
"""DtypeObservation warns of every box of float64."""


@every_form
def test_the_checker_says_nothing(form: dict[str, str]) -> None:
    check_env(gym.make(**form).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("form", EVERY_FORM[::4], ids=name)
def test_an_env_is_pickled_with_its_episode(form: dict[str, str]) -> None:
    env = gym.make(**form)
    env.reset(seed=1)
    env.action_space.seed(1)
    env.step(env.action_space.sample())
    twin = pickle.loads(pickle.dumps(env))
    for _ in range(9):
        action = env.action_space.sample()
        step = env.step(action)
        expected = twin.step(action)
        assert same(step[0], expected[0])
        assert step[1] == expected[1]


@cast
@every_form
def test_wrappers_take_a_single_env_and_the_native_vector_env(form: dict[str, str]) -> None:
    from gymnasium import wrappers

    env_id, options = arguments(form)
    env = wrappers.NormalizeReward(wrappers.RecordEpisodeStatistics(gym.make(**form, horizon=2)))
    env = wrappers.FlattenObservation(wrappers.TimeAwareObservation(wrappers.TimeLimit(env, 200)))
    env = wrappers.DtypeObservation(env, np.float32)
    native = gym.make_vec(env_id, num_envs=2, horizon=2, **options)
    envs = wrappers.vector.NormalizeReward(wrappers.vector.RecordEpisodeStatistics(native))
    envs = wrappers.vector.DtypeObservation(wrappers.vector.FlattenObservation(envs), np.float32)
    observation, _ = env.reset(seed=0)
    observations, _ = envs.reset(seed=0)
    envs.action_space.seed(0)
    steps = 0
    ended = False
    while not ended:
        assert observation in env.observation_space
        assert observation.dtype == np.float32
        assert observations in envs.observation_space
        actions = envs.action_space.sample()
        observation, _, _, ended, info = env.step(actions[0])
        observations, _, _, truncated, infos = envs.step(actions)
        assert truncated[0] == ended
        steps += 1
    assert info["episode"]["l"] == infos["episode"]["l"][0] == steps < 200
    np.testing.assert_allclose(infos["episode"]["r"][0], info["episode"]["r"])


REFUSING = {
    "TransformObservation",
    "VectorizeTransformObservation",
    "FilterObservation",
    "FlattenObservation",
    "GrayscaleObservation",
    "ResizeObservation",
    "ReshapeObservation",
    "RescaleObservation",
    "DtypeObservation",
    "NormalizeObservation",
}


@pytest.mark.filterwarnings(
    "ignore::RuntimeWarning",
    "ignore::UserWarning",
)  # of boxes of other dtypes
def test_the_page_names_the_wrappers_that_refuse_same_step() -> None:
    """Every wrapper of vector envs that Gymnasium has is asked, on rows that it can wrap in another
    mode.
    """
    from gymnasium.wrappers import vector

    page = (Path(__file__).parents[3] / "notebooks" / "agents" / "README.md").read_text(
        encoding="utf-8",
    )
    listed = page.partition("**Wrappers that refuse `SAME_STEP`**")[2].partition(
        "all of `gymnasium.wrappers.vector`",
    )[0]
    assert set(re.findall(r"`(\w+)`", listed)) == REFUSING
    rows = {
        mode: gym.make_vec(
            "ata_gym/TaskAllocation-v0",
            num_envs=2,
            autoreset_mode=mode,
            observation="flat",
            action="shares",
        )
        for mode in AutoresetMode
    }
    given = {
        "FilterObservation": {"filter_keys": []},
        "ResizeObservation": {"shape": (2, 2)},
        "ReshapeObservation": {"shape": (80, 1)},
        "RescaleObservation": {"min_obs": -1.0, "max_obs": 1.0},
        "DtypeObservation": {"dtype": np.float64},
        "TransformObservation": {"func": lambda seen: seen},
        "VectorizeTransformObservation": {
            "wrapper": gym.wrappers.DtypeObservation,
            "dtype": np.float64,
        },
        "ClipReward": {"min_reward": -1.0, "max_reward": 0.0},
        "TransformReward": {"func": lambda reward: reward},
        "VectorizeTransformReward": {
            "wrapper": gym.wrappers.TransformReward,
            "func": lambda reward: reward,
        },
        "TransformAction": {"func": lambda action: action},
        "RescaleAction": {"min_action": 0.0, "max_action": 1.0},
        "VectorizeTransformAction": {"wrapper": gym.wrappers.ClipAction},
    }
    needs_a_picture_or_a_package = {
        "RecordVideo",
        "HumanRendering",
        "ArrayConversion",
        "NumpyToTorch",
        "JaxToNumpy",
        "JaxToTorch",
    }
    refused = {"SAME_STEP": set(), "NEXT_STEP": set(), "DISABLED": set()}
    for wrapper in set(vector.__all__) - needs_a_picture_or_a_package:
        for mode, envs in rows.items():
            try:
                getattr(vector, wrapper)(envs, **given.get(wrapper, {}))
            except ValueError as error:
                if "autoreset_mode" in str(error):
                    refused[mode.name].add(wrapper)
    assert refused == {
        "SAME_STEP": REFUSING,
        "NEXT_STEP": set(),
        "DISABLED": {"NormalizeObservation"},
    }
