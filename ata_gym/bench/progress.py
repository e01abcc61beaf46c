"""Progress on stderr: a bar for each task in a terminal and in a notebook, and a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_EVERY = 30.0
"""Seconds between two lines of progress where stderr is no terminal."""


class Update(Protocol):
    """Called with a task, how much of it is done, and text that is shown behind it."""

    def __call__(self, task: str, done: int, more: str = "") -> None:
        """Show the progress."""


@contextmanager
def progress_bars(totals: Mapping[str, int]) -> Iterator[Update]:
    """Show the progress of tasks, which are given with their totals; the function that is returned updates it.

    >>> with progress_bars({"uta": 100}) as update:
    ...     update("uta", 50, "loss 0.3")
    """
    console = Console(stderr=True)
    shown = sys.stderr.isatty() or console.is_jupyter
    lines = _Lines(totals)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[more]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not shown) as progress:
        bars = {task: progress.add_task(task, total=total, more="") for task, total in totals.items()}

        def update(task: str, done: int, more: str = "") -> None:
            progress.update(bars[task], completed=done, more=more)
            if not shown:
                lines.update(task, done, more)

        yield update


class _Lines:
    """A line for all tasks together, every ``LINE_EVERY`` seconds at most."""

    def __init__(self, totals: Mapping[str, int]) -> None:
        self.totals, self.done = totals, dict.fromkeys(totals, 0)
        self.start = self.last = monotonic()

    def update(self, task: str, done: int, more: str) -> None:
        self.done[task] = done
        now = monotonic()
        if now - self.last < LINE_EVERY:
            return
        self.last = now
        share = sum(self.done.values()) / max(1, sum(self.totals.values()))
        begun = [f"{name} {k:,} of {self.totals[name]:,}" for name, k in self.done.items() if 0 < k < self.totals[name]]
        told = ", ".join([*begun, *filter(None, [more])])
        print(f"ata-gym: {share:.0%} done after {(now - self.start) / 60:.1f} minutes ({told})", file=sys.stderr)
