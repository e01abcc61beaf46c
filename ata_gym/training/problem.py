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
    """A model, a loss for each task, data, and an evaluation.

    Any object with these parts is a problem. A task is one stochastic gradient. Its randomness
    comes from a key of its own. So a gradient depends on the seed, the round and the task's place
    in the round, and on nothing else: not on the worker that computes it, unless the problem is a
    ``HeterogeneousProblem``.
    """

    @property
    def name(self) -> str:
        """The problem's name in plots and tables."""

    @property
    def learning_rates(self) -> Mapping[str, float]:
        """A good learning rate for each optimiser that is known by name.

        The first optimiser is the default.
        """

    def to(self, device: torch.device) -> Self:
        """The same problem with its data on a device."""

    def build(self) -> nn.Module:
        """A model with fresh weights, on the CPU.

        Draws from torch's default generator are keyed by the seed.
        """

    def draw(self, keys: Keys) -> Any:
        """Draw the data of a round's tasks.

        Args:
            keys: One key per task, shape (B,); see ``simulation.keys.uniforms``.
        """

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of each task, shape (B,).

        The loss of task b may depend on the b-th part of the batch alone.

        Args:
            model: The model at the weights where the losses are taken.
            batch: What ``draw`` returned.
        """

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Named figures on held-out data, such as ``{"test_loss": 0.1, "accuracy": 0.97}``.

        It draws no random numbers.
        """


@runtime_checkable
class HeterogeneousProblem(Problem, Protocol):
    """A problem whose data differ by worker.

    Its loss f is the mean of the losses f_i of the n workers. The caller of ``draw`` does not name
    the workers: ``draw`` draws as if all data were in one place.
    """

    def draw_by_worker(self, keys: Keys, workers: Ints, n: int) -> Any:
        """Draw the data of each task from the data of its worker.

        Args:
            keys: One key per task, shape (B,), as for ``draw``.
            workers: The worker of each task, from 0 to n - 1, shape (B,).
            n: The number of workers.
        """


_SHIPPED = {name: name for name in ("digits", "text", "cifar100", "quadratic")} | {
    "heterogeneous": "quadratic",
}
"""The module of each problem, which is a function there."""


def problem_names() -> tuple[str, ...]:
    """The names of the problems that ship with the package."""
    return tuple(_SHIPPED)


def make_problem(name: str, data: str | Path | None = None) -> Problem:
    """Make a problem by name.

    Args:
        name: One of ``problem_names()``, or a function of yours: ``package.module:function``
            returns a problem, ``torch:package.module:function`` a module and its data; see
            ``classification.from_torch``.
        data: A file or folder for the problems that read one; the function's only argument.

    Raises:
        ValueError: If there is no such problem, its module or function fails, it needs data or
            takes none, or what the function returns is no problem.
        FileNotFoundError: If there is no such file.

    Example:
        >>> make_problem("digits").name
        'digits'
    """
    bare_name = name.removeprefix("torch:")
    shipped = bare_name in _SHIPPED
    if not shipped and ":" not in bare_name:
        raise unknown("problem", bare_name, _SHIPPED)
    path = f"{module_of(bare_name)}:{bare_name}" if shipped else bare_name
    build: Callable[..., Any] = load_object("problem", path)
    if not callable(build):
        # The name is the user's input, so that a wrong one is a ValueError.
        raise ValueError(f"there is no problem {bare_name!r}: it is no function")  # noqa: TRY004
    arguments = () if data is None else (data,)
    try:
        inspect.signature(build).bind(*arguments)
    except TypeError:
        if arguments:
            fault = "takes no data: leave it out"
        else:
            fault = "needs data, the path of its file"
        raise ValueError(f"the problem {name!r} {fault}") from None
    make = partial(_called, partial(build, *arguments), name)
    if bare_name != name:
        # Importing torch takes a while, so only the problems that need it here pay for it.
        from ata_gym.training.problems.classification import from_torch  # noqa: PLC0415

        return from_torch(make, bare_name.rpartition(":")[2])
    if name in _SHIPPED:
        problem = build(*arguments)
    else:
        problem = make()
    if not isinstance(problem, Problem):
        raise ValueError(  # noqa: TRY004
            f"{name!r} returned {type(problem).__name__}, which is no problem: see"
            " ata_gym.training.Problem",
        )
    return problem


def module_of(name: str) -> str:
    """The module that makes the problem of this name."""
    if name in _SHIPPED:
        return f"{__package__}.problems.{_SHIPPED[name]}"
    return name.removeprefix("torch:").partition(":")[0]


def _called(build: Callable[[], Any], name: str) -> Any:
    """Call a function of the user; its error becomes a ``ValueError`` with the problem's name."""
    try:
        return build()
    except (Exception, SystemExit) as error:
        raise ValueError(f"the problem {name!r} cannot be made: {described(error)}") from error
