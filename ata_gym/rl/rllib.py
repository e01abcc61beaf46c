"""RLlib: the network for workers as an RLModule. It needs RLlib."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from ata_gym.rl.network import WorkersActorCritic
from ata_gym.utils.extras import MissingExtraError

try:
    import torch
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.distribution.torch.torch_distribution import TorchMultiCategorical
    from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
    from ray.rllib.core.rl_module.torch import TorchRLModule
    from torch import Tensor, nn
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "ray":
        raise
    raise MissingExtraError(
        'ata_gym.rl.rllib needs RLlib: pip install "ray[rllib]"',
        name=error.name,
    ) from None


class WorkersModule(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """An actor and a critic for ``observation="workers"`` with any form of actions; for PPO.

    Both are read from one ``WorkersNet``, so that no weight depends on the number of workers. Name
    the class as the ``module_class`` of an ``RLModuleSpec``, whose ``model_config`` may hold
    ``hidden``, the width of the layers.

    Raises:
        ValueError: For other observations.
    """

    def setup(self) -> None:
        """Make the network."""
        hidden = int(self.model_config.get("hidden", 32))
        self.networks = WorkersActorCritic(
            self.observation_space,
            self.action_space,
            hidden,
            type(self).__name__,
        )
        # RLlib has no default distribution for this space.
        if isinstance(self.action_space, spaces.MultiDiscrete):
            self.action_dist_cls = TorchMultiCategorical.get_partial_dist_cls(
                input_lens=[2] * self.networks.n,
            )
        # One standard deviation for all workers, where actions are real numbers.
        continuous = isinstance(self.action_space, spaces.Box)
        self.log_std = nn.Parameter(torch.full((1,), -1.0)) if continuous else None

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """The inputs of the distribution of actions."""
        numbers, _ = self.networks(batch[Columns.OBS])
        if self.log_std is not None:
            numbers = torch.cat([numbers, self.log_std.expand_as(numbers)], dim=1)
        return {Columns.ACTION_DIST_INPUTS: numbers}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Tensor:
        """The value of each row, shape (E,)."""
        value: Tensor = self.networks(batch[Columns.OBS])[1][:, 0]
        return value
