"""Training round by round: B stochastic gradients and one step of the optimiser."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ata_gym.simulation.keys import derive_keys, stream_keys
from ata_gym.training.devices.device import autocast, enough_memory, seeded
from ata_gym.training.devices.graphs import GraphedComputation
from ata_gym.training.models import Weights, accepting, at_weights, build_model, evaluating, trained_weights
from ata_gym.training.optimizers import find_optimizer, find_schedule
from ata_gym.training.problems.problem import Problem, make_problem
from ata_gym.training.settings import TrainingSettings
from ata_gym.utils.validation import whole_number

_GRADIENT_NOISE, _TORCH_NOISE = 2, 3  # streams of keys; task times and policies have 0 and 1
# purposes of torch's noise: initial weights, layers such as dropout in a whole round, in its task b alone (_TASK + b),
# and the optimiser's step
_WEIGHTS, _LAYERS, _TASK, _STEP = 0, 1, 2, 2**60

_Loss = Callable[[nn.Module, Any], Tensor]


class Gradient(NamedTuple):
    """A mean of stochastic gradients."""

    loss: float
    """The mean loss of their tasks, at the weights where the gradients were taken."""
    parts: Sequence[Tensor | None]
    """One for each of the model's trained weights, None where the loss does not depend on them; with float16 times the
    loss scale. With ``graphs=True`` they are overwritten by the next gradient."""


class Trainer:
    """Trains a model: each round is one optimiser step on the mean of B stochastic gradients.

    It comes from one backward pass over the mean loss of the round's B tasks. Sample s of task b in round k,
    with m samples to a task, is drawn from a key of (seed, k, b m + s), and layers such as dropout draw from a key of
    (seed, k), so one seed means one trajectory, whatever the workers do. On a CPU it is the same to the bit for one
    number of torch threads.

    Parameters
    ----------
    problem
        A problem, or the name of one.
    budget
        Gradients B of a round.
    settings
        The fields of ``TrainingSettings``: optimizer, lr, device, seed and so on.

    Raises
    ------
    ValueError
        For a bad argument, a missing device, or a model in which batch norm mixes the samples of a batch.
    MemoryError
        If the data or the model does not fit into the device's memory.

    Examples
    --------
    >>> trainer = Trainer("digits", budget=23, optimizer="adam", schedule="cosine:1000")
    >>> losses = [trainer.step() for _ in range(40)]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(self, problem: Problem | str, budget: int, **settings: Any) -> None:
        self.settings = TrainingSettings(**settings)
        self.budget = whole_number("budget", budget)
        self.device = torch.device(self.settings.device)
        found = make_problem(problem) if isinstance(problem, str) else problem
        if not isinstance(found, Problem):
            raise TypeError(f"problem must be a name or have the parts of ata_gym.training.Problem, not {problem!r}")
        self.optimizer_choice = find_optimizer(found, self.settings.optimizer, self.settings.lr)
        self._make_schedule = find_schedule(self.settings.schedule)
        self._gradient_key = stream_keys(self.settings.seed, stream=_GRADIENT_NOISE)[0]
        self._torch_key = stream_keys(self.settings.seed, stream=_TORCH_NOISE)[0]
        with enough_memory(self.device, "the model with its data"):
            self.problem = found.to(self.device)
            source = found.build if self.settings.model is None else self.settings.model
            self._fresh = build_model(source, self._key(0, _WEIGHTS)).to(self.device)
            self.reset()

    def reset(self) -> None:
        """Start anew from the seed's initial weights; a model trained before is left as it is."""
        self.model = copy.deepcopy(self._fresh)
        self._optimizer = self.optimizer_choice(self.model)
        self._schedule = self._make_schedule and self._make_schedule(self._optimizer)
        scaled = self.settings.precision == "float16"  # or small gradients would become 0
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=scaled)
        self._loss = torch.compile(self.problem.loss) if self.settings.compile else self.problem.loss
        whole_round = partial(self._backward, tasks=self.budget)
        self._whole_round = GraphedComputation(whole_round, self.device) if self.settings.graphs else whole_round
        self.round = 0
        """Rounds done."""

    def step(self) -> float:
        """Train for one round; the mean loss of its B tasks, at the weights before the step.

        Raises
        ------
        FloatingPointError
            If the loss is NaN or infinite; the weights stay as they were before the round.
        MemoryError
            If the round does not fit into the device's memory.
        ValueError
            If the model does not take the problem's data, or the problem does not give one loss for each sample.
        """
        return self.apply(self.gradient())

    def gradient(self, weights: Weights | None = None, tasks: int | None = None) -> Gradient:
        """The mean of some stochastic gradients of the running round, by default all B; nothing moves.

        They are taken at ``weights``, as ``models.copy_weights`` gave them, by default at the current ones. It raises
        what ``step`` raises.
        """
        with (
            enough_memory(self.device, f"round {self.round + 1}"),
            seeded(self.layer_key(), self.device),
            at_weights(self.model, weights),
        ):
            batch = self._draw(self.problem, range(self.budget if tasks is None else tasks))
            loss = self._whole_round(batch) if tasks is None else self._backward(batch, tasks)
            return Gradient(self.finite(loss.item()), [part.grad for part in trained_weights(self.model)])

    def apply(self, gradient: Gradient, scale: float = 1.0) -> float:
        """Take the optimiser's step of the running round, and end the round; the gradient's loss.

        The gradient is what ``gradient`` gave, at these or at earlier weights, or a mean that was computed elsewhere;
        ``scale`` is a factor on the learning rate of this step.
        """
        for weights, part in zip(trained_weights(self.model), gradient.parts, strict=True):
            weights.grad = part
        groups = self._optimizer.param_groups
        rates = [group["lr"] for group in groups]
        step_key = self._key(self.round, _STEP)
        with enough_memory(self.device, f"round {self.round + 1}"), seeded(step_key, self.device):
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate * scale
            try:
                self._scaler.step(self._optimizer)
            finally:
                for group, rate in zip(groups, rates, strict=True):
                    group["lr"] = rate
        self._scaler.update()
        if self._schedule is not None:
            self._schedule.step()
        self.round += 1
        return gradient.loss

    def skip(self) -> None:
        """End the running round without a step: nothing moves."""
        self.round += 1

    def losses(self, problem: Problem, model: nn.Module, tasks: Sequence[int]) -> Tensor:
        """The losses of some tasks of the running round, shape (len(tasks),), for copies of problem and model."""
        return self._per_task(problem.loss, model, self._draw(problem, tasks), len(tasks))

    def layer_key(self, task: int | None = None) -> int:
        """The key that torch draws from in the running round, for all its tasks at once or for a single one."""
        return self._key(self.round, _LAYERS if task is None else _TASK + task)

    def finite(self, loss: float) -> float:
        """Return the loss, or raise FloatingPointError if it is NaN or infinite."""
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the training loss is {loss} in round {self.round + 1}: lower lr=..., or look for what overflows in "
                "the model; reset() starts anew"
            )
        return loss

    def evaluate(self) -> dict[str, float]:
        """The problem's figures on held-out data, with the model in evaluation mode and without mixed precision."""
        with enough_memory(self.device, "the evaluation"), evaluating(self.model), accepting(self.problem.name):
            return dict(self.problem.evaluate(self.model))

    def config(self) -> dict[str, str | int | float | None]:
        """What the trajectory depends on, beside the data and a model of the user's."""
        chosen = {"optimizer": self.optimizer_choice.name, "lr": self.optimizer_choice.lr}
        return {"problem": self.problem.name, "budget": self.budget, **self.settings.to_data(), **chosen}

    def checkpoint(self) -> dict[str, Any]:
        """Everything that training remembers, to save with ``checkpoint.save``; the tensors are not copies."""
        return {
            "config": self.config(),
            "round": self.round,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "schedule": self._schedule and self._schedule.state_dict(),
            "scaler": self._scaler.state_dict(),
        }

    def restore(self, checkpoint: Mapping[str, Any]) -> None:
        """Go on from a ``checkpoint``, bit for bit; ValueError if it is that of another configuration or model."""
        there, here = checkpoint["config"], self.config()
        differences = [f"{name} is {there.get(name)!r} there" for name in here if there.get(name) != here[name]]
        if differences:
            raise ValueError(f"this checkpoint is of another configuration: {', '.join(differences)}")
        self.reset()
        try:
            self.model.load_state_dict(checkpoint["model"])
        except RuntimeError as error:
            raise ValueError(f"this checkpoint is of another model: {error}") from error
        self._optimizer.load_state_dict(checkpoint["optimizer"])
        if self._schedule is not None:
            self._schedule.load_state_dict(checkpoint["schedule"])
        self._scaler.load_state_dict(checkpoint["scaler"])
        self.round = int(checkpoint["round"])

    def _key(self, round_index: int, purpose: int) -> int:
        return int(derive_keys(self._torch_key, round_index, purpose))

    def _draw(self, problem: Problem, tasks: Sequence[int]) -> Any:
        """The data of some tasks of the running round."""
        m = self.settings.micro_batch
        samples = (np.array(tasks)[:, None] * m + np.arange(m)).ravel()
        return problem.draw(derive_keys(self._gradient_key, self.round, samples))

    def _per_task(self, loss: _Loss, model: nn.Module, batch: Any, tasks: int) -> Tensor:
        with autocast(model, self.settings.precision), accepting(self.problem.name):
            losses = loss(model, batch)
        shape = (tasks * self.settings.micro_batch,)
        if not isinstance(losses, Tensor) or losses.shape != shape:
            got = tuple(losses.shape) if isinstance(losses, Tensor) else losses
            raise ValueError(
                f"the loss of {self.problem.name} must give one number per sample, shape {shape}, not {got!r}: "
                'for losses of torch, reduction="none"'
            )
        return losses.reshape(tasks, -1).mean(1, dtype=torch.promote_types(losses.dtype, torch.float32))

    def _backward(self, batch: Any, tasks: int) -> Tensor:
        """Leave the mean gradient of a batch of tasks in the weights, maybe scaled; give its mean loss."""
        self._optimizer.zero_grad()
        mean = self._per_task(self._loss, self.model, batch, tasks).mean()
        self._scaler.scale(mean).backward()  # type: ignore[no-untyped-call]
        return mean.detach()
