"""Training round by round: B stochastic gradients and one step of the optimiser."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ata_gym.checks import whole_number
from ata_gym.simulation import derive_keys, stream_keys
from ata_gym.training.devices import enough_memory, find_device, seeded
from ata_gym.training.graphs import Replayed
from ata_gym.training.models import build_model, evaluating, trained_weights
from ata_gym.training.optimizers import OptimizerFactory, factory_name, find_optimizer
from ata_gym.training.precision import Precision
from ata_gym.training.problems import Problem, make_problem
from ata_gym.training.schedules import ScheduleFactory, find_schedule

_GRADIENT_NOISE, _TORCH_NOISE = 2, 3  # streams of keys; task times and policies have 0 and 1
# what torch draws for: initial weights, layers such as dropout in a whole round, and in its task b alone (_TASK + b)
_WEIGHTS, _LAYERS, _TASK = 0, 1, 2

_Loss = Callable[[nn.Module, Any], Tensor]


class Trainer:
    """Trains a model: each round is one optimiser step on the mean of B stochastic gradients.

    The B gradients are those of one backward pass over the mean loss of the B tasks. Sample s of task b in round k,
    with m samples to a task, is drawn from a key of (seed, k, b m + s), and layers such as dropout draw from a key of
    (seed, k), so one seed means one trajectory, whatever the workers do. On a CPU it is the same to the bit for one
    number of torch threads.

    Parameters
    ----------
    problem
        A problem, or the name of one.
    budget
        Gradients B of a round.
    model
        In place of the problem's: a module, of which a copy is trained, or a function that returns one.
    optimizer
        ``"sgd"``, ``"momentum"``, ``"adam"``, ``"adamw"`` or any factory such as ``torch.optim.RMSprop``; by default
        the problem's own.
    lr
        Learning rate; by default the problem's for a named optimiser, and the factory's own for a factory.
    schedule
        What becomes of the learning rate, once a round: see ``schedules.find_schedule``; by default nothing.
    micro_batch
        Samples m of a task, whose loss is their mean.
    precision
        ``"float32"``, ``"bfloat16"`` or ``"float16"``, the latter two as torch's automatic mixed precision.
    compile
        Let ``torch.compile`` fuse the model and the loss.
    graphs
        On CUDA: launch all kernels of a gradient at once, as a CUDA graph; see ``graphs.Replayed``.
    device
        ``"cpu"``, ``"cuda"`` or ``"cuda:<index>"``. The data is moved there once.
    seed
        Keys the initial weights and the gradients.

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

    def __init__(
        self,
        problem: Problem | str,
        budget: int,
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
    ) -> None:
        self.budget = whole_number("budget", budget)
        self.micro_batch = whole_number("micro_batch", micro_batch)
        self.seed = whole_number("seed", seed, 0)
        self.device = find_device(device)
        found = make_problem(problem) if isinstance(problem, str) else problem
        if not isinstance(found, Problem):
            raise TypeError(f"problem must be a name or have the parts of ata_gym.training.Problem, not {problem!r}")
        self.recipe = find_optimizer(found, optimizer, lr)
        self._make_schedule = find_schedule(schedule)
        self._precision = Precision(precision)
        self._compile, self._graphs = bool(compile), bool(graphs)
        schedule = "constant" if schedule is None else schedule
        self._schedule_name = schedule if isinstance(schedule, str) else factory_name(schedule)
        self._gradient_key = stream_keys(self.seed, stream=_GRADIENT_NOISE)[0]
        self._torch_key = stream_keys(self.seed, stream=_TORCH_NOISE)[0]
        with enough_memory(self.device, "the model with its data"):
            self.problem = found.to(self.device)
            source = found.build if model is None else model
            self._fresh = build_model(source, self._key(0, _WEIGHTS)).to(self.device)
            self.reset()

    def reset(self) -> None:
        """Start anew from the seed's initial weights; a model trained before is left as it is."""
        self.model = copy.deepcopy(self._fresh)
        self._optimizer = self.recipe(self.model)
        self._schedule = self._make_schedule and self._make_schedule(self._optimizer)
        self._scaler = self._precision.scaler(self.device)
        self._loss = torch.compile(self.problem.loss) if self._compile else self.problem.loss
        self._gradient = Replayed(self._leave_gradient, self.device) if self._graphs else self._leave_gradient
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
            If the problem does not give one loss for each sample.
        """
        with enough_memory(self.device, f"round {self.round + 1}"), seeded(self.layer_key(), self.device):
            return self._advance(self._gradient(self._draw(self.problem, range(self.budget))).item())

    def advance(self, loss: float, gradient: Sequence[Tensor | None]) -> float:
        """The same as ``step``, with a mean gradient that was computed elsewhere.

        Parameters
        ----------
        loss
            The mean loss of the round's tasks.
        gradient
            One part for each of the model's trained weights, or None where there is none.
        """
        for weights, part in zip(trained_weights(self.model), gradient, strict=True):
            weights.grad = None if part is None else self._scaler.scale(part)
        return self._advance(loss)

    def losses(self, problem: Problem, model: nn.Module, tasks: Sequence[int]) -> Tensor:
        """The losses of some tasks of the running round, shape (len(tasks),), for copies of problem and model."""
        return self._per_task(problem.loss, model, self._draw(problem, tasks), len(tasks))

    def layer_key(self, task: int | None = None) -> int:
        """The key that torch draws from in the running round, for all its tasks at once or for a single one."""
        return self._key(self.round, _LAYERS if task is None else _TASK + task)

    def finite(self, loss: float) -> float:
        """The loss itself, or FloatingPointError."""
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the training loss is {loss} in round {self.round + 1}: lower lr=..., or look for what overflows in "
                "the model; reset() starts anew"
            )
        return loss

    def evaluate(self) -> dict[str, float]:
        """The problem's figures on held-out data, with the model in evaluation mode and without mixed precision."""
        with enough_memory(self.device, "the evaluation"), evaluating(self.model):
            return dict(self.problem.evaluate(self.model))

    def config(self) -> dict[str, str | int | float | None]:
        """What the trajectory depends on, beside the data and a model of the user's."""
        return {
            "problem": self.problem.name,
            "budget": self.budget,
            "micro_batch": self.micro_batch,
            "optimizer": self.recipe.name,
            "lr": self.recipe.lr,
            "schedule": self._schedule_name,
            "precision": self._precision.name,
            "compile": self._compile,
            "graphs": self._graphs,
            "device": self.device.type,
            "seed": self.seed,
        }

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
        """Go on from a ``checkpoint``, bit for bit.

        Raises
        ------
        ValueError
            If it is that of another configuration or model.
        """
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
        m = self.micro_batch
        samples = (np.array(tasks)[:, None] * m + np.arange(m)).ravel()
        return problem.draw(derive_keys(self._gradient_key, self.round, samples))

    def _per_task(self, loss: _Loss, model: nn.Module, batch: Any, tasks: int) -> Tensor:
        with self._precision.autocast(model):
            losses = loss(model, batch)
        shape = (tasks * self.micro_batch,)
        if not isinstance(losses, Tensor) or losses.shape != shape:
            got = tuple(losses.shape) if isinstance(losses, Tensor) else losses
            raise ValueError(
                f"the loss of {self.problem.name} must give one number per sample, shape {shape}, not {got!r}: "
                'for losses of torch, reduction="none"'
            )
        return losses.reshape(tasks, -1).mean(1, dtype=torch.promote_types(losses.dtype, torch.float32))

    def _leave_gradient(self, batch: Any) -> Tensor:
        """Leave the mean gradient of a round's batch in the weights, maybe scaled; give its mean loss."""
        self._optimizer.zero_grad()
        mean = self._per_task(self._loss, self.model, batch, self.budget).mean()
        self._scaler.scale(mean).backward()  # type: ignore[no-untyped-call]
        return mean.detach()

    def _advance(self, loss: float) -> float:
        self.finite(loss)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        if self._schedule is not None:
            self._schedule.step()
        self.round += 1
        return loss
