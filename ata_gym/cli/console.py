"""What the commands write: tables to stdout, progress and errors to stderr, and no traceback for bad input."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from ata_gym.utils.atomic import check_name
from ata_gym.utils.signals import TerminatedError, raising

if TYPE_CHECKING:
    from ata_gym.bench.report.report import Report
    from ata_gym.bench.report.table import Table

WIDTH = 100  # columns of what is written to a file or a pipe
LIST_WIDTH = 80  # columns of lists, whose entries take one line each, and of cards, where stdout is no terminal

_words: ContextVar[list[str]] = ContextVar("words")  # of the command that runs


def _without_types(params: list[Any]) -> list[Any]:  # the parameters of a help page, in which no flag has a type
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class PlainGroup(TyperGroup):
    """All commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options, as the help shows them."""
        return _without_types(super().get_params(ctx))


class PlainCommand(TyperCommand):
    """A command of which an error of the input is one sentence and exit code 2, Ctrl-C one and 130, SIGTERM 143."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        _words.set(["ata-gym", ctx.info_name, *_given(self, ctx)])
        try:
            for word in command_line():
                check_name(word)
            with raising():
                return super().invoke(ctx)
        except (ValueError, OSError, MemoryError) as error:
            say_error(f"there is not enough memory: {error}" if isinstance(error, MemoryError) else str(error))
            raise typer.Exit(2) from error
        except KeyboardInterrupt as error:
            terminated = isinstance(error, TerminatedError)
            say_error(f"stopped{' by SIGTERM' * terminated}; the same command goes on from here")
            raise typer.Exit(143 if terminated else 130) from error


def _given(command: TyperCommand, ctx: Any) -> Iterator[str]:
    for one in command.params:
        source = ctx.get_parameter_source(one.name)
        if source is not None and source.name == "COMMANDLINE":
            value, option = ctx.params[str(one.name)], [*one.opts] if one.param_type_name == "option" else []
            for each in value if isinstance(value, list | tuple) else [value]:
                yield from option[:1]
                if each is not True:
                    yield str(each)


def say_error(sentence: str) -> None:
    """Write one line to stderr."""
    typer.echo(f"ata-gym: {' '.join(sentence.split())}", err=True)


def command_line() -> list[str]:
    """The words of the command that runs."""
    return _words.get()


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


def show(*tables: Table, width: int | None = None) -> None:
    """Write tables to stdout, as wide as the terminal where no width is given."""
    console = Console(width=width or (None if sys.stdout.isatty() else WIDTH))
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
