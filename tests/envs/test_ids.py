"""The ids without arguments: the same envs in a form that every library takes."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from ata_policies.registry import env_ids

FORMS = [spec for spec in gym.registry.values() if spec.namespace == "ata_gym" and spec.kwargs]


def test_there_is_one_for_each_env_and_form() -> None:
    assert {spec.id for spec in FORMS} == {
        f"ata_gym/{form}-v0"
        for form in ("TaskAllocation-flat-shares", "TaskAllocation-flat-assign", "TaskRace-flat-shares",
                     "TaskDispatch-flat-dispatch", "TaskDispatch-flat-start")
    }  # fmt: skip
    assert not {spec.id for spec in FORMS} & set(env_ids())


@pytest.mark.parametrize("spec", FORMS, ids=lambda spec: spec.name)
def test_an_id_gives_what_its_arguments_give(spec: gym.envs.registration.EnvSpec) -> None:
    short, plain = gym.make(spec.id), gym.make(f"ata_gym/{spec.name.partition('-')[0]}-v0", **spec.kwargs)
    assert isinstance(short.action_space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete))
    assert short.action_space == plain.action_space
    short.action_space.seed(0)
    assert np.array_equal(short.reset(seed=3)[0], plain.reset(seed=3)[0])
    for _ in range(20):
        action = short.action_space.sample()
        first, second = short.step(action), plain.step(action)
        assert np.array_equal(first[0], second[0])
        assert first[1:4] == second[1:4]
        assert {k: v for k, v in first[4].items() if k != "action_mask"} == {
            k: v for k, v in second[4].items() if k != "action_mask"
        }
    assert gym.make_vec(spec.id, num_envs=2, horizon=7).unwrapped.single_observation_space == short.observation_space
