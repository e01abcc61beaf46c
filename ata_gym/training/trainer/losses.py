"""The losses of a round's tasks.

A problem has one forward pass for all tasks; ``Tasks`` have one for each, one after the other.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ata_gym.models.model import accepting
from ata_gym.models.precision import autocast
from ata_gym.models.seeds import seeded
from ata_gym.simulation.keys import derive_keys
from ata_gym.training.problem import HeterogeneousProblem, Problem
from ata_gym.training.problems.tasks import Tasks, joined
from ata_gym.training.trainer.settings import TrainingSettings
from ata_gym.typing import Ints, Keys

_DROPOUT = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
_TOLERANCE = 1e-3
"""A difference that still counts as equal, relative to the losses.

It is far above rounding errors, and far below what a batch norm changes."""

Loss = Callable[[nn.Module, Any], Tensor]
"""A function of a model and the data of tasks that gives losses."""
Compute = Callable[[nn.Module], Tensor]
"""A function of a model that gives losses; the data is in the function."""


class MixedSample(NamedTuple):
    """The losses of a sample whose loss depends on the other samples of its batch."""

    separate: float
    """The loss in a batch of few samples."""
    joint: float
    """The loss in a batch of more samples."""


class FusedLosses:
    """The losses of a problem, whose tasks have a forward pass together.

    Sample s of task b in round k is drawn from a key of (k, b m + s), with m samples a task.
    """

    def __init__(self, problem: Problem, settings: TrainingSettings, key: Keys) -> None:
        self.chunk = settings.chunk
        """How many tasks have a pass together; None for all tasks of a round."""
        self._problem = problem
        self._key = key
        self._size = settings.micro_batch
        self._precision = settings.precision
        self._loss = _compiled(problem.loss, settings)
        self._is_heterogeneous = isinstance(problem, HeterogeneousProblem)

    def check(self, model: nn.Module) -> None:
        """Compare the losses of four samples in one batch with their losses in two batches.

        Raises:
            ValueError: If they differ, since then a task would have no gradient of its own.
        """

        def losses_of(tasks: Sequence[int]) -> Compute:
            samples = derive_keys(self._key, 0, np.array(tasks))
            return lambda model_copy: self._problem.loss(model_copy, self._problem.draw(samples))

        if (
            mixed := find_mixed_sample(
                model,
                losses_of(range(4)),
                [losses_of([0, 1]), losses_of([2, 3])],
            )
        ) is not None:
            raise ValueError(
                f"the model or the loss of {self._problem.name} mixes the samples of a batch, so"
                f" that a task would have no gradient of its own: a loss is {mixed.separate:.4g}"
                f" beside one sample and {mixed.joint:.4g} beside three. In place of BatchNorm use"
                " GroupNorm, or call eval() on it; or train with ata_gym.training.Tasks, where each"
                " task has a pass of its own",
            )

    def draw(
        self,
        problem: Any,
        round_index: int,
        first_task: int,
        tasks: Sequence[int],
        worker_tasks: Ints | None = None,
    ) -> Any:
        """The samples of some tasks of a round.

        Args:
            problem: The trainer's problem, or a copy of it on another device.
            round_index: The round k.
            first_task: The number of task 0 in the whole training, which does not matter here:
                samples are drawn with replacement.
            tasks: The places of the tasks in the round.
            worker_tasks: Worker i computes ``worker_tasks[i]`` of these tasks, in the workers'
                order, which matters where the data differ by worker; shape (n,).
        """
        # Task b has the samples b m, ..., b m + m - 1 of the round.
        samples = (np.array(tasks)[:, None] * self._size + np.arange(self._size)).ravel()
        keys = derive_keys(self._key, round_index, samples)
        if worker_tasks is None or not self._is_heterogeneous:
            return problem.draw(keys)
        n = len(worker_tasks)
        workers = np.repeat(np.arange(n), worker_tasks * self._size)
        return problem.draw_by_worker(keys, workers, n)

    def mean_loss(self, model: nn.Module, batch: Any, tasks: int) -> Tensor:
        """The mean loss of the tasks in what ``draw`` gave, at least in float32."""
        return self._task_means(self._loss, model, batch, tasks).mean()

    def task_losses(self, problem: Problem, model: nn.Module, batch: Any, tasks: int) -> Tensor:
        """The loss of each task in what ``draw`` gave, shape (tasks,).

        The problem and the model may be on another device.
        """
        return self._task_means(problem.loss, model, batch, tasks)

    def _task_means(self, loss: Any, model: nn.Module, batch: Any, tasks: int) -> Tensor:
        with autocast(model, self._precision), accepting(self._problem.name):
            losses = loss(model, batch)
        shape = (tasks * self._size,)
        if not isinstance(losses, Tensor) or losses.shape != shape:
            if isinstance(losses, Tensor):
                actual = tuple(losses.shape)
            else:
                actual = losses
            raise ValueError(
                f"the loss of {self._problem.name} must give one number per sample, shape {shape},"
                f' not {actual!r}: for losses of torch, reduction="none"; for one number per batch,'
                " see ata_gym.training.Tasks",
            )
        if self._size == 1 and losses.dtype in {torch.float32, torch.float64}:
            return losses
        # In half precision the mean itself would be rounded.
        return losses.reshape(tasks, -1).mean(
            1,
            dtype=torch.promote_types(losses.dtype, torch.float32),
        )


class SeparateLosses:
    """The losses of ``Tasks``, each of which has a forward pass of its own.

    Tasks of equal shapes that are in one chunk have a pass together.
    """

    def __init__(self, tasks: Tasks, settings: TrainingSettings, key: int) -> None:
        if settings.micro_batch > 1 or settings.chunk is not None or settings.graphs:
            raise ValueError(
                f"a task of {tasks.name} is one batch of its loader: leave out micro_batch, chunk"
                " and graphs, set the batch size in the loader, and chunk in"
                " ata_gym.training.Tasks",
            )
        self.chunk = tasks.chunk
        self._tasks = tasks
        self._batches = tasks.batches(key)
        self._precision = settings.precision
        self._loss = _compiled(tasks.loss, settings)

    def check(self, model: nn.Module) -> None:
        """Compare the loss of the first tasks, joined, with the mean of their losses.

        Raises:
            ValueError: If the tasks of the first chunk can be joined, and the two differ.
        """
        if self.chunk == 1:
            batches = []
        else:
            batches = self.draw(self._tasks, 0, 0, range(self.chunk))
        if len(batches) == 0 or joined(batches) is None:
            return

        def joint(model_copy: nn.Module) -> Tensor:
            return self.mean_loss(model_copy, batches, len(batches))[None]

        def separate(model_copy: nn.Module) -> Tensor:
            losses = [self._tasks.loss(model_copy, batch) for batch in batches]
            return torch.stack(losses).mean()[None]

        if (mixed := find_mixed_sample(model, joint, [separate])) is not None:
            raise ValueError(
                f"chunk={self.chunk} changes the gradient of {self._tasks.name}: the mean loss of"
                f" its first tasks is {mixed.separate:.4g}, and {mixed.joint:.4g} when they are"
                " joined."
                " Leave chunk out, unless loss_fn is a mean over samples that do not depend on"
                " each other",
            )

    def draw(
        self,
        problem: Tasks,
        round_index: int,
        first_task: int,
        tasks: Sequence[int],
        worker_tasks: object = None,
    ) -> list[Any]:
        """A batch for each task, whichever worker computes it."""
        return [self._batches[first_task + task] for task in tasks]

    def mean_loss(self, model: nn.Module, batch: list[Any], tasks: int) -> Tensor:
        """The mean of the tasks' losses."""
        with autocast(model, self._precision):
            if tasks == 1:
                return self._loss(model, batch[0])
            if (joined_batch := joined(batch)) is not None:
                return self._loss(model, joined_batch)
            return torch.stack([self._loss(model, task_batch) for task_batch in batch]).mean()

    def task_losses(self, problem: Tasks, model: nn.Module, batch: list[Any], tasks: int) -> Tensor:
        """The loss of each task, from a forward pass for each."""
        # torch counts the changes of a tensor in place: an equal count means an unchanged buffer.
        versions = [part._version for part in model.buffers()]
        with autocast(model, self._precision):
            losses = torch.stack([problem.loss(model, task_batch) for task_batch in batch])
        if [part._version for part in model.buffers()] != versions:
            raise ValueError(
                f"a forward pass of the model of {self._tasks.name} changes its buffers, such as"
                " the running statistics of batch norm, so that the order in which workers run"
                " their tasks would matter: call eval() on those layers, or train on the times of"
                " a pool",
            )
        return losses


def _compiled(loss: Loss, settings: TrainingSettings) -> Loss:
    if not settings.compile:
        if settings.graphs:
            return torch.compile(loss, backend="cudagraphs")
        return loss
    mode = None
    if settings.graphs:
        mode = "reduce-overhead"
    return torch.compile(loss, mode=mode)


def find_mixed_sample(
    model: nn.Module,
    joint: Compute,
    separate: Sequence[Compute],
) -> MixedSample | None:
    """The losses of the sample that differs most if samples are computed separately or jointly.

    The functions get a copy of the model whose dropout layers drop nothing. Weights that are all
    equal are replaced by unequal ones, since a layer that starts at 0 would hide
    other layers.

    Args:
        model: The model, which stays as it is.
        joint: Gives the losses of n samples in one batch, shape (n,).
        separate: Give the losses of parts of these samples, in the same order.

    Returns:
        The separate loss, and the joint loss. None if no sample differs, if torch cannot run the
        losses, or if the model still draws random numbers.
    """
    model_copy = copy.deepcopy(model)
    device = next(model_copy.parameters()).device
    for part in model_copy.modules():
        if isinstance(part, _DROPOUT):
            part.eval()
    try:
        with torch.no_grad(), seeded(0, device):
            for weights in model_copy.parameters():
                if (
                    weights.is_floating_point()
                    and weights.numel() > 1
                    and (weights == weights.flatten()[0]).all()
                ):
                    weights.add_(0.1 * torch.randn_like(weights))
            # Two passes that differ mean that the model draws random numbers.
            joint_losses, repeated = (joint(model_copy).double() for _ in range(2))
            separate_losses = torch.cat([compute(model_copy).double() for compute in separate])
    except (RuntimeError, TypeError, ValueError, IndexError):
        # The first round of training says what is wrong.
        return None
    if (
        joint_losses.shape != separate_losses.shape
        or not (joint_losses.isfinite() & separate_losses.isfinite()).all()
        or not torch.equal(joint_losses, repeated)
    ):
        return None
    difference = (joint_losses - separate_losses).abs()
    largest = max(joint_losses.abs().max().item(), separate_losses.abs().max().item())
    if difference.max() <= _TOLERANCE * largest:
        return None
    worst = int(difference.argmax())
    return MixedSample(separate_losses[worst].item(), joint_losses[worst].item())
