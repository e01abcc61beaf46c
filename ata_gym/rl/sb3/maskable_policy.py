"""The policy class with a network for workers, for sb3-contrib's MaskablePPO."""

from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy

from ata_gym.rl.sb3.policy import WorkersActorCriticPolicy


class MaskableWorkersPolicy(WorkersActorCriticPolicy, MaskableActorCriticPolicy):
    """An actor and a critic for ``observation="workers"``, for MaskablePPO.

    It is for ``action="assign"`` or ``"start"``. ``hidden`` is the width of the layers; the other
    arguments are the arguments of ``MaskableActorCriticPolicy``.

    Example:
        >>> import numpy as np
        >>> from sb3_contrib import MaskablePPO
        >>> from ata_gym.rl.sb3.vec_env import make_vec_env
        >>> form = {"observation": "workers", "action": "assign"}
        >>> envs = make_vec_env("ata_gym/TaskAllocation-v0", n_envs=8, **form)
        >>> agent = MaskablePPO(MaskableWorkersPolicy, envs, device="cpu")
        >>> masks = np.array(envs.env_method("action_masks"))
        >>> agent.predict(envs.reset(), action_masks=masks)[0].shape
        (8,)
    """
