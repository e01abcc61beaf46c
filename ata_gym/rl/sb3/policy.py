"""Policy classes of Stable-Baselines3 with a network for workers."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from torch import Tensor, nn

from ata_gym.envs.interface.shares import SCALE
from ata_gym.envs.interface.worker_features import ROUND_FEATURES, WORKER_FEATURES
from ata_gym.rl.network import WorkersActorCritic, WorkersNet

_MEAN = WORKER_FEATURES.index("log mean")
_MISSING = len(WORKER_FEATURES) + ROUND_FEATURES.index("missing")

PPO_SETTINGS: Mapping[str, Any] = MappingProxyType(
    {"n_steps": 25, "batch_size": 800, "n_epochs": 6, "learning_rate": 2e-3, "gamma": 0.8},
)
"""Hyperparameters of PPO with ``WorkersPolicy`` on 128 rows, whose 25 steps are 4 batches.

They are from 12 trainings of one seed on "drawn-6-v1" with ``action="shares"``, from even shares,
30 s of processor time each, judged on 256 seeds of the split "validation". One hyperparameter was
changed at a time: learning rate (0.0005, 0.001, 0.002), gamma (0.5, 0.8, 0.9), steps (10, 25, 50),
epochs (4, 6, 10), batch size, GAE's lambda, first deviation. All ended at 0.996 to 1.007 times the
default policy's cost; the learning rate 0.002 got there first, in 10 s. Rewards had another unit
then. With today's unit, five training seeds end at 0.990 to 0.993 times on 256 seeds of the split
"test".
"""


class _WorkersNetworks(WorkersActorCritic):
    """The networks that ``ActorCriticPolicy`` has before its last layers, which are left out."""

    # The sizes of inputs of the last layers, which ``WorkersPolicy`` leaves out.
    latent_dim_pi = 1
    latent_dim_vf = 1

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(features.reshape(-1, self.n, self.width))

    def forward_actor(self, features: Tensor) -> Tensor:
        return self.forward(features)[0]

    def forward_critic(self, features: Tensor) -> Tensor:
        return self.forward(features)[1]


class WorkersActorCriticPolicy(BasePolicy):
    """An actor and a critic that share a ``WorkersNet``.

    It takes the place of the networks of Stable-Baselines3. No weight depends on the number of
    workers, so ``set_parameters`` takes the weights of an agent for another number.
    """

    _algorithms = "MaskablePPO"
    action_net: Any
    value_net: Any

    def __init__(self, *args: Any, hidden: int = 32, **kwargs: Any) -> None:
        self._hidden = hidden
        super().__init__(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # Algorithms that learn the value of an action ask for these attributes first.
        if name in ("actor", "q_net"):
            raise AttributeError(
                f"{type(self).__name__} has an actor and a critic of states, for"
                f" {self._algorithms}; SAC, TD3 and DQN learn the value of an action: take"
                ' "MlpPolicy" and observation="flat" with them',
            )
        return super().__getattr__(name)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return super()._get_constructor_parameters() | {"hidden": self._hidden}

    def _build_mlp_extractor(self) -> None:
        """Make the shared networks in place of the library's own."""
        networks: Any = _WorkersNetworks(
            self.observation_space,
            self.action_space,
            self._hidden,
            type(self).__name__,
        )
        self.mlp_extractor = networks.to(self.device)

    def _build(self, lr_schedule: Any) -> None:
        """Make the policy without the library's last layers."""
        parent: Any = super()
        parent._build(lr_schedule)
        self.action_net = nn.Identity()
        self.value_net = nn.Identity()
        # The parent has given the weights of all layers the same scale: the first weights are set
        # again. The optimizer is made anew, without the layers that are left out.
        workers: Any = self.mlp_extractor
        workers.net.begin_evenly()
        self._begin(workers.net)
        optimizer_class: Any = self.optimizer_class
        self.optimizer = optimizer_class(
            self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs
        )

    def _begin(self, net: WorkersNet) -> None:
        """Set the first weights; by default all workers begin with nearly the same numbers."""


class WorkersPolicy(WorkersActorCriticPolicy, ActorCriticPolicy):
    """An actor and a critic for ``observation="workers"``, for PPO and A2C.

    It is for any form of actions. Positional and other arguments are the arguments of
    ``ActorCriticPolicy``.

    Args:
        hidden: Width of the layers.
        from_rule: Whether an agent begins as a rule, and learns what to add to it (residual policy
            learning, Silver et al., 2018). With ``action="shares"`` the rule gives shares in
            proportion to mean^-1.5 of the times seen so far, in races with about half of the
            largest total. With ``action="dispatch"`` it starts workers whose mean is at most about
            twice the row's mean, and more of them while more results are missing. Other agents
            begin without a rule.
        log_std_init: Logarithm of the first standard deviation of ``action="shares"``; by default
            -2 where the agent begins as a rule, and else -1, to explore more.

    Example:
        >>> from stable_baselines3 import PPO
        >>> from ata_gym.rl.sb3.vec_env import make_vec_env
        >>> form = {"observation": "workers", "action": "shares"}
        >>> envs = make_vec_env("ata_gym/TaskAllocation-v0", n_envs=32, **form)
        >>> agent = PPO(WorkersPolicy, envs, **PPO_SETTINGS, device="cpu")
        >>> agent.predict(envs.reset())[0].shape
        (32, 5)
    """

    _algorithms = "PPO and A2C"

    def __init__(
        self,
        *args: Any,
        hidden: int = 32,
        log_std_init: float | None = None,
        from_rule: bool = True,
        **kwargs: Any,
    ) -> None:
        self._from_rule = from_rule
        if log_std_init is None:
            if from_rule:
                log_std_init = -2.0
            else:
                log_std_init = -1.0
        super().__init__(*args, hidden=hidden, **kwargs | {"log_std_init": log_std_init})

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return super()._get_constructor_parameters() | {"from_rule": self._from_rule}

    def _begin(self, net: WorkersNet) -> None:
        if self._from_rule:
            _begin_as_rule(net, self.action_space)
        # One standard deviation for all workers.
        if isinstance(self.action_space, spaces.Box):
            self.log_std = nn.Parameter(torch.full((1,), float(self.log_std_init)))


def _begin_as_rule(net: WorkersNet, space: spaces.Space[Any]) -> None:
    """Set the first weights to the rule that ``WorkersPolicy`` describes."""
    last_layer = net.of_worker[-1]
    last_layer_of_row = net.of_row[-1]
    assert isinstance(last_layer, nn.Linear)
    assert isinstance(last_layer_of_row, nn.Linear)
    with torch.no_grad():
        if isinstance(space, spaces.Box):
            net.direct.weight[0, _MEAN] = -1.5 / SCALE
            # In races, the number after the value is the total.
            if last_layer_of_row.bias.shape[0] > 1:
                last_layer_of_row.bias[1] = 0.2
        # Number 0 of a worker is for waiting, number 1 for working.
        elif isinstance(space, spaces.MultiDiscrete):
            net.direct.weight[1, _MEAN] = -3.0
            net.direct.weight[1, _MISSING] = 1.5
            last_layer.bias[1] = 1.65
