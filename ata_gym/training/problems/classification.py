"""The problem of classification.

It can be made of a torch module and a loader of inputs and labels.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from ata_gym.models.model import accepting
from ata_gym.models.seeds import seeded
from ata_gym.simulation.keys import uniforms
from ata_gym.typing import Keys
from ata_gym.utils.trees import map_leaves

_CHUNK_SIZE = 128
"""The number of held-out samples evaluated at once; their activations fit into the cache."""
_READ_AT_ONCE = 1024
"""The number of samples read at once from data without a loader."""


class Samples(NamedTuple):
    """Inputs and their classes."""

    inputs: Tensor
    """The inputs, shape (N, ...), of any dtype."""
    labels: Tensor
    """The classes, shape (N,), int64, from 0 on."""


class Classification:
    """Cross-entropy on labelled samples.

    A task is the gradient on one sample, drawn uniformly with replacement.

    Args:
        build: Makes the model, from (B, ...) inputs to (B, classes) logits.
        train, test: Inputs of shape (N, ...) and labels of shape (N,), as tensors or arrays.
        transform: Applied to inputs before the model sees them, for data kept in bytes.
        name: The problem's name in plots and tables.
        learning_rates: The learning rates by the name of the optimiser, as in ``Problem``.

    Raises:
        ValueError: If there are no samples, or not one label from 0 on for each.

    Example:
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
        self.learning_rates: Mapping[str, float] = dict(
            learning_rates or {"sgd": 0.1, "adam": 1e-3},
        )
        self._transform = transform
        self._train = _samples("train", *train)
        self._test = _samples("test", *test)

    @property
    def size(self) -> int:
        """The number N of training samples."""
        return len(self._train.labels)

    def to(self, device: torch.device) -> Self:
        moved = copy.copy(self)
        samples = self._train, self._test
        moved._train, moved._test = map_leaves(lambda part: part.to(device), samples)
        return moved

    def draw(self, keys: Keys) -> Samples:
        return self.training_samples((uniforms(keys, 1)[:, 0] * self.size).astype(np.int64))

    def training_samples(self, indices: ArrayLike) -> Samples:
        """The training samples of these numbers, from 0 to N - 1."""
        inputs, labels = self._train
        positions = torch.as_tensor(indices, device=labels.device)
        return Samples(inputs.index_select(0, positions), labels.index_select(0, positions))

    def loss(self, model: nn.Module, batch: Samples) -> Tensor:
        """Cross-entropy of each sample, shape (B,)."""
        return cross_entropy(model(self._transform(batch.inputs)), batch.labels, reduction="none")

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        loss = right = 0.0
        for inputs, labels in zip(
            *(torch.split(part, _CHUNK_SIZE) for part in self._test),
            strict=True,
        ):
            logits = model(self._transform(inputs))
            loss += cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(1) == labels).sum().item()
        held_out = len(self._test.labels)
        return {"test_loss": loss / held_out, "accuracy": right / held_out}


def every_fifth_held_out(inputs: Tensor, labels: Tensor) -> tuple[Samples, Samples]:
    """The samples for training and, every fifth, for testing."""
    held_out = torch.arange(len(labels)) % 5 == 4
    train = Samples(inputs[~held_out], labels[~held_out])
    return train, Samples(inputs[held_out], labels[held_out])


def _samples(split: str, inputs: Tensor, labels: Tensor) -> Samples:
    inputs = torch.as_tensor(inputs)
    labels = torch.as_tensor(labels)
    if labels.ndim != 1 or len(labels) == 0 or len(inputs) != len(labels):
        raise ValueError(
            f"the {split} data must have one label per sample, at least one sample, not inputs of"
            f" shape {tuple(inputs.shape)} and labels of shape {tuple(labels.shape)}",
        )
    if labels.is_floating_point() or int(labels.min()) < 0:
        raise ValueError(f"the {split} labels must be whole numbers from 0 on")
    return Samples(inputs, labels.long())


def from_torch(make: Callable[[], Sequence[Any]], name: str = "torch") -> Classification:
    """Train the user's module by cross-entropy on the user's data.

    Args:
        make: Returns ``module, train`` or ``module, train, test``. The module takes inputs as they
            come and gives logits of shape (B, classes). The data are each a ``DataLoader``, a
            ``Dataset``, or a pair of tensors: inputs (N, ...), and labels (N,) from 0 on. They are
            read once, in one pass: random augmentation is drawn once, too.
            Without ``test``, every fifth sample is held out. The function is called again for fresh
            weights, which are keyed by the seed.
        name: The problem's name in plots and tables.

    Raises:
        ValueError: If something else is returned, the samples differ in shape, or a label is not a
            class of the module.

    Example:
        >>> def mine():
        ...     inputs = torch.randn(100, 4)
        ...     return nn.Linear(4, 2), (inputs, inputs[:, 0] > 0)
        >>> from_torch(mine, "mine").size
        80
    """
    with seeded(0, torch.device("cpu")):
        module, *data = _called(make, name)
        parts = [_read(source, name) for source in data]
    if len(parts) == 2:
        train, test = parts
    else:
        train, test = every_fifth_held_out(*parts[0])
    problem = Classification(
        lambda: _called(make, name)[0],
        train,
        test,
        transform=lambda inputs: inputs,
        name=name,
    )
    _check(module, train, test, name)
    return problem


def _called(make: Callable[[], Sequence[Any]], name: str) -> Sequence[Any]:
    parts = make()
    if (
        not isinstance(parts, (tuple, list))
        or len(parts) not in {2, 3}
        or not isinstance(parts[0], nn.Module)
    ):
        raise ValueError(f"{name} must return module, train or module, train, test, not {parts!r}")
    return parts


def _read(source: Any, name: str) -> Samples:
    if (
        isinstance(source, (tuple, list))
        and len(source) == 2
        and all(isinstance(part, Tensor) for part in source)
    ):
        source = TensorDataset(*source)
    if isinstance(source, DataLoader):
        loader = source
    else:
        loader = DataLoader(source, batch_size=_READ_AT_ONCE)
    try:
        # Some iterables never end: as many batches are read as the loader says it has.
        inputs, labels = zip(*islice(loader, len(loader)), strict=True)
        return Samples(torch.cat(inputs), torch.cat(labels))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"the data of {name} must give tensors (inputs, labels) of equal shapes, and have a"
            f" length: {error}; for a stream, see ata_gym.training.Tasks",
        ) from error


def _check(module: nn.Module, train: Samples, test: Samples, name: str) -> None:
    with torch.no_grad(), accepting(name):
        logits = module.eval()(train.inputs[:1])
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        if isinstance(logits, Tensor):
            shape: object = tuple(logits.shape)
        else:
            shape = type(logits).__name__
        raise ValueError(
            f"the module of {name} must give logits of shape (B, classes), not {shape} for one"
            " sample",
        )
    highest = int(max(train.labels.max(), test.labels.max()))
    if highest >= logits.shape[1]:
        raise ValueError(
            f"{name} has a label {highest}, but its module gives {logits.shape[1]} classes, from"
            " 0 on",
        )
