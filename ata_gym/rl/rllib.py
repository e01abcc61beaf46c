"""RLlib: the network for workers as an RLModule. It needs RLlib."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from ata_gym.envs.interface.worker_features import WIDTH
from ata_gym.rl.network import WorkersNet, numbers_of
from ata_gym.utils.extras import MissingExtraError

try:
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.distribution.torch.torch_distribution import TorchMultiCategorical
    from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
    from ray.rllib.core.rl_module.torch import TorchRLModule
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "ray":
        raise
    raise MissingExtraError('ata_gym.rl.rllib needs RLlib: pip install "ray[rllib]"', name=error.name) from None


class WorkersModule(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """An actor and a critic for ``observation="workers"`` with any form of actions; for PPO.

    Both are read from one ``WorkersNet``, so that no weight depends on the number of workers. Name it in
    ``PPOConfig().rl_module(rl_module_spec=RLModuleSpec(module_class=WorkersModule))``; ``model_config`` may hold
    ``hidden``, the width of the layers. ValueError for other observations.
    """

    def setup(self) -> None:
        """Make the network."""
        shape = self.observation_space.shape
        if shape is None or len(shape) != 2 or shape[1] != WIDTH:
            raise ValueError(f'WorkersModule needs an env with observation="workers", not {self.observation_space}')
        for_worker, self._for_row = numbers_of(self.action_space, shape[0])
        self.net = WorkersNet(for_worker, 1 + self._for_row, int(self.model_config.get("hidden", 32)))
        if isinstance(self.action_space, spaces.MultiDiscrete):  # for which there is no default
            self.action_dist_cls = TorchMultiCategorical.get_partial_dist_cls(input_lens=[2] * shape[0])
        real = isinstance(self.action_space, spaces.Box)
        self.log_std = nn.Parameter(torch.full((1,), -1.0)) if real else None

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        of_workers, of_row = self.net(batch[Columns.OBS])
        numbers = of_workers.flatten(1)
        if self._for_row:
            numbers = torch.cat([numbers, of_row[:, 1:]], dim=1)
        if self.log_std is not None:
            numbers = torch.cat([numbers, self.log_std.expand_as(numbers)], dim=1)
        return {Columns.ACTION_DIST_INPUTS: numbers}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Tensor:
        """The value of each row, (E,)."""
        value: Tensor = self.net(batch[Columns.OBS])[1][:, 0]
        return value
