"""Progress on stderr, or in the cell of a notebook.

There is a bar for each task in a terminal and in a notebook, and a line now and then elsewhere.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from importlib import import_module
from time import monotonic
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

CELL_EVERY = 0.3
"""Seconds between two pictures of the progress in a notebook."""

LINE_EVERY = 30.0
"""Seconds between two lines of progress where stderr is no terminal."""


class Update(Protocol):
    """A function that shows how much of a task is done."""

    def __call__(self, task: str, done: int, more: str = "") -> None:
        """Show that ``done`` of the task's total is done, with the text ``more`` behind it."""


@contextmanager
def progress_bars(totals: Mapping[str, int]) -> Iterator[Update]:
    """Show the progress of tasks inside the block, and give the function that updates it.

    Args:
        totals: The names of the tasks, and the total of each.

    Example:
        >>> with progress_bars({"uta": 100}) as update:
        ...     update("uta", 50, "loss 0.3")
    """
    console = Console(stderr=True)
    if console.is_jupyter:
        with _in_a_notebook(totals) as update_cell:
            yield update_cell
        return
    if not sys.stderr.isatty():
        yield _in_lines(totals)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[more]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bars = {
            task: progress.add_task(task, total=total, more="") for task, total in totals.items()
        }
        yield lambda task, done, more="": progress.update(bars[task], completed=done, more=more)


@contextmanager
def _in_a_notebook(totals: Mapping[str, int]) -> Iterator[Update]:
    display: Any = import_module("IPython.display")
    bars = dict.fromkeys(totals, "")
    cell = display.display(display.HTML(""), display_id=True)
    last_shown = monotonic() - CELL_EVERY

    def update(task: str, done: int, more: str = "") -> None:
        nonlocal last_shown
        bar = f'<progress value="{done}" max="{totals[task]}"></progress>'
        bars[task] = f"{bar} {escape(task)}: {done:,} of {totals[task]:,} {escape(more)}"
        if monotonic() - last_shown >= CELL_EVERY:
            last_shown = monotonic()
            cell.update(display.HTML("<br>".join(filter(None, bars.values()))))

    try:
        yield update
    finally:
        cell.update(display.HTML(""))


def _in_lines(totals: Mapping[str, int]) -> Update:
    """Lines for all tasks together, one every ``LINE_EVERY`` seconds at most."""
    finished = dict.fromkeys(totals, 0)
    start = monotonic()
    last_line = start

    def update(task: str, done: int, more: str = "") -> None:
        nonlocal last_line
        finished[task] = done
        now = monotonic()
        if now - last_line < LINE_EVERY:
            return
        last_line = now
        share = sum(finished.values()) / max(1, sum(totals.values()))
        task_texts = [
            f"{name} {k:,} of {totals[name]:,}"
            for name, k in finished.items()
            if 0 < k < totals[name]
        ]
        details = ", ".join([*task_texts, *filter(None, [more])])
        print(
            f"ata-gym: {share:.0%} done after {(now - start) / 60:.1f} minutes ({details})",
            file=sys.stderr,
        )

    return update
