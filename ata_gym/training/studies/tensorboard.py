"""Logs of training for TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ata_gym.utils.extras import require

_POINTS = 1000
"""Losses that are logged, at most."""


@contextmanager
def tensorboard_log(folder: Path, rounds: int) -> Iterator[Callable[[Mapping[str, float]], None]]:
    """Give a function that logs a run of so many rounds into a folder; an earlier log there is deleted.

    The function is called with each ``round`` and its figures by name. ``tensorboard --logdir FOLDER`` shows them.

    Raises
    ------
    MissingExtraError
        An ``ImportError``, if tensorboard is not installed.
    """
    require("tensorboard", extra="train", purpose="TensorBoard's log")
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - it fails where tensorboard is missing

    for old in folder.glob("events.out.tfevents.*"):
        old.unlink()
    every = max(1, rounds // _POINTS)

    def log(figures: Mapping[str, float]) -> None:
        k = int(figures["round"])
        for name, figure in figures.items():
            if name != "round" and (k % every == 0 or len(figures) > 2):  # more than the loss: it was evaluated
                writer.add_scalar(name, figure, k)

    with SummaryWriter(str(folder)) as writer:
        yield log
