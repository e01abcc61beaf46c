"""Tasks that run one after the other, with any model, any loss and the user's own loader."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from ata_gym.training.problems.batches import Batches, keyed_batches
from ata_gym.utils.trees import map_leaves
from ata_gym.utils.validation import whole_number

LossFunction = Callable[[nn.Module, Any], Any]
"""A function of the model and a batch that gives a scalar tensor, or a mapping with ``"loss"``."""


class Tasks:
    """Tasks that run one after the other: a task is one batch of the user's loader, its loss a scalar of the user's.

    ``Trainer``, ``TrainingWrapper``, ``MethodRun`` and ``DeviceClock`` take it in place of a problem. A round is B
    batches, and its gradient is the mean of theirs: the backward pass of each adds loss / B, so the memory is that of
    one batch. Models and losses fit here that have no loss for each sample: batch norm, whose running statistics
    advance in the order of the tasks; models of Hugging Face; contrastive losses; inputs of any length.

    Task t of the whole training, t = k B + b for task b of round k, is batch t of the loader, in epochs without
    replacement. Shuffling is keyed by (seed, epoch); augmentation, and layers such as dropout, by (seed, task). So one
    seed means one trajectory, whatever the workers do.

    - ``model``: the module, of which a copy is trained unless ``inplace=True``, or a function that returns one.
    - ``loss_fn``: ``loss_fn(model, batch)`` gives a scalar tensor, or a mapping with ``"loss"``, such as a model of
      Hugging Face.
    - ``batches``: a ``DataLoader``, a sequence of batches, or an iterable of them that can be iterated again and may be
      endless.
    - ``name``, ``learning_rates``: as of ``Problem``.
    - ``chunk``: how many tasks to fuse: their tensors are joined along the first axis, and ``loss_fn`` is called once.
      Tasks whose tensors differ in shape are not fused. It gives the same gradient where the loss is the mean over
      samples that do not depend on each other, which is checked.
    - ``evaluate``: ``evaluate(model)`` gives named figures, such as ``{"accuracy": 0.9}``, for a model in evaluation
      mode.

    Raises TypeError if the batches cannot be iterated again, and ValueError for a bad ``chunk``, or from training, if
    there are no batches, or ``loss_fn`` does not give a scalar.

    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> from ata_gym.training import Trainer
    >>> x = torch.linspace(-1, 1, 64)[:, None]
    >>> model = nn.Sequential(nn.Linear(1, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    >>> loader = DataLoader(TensorDataset(x, x.square()), batch_size=8, shuffle=True)
    >>> tasks = Tasks(model, lambda model, batch: nn.functional.mse_loss(model(batch[0]), batch[1]), loader)
    >>> losses = [Trainer(tasks, budget=4, lr=0.01).step() for _ in range(2)]
    >>> losses[1] == losses[0]
    True
    """

    def __init__(
        self, model: nn.Module | Callable[[], nn.Module], loss_fn: LossFunction, batches: Any, *, name: str = "tasks",
        chunk: int = 1, learning_rates: Mapping[str, float] | None = None,
        evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    ) -> None:  # fmt: skip
        keyed_batches(batches, 0)  # raises for what is none
        self.model, self.name, self.chunk = model, name, whole_number("chunk", chunk)
        self.learning_rates: Mapping[str, float] = dict(learning_rates or {"adam": 1e-3})
        self._loss_fn, self._batches, self._evaluate = loss_fn, batches, evaluate
        self._device = torch.device("cpu")

    def to(self, device: torch.device) -> Self:
        """The same tasks with their batches moved to a device as they are read."""
        moved = copy.copy(self)
        moved._device = device
        return moved

    def batches(self, key: int) -> Batches:
        """The batches of the whole training in the order of a key."""
        return keyed_batches(self._batches, key)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of a task, a scalar."""
        given = self._loss_fn(model, moved_to(batch, self._device))
        loss = given["loss"] if isinstance(given, Mapping) and "loss" in given else given
        if not isinstance(loss, Tensor) or loss.ndim:
            got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise ValueError(f'loss_fn of {self.name} must give a scalar tensor, or a mapping with "loss", not {got}')
        return loss

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """The user's figures; none without ``evaluate``."""
        return {} if self._evaluate is None else self._evaluate(model)


def moved_to(batch: Any, device: torch.device) -> Any:
    """A batch with all that has a method ``to``, such as tensors, on a device."""
    if hasattr(batch, "to"):
        return batch.to(device)
    return map_leaves(lambda part: part.to(device) if hasattr(part, "to") else part, batch)


def joined(batches: list[Any]) -> Any | None:
    """Batches of tensors joined along their first axis; None where their forms or shapes differ."""
    try:
        parts = [map_leaves(lambda part: part.shape, batch) for batch in batches]
        if any(part != parts[0] for part in parts):
            return None
        return map_leaves(lambda *tensors: torch.cat(tensors), *batches)
    except (AttributeError, RuntimeError, TypeError, ValueError):  # numbers, texts, tensors without an axis
        return None
