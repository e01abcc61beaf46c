"""The check that a bridge to an RL library is given a native vector env."""

from typing import Any

import gymnasium as gym

from ata_gym.envs.vector import VectorEnv
from ata_gym.utils.validation import short


def native_rows(
    envs: gym.vector.VectorEnv[Any, Any, Any],
    mode: gym.vector.AutoresetMode,
    as_library: str,
) -> VectorEnv:
    """Return the native vector env without wrappers.

    Args:
        envs: A vector env.
        mode: How its rows must be reset at the end of an episode.
        as_library: The reason for the mode, for the message of the error.

    Raises:
        ValueError: If it is no native vector env, or resets its rows in another way.
    """
    bare = envs.unwrapped
    if not isinstance(bare, VectorEnv):
        raise ValueError(  # noqa: TRY004
            "envs must be a native vector env of this package, as make_vec gives, not"
            f" {short(envs)}",
        )
    if bare.autoreset_mode is not mode:
        raise ValueError(f'envs must have autoreset_mode="{mode.value}", as {as_library}')
    return bare
