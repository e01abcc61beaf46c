"""A callback of Lightning that tells the time of the workers while Lightning trains."""

from typing import Any

import gymnasium as gym

from ata_gym.utils.extras import require
from ata_policies import Clock, Policy

require("torch", extra="integrations", purpose="ClockCallback")
require("lightning.pytorch", extra="integrations", purpose="ClockCallback")

from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402 - after the error that names the extra


class ClockCallback(Callback):
    """Plays one round of an env for each optimiser step, and logs what time it is then on the clock of the workers.

    It logs ``runtime/<name>`` and ``total_worker_time/<name>``, in the units of the env's task times. Training is left
    as it is, so several callbacks may run in one ``fit`` and compare policies. Batches whose gradients are only
    accumulated play no round; the steps of several optimisers all count. The clock is part of Lightning's checkpoints,
    from which a run goes on bit for bit. Where several processes train, each plays the same rounds.

    - ``env``: a single env of ata_gym, which the clock resets and plays; each callback needs an env of its own.
    - ``policy``: a policy for it, or the name of one.
    - ``seed``: seeds the task times and the policy.
    - ``name``: the name in the log; by default the policy's. Callbacks of one trainer need different names.

    Its attribute ``clock`` is the ``ata_policies.Clock`` that is asked, which raises ValueError for a bad argument. The
    import of this module raises MissingExtraError if Lightning is not installed.

    >>> import gymnasium, ata_gym
    >>> from lightning.pytorch.demos.boring_classes import BoringModel
    >>> envs = [gymnasium.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret") for _ in range(2)]
    >>> uniform, learner = ClockCallback(envs[0], "uta"), ClockCallback(envs[1])
    >>> off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    >>> trainer = Trainer(max_steps=30, accelerator="cpu", callbacks=[uniform, learner], **off)
    >>> trainer.fit(BoringModel())
    >>> uniform.clock.rounds, learner.clock.runtime < uniform.clock.runtime
    (30, True)
    """

    def __init__(
        self, env: gym.Env[Any, Any], policy: Policy | str = "default", *, seed: int = 0, name: str | None = None
    ) -> None:
        self.clock = Clock(env, policy, seed=seed)
        self.name = name or (policy if isinstance(policy, str) else type(policy).__name__)
        self._steps = 0

    @property
    def state_key(self) -> str:
        """The key of its state in a checkpoint, which Lightning wants to be unique in a trainer."""
        return f"{type(self).__qualname__}[{self.name}]"

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count optimiser steps from here, the first or the one of a checkpoint."""
        self._steps = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Play a round for each step that an optimiser took in this batch, and log both times if there was one."""
        if trainer.global_step == self._steps:
            return
        for _ in range(trainer.global_step - self._steps):
            self.clock.tick()
        self._steps = trainer.global_step
        times = {"runtime": self.clock.runtime, "total_worker_time": self.clock.total_worker_time}
        pl_module.log_dict({f"{what}/{self.name}": time for what, time in times.items()}, on_step=True, on_epoch=False)

    def state_dict(self) -> dict[str, Any]:
        """The clock's state: plain numbers, which are read without running code."""
        return self.clock.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the clock's state; ValueError if it is that of another env or policy."""
        self.clock.load_state_dict(state_dict)
