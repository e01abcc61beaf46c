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
from ata_gym.models import checkpoint
from ata_gym.training.devices.clock import DeviceClock
from ata_gym.training.problem import Problem
from ata_gym.training.problems.tasks import Tasks
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.utils.trees import leaves, map_leaves, rebuild
from ata_gym.utils.validation import LARGEST_COUNT, whole_number

if TYPE_CHECKING:
    from torch import nn


class TrainingWrapper(
    gym.Wrapper[Feedback, NDArray[Any], Feedback, NDArray[Any]],
    RecordConstructorArgs,
):
    """Each round of the env is one real optimiser step on the mean of B stochastic gradients.

    Observations, rewards and flags stay as they are. ``info`` gains ``loss``, the mean training
    loss of the round's B tasks. In the rounds of ``evaluate`` it gains the problem's figures, such
    as ``test_loss`` and ``accuracy``. So its keys differ from round to round, which Minari's
    ``record_infos`` does not take.

    The allocation decides when a gradient is there, never what it is: ``Trainer`` computes the
    same gradients. Only where data differ by worker, the allocation decides from whose data the
    gradients are: with ``HeterogeneousQuadratic``, ata-icml ends at f - f* = 1.2e-3, and uta at
    3e-7; see ``HeterogeneousQuadratic``. Weights 1 / (n a_i) would mend that only where every
    worker has a task.

    Every ``reset`` starts training anew. The seed given to it keys the task times alone, so that
    the same trajectory can be played with other task times; the setting ``seed`` keys weights and
    gradients.

    ``step`` raises ValueError for a bad action, and changes nothing. It raises FloatingPointError
    and MemoryError as ``Trainer.step`` does: ``reset`` starts anew.

    Args:
        env: A single ``ata_gym/TaskAllocation-v0`` or ``ata_gym/TaskRace-v0``. Task times come from
            its pool. In an env that was made with ``backend=DeviceClock(...)``, every task is
            really run and timed in seconds, and the clock's trainer is trained: leave out problem
            and settings.
        problem: A problem, or the name of one, or ``Tasks``; by default ``"digits"``.
        evaluate: After which rounds the model is evaluated: a whole number k for every k-th, or a
            collection of rounds; 0 is before the first, in the info of ``reset``.
        settings: The fields of ``TrainingSettings``: optimizer, lr, device, seed and so on.

    Raises:
        TypeError: If the env is another one.
        ValueError: For a bad argument.

    Example:
        >>> import gymnasium, torch, ata_gym
        >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")
        >>> env = TrainingWrapper(env, "digits", optimizer=torch.optim.AdamW, lr=1e-3, evaluate=[1])
        >>> _ = env.reset(seed=0)
        >>> info = env.step(env.action_space.sample())[-1]
        >>> sorted(name for name in info if "time" not in name)
        ['accuracy', 'loss', 'test_loss']
    """

    def __init__(
        self,
        env: gym.Env[Feedback, NDArray[Any]],
        problem: Problem | Tasks | str | None = None,
        *,
        evaluate: int | Collection[int] | None = None,
        **settings: Any,
    ) -> None:
        # A deep copy of the arguments would copy the data of a problem.
        RecordConstructorArgs.__init__(
            self,
            _disable_deepcopy=True,
            problem=problem,
            evaluate=evaluate,
            **settings,
        )
        if not isinstance(env, gym.Env) or not isinstance(env.unwrapped, TaskAllocationEnv):
            raise TypeError(
                "TrainingWrapper wraps a single env of ata_gym/TaskAllocation-v0 or"
                f" ata_gym/TaskRace-v0 (gymnasium.make), not {env}",
            )
        super().__init__(env)
        self._evaluation_rounds = _rounds(evaluate)
        self._allocation_env = env.unwrapped
        self._observation: Feedback | None = None
        backend = env.unwrapped.backend
        self._clock = backend if isinstance(backend, DeviceClock) else None
        if self._clock is None:
            if problem is None:
                problem = "digits"
            self.trainer = Trainer(problem, env.unwrapped.budget, **settings)
        else:
            if problem is not None or settings:
                raise ValueError(
                    "the env's device clock has its own trainer: leave out the problem and its"
                    " settings",
                )
            self.trainer = self._clock.trainer

    @property
    def model(self) -> nn.Module:
        """The model of the running episode."""
        return self.trainer.model

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Feedback, dict[str, Any]]:
        self._observation, info = self.env.reset(seed=seed, options=options)
        self.trainer.reset()
        return self._observation, info | self._evaluation()

    def step(self, action: NDArray[Any]) -> tuple[Feedback, float, bool, bool, dict[str, Any]]:
        self._observation, reward, terminated, truncated, info = self.env.step(action)
        worker_tasks = np.bincount(
            self._allocation_env.result_workers, minlength=self._allocation_env.n
        )
        if self._clock:
            gradient = self._clock.gradient()
        else:
            gradient = self.trainer.gradient(tasks=worker_tasks)
        loss = self.trainer.apply(gradient)
        return (
            self._observation,
            float(reward),
            terminated,
            truncated,
            info | {"loss": loss} | self._evaluation(),
        )

    def save(self, path: str | os.PathLike[str], state: Any = None) -> None:
        """Write a checkpoint, completely or not at all.

        It holds training, the env, the last observation and a policy's state.

        Args:
            path: The file of the checkpoint.
            state: What the policy's ``predict`` gave with the last action.

        Raises:
            ValueError: If there was no ``reset`` yet, or the state of an optimiser or schedule of
                yours holds more than numbers.

        Example:
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
        """Go on from the checkpoint of a wrapper that was made with the same arguments.

        Training goes on bit for bit. Reading the file runs no code.

        Args:
            path: The file of the checkpoint.
            like: Any state of the policy, for its form; ``policy.predict`` gives one for any
                observation.

        Returns:
            The last observation, and the policy's state.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it is damaged or does not fit; then ``reset`` starts anew.
        """
        tree = checkpoint.load(Path(path), "trainer", "env", "observation", "policy")
        parts = {
            name: map_leaves(lambda part: part.numpy(), tree[name])
            for name in ("env", "observation", "policy")
        }
        observation = parts["observation"]
        policy = parts["policy"]
        if dict(leaves(like, "state")).keys() != policy.keys():
            raise ValueError(
                f"this checkpoint is of another policy: its state has the parts {sorted(policy)}",
            )
        # Wrappers between this one and the env may refuse to step before a reset.
        self.env.reset()
        self._allocation_env.restore(parts["env"])
        self.trainer.restore(tree["trainer"])
        self._observation = observation
        return observation, rebuild(like, (policy[name] for name, _ in leaves(like, "state")))

    def _evaluation(self) -> dict[str, float]:
        return self.trainer.evaluate() if self.trainer.round in self._evaluation_rounds else {}


def _rounds(evaluate: int | Collection[int] | None) -> Collection[int]:
    if evaluate is None:
        return ()
    if isinstance(evaluate, Collection):
        return frozenset(whole_number("a round to evaluate", k, 0) for k in evaluate)
    return range(0, LARGEST_COUNT, whole_number("evaluate", evaluate))
