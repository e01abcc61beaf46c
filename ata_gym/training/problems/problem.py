"""The contract of a problem, and problems by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from ata_gym.typing import Keys
from ata_gym.utils.imports import load_object
from ata_gym.utils.validation import unknown

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@runtime_checkable
class Problem(Protocol):
    """A model, a loss for each task, data, and an evaluation; any object with these parts is a problem.

    A task is one stochastic gradient. Its randomness comes from a key of its own, so that a gradient depends on
    the seed, the round and the task's place in the round, and on nothing else: not on the worker that computes it.
    """

    @property
    def name(self) -> str:
        """Its name in plots and tables."""
        ...

    @property
    def learning_rates(self) -> Mapping[str, float]:
        """A good learning rate for each optimiser known by name; the first is the default optimiser."""
        ...

    def to(self, device: torch.device) -> Self:
        """The same problem with its data on a device."""
        ...

    def build(self) -> nn.Module:
        """A model with fresh weights, on the CPU. Draws from torch's default generator are keyed by the seed."""
        ...

    def draw(self, keys: Keys) -> Any:
        """The data of a round's tasks, drawn with one key per task, shape (B,), as ``uniforms`` takes them."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of each task of a batch, shape (B,); task b's may depend on the b-th part of the batch alone."""
        ...

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Named figures on held-out data, such as ``{"test_loss": 0.1, "accuracy": 0.97}``; draws nothing."""
        ...


_BUILDERS = {
    "digits": "ata_gym.training.problems.digits:digits",
    "cifar100": "ata_gym.training.problems.cifar100:cifar100",
    "quadratic": "ata_gym.training.problems.quadratic:quadratic",
}


def problem_names() -> tuple[str, ...]:
    """The names of the problems that ship with the package.

    >>> problem_names()
    ('digits', 'cifar100', 'quadratic')
    """
    return tuple(_BUILDERS)


def make_problem(name: str, data: str | Path | None = None) -> Problem:
    """Make a problem by name.

    Parameters
    ----------
    name
        One of ``problem_names()``, or a function of yours: ``package.module:function`` returns a problem,
        ``torch:package.module:function`` a module and its data; see ``from_torch.from_torch``.
    data
        A file or folder for the problems that read one; the function's only argument.

    Raises
    ------
    ValueError
        If there is no such problem, its module or function fails, it needs data or takes none, or what the function
        returns is no problem.
    FileNotFoundError
        If there is no such file.

    Examples
    --------
    >>> make_problem("digits").name
    'digits'
    """
    plain, own = name.removeprefix("torch:"), name.startswith("torch:")
    build = _builder(plain)
    arguments = () if data is None else (data,)
    try:
        inspect.signature(build).bind(*arguments)
    except TypeError:
        needs = "takes no data: leave it out" if arguments else "needs data, the path of its file"
        raise ValueError(f"the problem {name!r} {needs}") from None
    if own:
        from ata_gym.training.problems.from_torch import from_torch  # noqa: PLC0415 - importing torch takes a while

        call = partial(_called, partial(build, *arguments), name)
        return from_torch(call, plain.rpartition(":")[2])
    made = build(*arguments) if name in _BUILDERS else _called(partial(build, *arguments), name)
    if not isinstance(made, Problem):
        raise ValueError(  # noqa: TRY004 - the name is the user's input
            f"{name!r} returned {type(made).__name__}, which is no problem: see ata_gym.training.Problem"
        )
    return made


def _builder(name: str) -> Callable[..., Any]:
    if name not in _BUILDERS and ":" not in name:
        raise unknown("problem", name, _BUILDERS)
    found: Callable[..., Any] = load_object("problem", _BUILDERS.get(name, name))
    if not callable(found):
        raise ValueError(f"there is no problem {name!r}: it is no function")  # noqa: TRY004 - the user's input
    return found


def _called(build: Callable[[], Any], name: str) -> Any:
    """Call a function of the user's; what it raises becomes a ValueError with the problem's name."""
    try:
        return build()
    except (Exception, SystemExit) as error:
        raise ValueError(f"the problem {name!r} cannot be made: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    if isinstance(error, (ModuleNotFoundError, AttributeError)):
        return str(error)
    return f"{type(error).__name__}: {error}"
