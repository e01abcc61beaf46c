"""Tasks that run one after the other, with any model, any loss, and the user's loader."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from ata_gym.training.problems.batches import Batches, keyed_batches
from ata_gym.utils.trees import map_leaves
from ata_gym.utils.validation import whole_number

LossFunction = Callable[[nn.Module, Any], Any]
"""A function of the model and a batch.

It gives a scalar tensor, or a mapping with ``"loss"``."""


class Tasks:
    """Tasks that run one after the other, each a batch of the user's loader.

    The loss of a task is a scalar, which a function of the user gives. ``Trainer``,
    ``TrainingWrapper``, ``MethodRun`` and ``DeviceClock`` take ``Tasks`` in place of a problem. A
    round is B batches, and its gradient is the mean of their gradients: the backward pass of each
    adds loss / B, so that one batch is in memory at a time. Models and losses fit here that have no
    loss for each sample: batch norm, whose running statistics advance in the order of the tasks;
    models of Hugging Face; contrastive losses; inputs of any length.

    Task t of the whole training, t = k B + b for task b of round k, is batch t of the loader, in
    epochs without replacement. Shuffling is keyed by (seed, epoch); augmentation, and layers such
    as dropout, by (seed, task). So one seed means one trajectory, whatever the workers do.

    Training raises ValueError if there are no batches, or ``loss_fn`` does not give a scalar.

    Args:
        model: The module, of which a copy is trained unless ``inplace=True``, or a function that
            returns one.
        loss_fn: ``loss_fn(model, batch)`` gives a scalar tensor, or a mapping with ``"loss"``, such
            as a model of Hugging Face.
        batches: A ``DataLoader``, a sequence of batches, or an iterable of them that can be
            iterated again and may be endless.
        name: The name in plots and tables.
        learning_rates: The learning rates by the name of the optimiser, as in ``Problem``.
        chunk: How many tasks to fuse: their tensors are joined along the first axis, and
            ``loss_fn`` is called once. Tasks whose tensors differ in shape are not fused. It gives
            the same gradient where the loss is the mean over samples that do not depend on each
            other, which is checked.
        evaluate: ``evaluate(model)`` gives named figures, such as ``{"accuracy": 0.9}``, for a
            model in evaluation mode.

    Raises:
        TypeError: If the batches cannot be iterated again.
        ValueError: For a bad ``chunk``.

    Example:
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> from ata_gym.training import Trainer
        >>> x = torch.linspace(-1, 1, 64)[:, None]
        >>> model = nn.Sequential(nn.Linear(1, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
        >>> loader = DataLoader(TensorDataset(x, x.square()), batch_size=8, shuffle=True)
        >>> def loss_fn(model, batch):
        ...     return nn.functional.mse_loss(model(batch[0]), batch[1])
        >>> tasks = Tasks(model, loss_fn, loader)
        >>> losses = [Trainer(tasks, budget=4, lr=0.01).step() for _ in range(2)]
        >>> losses[1] == losses[0]
        True
    """

    def __init__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        loss_fn: LossFunction,
        batches: Any,
        *,
        name: str = "tasks",
        chunk: int = 1,
        learning_rates: Mapping[str, float] | None = None,
        evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    ) -> None:
        # The key does not matter: this raises for what cannot give batches.
        keyed_batches(batches, 0)
        self.model = model
        self.name = name
        self.chunk = whole_number("chunk", chunk)
        self.learning_rates: Mapping[str, float] = dict(learning_rates or {"adam": 1e-3})
        self._loss_fn = loss_fn
        self._batches = batches
        self._evaluate = evaluate
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
        output = self._loss_fn(model, moved_to(batch, self._device))
        if isinstance(output, Mapping) and "loss" in output:
            loss = output["loss"]
        else:
            loss = output
        if not isinstance(loss, Tensor) or loss.ndim:
            if isinstance(loss, Tensor):
                actual = f"a tensor of shape {tuple(loss.shape)}"
            else:
                actual = f"a {type(loss).__name__}"
            raise ValueError(
                f'loss_fn of {self.name} must give a scalar tensor, or a mapping with "loss", not'
                f" {actual}",
            )
        return loss

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """The user's figures; none without ``evaluate``."""
        if self._evaluate is None:
            return {}
        return self._evaluate(model)


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
    except (AttributeError, RuntimeError, TypeError, ValueError):
        # Numbers, texts, and tensors without an axis cannot be joined.
        return None
