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

from ata_gym.simulation.keys import derive_keys, stream_keys
from ata_gym.training.models.device import enough_memory, seeded
from ata_gym.training.models.model import (
    Buffers,
    Weights,
    accepting,
    at_weights,
    build_model,
    evaluating,
    put_back,
    state_of,
    trained_weights,
)
from ata_gym.training.problem import Problem, make_problem
from ata_gym.training.problems.tasks import Tasks
from ata_gym.training.trainer.losses import FusedLosses, SeparateLosses
from ata_gym.training.trainer.optimizers import find_optimizer, find_schedule
from ata_gym.training.trainer.settings import TrainingSettings
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import whole_number

_GRADIENT_NOISE, _TORCH_NOISE = 2, 3  # streams of keys; task times and policies have 0 and 1
# purposes of torch's noise: initial weights, layers such as dropout in a whole round, in its task b alone (_TASK + b),
# and the optimiser's step
_WEIGHTS, _LAYERS, _TASK, _STEP = 0, 1, 2, 2**60


class Gradient(NamedTuple):
    """A mean of stochastic gradients."""

    loss: float  # the mean loss of their tasks, at the weights where the gradients were taken
    parts: Sequence[Tensor | None]
    """One for each trained weight, None where the loss does not depend on it. With ``graphs=True`` they may not be read
    after the next gradient."""
    tasks: int | None = None  # the number of tasks; None for a round's B


class Trainer:
    """Trains a model: each round is one optimiser step on the mean of B stochastic gradients.

    The mean gradient of a problem comes from one backward pass over the mean loss of the round's B tasks. Sample s of
    task b in round k, with m samples to a task, is drawn from a key of (seed, k, b m + s); layers such as dropout draw
    from a key of (seed, k). ``Tasks`` have a pass each. One seed means one trajectory, whatever the workers do; on a
    CPU it is the same to the bit for one number of torch threads. Only where the data differ by worker, it depends on
    the allocations: all gradients count alike, so that workers with many tasks weigh more, and training ends away from
    the minimum, unless each worker has as many tasks on average. ``quadratic.HeterogeneousQuadratic`` has figures.

    - ``problem``: a problem, or the name of one, or ``Tasks``.
    - ``budget``: gradients B of a round.
    - ``settings``: the fields of ``TrainingSettings``: optimizer, lr, device, seed and so on.

    Raises ValueError for a bad argument, a missing device, an optimiser or schedule whose step needs more than the
    gradient, a model without trained weights, or, unless it has ``Tasks``, one in which the samples of a batch depend
    on each other; and MemoryError if the data or the model does not fit into the device's memory.

    >>> trainer = Trainer("digits", budget=23, optimizer="adam", schedule="cosine:1000")
    >>> losses = [trainer.step() for _ in range(40)]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(self, problem: Problem | Tasks | str, budget: int, **settings: Any) -> None:
        chosen = self.settings = TrainingSettings(**settings)
        self.budget = whole_number("budget", budget)
        self.device = torch.device(chosen.device)
        found = make_problem(problem) if isinstance(problem, str) else problem
        if not isinstance(found, Problem | Tasks):
            raise TypeError(
                "problem must be a name or have the parts of ata_gym.training.Problem, or be ata_gym.training.Tasks, "
                f"not {problem!r}"
            )
        self.optimizer_choice = find_optimizer(found, chosen.optimizer, chosen.lr, chosen.parameter_groups)
        self._make_schedule = find_schedule(chosen.schedule)
        self._gradient_key = stream_keys(chosen.seed, stream=_GRADIENT_NOISE)[0]
        self._torch_key = stream_keys(chosen.seed, stream=_TORCH_NOISE)[0]
        with enough_memory(self.device, "the model with its data"):
            self.problem = found.to(self.device)
            self._losses = self._find_losses(self.problem)
            source = chosen.model
            if source is None:
                source = found.model if isinstance(found, Tasks) else found.build
            fresh = build_model(source, self._key(0, _WEIGHTS), inplace=chosen.inplace).to(self.device)
            self._losses.check(fresh)
            self._fresh = [part.detach().clone() for part in state_of(fresh)] if chosen.inplace else fresh
            self.model = fresh
            self.reset()

    def reset(self) -> None:
        """Start anew from the initial weights; a model trained before is left as it is, unless ``inplace=True``."""
        if isinstance(self._fresh, nn.Module):
            self.model = copy.deepcopy(self._fresh)
        else:
            put_back(self.model, self._fresh)
        self._trained, self._buffers = trained_weights(self.model), Buffers(self.model)
        self._clear()
        self._optimizer = self.optimizer_choice(self.model)
        self._schedule = self._make_schedule and self._make_schedule(self._optimizer)
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=self.settings.precision == "float16")
        self._average = self._make_average()
        self.round = 0  # rounds done
        self._first = 0  # task 0 of the running round, in the whole training

    def step(self, allocation: Ints | None = None) -> float:
        """Train for one round; the mean loss of its B tasks, or of an allocation's, at the weights before the step.

        It raises FloatingPointError if the loss is NaN or infinite: weights and buffers stay as they were before the
        round. It raises MemoryError if the round does not fit into the device's memory, and ValueError if the model
        does not take the problem's data, or the problem does not give one loss for each sample.
        """
        return self.apply(self.gradient(tasks=allocation))

    def leap(self, rounds: int) -> Floats:
        """Train for one round, or for up to ``rounds`` where a subclass has a faster way; their losses."""
        return np.array([self.step()])

    def gradient(self, weights: Weights | None = None, tasks: int | Ints | None = None, first: int = 0) -> Gradient:
        """The mean of ``tasks`` stochastic gradients of the running round from task ``first`` on, by default of all B.

        They are taken at ``weights``, as ``copy_weights`` gave them, by default at the current ones. No weights move.
        Where data differ by worker, ``tasks`` may be an allocation, shape (n,): how many of them each worker computes,
        in the workers' order. Otherwise they are drawn as if all data were in one place.
        """
        count = self.budget if tasks is None else int(np.sum(tasks))
        with enough_memory(self.device, f"round {self.round + 1}"), at_weights(self.model, weights), self._buffers:
            loss = self._accumulate(first, count, tasks if isinstance(tasks, np.ndarray) else None)
            if self._scaler.is_enabled():
                self._unscale()
            return Gradient(loss, [part.grad for part in self._trained], count)

    def apply(self, gradient: Gradient, scale: float = 1.0) -> float:
        """Take the optimiser's step along a gradient, and end the running round; the gradient's loss.

        The gradient may have been computed elsewhere. ``scale`` is a factor on the learning rate of this step.
        """
        for weights, part in zip(self._trained, gradient.parts, strict=True):
            weights.grad = part
        if self.settings.clip_norm is not None:
            moved = [weights for group in self._optimizer.param_groups for weights in group["params"]]
            nn.utils.clip_grad_norm_(moved, self.settings.clip_norm)
        named = self.optimizer_choice.named  # such an optimiser draws nothing
        noise = nullcontext() if named else seeded(self._key(self.round, _STEP), self.device)
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

    def skip(self) -> None:
        """End the running round without a step."""
        self._end_round(0)

    def draw(self, problem: Any, tasks: Sequence[int], by: Ints | None = None) -> Any:
        """The data of some tasks of the running round; ``problem`` is the trainer's, or a copy on another device."""
        return self._losses.draw(problem, self.round, self._first, tasks, by)

    def losses(self, problem: Any, model: nn.Module, batch: Any, tasks: int) -> Tensor:
        """The losses of tasks from what ``draw`` gave, shape (tasks,); problem and model may be copies elsewhere."""
        return self._losses.each(problem, model, batch, tasks)

    def layer_key(self, task: int | None = None) -> int:
        """The key that layers such as dropout draw from in the running round: for all tasks at once, or for one."""
        return self._key(self.round, _LAYERS if task is None else _TASK + task)

    def finite(self, loss: float) -> float:
        """Return the loss, or raise FloatingPointError if it is NaN or infinite."""
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the training loss is {loss} in round {self.round + 1}: lower lr=..., or look for what overflows in "
                "the model; reset() starts anew"
            )
        return loss

    @property
    def evaluated_model(self) -> nn.Module:
        """The model whose figures ``evaluate`` gives: with ``ema`` the averaged one."""
        return self.model if self._average is None else self._average.module

    def evaluate(self) -> dict[str, float]:
        """The problem's figures on held-out data, with the model in evaluation mode and without mixed precision."""
        model = self.evaluated_model
        with enough_memory(self.device, "the evaluation"), evaluating(model), accepting(self.problem.name):
            return dict(self.problem.evaluate(model))

    def config(self) -> dict[str, str | int | float | None]:
        """What the trajectory depends on, beside the data and a model of the user's."""
        chosen = {"optimizer": self.optimizer_choice.name, "lr": self.optimizer_choice.lr, "chunk": self._losses.chunk}
        return {"problem": self.problem.name, "budget": self.budget, **self.settings.to_data(), **chosen}

    def checkpoint(self) -> dict[str, Any]:
        """The whole state of training, for ``checkpoint.save``; its tensors are not copies."""
        states = {name: None if part is None else part.state_dict() for name, part in self._parts().items()}
        return {"config": self.config(), "round": self.round, "tasks": self._first, **states}

    def restore(self, checkpoint: Mapping[str, Any]) -> None:
        """Go on from a ``checkpoint``, bit for bit; ValueError if it is that of another configuration or model."""
        there, here = checkpoint["config"], self.config()
        differences = [f"{name} is {there.get(name)!r} there" for name in here if there.get(name) != here[name]]
        if differences:
            raise ValueError(f"this checkpoint is of another configuration: {', '.join(differences)}")
        self.reset()
        try:
            for name, part in self._parts().items():
                if part is not None:
                    part.load_state_dict(checkpoint[name])
        except RuntimeError as error:
            raise ValueError(f"this checkpoint is of another model: {error}") from error
        self.round, self._first = int(checkpoint["round"]), int(checkpoint["tasks"])

    def _parts(self) -> dict[str, Any]:  # what has a state of its own; None for what the settings do not ask for
        return {
            "model": self.model, "optimizer": self._optimizer, "schedule": self._schedule, "scaler": self._scaler,
            "average": self._average,
        }  # fmt: skip

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
        average = AveragedModel(self.model, multi_avg_fn=moving, use_buffers=True).requires_grad_(False)
        average.update_parameters(self.model)
        return average

    def _clear(self) -> None:
        for weights in self._trained:
            weights.grad = None

    def _accumulate(self, first: int, count: int, by: Ints | None) -> float:
        self._clear()
        chunk, total = self._losses.chunk, None
        for start in range(0, count, chunk or count):
            stop = min(start + (chunk or count), count)
            tasks = range(first + start, first + stop)
            part = None if by is None else np.diff(np.cumsum(by).clip(start, stop), prepend=start)
            with seeded(self.layer_key(None if chunk is None and not first else tasks[0]), self.device):
                batch = self.draw(self.problem, tasks, part)
                loss = self._losses.mean(self.model, batch, len(tasks))
                if len(tasks) < count:
                    loss = loss * (len(tasks) / count)
                self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        return self.finite(total.item())

    def _unscale(self) -> None:
        before = self._scaler.get_scale()
        self._scaler.unscale_(self._optimizer)
        self._scaler.update()
        if self._scaler.get_scale() < before:
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
        self._first += self.budget if tasks is None else tasks
