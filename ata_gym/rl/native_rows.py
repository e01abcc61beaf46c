"""The check that a bridge to an RL library is given a native vector env."""

from typing import Any

import gymnasium as gym

from ata_gym.envs.vector import VectorEnv
from ata_gym.utils.validation import short


def native_rows(
    envs: gym.vector.VectorEnv[Any, Any, Any], mode: gym.vector.AutoresetMode, as_library: str
) -> VectorEnv:
    """The native vector env without wrappers; ValueError if it is another env, or resets its rows in another way."""
    bare = envs.unwrapped
    if not isinstance(bare, VectorEnv):
        raise ValueError(f"envs must be a native vector env of this package, as make_vec gives, not {short(envs)}")  # noqa: TRY004
    if bare.autoreset_mode is not mode:
        raise ValueError(f'envs must have autoreset_mode="{mode.value}", as {as_library}')
    return bare
