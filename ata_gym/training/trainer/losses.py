"""The losses of a round's tasks: in one forward pass for a problem, one after the other for ``Tasks``."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ata_gym.simulation.keys import derive_keys
from ata_gym.training.models.device import autocast, seeded
from ata_gym.training.models.model import accepting
from ata_gym.training.problem import HeterogeneousProblem, Problem
from ata_gym.training.problems.tasks import Tasks, joined
from ata_gym.training.trainer.settings import TrainingSettings
from ata_gym.typing import Ints, Keys

_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_TOLERANCE = 1e-3  # relative to the losses: far above rounding, far below what a batch norm changes

Loss = Callable[[nn.Module, Any], Tensor]  # a function of a model and the data of tasks that gives losses
Compute = Callable[[nn.Module], Tensor]  # the same of a model alone


class FusedLosses:
    """The losses of a problem: sample s of task b in round k is drawn from a key of (k, b m + s), m samples a task."""

    def __init__(self, problem: Problem, settings: TrainingSettings, key: Keys) -> None:
        self.chunk = settings.chunk  # how many tasks have a pass together; None for all of a round
        self._problem, self._key, self._size = problem, key, settings.micro_batch
        self._precision = settings.precision
        self._loss, self._differ = _compiled(problem.loss, settings), isinstance(problem, HeterogeneousProblem)

    def check(self, model: nn.Module) -> None:
        """ValueError if four samples in one batch have not the losses that they have in two batches."""

        def of(tasks: Sequence[int]) -> Compute:
            samples = derive_keys(self._key, 0, np.array(tasks))
            return lambda twin: self._problem.loss(twin, self._problem.draw(samples))

        if (found := apart_and_together(model, of(range(4)), [of([0, 1]), of([2, 3])])) is not None:
            raise ValueError(
                f"the model or the loss of {self._problem.name} mixes the samples of a batch, so that a task would "
                f"have no gradient of its own: a loss is {found[0]:.4g} beside one sample and {found[1]:.4g} beside "
                "three. In place of BatchNorm use GroupNorm, or call eval() on it; or train with "
                "ata_gym.training.Tasks, where each task has a pass of its own"
            )

    def draw(self, problem: Any, round_index: int, first: int, tasks: Sequence[int], by: Ints | None = None) -> Any:
        """The samples of some tasks of a round; ``problem`` is the trainer's, or a copy of it on another device.

        Task 0 is number ``first`` of the whole training, which does not matter: they are drawn with replacement. Worker
        i computes ``by[i]`` of these tasks, in the workers' order, which matters where the data differ by worker.
        """
        samples = (np.array(tasks)[:, None] * self._size + np.arange(self._size)).ravel()
        keys = derive_keys(self._key, round_index, samples)
        if by is None or not self._differ:
            return problem.draw(keys)
        return problem.draw_by_worker(keys, np.repeat(np.arange(len(by)), by * self._size), len(by))

    def mean(self, model: nn.Module, batch: Any, tasks: int) -> Tensor:
        """The mean loss of the tasks in what ``draw`` gave, at least in float32."""
        return self._of_tasks(self._loss, model, batch, tasks).mean()

    def each(self, problem: Problem, model: nn.Module, batch: Any, tasks: int) -> Tensor:
        """The loss of each task in what ``draw`` gave, shape (tasks,); problem and model may be on another device."""
        return self._of_tasks(problem.loss, model, batch, tasks)

    def _of_tasks(self, loss: Any, model: nn.Module, batch: Any, tasks: int) -> Tensor:
        with autocast(model, self._precision), accepting(self._problem.name):
            losses = loss(model, batch)
        shape = (tasks * self._size,)
        if not isinstance(losses, Tensor) or losses.shape != shape:
            got = tuple(losses.shape) if isinstance(losses, Tensor) else losses
            raise ValueError(
                f"the loss of {self._problem.name} must give one number per sample, shape {shape}, not {got!r}: "
                'for losses of torch, reduction="none"; for one number per batch, see ata_gym.training.Tasks'
            )
        if self._size == 1 and losses.dtype in {torch.float32, torch.float64}:
            return losses
        return losses.reshape(tasks, -1).mean(1, dtype=torch.promote_types(losses.dtype, torch.float32))


class SeparateLosses:
    """The losses of ``Tasks``: each task, or each chunk of tasks of equal shapes, has a forward pass of its own."""

    def __init__(self, tasks: Tasks, settings: TrainingSettings, key: int) -> None:
        if settings.micro_batch > 1 or settings.chunk is not None or settings.graphs:
            raise ValueError(
                f"a task of {tasks.name} is one batch of its loader: leave out micro_batch, chunk and graphs, set the "
                "batch size in the loader, and chunk in ata_gym.training.Tasks"
            )
        self.chunk = tasks.chunk
        self._tasks, self._batches, self._precision = tasks, tasks.batches(key), settings.precision
        self._loss = _compiled(tasks.loss, settings)

    def check(self, model: nn.Module) -> None:
        """ValueError if the first tasks of a chunk can be joined, and then have another loss than their mean."""
        batches = [] if self.chunk == 1 else self.draw(self._tasks, 0, 0, range(self.chunk))
        if len(batches) == 0 or joined(batches) is None:
            return

        def together(twin: nn.Module) -> Tensor:
            return self.mean(twin, batches, len(batches))[None]

        def separate(twin: nn.Module) -> Tensor:
            return torch.stack([self._tasks.loss(twin, batch) for batch in batches]).mean()[None]

        if (found := apart_and_together(model, together, [separate])) is not None:
            raise ValueError(
                f"chunk={self.chunk} changes the gradient of {self._tasks.name}: the mean loss of its first tasks is "
                f"{found[0]:.4g}, and {found[1]:.4g} when they are joined. Leave chunk out, unless loss_fn is a mean "
                "over samples that do not depend on each other"
            )

    def draw(self, problem: Tasks, round_index: int, first: int, tasks: Sequence[int], by: object = None) -> list[Any]:
        """A batch for each task, whoever computes it."""
        return [self._batches[first + task] for task in tasks]

    def mean(self, model: nn.Module, batch: list[Any], tasks: int) -> Tensor:
        """The mean of the tasks' losses."""
        with autocast(model, self._precision):
            if tasks == 1:
                return self._loss(model, batch[0])
            if (whole := joined(batch)) is not None:
                return self._loss(model, whole)
            return torch.stack([self._loss(model, one) for one in batch]).mean()

    def each(self, problem: Tasks, model: nn.Module, batch: list[Any], tasks: int) -> Tensor:
        """The loss of each task, from a forward pass for each."""
        versions = [part._version for part in model.buffers()]
        with autocast(model, self._precision):
            losses = torch.stack([problem.loss(model, one) for one in batch])
        if [part._version for part in model.buffers()] != versions:
            raise ValueError(
                f"a forward pass of the model of {self._tasks.name} changes its buffers, such as the running "
                "statistics of batch norm, so that the order in which workers run their tasks would matter: call "
                "eval() on those layers, or train on the times of a pool"
            )
        return losses


def _compiled(loss: Loss, settings: TrainingSettings) -> Loss:
    if not settings.compile:
        return torch.compile(loss, backend="cudagraphs") if settings.graphs else loss
    return torch.compile(loss, mode="reduce-overhead" if settings.graphs else None)


def apart_and_together(model: nn.Module, together: Compute, apart: Sequence[Compute]) -> tuple[float, float] | None:
    """The loss of a sample that differs most if it is computed apart and together; None if none of the n differ.

    They get a copy of the model whose dropout layers drop nothing. Weights that are all equal are replaced by unequal
    ones, since a layer that starts at 0 would hide the others. The result is also None where torch cannot run the
    losses, and where the model still draws random numbers.
    """
    twin = copy.deepcopy(model)
    device = next(twin.parameters()).device
    for part in twin.modules():
        if isinstance(part, _DROPOUT):
            part.eval()
    try:
        with torch.no_grad(), seeded(0, device):
            for weights in twin.parameters():
                if weights.is_floating_point() and weights.numel() > 1 and (weights == weights.flatten()[0]).all():
                    weights.add_(0.1 * torch.randn_like(weights))
            whole, again = (together(twin).double() for _ in range(2))
            parts = torch.cat([compute(twin).double() for compute in apart])
    except (RuntimeError, TypeError, ValueError, IndexError):  # the first round says what is wrong
        return None
    if whole.shape != parts.shape or not (whole.isfinite() & parts.isfinite()).all() or not torch.equal(whole, again):
        return None
    difference = (whole - parts).abs()
    if difference.max() <= _TOLERANCE * max(whole.abs().max().item(), parts.abs().max().item()):
        return None
    worst = int(difference.argmax())
    return parts[worst].item(), whole[worst].item()
