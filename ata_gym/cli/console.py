"""How the commands speak: tables on stdout, progress and errors on stderr, and no traceback for bad input."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

P = ParamSpec("P")
R = TypeVar("R")

_WIDTH = 100
"""Columns of what is written to a file or a pipe."""


def plain_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn an error of the input into one sentence and exit code 2, and Ctrl-C into one and exit code 130."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (ValueError, OSError) as error:
            say_error(str(error))
            raise typer.Exit(2) from error
        except KeyboardInterrupt as error:
            say_error("stopped; the same command goes on from here")
            raise typer.Exit(130) from error

    return wrapped


def say_error(sentence: str) -> None:
    """Write one line to stderr."""
    typer.echo(f"ata-gym: {' '.join(sentence.split())}", err=True)


def say(sentence: str = "") -> None:
    """Write a line to stdout, as it is."""
    typer.echo(sentence)


def show(*things: RenderableType) -> None:
    """Write tables to stdout."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    for thing in things:
        console.print(thing)


def say_files(what: str, files: Sequence[Path]) -> None:
    """Say where files are; names that differ only in their ending share a line."""
    say(f"{what}:")
    stems = dict.fromkeys(file.with_suffix("") for file in files)
    for stem in stems:
        endings = [file.suffix[1:] for file in files if file.with_suffix("") == stem]
        say(f"  {stem}.{endings[0]}" if len(endings) == 1 else f"  {stem}.{{{','.join(endings)}}}")


@contextmanager
def progress_bars(totals: Mapping[str, int]) -> Iterator[Callable[[str, int], None]]:
    """A progress bar for each task and its total, updated by ``(task, done)``; nothing where stderr is no terminal."""
    with _progress() as progress:
        bars = {task: progress.add_task(task, total=total) for task, total in totals.items()}
        yield lambda task, done: progress.update(bars[task], completed=done)


@contextmanager
def loss_bar(task: str, total: int) -> Iterator[Callable[[int, float], None]]:
    """A progress bar with the loss, updated by ``(done, loss)``; nothing where stderr is no terminal."""
    with _progress(TextColumn("loss {task.fields[loss]:.4g}")) as progress:
        bar = progress.add_task(task, total=total, loss=float("nan"))
        yield lambda done, loss: progress.update(bar, completed=done, loss=loss)


def _progress(*more: ProgressColumn) -> Progress:
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *more, TimeRemainingColumn())
    return Progress(*bar, console=Console(stderr=True), disable=not sys.stderr.isatty())
