"""The problem of classification."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ata_gym.simulation.keys import uniforms
from ata_gym.typing import Keys
from ata_gym.utils.trees import map_leaves

_CHUNK = 128  # held-out samples evaluated at once; their activations fit into the cache


class Samples(NamedTuple):
    """Inputs and their classes."""

    inputs: Tensor  # (N, ...) of any dtype
    labels: Tensor  # (N,) int64, from 0 on


class Classification:
    """Cross-entropy on labelled samples; a task is the gradient on one sample, drawn uniformly with replacement.

    - ``build``: makes the model, from (B, ...) inputs to (B, classes) logits.
    - ``train``, ``test``: inputs of shape (N, ...) and labels of shape (N,), as tensors or arrays.
    - ``transform``: applied to inputs before the model sees them, for data kept in bytes.
    - ``name``, ``learning_rates``: as of ``Problem``.

    Raises ValueError if there are no samples, or not one label from 0 on for each.
    >>> points = torch.tensor([[0.0], [1.0], [2.0], [3.0]]), torch.tensor([0, 0, 1, 1])
    >>> problem = Classification(lambda: nn.Linear(1, 2), points, points)
    >>> sorted(problem.evaluate(problem.build()))
    ['accuracy', 'test_loss']
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        train: tuple[Tensor, Tensor],
        test: tuple[Tensor, Tensor],
        *,
        transform: Callable[[Tensor], Tensor] = torch.Tensor.float,
        name: str = "classification",
        learning_rates: Mapping[str, float] | None = None,
    ) -> None:
        self.build = build
        self.name = name
        self.learning_rates: Mapping[str, float] = dict(learning_rates or {"sgd": 0.1, "adam": 1e-3})
        self._transform = transform
        self._train, self._test = _samples("train", *train), _samples("test", *test)

    @property
    def size(self) -> int:
        """Training samples N."""
        return len(self._train.labels)

    def to(self, device: torch.device) -> Self:
        """The same problem with its samples on a device."""
        moved = copy.copy(self)
        samples = self._train, self._test
        moved._train, moved._test = map_leaves(lambda part: part.to(device), samples)
        return moved

    def draw(self, keys: Keys) -> Samples:
        """One training sample for each key."""
        return self.at((uniforms(keys, 1)[:, 0] * self.size).astype(np.int64))

    def at(self, indices: ArrayLike) -> Samples:
        """The training samples of these numbers, from 0 to N - 1."""
        inputs, labels = self._train
        chosen = torch.as_tensor(indices, device=labels.device)
        return Samples(inputs.index_select(0, chosen), labels.index_select(0, chosen))

    def loss(self, model: nn.Module, batch: Samples) -> Tensor:
        """Cross-entropy of each sample, shape (B,)."""
        return cross_entropy(model(self._transform(batch.inputs)), batch.labels, reduction="none")

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Mean cross-entropy and share of right answers on the held-out samples."""
        loss = right = 0.0
        for inputs, labels in zip(*(torch.split(part, _CHUNK) for part in self._test), strict=True):
            logits = model(self._transform(inputs))
            loss += cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(1) == labels).sum().item()
        held_out = len(self._test.labels)
        return {"test_loss": loss / held_out, "accuracy": right / held_out}


def every_fifth_held_out(inputs: Tensor, labels: Tensor) -> tuple[Samples, Samples]:
    """The samples for training and, every fifth, for testing."""
    held_out = torch.arange(len(labels)) % 5 == 4
    return Samples(inputs[~held_out], labels[~held_out]), Samples(inputs[held_out], labels[held_out])


def _samples(which: str, inputs: Tensor, labels: Tensor) -> Samples:
    inputs, labels = torch.as_tensor(inputs), torch.as_tensor(labels)
    if labels.ndim != 1 or len(labels) == 0 or len(inputs) != len(labels):
        raise ValueError(
            f"the {which} data must have one label per sample, at least one sample, not inputs of shape "
            f"{tuple(inputs.shape)} and labels of shape {tuple(labels.shape)}"
        )
    if labels.is_floating_point() or int(labels.min()) < 0:
        raise ValueError(f"the {which} labels must be whole numbers from 0 on")
    return Samples(inputs, labels.long())
