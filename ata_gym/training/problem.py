"""The contract of a problem, and problems by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from ata_gym.typing import Ints, Keys
from ata_gym.utils.errors import described
from ata_gym.utils.extras import load_object
from ata_gym.utils.validation import unknown

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@runtime_checkable
class Problem(Protocol):
    """A model, a loss for each task, data, and an evaluation; any object with these parts is a problem.

    A task is one stochastic gradient. Its randomness comes from a key of its own, so that a gradient depends on
    the seed, the round and the task's place in the round, and on nothing else: not on the worker that computes it,
    unless it is a ``HeterogeneousProblem``.
    """

    @property
    def name(self) -> str:
        """Its name in plots and tables."""

    @property
    def learning_rates(self) -> Mapping[str, float]:
        """A good learning rate for each optimiser known by name; the first is the default optimiser."""

    def to(self, device: torch.device) -> Self:
        """The same problem with its data on a device."""

    def build(self) -> nn.Module:
        """A model with fresh weights, on the CPU. Draws from torch's default generator are keyed by the seed."""

    def draw(self, keys: Keys) -> Any:
        """The data of a round's tasks, drawn with one key per task, shape (B,); see ``simulation.keys.uniforms``."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of each task, shape (B,); task b's may depend on the b-th part of the batch alone."""

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Named figures on held-out data, such as ``{"test_loss": 0.1, "accuracy": 0.97}``; draws nothing."""


@runtime_checkable
class HeterogeneousProblem(Problem, Protocol):
    """A problem whose data differ by worker: its loss f is the mean of the losses f_i of the n workers.

    Where ``draw`` is called, nobody knows the workers: it draws as if all data were in one place.
    """

    def draw_by_worker(self, keys: Keys, workers: Ints, n: int) -> Any:
        """As ``draw``, but task b from the data of worker ``workers[b]``, from 0 to n - 1; both of shape (B,)."""


_SHIPPED = {name: name for name in ("digits", "cifar100", "quadratic")} | {"heterogeneous": "quadratic"}
"""The module of each problem, which is a function there."""


def problem_names() -> tuple[str, ...]:
    """The names of the problems that ship with the package."""
    return tuple(_SHIPPED)


def make_problem(name: str, data: str | Path | None = None) -> Problem:
    """Make a problem by name.

    - ``name``: one of ``problem_names()``, or a function of yours: ``package.module:function`` returns a problem,
      ``torch:package.module:function`` a module and its data; see ``classification.from_torch``.
    - ``data``: a file or folder for the problems that read one; the function's only argument.

    Raises ValueError if there is no such problem, its module or function fails, it needs data or takes none, or what
    the function returns is no problem; and FileNotFoundError if there is no such file.

    >>> make_problem("digits").name
    'digits'
    """
    plain = name.removeprefix("torch:")
    shipped = plain in _SHIPPED
    if not shipped and ":" not in plain:
        raise unknown("problem", plain, _SHIPPED)
    build: Callable[..., Any] = load_object("problem", f"{module_of(plain)}:{plain}" if shipped else plain)
    if not callable(build):
        raise ValueError(f"there is no problem {plain!r}: it is no function")  # noqa: TRY004 - the user's input
    arguments = () if data is None else (data,)
    try:
        inspect.signature(build).bind(*arguments)
    except TypeError:
        needs = "takes no data: leave it out" if arguments else "needs data, the path of its file"
        raise ValueError(f"the problem {name!r} {needs}") from None
    make = partial(_called, partial(build, *arguments), name)
    if plain != name:
        from ata_gym.training.problems.classification import from_torch  # noqa: PLC0415 - importing torch takes a while

        return from_torch(make, plain.rpartition(":")[2])
    made = build(*arguments) if name in _SHIPPED else make()
    if not isinstance(made, Problem):
        raise ValueError(  # noqa: TRY004 - the name is the user's input
            f"{name!r} returned {type(made).__name__}, which is no problem: see ata_gym.training.Problem"
        )
    return made


def module_of(name: str) -> str:
    """The module that makes the problem of this name."""
    return (
        f"{__package__}.problems.{_SHIPPED[name]}"
        if name in _SHIPPED
        else name.removeprefix("torch:").partition(":")[0]
    )


def _called(build: Callable[[], Any], name: str) -> Any:
    """Call a function of the user's; its error becomes a ``ValueError`` with the problem's name."""
    try:
        return build()
    except (Exception, SystemExit) as error:
        raise ValueError(f"the problem {name!r} cannot be made: {described(error)}") from error
