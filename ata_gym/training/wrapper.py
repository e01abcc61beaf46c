"""The wrapper that trains a real model while an env is played."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import torch
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray
from torch import nn

from ata_gym.bench.checkpoint import flatten, restore
from ata_gym.checks import whole_number
from ata_gym.envs import TaskAllocationEnv
from ata_gym.training import checkpoint
from ata_gym.training.clock import DeviceClock
from ata_gym.training.optimizers import OptimizerFactory
from ata_gym.training.problems import Problem
from ata_gym.training.schedules import ScheduleFactory
from ata_gym.training.trainer import Trainer
from ata_gym.training.workers import Worker, find_workers
from ata_gym.world import Observation


class TrainingWrapper(gym.Wrapper[Observation, NDArray[Any], Observation, NDArray[Any]], RecordConstructorArgs):
    """Each round of the env is one real optimiser step on the mean of B stochastic gradients.

    Observations, rewards and flags stay as they are. ``info`` gains ``loss``, the mean training loss of the round's B
    tasks, and in the rounds of ``evaluate`` the problem's figures, such as ``test_loss`` and ``accuracy``. The
    allocation decides when a gradient is there, never what it is: the gradients are those of ``Trainer``.

    Every ``reset`` starts training anew from the initial weights of the wrapper's ``seed``. The seed given to ``reset``
    is that of the task times alone, so that one trajectory may be seen on many clocks.

    Parameters
    ----------
    env
        A single ``ata_gym/TaskAllocation-v0`` or ``ata_gym/TaskRace-v0``.
    problem, model, optimizer, lr, schedule, micro_batch, precision, compile, graphs, device, seed
        As for ``Trainer``. The device clock runs tasks one by one, without ``compile`` and ``graphs``.
    evaluate
        After which rounds the model is evaluated: a whole number k for every k-th, or a collection of rounds, counted
        from 1; 0 is before the first, in the info of ``reset``.
    clock
        Where task times come from: ``"pool"``, or ``"device"``, where every task is really run on its own and timed in
        seconds (see ``ata_gym.training.clock.DeviceClock``). The env's pool then says how many workers there are; if
        its recorded times end, the episode still ends with them.
    workers
        For the device clock, one for each worker of the env: a list of ``Worker`` or of texts such as ``"cpu:3"``,
        or one text, ``"cpu:1,cpu:3"``.

    Raises
    ------
    TypeError
        If the env is another one, or a vector env.
    ValueError
        For a bad argument (see ``Trainer`` and ``Worker``). ``step`` raises it for a bad action, and leaves everything
        as it was.
    FloatingPointError
        From ``step``, if the loss is NaN or infinite; after ``reset`` the env is usable again.
    MemoryError
        If a device of the device clock has not enough memory for a task; likewise.

    Examples
    --------
    >>> import gymnasium, ata_gym
    >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")
    >>> env = TrainingWrapper(env, "digits", optimizer=torch.optim.AdamW, lr=1e-3, evaluate=[1])
    >>> _ = env.reset(seed=0)
    >>> info = env.step(env.action_space.sample())[-1]
    >>> sorted(info)
    ['accuracy', 'loss', 'round_time', 'runtime', 'test_loss', 'total_worker_time', 'worker_time']
    """

    def __init__(
        self,
        env: gym.Env[Observation, NDArray[Any]],
        problem: Problem | str = "digits",
        *,
        model: nn.Module | Callable[[], nn.Module] | None = None,
        optimizer: str | OptimizerFactory | None = None,
        lr: float | None = None,
        schedule: str | ScheduleFactory | None = None,
        micro_batch: int = 1,
        precision: str = "float32",
        compile: bool = False,
        graphs: bool = False,
        device: str | torch.device = "cpu",
        seed: int = 0,
        evaluate: int | Collection[int] | None = None,
        clock: Literal["pool", "device"] = "pool",
        workers: str | Sequence[Worker | str] | None = None,
    ) -> None:
        listed = _workers(clock, workers, precision, compile or graphs)
        training: dict[str, Any] = {
            "model": model, "optimizer": optimizer, "lr": lr, "schedule": schedule, "micro_batch": micro_batch,
            "precision": precision, "compile": compile, "graphs": graphs, "device": device, "seed": seed,
        }  # fmt: skip
        RecordConstructorArgs.__init__(
            self,
            _disable_deepcopy=True,  # the data of a problem would be copied
            problem=problem, **training, evaluate=evaluate,
            clock=clock, workers=listed and [str(worker) for worker in listed],  # as text, for env.spec.to_json()
        )  # fmt: skip
        if not isinstance(env, gym.Env) or not isinstance(env.unwrapped, TaskAllocationEnv):
            raise TypeError(
                "TrainingWrapper wraps a single env of ata_gym/TaskAllocation-v0 or ata_gym/TaskRace-v0 "
                f"(gymnasium.make), not {env}"
            )
        if listed is not None and len(listed) != env.unwrapped.n:
            raise ValueError(f"the env has {env.unwrapped.n} workers, but workers=... lists {len(listed)}")
        super().__init__(env)
        self._due = _due(evaluate)
        self._bare = env.unwrapped
        self._observation: Observation | None = None
        self.trainer = Trainer(problem, self._bare.budget, **training)
        self._clock = None if listed is None else DeviceClock(self.trainer, listed)
        if self._clock is not None:
            self._bare.run_on(self._clock)

    @property
    def model(self) -> nn.Module:
        """The model of the running episode."""
        return self.trainer.model

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode of the env, and training anew from the initial weights."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.trainer.reset()
        self._observation = observation
        return observation, info | self._evaluation()

    def step(self, action: NDArray[Any]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Run one round with an allocation of shape (n,), then train on its B gradients."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._observation = observation
        loss = self.trainer.step() if self._clock is None else self._clock.step()
        return observation, float(reward), terminated, truncated, info | {"loss": loss} | self._evaluation()

    def save(self, path: str | os.PathLike[str], state: Any = None) -> None:
        """Write a checkpoint: all that training, the env and a policy remember, and the last observation.

        Parameters
        ----------
        path
            A file, which appears whole or not at all.
        state
            What the policy's ``predict`` gave beside the last action.

        Raises
        ------
        ValueError
            If there was no ``reset`` yet, or an optimiser or schedule of the user's remembers more than numbers.

        Examples
        --------
        >>> import tempfile, gymnasium, ata_gym, ata_policies
        >>> def make():
        ...     env = gymnasium.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")
        ...     return TrainingWrapper(env, "quadratic")
        >>> env = make()
        >>> policy = ata_policies.make("ata", env)
        >>> observation, _ = env.reset(seed=0)
        >>> action, state = policy.predict(observation)
        >>> _ = env.step(action)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     env.save(f"{folder}/run.pt", state)
        ...     later = make()
        ...     observation, later_state = later.load(f"{folder}/run.pt", like=state)
        >>> action, state = policy.predict(observation, later_state)
        >>> later.step(action)[-1] == env.step(action)[-1]
        True
        """
        if self._observation is None:
            raise ValueError("there is nothing to save: call reset() first")
        tree = {
            "trainer": self.trainer.checkpoint(),
            "env": self._bare.checkpoint(),
            "observation": self._observation,
            "policy": flatten("state", state),
        }
        checkpoint.save(Path(path), tree)

    def load(self, path: str | os.PathLike[str], like: Any = None) -> tuple[Observation, Any]:
        """Go on from a checkpoint of a wrapper made with the same arguments, bit for bit.

        Parameters
        ----------
        path
            What ``save`` wrote. Reading it runs no code.
        like
            A state of the policy, for its form: ``policy.predict`` gives one for any observation.

        Returns
        -------
        The last observation, and the policy's state.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it is damaged, or does not fit; then ``reset`` starts anew.
        """
        tree = checkpoint.load(Path(path), "trainer", "env", "observation", "policy")
        env, observation, policy = (
            {name: part.numpy() for name, part in tree[which].items()} for which in ("env", "observation", "policy")
        )
        if flatten("state", like).keys() != policy.keys():
            raise ValueError(f"this checkpoint is of another policy: its state has the parts {sorted(policy)}")
        self.env.reset()  # for wrappers in between, which may ask for it
        self._bare.restore(env)
        self.trainer.restore(tree["trainer"])
        self._observation = observation
        return observation, restore("state", like, policy)

    def _evaluation(self) -> dict[str, float]:
        return self.trainer.evaluate() if self._due(self.trainer.round) else {}


def _due(evaluate: int | Collection[int] | None) -> Callable[[int], bool]:
    if evaluate is None:
        return lambda _: False
    if isinstance(evaluate, Collection):
        rounds = frozenset(whole_number("a round to evaluate", k, 0) for k in evaluate)
        return lambda k: k in rounds
    every = whole_number("evaluate", evaluate)
    return lambda k: k % every == 0


def _workers(
    clock: str, workers: str | Sequence[Worker | str] | None, precision: str, fused: bool
) -> tuple[Worker, ...] | None:
    if clock not in ("pool", "device"):
        raise ValueError(f'clock must be "pool" or "device", not {clock!r}')
    if clock == "device":
        if precision == "float16":
            raise ValueError('the device clock does not scale gradients, as float16 needs: use precision="bfloat16"')
        if fused:
            raise ValueError("the device clock runs one task at a time: leave out compile=... and graphs=...")
        return find_workers(workers)
    if workers is not None:
        raise ValueError('workers=... only goes with clock="device"')
    return None
