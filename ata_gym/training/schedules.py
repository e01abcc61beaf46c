"""Learning-rate schedules by name, or made by any factory of torch's form."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

ScheduleFactory = Callable[[Optimizer], LRScheduler]
"""Takes the optimiser: ``lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1000)``."""

_SHAPES: dict[str, Callable[[float], float]] = {
    "cosine": lambda share: (1 + math.cos(math.pi * share)) / 2,
    "linear": lambda share: 1 - share,
    "warmup": lambda share: share,
}
"""The factor on the learning rate, by the share of the rounds that are done."""


def find_schedule(schedule: str | ScheduleFactory | None) -> ScheduleFactory | None:
    """Choose a schedule; None and ``"constant"`` are none.

    Parameters
    ----------
    schedule
        ``"cosine:ROUNDS"`` and ``"linear:ROUNDS"`` go down to 0, ``"warmup:ROUNDS"`` goes up from ``1 / ROUNDS`` of the
        learning rate, each over that many rounds, and stays there; or a factory.

    Raises
    ------
    ValueError
        If there is no schedule of that name, or the number of rounds is missing.

    Examples
    --------
    >>> from torch import nn, optim
    >>> optimizer = optim.SGD(nn.Linear(1, 1).parameters(), lr=8.0)
    >>> schedule, rates = find_schedule("linear:4")(optimizer), []
    >>> for _ in range(5):
    ...     rates.append(optimizer.param_groups[0]["lr"])
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [8.0, 6.0, 4.0, 2.0, 0.0]
    """
    if schedule is None or schedule == "constant":
        return None
    if not isinstance(schedule, str):
        return schedule
    name, _, text = schedule.partition(":")
    if name not in _SHAPES or not text.isdecimal() or int(text) == 0:
        raise ValueError(
            'schedule must be "constant", "cosine:ROUNDS", "linear:ROUNDS" or "warmup:ROUNDS", or a function such as '
            f"lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1000), not {schedule!r}"
        )
    shape, rounds, first = _SHAPES[name], int(text), name == "warmup"  # round 1 of a warm-up is to move already

    def factor(done: int) -> float:
        return shape(min(done + first, rounds) / rounds)

    return lambda optimizer: LambdaLR(optimizer, factor)
