"""Training round by round: B stochastic gradients and one step of the optimiser."""

import copy
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ata_gym.models.memory import enough_memory
from ata_gym.models.model import (
    Buffers,
    Weights,
    accepting,
    at_weights,
    build_model,
    evaluating,
    model_state,
    restore_state,
    trained_weights,
)
from ata_gym.models.seeds import seeded
from ata_gym.simulation.keys import derive_keys, stream_keys
from ata_gym.training.problem import Problem, make_problem
from ata_gym.training.problems.tasks import Tasks
from ata_gym.training.trainer.losses import FusedLosses, SeparateLosses
from ata_gym.training.trainer.optimizers import find_optimizer, find_schedule
from ata_gym.training.trainer.settings import TrainingSettings
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import whole_number

# Streams of keys: task times have 0, and policies have 1.
_GRADIENT_NOISE = 2
_TORCH_NOISE = 3
# Purposes of torch's noise: initial weights, layers such as dropout in a whole round, the same
# layers in task b alone (_TASK + b), and the optimiser's step.
_WEIGHTS = 0
_LAYERS = 1
_TASK = 2
_STEP = 2**60


class Gradient(NamedTuple):
    """A mean of stochastic gradients."""

    loss: float
    """The mean loss of their tasks, at the weights where the gradients were taken."""
    parts: Sequence[Tensor | None]
    """One tensor for each trained weight, None where the loss does not depend on it.

    With ``graphs=True`` they may not be read after the next gradient."""
    tasks: int | None = None
    """The number of tasks; None for a round's B."""


class Trainer:
    """Trains a model: each round is one optimiser step on the mean of B stochastic gradients.

    The mean gradient of a problem comes from one backward pass over the mean loss of the round's B
    tasks. Sample s of task b in round k, with m samples to a task, is drawn from a key of (seed, k,
    b m + s); layers such as dropout draw from a key of (seed, k). ``Tasks`` have a pass each. One
    seed means one trajectory, whatever the workers do. On a CPU it is the same to the bit for one
    number of torch threads.

    Only where the data differ by worker, the trajectory depends on the allocations: all gradients
    count alike, so that workers with many tasks weigh more. Training then ends away from the
    minimum, unless each worker has as many tasks on average.
    ``quadratic.HeterogeneousQuadratic`` has figures.

    Args:
        problem: A problem, or the name of one, or ``Tasks``.
        budget: Gradients B of a round.
        settings: The fields of ``TrainingSettings``: optimizer, lr, device, seed and so on.

    Raises:
        ValueError: For a bad argument, a missing device, an optimiser or schedule whose step needs
            more than the gradient, or a model without trained weights. Also, unless the problem is
            ``Tasks``, for a model in which the samples of a batch depend on each other.
        TypeError: If ``problem`` is none of these.
        MemoryError: If the data or the model does not fit into the device's memory.

    Example:
        >>> trainer = Trainer("digits", budget=23, optimizer="adam", schedule="cosine:1000")
        >>> losses = [trainer.step() for _ in range(40)]
        >>> losses[-1] < losses[0]
        True
    """

    def __init__(self, problem: Problem | Tasks | str, budget: int, **settings: Any) -> None:
        self.settings = TrainingSettings(**settings)
        self.budget = whole_number("budget", budget)
        self.device = torch.device(self.settings.device)
        loaded_problem = make_problem(problem) if isinstance(problem, str) else problem
        if not isinstance(loaded_problem, Problem | Tasks):
            raise TypeError(
                "problem must be a name or have the parts of ata_gym.training.Problem, or be"
                f" ata_gym.training.Tasks, not {problem!r}",
            )
        self.optimizer_choice = find_optimizer(
            loaded_problem,
            self.settings.optimizer,
            self.settings.lr,
            self.settings.parameter_groups,
        )
        self._make_schedule = find_schedule(self.settings.schedule)
        self._gradient_key = stream_keys(self.settings.seed, stream=_GRADIENT_NOISE)[0]
        self._torch_key = stream_keys(self.settings.seed, stream=_TORCH_NOISE)[0]
        with enough_memory(self.device, "the model with its data"):
            self.problem = loaded_problem.to(self.device)
            self._losses = self._find_losses(self.problem)
            source = self.settings.model
            if source is None:
                if isinstance(loaded_problem, Tasks):
                    source = loaded_problem.model
                else:
                    source = loaded_problem.build
            fresh = build_model(source, self._key(0, _WEIGHTS), inplace=self.settings.inplace).to(
                self.device,
            )
            self._losses.check(fresh)
            # What ``reset`` starts from: the initial values, or a module that is copied.
            self._initial = (
                [part.detach().clone() for part in model_state(fresh)]
                if self.settings.inplace
                else fresh
            )
            self.model = fresh
            self.reset()

    def reset(self) -> None:
        """Start anew from the initial weights.

        A model that was trained before is left as it is, unless ``inplace=True``.
        """
        if isinstance(self._initial, nn.Module):
            self.model = copy.deepcopy(self._initial)
        else:
            restore_state(self.model, self._initial)
        self._trained = trained_weights(self.model)
        self._buffers = Buffers(self.model)
        self._clear()
        self._optimizer = self.optimizer_choice(self.model)
        self._schedule = self._make_schedule and self._make_schedule(self._optimizer)
        self._scaler = torch.amp.GradScaler(
            self.device.type,
            enabled=self.settings.precision == "float16",
        )
        self._average = self._make_average()
        self.round = 0
        """The number of rounds done."""
        self._first_task = 0
        """The number of the running round's task 0 in the whole training."""

    def step(self, allocation: Ints | None = None) -> float:
        """Train for one round.

        Args:
            allocation: The tasks of each worker, shape (n,); by default B tasks, as if all data
                were in one place.

        Returns:
            The mean loss of the round's tasks, at the weights before the step.

        Raises:
            FloatingPointError: If the loss is NaN or infinite: weights and buffers stay as they
                were before the round.
            MemoryError: If the round does not fit into the device's memory.
            ValueError: If the model does not take the problem's data, or the problem does not give
                one loss for each sample.
        """
        return self.apply(self.gradient(tasks=allocation))

    def train_rounds(self, rounds: int) -> Floats:
        """Train for one round, or for up to ``rounds`` where a subclass has a faster way.

        Returns:
            The losses of the rounds that were played, shape (rounds played,).
        """
        return np.array([self.step()])

    def gradient(
        self,
        weights: Weights | None = None,
        tasks: int | Ints | None = None,
        first_task: int = 0,
    ) -> Gradient:
        """The mean of some stochastic gradients of the running round; no weights move.

        Args:
            weights: Where the gradients are taken, as ``copy_weights`` gave them; by default the
                current weights.
            tasks: How many gradients, by default B. Where data differ by worker, an allocation,
                shape (n,): how many of them each worker computes, in the workers' order. With a
                number they are drawn as if all data were in one place.
            first_task: The place in the round of the first of these tasks.
        """
        if tasks is None:
            count = self.budget
        else:
            count = int(np.sum(tasks))
        with (
            enough_memory(self.device, f"round {self.round + 1}"),
            at_weights(self.model, weights),
            self._buffers,
        ):
            worker_tasks = tasks if isinstance(tasks, np.ndarray) else None
            loss = self._accumulate(first_task, count, worker_tasks)
            if self._scaler.is_enabled():
                self._unscale()
            return Gradient(loss, [part.grad for part in self._trained], count)

    def apply(self, gradient: Gradient, scale: float = 1.0) -> float:
        """Take the optimiser's step along a gradient, and end the running round.

        Args:
            gradient: The gradient, which may have been computed elsewhere.
            scale: A factor on the learning rate of this step.

        Returns:
            The gradient's loss.
        """
        for weights, part in zip(self._trained, gradient.parts, strict=True):
            weights.grad = part
        if self.settings.clip_norm is not None:
            moved_weights = [
                weights for group in self._optimizer.param_groups for weights in group["params"]
            ]
            nn.utils.clip_grad_norm_(moved_weights, self.settings.clip_norm)
        # An optimiser that was chosen by name draws nothing, and seeding takes time.
        is_named = self.optimizer_choice.named
        noise = nullcontext() if is_named else seeded(self._key(self.round, _STEP), self.device)
        with enough_memory(self.device, f"round {self.round + 1}"), noise:
            self._move(scale)
        self._end_round(gradient.tasks)
        if self._average is not None:
            self._average.update_parameters(self.model)
        if self._schedule is not None:
            self._schedule.step()
        if self.settings.on_step is not None:
            self.settings.on_step(self.round, gradient.loss, self)
        return gradient.loss

    def check_plain_sgd(self) -> None:
        """Raise a ValueError unless each step is one of plain SGD with one learning rate."""
        others = {
            f"optimizer={self.optimizer_choice.name!r}": self.optimizer_choice.name != "sgd",
            "parameter_groups": self.settings.parameter_groups is not None,
            "clip_norm": self.settings.clip_norm is not None,
        }
        if any(others.values()):
            names = ", ".join(name for name, given in others.items() if given)
            raise ValueError(
                f"local steps are steps of plain SGD, and do not go with {names}: choose"
                " optimizer=sgd, without parameter_groups and clip_norm",
            )

    def moved(self, weights: Weights, gradient: Gradient) -> Weights:
        """The weights after a step of plain SGD from others, with this round's learning rate.

        The model and the round stay as they are.

        Args:
            weights: Where the step begins, as ``copy_weights`` gives it.
            gradient: What it goes along, as ``gradient`` gives it.
        """
        rate = self._optimizer.param_groups[0]["lr"]
        parts = iter(gradient.parts)
        after = []
        for own, values in zip(self.model.parameters(), weights, strict=True):
            part = next(parts) if own.requires_grad else None
            if part is None:
                after.append(values)
            else:
                after.append(values.add(part, alpha=-rate))
        return tuple(after)

    def skip(self) -> None:
        """End the running round without a step."""
        self._end_round(0)

    def draw(self, problem: Any, tasks: Sequence[int], worker_tasks: Ints | None = None) -> Any:
        """The data of some tasks of the running round.

        Args:
            problem: The trainer's problem, or a copy of it on another device.
            tasks: The places of the tasks in the round.
            worker_tasks: How many of them each worker computes, shape (n,), where the data differ
                by worker.
        """
        return self._losses.draw(problem, self.round, self._first_task, tasks, worker_tasks)

    def losses(self, problem: Any, model: nn.Module, batch: Any, tasks: int) -> Tensor:
        """The losses of tasks from what ``draw`` gave, shape (tasks,).

        The problem and the model may be copies on another device.
        """
        return self._losses.task_losses(problem, model, batch, tasks)

    def layer_key(self, task: int | None = None) -> int:
        """The key that layers such as dropout draw from in the running round.

        Args:
            task: The place of a task in the round; None for all tasks at once.
        """
        if task is None:
            return self._key(self.round, _LAYERS)
        return self._key(self.round, _TASK + task)

    def finite(self, loss: float) -> float:
        """Return the loss, or raise FloatingPointError if it is NaN or infinite."""
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the training loss is {loss} in round {self.round + 1}: lower lr=..., or look for"
                " what overflows in the model; reset() starts anew",
            )
        return loss

    @property
    def evaluated_model(self) -> nn.Module:
        """The model whose figures ``evaluate`` gives; with ``ema`` it is the averaged model."""
        if self._average is None:
            return self.model
        return self._average.module

    def evaluate(self) -> dict[str, float]:
        """The problem's figures on held-out data.

        The model is in evaluation mode, and there is no mixed precision.
        """
        model = self.evaluated_model
        with (
            enough_memory(self.device, "the evaluation"),
            evaluating(model),
            accepting(self.problem.name),
        ):
            return dict(self.problem.evaluate(model))

    def config(self) -> dict[str, str | int | float | None]:
        """What the trajectory depends on, beside the data and a model of the user."""
        chosen = {
            "optimizer": self.optimizer_choice.name,
            "lr": self.optimizer_choice.lr,
            "chunk": self._losses.chunk,
        }
        return {
            "problem": self.problem.name,
            "budget": self.budget,
            **self.settings.to_data(),
            **chosen,
        }

    def checkpoint(self) -> dict[str, Any]:
        """The whole state of training, for ``checkpoint.save``; its tensors are not copies."""
        states = {
            name: None if part is None else part.state_dict()
            for name, part in self._parts().items()
        }
        return {"config": self.config(), "round": self.round, "tasks": self._first_task, **states}

    def restore(self, checkpoint: Mapping[str, Any]) -> None:
        """Go on from a ``checkpoint``, bit for bit.

        Raises:
            ValueError: If the checkpoint is of another configuration or model.
        """
        saved_config = checkpoint["config"]
        config = self.config()
        differences = [
            f"{name} is {saved_config.get(name)!r} there"
            for name in config
            if saved_config.get(name) != config[name]
        ]
        if differences:
            raise ValueError(
                f"this checkpoint is of another configuration: {', '.join(differences)}",
            )
        self.reset()
        try:
            for name, part in self._parts().items():
                if part is not None:
                    part.load_state_dict(checkpoint[name])
        except RuntimeError as error:
            raise ValueError(f"this checkpoint is of another model: {error}") from error
        self.round = int(checkpoint["round"])
        self._first_task = int(checkpoint["tasks"])

    def _parts(self) -> dict[str, Any]:
        """The parts that have a state; None for a part that the settings do not ask for."""
        return {
            "model": self.model,
            "optimizer": self._optimizer,
            "schedule": self._schedule,
            "scaler": self._scaler,
            "average": self._average,
        }

    def _key(self, round_index: int, purpose: int) -> int:
        return int(derive_keys(self._torch_key, round_index, purpose))

    def _find_losses(self, problem: Problem | Tasks) -> FusedLosses | SeparateLosses:
        if isinstance(problem, Tasks):
            return SeparateLosses(problem, self.settings, int(self._gradient_key))
        return FusedLosses(problem, self.settings, self._gradient_key)

    def _make_average(self) -> AveragedModel | None:
        if self.settings.ema is None:
            return None
        moving = get_ema_multi_avg_fn(self.settings.ema)  # type: ignore[no-untyped-call]
        average = AveragedModel(self.model, multi_avg_fn=moving, use_buffers=True)
        average = average.requires_grad_(False)
        average.update_parameters(self.model)
        return average

    def _clear(self) -> None:
        for weights in self._trained:
            weights.grad = None

    def _accumulate(self, first_task: int, count: int, worker_tasks: Ints | None) -> float:
        """Leave the mean gradient of ``count`` tasks in the weights; their mean loss."""
        self._clear()
        chunk = self._losses.chunk
        total = None
        for start in range(0, count, chunk or count):
            stop = min(start + (chunk or count), count)
            tasks = range(first_task + start, first_task + stop)
            if worker_tasks is None:
                part = None
            else:
                # Worker i has the tasks from ends[i - 1] to ends[i]: clipped to the
                # chunk, the differences are how many of the chunk's tasks are its own.
                ends = np.cumsum(worker_tasks)
                part = np.diff(ends.clip(start, stop), prepend=start)
            if chunk is None and not first_task:
                key = self.layer_key()
            else:
                key = self.layer_key(tasks[0])
            with seeded(key, self.device):
                batch = self.draw(self.problem, tasks, part)
                loss = self._losses.mean_loss(self.model, batch, len(tasks))
                if len(tasks) < count:
                    loss = loss * (len(tasks) / count)
                self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            if total is None:
                total = loss.detach()
            else:
                total = total + loss.detach()
        assert total is not None
        return self.finite(total.item())

    def _unscale(self) -> None:
        """Undo the loss scale in the gradients; without any where they overflowed."""
        scale = self._scaler.get_scale()
        self._scaler.unscale_(self._optimizer)
        self._scaler.update()
        # The scale falls only where a gradient overflowed: then the round moves no weights.
        if self._scaler.get_scale() < scale:
            self._clear()

    def _move(self, scale: float) -> None:
        if scale == 1.0:
            self._optimizer.step()
            return
        groups = self._optimizer.param_groups
        rates = [group["lr"] for group in groups]
        try:
            for group in groups:
                group["lr"] = group["lr"] * scale
            self._optimizer.step()
        finally:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate

    def _end_round(self, tasks: int | None) -> None:
        self.round += 1
        if tasks is None:
            self._first_task += self.budget
        else:
            self._first_task += tasks
