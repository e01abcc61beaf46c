"""Gymnasium's checker, vector envs and wrappers take every form of every env."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from ata_gym.pools import trace
from tests.rl.libraries.forms import FORMS, name, same, vector

every_form = pytest.mark.parametrize("form", FORMS, ids=name)
ENDING = {"pool": trace([[1.0] * 9, [2.0] * 9], end="truncate"), "budget": 3}
"""Rows that use this trace unevenly end apart."""
cast = pytest.mark.filterwarnings("ignore:.*precision lowered by casting to float32:UserWarning")
"""DtypeObservation warns of every box of float64."""


def pair(form: dict[str, str], mode: AutoresetMode, rows: int = 3, **options: Any) -> tuple[Any, Any]:
    """Our native vector env, and Gymnasium's of single envs."""
    env_id, arguments = vector(form)
    native = gym.make_vec(env_id, num_envs=rows, autoreset_mode=mode, **arguments, **options)
    sync = gym.make_vec(
        env_id, rows, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}, **arguments, **options
    )
    assert isinstance(sync, gym.vector.SyncVectorEnv)
    return native, sync


def known(info: dict[str, Any]) -> dict[str, Any]:
    """The entries of an info that a row has, with zeros where the row has none."""
    return {key: value for key, value in info.items() if not key.startswith("_") and info["_" + key].any()}


def alike(native: tuple[Any, ...], sync: tuple[Any, ...]) -> bool:
    """Whether two steps gave the same."""
    info, theirs = known(native[4]), known(sync[4])
    final, other_final = (known(part.pop("final_info", {})) for part in (info, theirs))
    for part in (info, theirs):  # an entry of no live row: Gymnasium leaves it out, or has zeros
        for key in [key for key, value in part.items() if value.dtype != object and not value.any()]:
            del part[key]
    return (
        same(native[0], sync[0])
        and all(a.tolist() == b.tolist() for a, b in zip(native[1:4], sync[1:4], strict=True))
        and same(final, other_final)
        and same(info, theirs)
    )


@every_form
def test_the_checker_says_nothing(form: dict[str, str]) -> None:
    check_env(gym.make(**form).unwrapped, skip_render_check=True)


@every_form
def test_an_env_is_pickled_with_its_episode(form: dict[str, str]) -> None:
    env = gym.make(**form)
    env.reset(seed=1)
    env.action_space.seed(1)
    env.step(env.action_space.sample())
    twin = pickle.loads(pickle.dumps(env))
    for _ in range(9):
        action = env.action_space.sample()
        ours, theirs = env.step(action), twin.step(action)
        assert same(ours[0], theirs[0])
        assert ours[1] == theirs[1]


@every_form
def test_processes_give_the_same_as_the_native_rows(form: dict[str, str]) -> None:
    env_id, arguments = vector(form)
    native = gym.make_vec(env_id, num_envs=2, horizon=2, **arguments)
    processes = gym.make_vec(env_id, 2, vectorization_mode="async", horizon=2, **arguments)
    native.action_space.seed(2)
    try:
        assert same(native.reset(seed=5)[0], processes.reset(seed=5)[0])
        for _ in range(30):
            actions = native.action_space.sample()
            assert alike(native.step(actions), processes.step(actions))
    finally:
        processes.close()


@every_form
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_episodes_that_end_apart_begin_anew_as_in_gymnasiums_own(form: dict[str, str], mode: AutoresetMode) -> None:
    native, sync = pair(form, mode, **ENDING)
    native.action_space.seed(3)
    native.reset(seed=3)
    sync.reset(seed=3)
    ends = []
    for _ in range(60):
        actions = native.action_space.sample()
        ours = native.step(actions)
        assert alike(ours, sync.step(actions))
        ends.append(int(ours[3].sum()))
    assert sum(ends) > 3


@every_form
def test_rows_are_reset_by_a_mask_as_in_gymnasiums_own(form: dict[str, str]) -> None:
    native, sync = pair(form, AutoresetMode.DISABLED, **ENDING)
    native.action_space.seed(4)
    chance = np.random.default_rng(4)
    native.reset(seed=4)
    sync.reset(seed=4)
    resets = 0
    for _ in range(60):
        actions = native.action_space.sample()
        ours = native.step(actions)
        assert alike(ours, sync.step(actions))
        mask = ours[3] | (chance.random(3) < 0.1)
        if mask.any():
            resets += 1
            assert same(*(env.reset(options={"reset_mask": mask.copy()})[0] for env in (native, sync)))
    assert resets > 3


@every_form
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_max_episode_steps_of_make_vec_is_a_time_limit(form: dict[str, str], mode: AutoresetMode) -> None:
    native, sync = pair(form, mode, rows=2, max_episode_steps=5)
    native.action_space.seed(5)
    native.reset(seed=5)
    sync.reset(seed=5)
    ends = []
    for step in range(14):
        actions = native.action_space.sample()
        ours = native.step(actions)
        assert alike(ours, sync.step(actions))
        if ours[3].any():
            ends.append(step)
    assert ends == ([4, 10] if mode is AutoresetMode.NEXT_STEP else [4, 9])


@every_form
def test_attributes_and_methods_are_asked_for_row_by_row(form: dict[str, str]) -> None:
    native, sync = pair(form, AutoresetMode.NEXT_STEP)
    native.reset(seed=6)
    sync.reset(seed=6)
    for attribute in ("budget", "n", "price", "horizon"):
        assert native.get_attr(attribute) == sync.get_attr(attribute) == sync.call(attribute)
    asked = ["means", *(["action_masks"] if form["action"] in ("assign", "start") else [])]
    for method in asked:
        ours, theirs = native.call(method), sync.call(method)
        assert len(ours) == len(theirs) == 3
        assert all(same(a, b) for a, b in zip(ours, theirs, strict=True))


@cast
@every_form
def test_wrappers_of_a_single_env(form: dict[str, str]) -> None:
    env = gym.make(**form, horizon=2)
    env = gym.wrappers.NormalizeReward(gym.wrappers.RecordEpisodeStatistics(env))
    env = gym.wrappers.FlattenObservation(gym.wrappers.TimeAwareObservation(gym.wrappers.TimeLimit(env, 200)))
    env = gym.wrappers.DtypeObservation(env, np.float32)
    observation, _ = env.reset(seed=0)
    env.action_space.seed(0)
    steps, ended = 0, False
    while not ended:
        assert observation in env.observation_space
        assert observation.dtype == np.float32
        observation, _, _, ended, info = env.step(env.action_space.sample())
        steps += 1
    assert info["episode"]["l"] == steps < 200


@cast
@every_form
def test_wrappers_of_the_native_vector_env(form: dict[str, str]) -> None:
    from gymnasium.wrappers import vector as wrappers

    env_id, arguments = vector(form)
    native = gym.make_vec(env_id, num_envs=2, horizon=2, **arguments)
    envs = wrappers.NormalizeReward(wrappers.RecordEpisodeStatistics(native))
    envs = wrappers.DtypeObservation(wrappers.FlattenObservation(envs), np.float32)
    single = gym.wrappers.RecordEpisodeStatistics(gym.make(**form, horizon=2))
    observation, _ = envs.reset(seed=0)
    single.reset(seed=0)
    envs.action_space.seed(0)
    ended, own = False, {}
    while not ended:
        assert observation in envs.observation_space
        actions = envs.action_space.sample()
        own = single.step(actions[0])[4]
        observation, _, _, truncated, info = envs.step(actions)
        ended = truncated[0]
    assert info["episode"]["l"][0] == own["episode"]["l"]
    np.testing.assert_allclose(info["episode"]["r"][0], own["episode"]["r"])
