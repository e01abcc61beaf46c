"""A problem made of a torch module and a loader of inputs and labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from ata_gym.training.models.device import seeded
from ata_gym.training.models.model import accepting
from ata_gym.training.problems.classification import Classification, Samples, every_fifth_held_out

_AT_ONCE = 1024


def from_torch(make: Callable[[], Sequence[Any]], name: str = "torch") -> Classification:
    """Train the user's module by cross-entropy on the user's data.

    - ``make``: returns ``module, train`` or ``module, train, test``. The module takes inputs as they come and gives
      logits of shape (B, classes). The data are each a ``DataLoader``, a ``Dataset``, or a pair of tensors: inputs (N,
      ...), and labels (N,) from 0 on. They are read once, as one pass over them gives them: random augmentation is
      drawn once, too. Without ``test``, every fifth sample is held out. The function is called again for fresh weights,
      which are keyed by the seed.
    - ``name``: the problem's name in plots and tables.

    Raises ValueError if something else is returned, the samples differ in shape, or a label is not a class of the
    module's.

    >>> def mine():
    ...     inputs = torch.randn(100, 4)
    ...     return nn.Linear(4, 2), (inputs, inputs[:, 0] > 0)
    >>> from_torch(mine, "mine").size
    80
    """
    with seeded(0, torch.device("cpu")):
        module, *data = _called(make, name)
        parts = [_samples(source, name) for source in data]
    train, test = parts if len(parts) == 2 else every_fifth_held_out(*parts[0])
    problem = Classification(lambda: _called(make, name)[0], train, test, transform=lambda inputs: inputs, name=name)
    _check(module, train, test, name)
    return problem


def _called(make: Callable[[], Sequence[Any]], name: str) -> Sequence[Any]:
    made = make()
    if not isinstance(made, (tuple, list)) or len(made) not in {2, 3} or not isinstance(made[0], nn.Module):
        raise ValueError(f"{name} must return module, train or module, train, test, not {made!r}")
    return made


def _samples(source: Any, name: str) -> Samples:
    if isinstance(source, (tuple, list)) and len(source) == 2 and all(isinstance(part, Tensor) for part in source):
        source = TensorDataset(*source)
    loader = source if isinstance(source, DataLoader) else DataLoader(source, batch_size=_AT_ONCE)
    try:
        inputs, labels = zip(*islice(loader, len(loader)), strict=True)  # some iterables never end
        return Samples(torch.cat(inputs), torch.cat(labels))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"the data of {name} must give tensors (inputs, labels) of equal shapes, and have a length: {error}; "
            "for a stream, see ata_gym.training.Tasks"
        ) from error


def _check(module: nn.Module, train: Samples, test: Samples, name: str) -> None:
    with torch.no_grad(), accepting(name):
        logits = module.eval()(train.inputs[:1])
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"the module of {name} must give logits of shape (B, classes), not {shape} for one sample")
    highest = int(max(train.labels.max(), test.labels.max()))
    if highest >= logits.shape[1]:
        raise ValueError(f"{name} has a label {highest}, but its module gives {logits.shape[1]} classes, from 0 on")
