"""TorchRL drives the envs through its own wrapper and through ours. Run by ``nox -s torchrl``."""

import doctest
import importlib.util
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.envs.playing import ENDING, EVERY_FORM, LISTED, MASKED, arguments, name, same

if importlib.util.find_spec("torchrl") is None:
    pytest.skip("torchrl is not installed", allow_module_level=True)

pytestmark = [pytest.mark.library, pytest.mark.filterwarnings("default")]


def native(form: dict[str, str], rows: int = 3, **options: Any) -> Any:
    from ata_gym.rl.torchrl import make_env

    env_id, form_options = arguments(form)
    return make_env(env_id, n_envs=rows, **form_options, **options)


def shown(observation: Any) -> dict[str, Any]:
    if isinstance(observation, dict):
        return observation
    return {"observation": observation}


@pytest.mark.parametrize("form", LISTED, ids=name)
def test_its_own_wrapper_and_the_native_rows_pass_its_check(form: dict[str, str]) -> None:
    from torchrl.envs.libs.gym import GymEnv
    from torchrl.envs.utils import check_env_specs

    env_id, form_options = arguments(form)
    check_env_specs(GymEnv(env_id, **form_options))
    check_env_specs(native(form))


@pytest.mark.parametrize("form", LISTED, ids=name)
def test_a_rollout_is_that_of_single_envs(form: dict[str, str]) -> None:
    steps = native(form, seed=5, **ENDING).rollout(60, break_when_any_done=False)
    ends = 0
    for e in range(3):
        env = gym.make(**form, **ENDING)
        observation, _ = env.reset(seed=5 + e)
        for k in range(60):
            step = steps[e, k]
            assert same({key: step[key].numpy() for key in shown(observation)}, shown(observation))
            (observation, reward, terminated, truncated, info), after = (
                env.step(step["action"].numpy()),
                step["next"],
            )
            assert same({key: after[key].numpy() for key in shown(observation)}, shown(observation))
            assert after["reward"].item() == np.float32(reward)
            assert [after[flag].item() for flag in ("terminated", "truncated", "done")] == [
                terminated,
                truncated,
                truncated,
            ]
            if "action_mask" in info:
                assert after["action_mask"].numpy().tolist() == (info["action_mask"] > 0).tolist()
            if truncated:
                ends += 1
                observation, _ = env.reset()
    assert ends > 3


@pytest.mark.parametrize("form", MASKED, ids=name)
def test_masks_are_kept(form: dict[str, str]) -> None:
    from torchrl.envs import ActionMask, TransformedEnv

    env = TransformedEnv(native(form, seed=0, scenario="drawn-3-to-16-v1"), ActionMask())
    steps = env.rollout(30, break_when_any_done=False)
    assert not steps["action_mask"].all()
    assert steps["action_mask"].gather(-1, steps["action"].unsqueeze(-1)).all()


@pytest.mark.parametrize(
    "form",
    [form for form in EVERY_FORM if form["action"] == "allocation"],
    ids=name,
)
def test_envs_that_it_has_no_spec_for_or_that_are_not_native_are_refused(
    form: dict[str, str],
) -> None:
    from ata_gym.rl.torchrl import NativeTorchEnv

    env_id, form_options = arguments(form)
    with pytest.raises(ValueError, match="TorchRL has no spec for"):
        native(form)
    with pytest.raises(ValueError, match="must be a native vector env"):
        NativeTorchEnv(gym.make_vec(env_id, 2, vectorization_mode="sync", **form_options))
    with pytest.raises(ValueError, match="autoreset_mode"):
        NativeTorchEnv(gym.make_vec(env_id, 2, **form_options))


def test_the_example_of_the_env() -> None:
    import ata_gym.rl.torchrl

    failed, tried = doctest.testmod(ata_gym.rl.torchrl)
    assert (failed, tried > 0) == (0, True)
