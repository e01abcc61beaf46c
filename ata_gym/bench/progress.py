"""Progress on stderr: a bar for each task in a terminal and in a notebook, and a line now and then elsewhere."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from importlib import import_module
from time import monotonic
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

CELL_EVERY = 0.3  # seconds between two pictures of the progress in a notebook
LINE_EVERY = 30.0  # seconds between two lines of progress where stderr is no terminal


class Update(Protocol):
    """What shows how much of a task is done."""

    def __call__(self, task: str, done: int, more: str = "") -> None:
        """Show it, with some text behind it."""


@contextmanager
def progress_bars(totals: Mapping[str, int]) -> Iterator[Update]:
    """Show the progress of tasks, which are given with their totals; the function that is returned updates it.

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
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[more]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        bars = {task: progress.add_task(task, total=total, more="") for task, total in totals.items()}
        yield lambda task, done, more="": progress.update(bars[task], completed=done, more=more)


@contextmanager
def _in_a_notebook(totals: Mapping[str, int]) -> Iterator[Update]:
    shown: Any = import_module("IPython.display")
    bars = dict.fromkeys(totals, "")
    cell, last = shown.display(shown.HTML(""), display_id=True), monotonic() - CELL_EVERY

    def update(task: str, done: int, more: str = "") -> None:
        nonlocal last
        bar = f'<progress value="{done}" max="{totals[task]}"></progress>'
        bars[task] = f"{bar} {escape(task)}: {done:,} of {totals[task]:,} {escape(more)}"
        if monotonic() - last >= CELL_EVERY:
            last = monotonic()
            cell.update(shown.HTML("<br>".join(filter(None, bars.values()))))

    try:
        yield update
    finally:
        cell.update(shown.HTML(""))


def _in_lines(totals: Mapping[str, int]) -> Update:  # a line for all tasks together, every `LINE_EVERY` seconds at most
    finished, start = dict.fromkeys(totals, 0), monotonic()
    last = start

    def update(task: str, done: int, more: str = "") -> None:
        nonlocal last
        finished[task], now = done, monotonic()
        if now - last < LINE_EVERY:
            return
        last = now
        share = sum(finished.values()) / max(1, sum(totals.values()))
        begun = [f"{name} {k:,} of {totals[name]:,}" for name, k in finished.items() if 0 < k < totals[name]]
        details = ", ".join([*begun, *filter(None, [more])])
        print(f"ata-gym: {share:.0%} done after {(now - start) / 60:.1f} minutes ({details})", file=sys.stderr)

    return update
