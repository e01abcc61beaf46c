"""Models: built from a problem or by the user, their weights, and their modes."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

from ata_gym.models.memory import lacks_memory
from ata_gym.models.seeds import seeded

Weights = tuple[Tensor, ...]
"""A copy of all parameters of a model, in their order."""


def build_model(
    source: nn.Module | Callable[[], nn.Module],
    key: int,
    *,
    inplace: bool = False,
) -> nn.Module:
    """A model with fresh weights, or a copy of a module.

    Args:
        source: A module, or a function that returns one.
        key: Keys the fresh weights.
        inplace: Whether the module itself is returned instead of a copy.

    Raises:
        ValueError: If ``inplace`` is given with a function, or the model has nothing to train.
        TypeError: If the function returns something else.
    """
    if inplace and not isinstance(source, nn.Module):
        raise ValueError(
            f"inplace=True trains a module of yours: give model=..., a module, not {source!r}",
        )
    with seeded(key, torch.device("cpu")):
        if inplace:
            model = source
        elif isinstance(source, nn.Module):
            model = copy.deepcopy(source)
        else:
            model = source()
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"the model must be a torch module, or a function that returns one, not {model!r}",
        )
    if not trained_weights(model):
        raise ValueError(
            f"the model has nothing to train: {type(model).__name__} has no parameter with"
            " requires_grad=True",
        )
    return model


def trained_weights(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of a model that are not frozen."""
    return [weights for weights in model.parameters() if weights.requires_grad]


def copy_weights(model: nn.Module) -> Weights:
    """A copy of the weights that a model has now."""
    return tuple(part.detach().clone() for part in model.parameters())


@contextmanager
def at_weights(model: nn.Module, weights: Weights | None) -> Iterator[None]:
    """Give a model other weights within a block, or with None its own; nothing is copied."""
    if weights is None:
        yield
        return
    parts = list(model.parameters())
    previous_values = [part.data for part in parts]
    try:
        for part, values in zip(parts, weights, strict=True):
            part.data = values
        yield
    finally:
        for part, values in zip(parts, previous_values, strict=True):
            part.data = values


def model_state(model: nn.Module) -> list[Tensor]:
    """The parameters and buffers of a model."""
    return [*model.parameters(), *model.buffers()]


def restore_state(model: nn.Module, state: Sequence[Tensor]) -> None:
    """Give a model the values of other parameters and buffers, which may be on another device."""
    with torch.no_grad():
        for part, values in zip(model_state(model), state, strict=True):
            part.copy_(values)


class Buffers:
    """The buffers of a model, such as running statistics.

    After an error in its block they have their old values. The modules are found once, since
    ``model.buffers()`` takes ten times as long.
    """

    def __init__(self, model: nn.Module) -> None:
        self._tables = [module._buffers for module in model.modules()]
        self._before: list[tuple[Tensor, Tensor]] = []

    def __enter__(self) -> None:
        parts = [part for table in self._tables for part in table.values() if part is not None]
        self._before = [(part, part.clone()) for part in parts]

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            with torch.no_grad():
                for part, values in self._before:
                    part.copy_(values)


class accepting(AbstractContextManager[None]):  # noqa: N801
    """Turn torch's errors where a model does not take its data into a ``ValueError``.

    These are errors about shapes, types and classes. A class takes a third of the time that a
    context made of a generator takes.
    """

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, RuntimeError | TypeError | IndexError):
            return
        # Errors of torch's own machinery, such as torch.compile, say nothing about the data.
        private = type(error).__module__.startswith("torch._")
        if lacks_memory(error) or private or "CUDA error" in str(error):
            return
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"the model of {self._problem} does not take its data: {reason}",
        ) from error


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch a model to evaluation without gradients, within a block.

    Afterwards each part of the model has the mode that it had before.
    """
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode
