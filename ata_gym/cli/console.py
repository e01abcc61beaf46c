"""What the commands write: tables to stdout, progress and errors to stderr, and no traceback for bad input."""

from __future__ import annotations

import functools
import inspect
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_type_hints

import typer
from rich.console import Console
from typer.models import ArgumentInfo

from ata_gym.utils.signals import TerminatedError, raising

if TYPE_CHECKING:
    from ata_gym.bench.report.report import Report
    from ata_gym.bench.report.table import Table

P = ParamSpec("P")
R = TypeVar("R")

_WIDTH = 100  # columns of what is written to a file or a pipe

LIST_WIDTH = 80  # columns of lists, whose entries take one line each, and of cards, where stdout is no terminal

_words: ContextVar[tuple[str, ...]] = ContextVar("words", default=("ata-gym",))  # the words of the command that runs


def plain_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn an error of the input into one sentence and exit code 2, Ctrl-C into one and 130, SIGTERM into 143."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        _words.set(tuple(words_of(command, kwargs)))
        try:
            with raising():
                return command(*args, **kwargs)
        except (ValueError, OSError, MemoryError) as error:
            say_error(f"there is not enough memory: {error}" if isinstance(error, MemoryError) else str(error))
            raise typer.Exit(2) from error
        except KeyboardInterrupt as error:
            terminated = isinstance(error, TerminatedError)
            say_error(f"stopped{' by SIGTERM' * terminated}; the same command goes on from here")
            raise typer.Exit(143 if terminated else 130) from error

    return wrapped


def say_error(sentence: str) -> None:
    """Write one line to stderr."""
    typer.echo(f"ata-gym: {' '.join(sentence.split())}", err=True)


def command_line() -> list[str]:
    """The words of the command that runs, with the options that differ from their defaults."""
    return list(_words.get())


def words_of(command: Callable[..., object], given: Mapping[str, object]) -> list[str]:
    """The words of a command with these values of its parameters.

    >>> from ata_gym.cli.studies.leaderboard import SetName, leaderboard
    >>> words_of(leaderboard, {"set_": SetName.drawn, "quick": True, "seeds": 6, "policies": None})
    ['ata-gym', 'leaderboard', '--set', 'drawn', '--quick', '--seeds', '6']
    """
    words, hints = ["ata-gym", command.__name__], get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        value = given.get(name, parameter.default)
        if value is None or value == parameter.default:
            continue
        how: object = next(iter(getattr(hints[name], "__metadata__", ())), None)
        declared = [getattr(how, "default", None), *(getattr(how, "param_decls", None) or ()), f"--{name}"]
        named = next(one for one in declared if isinstance(one, str) and one.startswith("-")).replace("_", "-")
        option = [] if isinstance(how, ArgumentInfo) else [named]
        if isinstance(value, bool):
            words += option
        else:
            for one in value if isinstance(value, list | tuple) else [value]:
                words += [*option, str(one.value if isinstance(one, Enum) else one)]
    return words


def say(sentence: str = "") -> None:
    """Write a line to stdout, as it is."""
    typer.echo(sentence)


def say_json(document: Any) -> None:
    """Write one JSON document to stdout; what is no finite number becomes null."""
    typer.echo(json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False))


def _finite(document: Any) -> Any:
    if isinstance(document, Mapping):
        return {key: _finite(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [_finite(value) for value in document]
    return None if isinstance(document, float) and not math.isfinite(document) else document


def list_width() -> int:
    """The columns that a line of a list may have: those of the terminal, and at least 80."""
    return max(LIST_WIDTH, Console().width) if sys.stdout.isatty() else LIST_WIDTH


def narrow() -> Console:
    """A console for text to be read: as wide as the terminal, and at most 100 columns."""
    return Console(width=min(Console().width, _WIDTH) if sys.stdout.isatty() else LIST_WIDTH, highlight=False)


def show(*tables: Table, width: int | None = None) -> None:
    """Write tables to stdout, as wide as the terminal where no width is given."""
    console = Console(width=width or (None if sys.stdout.isatty() else _WIDTH))
    for table in tables:
        console.print(table)


def show_report(report: Report) -> None:
    """Write a report to stdout: its tables, and where its files are."""
    if report.heading:
        say(report.heading)
    show(*report.tables)
    if report.remark:
        say(report.remark)
    for what, files in (("tables", report.files), ("pictures", report.pictures)):
        if files:
            say_files(what, files)


def say_files(what: str, files: Sequence[Path]) -> None:
    """Write where files are; names that differ only in their ending share a line."""
    say(f"{what}:")
    for stem in dict.fromkeys(file.with_suffix("") for file in files):
        endings = [file.suffix[1:] for file in files if file.with_suffix("") == stem]
        say(f"  {stem}.{endings[0]}" if len(endings) == 1 else f"  {stem}.{{{','.join(endings)}}}")
