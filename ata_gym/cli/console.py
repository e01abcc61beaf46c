"""What the commands write: tables to stdout, progress and errors to stderr.

Bad input gives one sentence and no traceback.
"""

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

WIDTH = 100
"""The number of columns of what is written to a file or a pipe."""

LIST_WIDTH = 80
"""The number of columns of lists and cards where stdout is no terminal.

An entry of a list takes one line.
"""

_words: ContextVar[list[str]] = ContextVar("words")
"""The words of the command that runs."""


def _without_types(params: list[Any]) -> list[Any]:
    """The parameters of a help page, in which no flag has a type."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class PlainGroup(TyperGroup):
    """The group of all commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options, as the help shows them."""
        return _without_types(super().get_params(ctx))


class PlainCommand(TyperCommand):
    """A command that ends with one sentence where it cannot go on, without a traceback.

    The exit code is 2 for an error of the input, 130 after Ctrl-C and 143 after SIGTERM.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        _words.set(["ata-gym", ctx.info_name, *_given(self, ctx)])
        try:
            for word in command_line():
                check_name(word)
            with raising():
                return super().invoke(ctx)
        except (ValueError, OSError, MemoryError) as error:
            if isinstance(error, MemoryError):
                sentence = f"there is not enough memory: {error}"
            else:
                sentence = str(error)
            say_error(sentence)
            raise typer.Exit(2) from error
        except KeyboardInterrupt as error:
            if isinstance(error, TerminatedError):
                reason = "stopped by SIGTERM"
                code = 143
            else:
                reason = "stopped"
                code = 130
            say_error(f"{reason}; the same command goes on from here")
            raise typer.Exit(code) from error


def _given(command: TyperCommand, ctx: Any) -> Iterator[str]:
    """The words after the command's name: an option by its first name, a value as it was read."""
    for parameter in command.params:
        source = ctx.get_parameter_source(parameter.name)
        if source is not None and source.name == "COMMANDLINE":
            value = ctx.params[str(parameter.name)]
            if parameter.param_type_name == "option":
                option = [*parameter.opts]
            else:
                option = []
            if isinstance(value, list | tuple):
                values = [*value]
            else:
                values = [value]
            for item in values:
                yield from option[:1]
                # a flag has no value
                if item is not True:
                    yield str(item)


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
    if isinstance(document, float) and not math.isfinite(document):
        return None
    return document


def list_width() -> int:
    """The number of columns of a list: at least 80, and those that the terminal has."""
    if sys.stdout.isatty():
        return max(LIST_WIDTH, Console().width)
    return LIST_WIDTH


def show(*tables: Table, width: int | None = None) -> None:
    """Write tables to stdout, as wide as the terminal where no width is given."""
    if width is None and not sys.stdout.isatty():
        width = WIDTH
    console = Console(width=width)
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
        if len(endings) == 1:
            say(f"  {stem}.{endings[0]}")
        else:
            say(f"  {stem}.{{{','.join(endings)}}}")
