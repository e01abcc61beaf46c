"""The wrapper that trains a real model, one step in each round of an env."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from ata_gym.envs.allocation import TaskAllocationEnv
from ata_gym.envs.states.batch_state import Feedback
from ata_gym.training.devices.clock import DeviceClock
from ata_gym.training.models import checkpoint
from ata_gym.training.problem import Problem
from ata_gym.training.problems.tasks import Tasks
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.utils.trees import leaves, map_leaves, rebuild
from ata_gym.utils.validation import LARGEST_COUNT, whole_number

if TYPE_CHECKING:
    from torch import nn


class TrainingWrapper(gym.Wrapper[Feedback, NDArray[Any], Feedback, NDArray[Any]], RecordConstructorArgs):
    """Each round of the env is one real optimiser step on the mean of B stochastic gradients.

    Observations, rewards and flags stay as they are. ``info`` gains ``loss``, the mean training loss of the round's B
    tasks, and in the rounds of ``evaluate`` the problem's figures, such as ``test_loss`` and ``accuracy``. So its keys
    differ from round to round, which Minari's ``record_infos`` does not take. The allocation decides when a gradient is
    there, never what it is: the gradients are those of ``Trainer``. Only where data differ by worker, it decides whose
    they are: with ``HeterogeneousQuadratic``, ata-icml ends at f - f* = 1.2e-3, and uta at 3e-7; see there. Weights
    1 / (n a_i) would mend that only where every worker has a task.

    Every ``reset`` starts training anew. The seed given to it keys the task times alone, so that the same trajectory
    can be played with other task times; the setting ``seed`` keys weights and gradients.

    - ``env``: a single ``ata_gym/TaskAllocation-v0`` or ``ata_gym/TaskRace-v0``. Task times come from its pool. In an
      env that was made with ``backend=DeviceClock(...)``, every task is really run and timed in seconds, and the
      clock's trainer is trained: leave out problem and settings.
    - ``problem``: a problem, or the name of one, or ``Tasks``; by default ``"digits"``.
    - ``evaluate``: after which rounds the model is evaluated: a whole number k for every k-th, or a collection of
      rounds; 0 is before the first, in the info of ``reset``.
    - ``settings``: the fields of ``TrainingSettings``: optimizer, lr, device, seed and so on.

    Raises TypeError if the env is another one, and ValueError for a bad argument. ``step`` raises ValueError for a bad
    action, and changes nothing; FloatingPointError and MemoryError as ``Trainer.step``: ``reset`` starts anew.

    >>> import gymnasium, torch, ata_gym
    >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")
    >>> env = TrainingWrapper(env, "digits", optimizer=torch.optim.AdamW, lr=1e-3, evaluate=[1])
    >>> _ = env.reset(seed=0)
    >>> info = env.step(env.action_space.sample())[-1]
    >>> sorted(info)
    ['accuracy', 'loss', 'round_time', 'runtime', 'test_loss', 'total_worker_time', 'worker_time']
    """

    def __init__(
        self, env: gym.Env[Feedback, NDArray[Any]], problem: Problem | Tasks | str | None = None, *,
        evaluate: int | Collection[int] | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        # without copies, or the data of a problem would be copied
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, problem=problem, evaluate=evaluate, **settings)
        if not isinstance(env, gym.Env) or not isinstance(env.unwrapped, TaskAllocationEnv):
            raise TypeError(
                "TrainingWrapper wraps a single env of ata_gym/TaskAllocation-v0 or ata_gym/TaskRace-v0 "
                f"(gymnasium.make), not {env}"
            )
        super().__init__(env)
        self._evaluated = _rounds(evaluate)
        self._allocation_env = env.unwrapped
        self._observation: Feedback | None = None
        backend = env.unwrapped.backend
        self._clock = backend if isinstance(backend, DeviceClock) else None
        if self._clock is None:
            self.trainer = Trainer("digits" if problem is None else problem, env.unwrapped.budget, **settings)
        else:
            if problem is not None or settings:
                raise ValueError("the env's device clock has its own trainer: leave out the problem and its settings")
            self.trainer = self._clock.trainer

    @property
    def model(self) -> nn.Module:
        """The model of the running episode."""
        return self.trainer.model

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Feedback, dict[str, Any]]:
        self._observation, info = self.env.reset(seed=seed, options=options)
        self.trainer.reset()
        return self._observation, info | self._evaluation()

    def step(self, action: NDArray[Any]) -> tuple[Feedback, float, bool, bool, dict[str, Any]]:
        self._observation, reward, terminated, truncated, info = self.env.step(action)
        by = np.bincount(self._allocation_env.computed, minlength=self._allocation_env.n)
        loss = self.trainer.apply(self._clock.gradient() if self._clock else self.trainer.gradient(tasks=by))
        return self._observation, float(reward), terminated, truncated, info | {"loss": loss} | self._evaluation()

    def save(self, path: str | os.PathLike[str], state: Any = None) -> None:
        """Write a checkpoint, completely or not at all: training, the env, the last observation and a policy's state.

        ``state`` is what the policy's ``predict`` gave with the last action. ValueError if there was no ``reset`` yet,
        or the state of an optimiser or schedule of yours holds more than numbers.

        >>> import tempfile, gymnasium, ata_gym, ata_policies
        >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")
        >>> env = TrainingWrapper(env, "quadratic")
        >>> action, state = ata_policies.make("ata", env).predict(env.reset(seed=0)[0])
        >>> _ = env.step(action)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     env.save(f"{folder}/run.pt", state)
        ...     info = env.step(action)[-1]
        ...     observation, state = env.load(f"{folder}/run.pt", like=state)
        >>> env.step(action)[-1] == info
        True
        """
        if self._observation is None:
            raise ValueError("there is nothing to save: call reset() first")
        tree = {"trainer": self.trainer.checkpoint(), "env": self._allocation_env.checkpoint()}
        policy = {name: np.asarray(leaf) for name, leaf in leaves(state, "state")}
        checkpoint.save(Path(path), {**tree, "observation": self._observation, "policy": policy})

    def load(self, path: str | os.PathLike[str], like: Any = None) -> tuple[Feedback, Any]:
        """Go on from the checkpoint of a wrapper made with the same arguments, bit for bit; reading it runs no code.

        ``like`` is any state of the policy, for its form; ``policy.predict`` gives one for any observation. What comes
        back is the last observation and the policy's state. FileNotFoundError if there is no such file, and ValueError
        if it is damaged or does not fit; then ``reset`` starts anew.
        """
        tree = checkpoint.load(Path(path), "trainer", "env", "observation", "policy")
        parts = {name: map_leaves(lambda part: part.numpy(), tree[name]) for name in ("env", "observation", "policy")}
        observation, policy = parts["observation"], parts["policy"]
        if dict(leaves(like, "state")).keys() != policy.keys():
            raise ValueError(f"this checkpoint is of another policy: its state has the parts {sorted(policy)}")
        self.env.reset()  # for wrappers in between, which may ask for it
        self._allocation_env.restore(parts["env"])
        self.trainer.restore(tree["trainer"])
        self._observation = observation
        return observation, rebuild(like, (policy[name] for name, _ in leaves(like, "state")))

    def _evaluation(self) -> dict[str, float]:
        return self.trainer.evaluate() if self.trainer.round in self._evaluated else {}


def _rounds(evaluate: int | Collection[int] | None) -> Collection[int]:
    if evaluate is None:
        return ()
    if isinstance(evaluate, Collection):
        return frozenset(whole_number("a round to evaluate", k, 0) for k in evaluate)
    return range(0, LARGEST_COUNT, whole_number("evaluate", evaluate))
