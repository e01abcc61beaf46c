"""What the commands write: tables to stdout, progress and errors to stderr.

Bad input gives one sentence and no traceback.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from ata_gym.cli.guide import where_to_read
from ata_gym.utils.files.atomic import check_name
from ata_gym.utils.process.signals import TerminatedError, raising

if TYPE_CHECKING:
    from ata_gym.bench.report.table import Table
    from ata_gym.bench.runner.results import Results

WIDTH = 100
"""The number of columns of what is written to a file or a pipe."""

LIST_WIDTH = 80
"""The number of columns of lists and cards where stdout is no terminal.

An entry of a list takes one line.
"""

_command_line: ContextVar[list[str]] = ContextVar("command_line")
"""The name of the program and the arguments of the command that runs."""


def _without_types(params: list[Any]) -> list[Any]:
    """The parameters of a help page, in which no flag has a type."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class PlainGroup(TyperGroup):
    """The group of all commands, whose help fits on a screen of 24 lines.

    It has a line for each command, under the title of the command's group.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """The options, as the help shows them."""
        return _without_types(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the usage, what the program is about, and the commands."""
        # The script that --show-completion prints is what --install-completion installs.
        options = [option for option in self.get_params(ctx) if option.name != "show_completion"]
        usage = [ctx.command_path, *(f"[{' | '.join(option.opts)}]" for option in options)]
        lines = [f"Usage: {' '.join(usage)} COMMAND ...", str(self.help)]
        width = max(map(len, self.commands))
        title = None
        for name, command in self.commands.items():
            assert isinstance(command, PlainCommand)
            if command.rich_help_panel != title:
                title = command.rich_help_panel
                lines.append(typer.style(f"{title}:", bold=True))
            lines.append(f"  {name:{width}}  {command.first_line()}")
        formatter.write("\n".join(lines))


class PlainCommand(TyperCommand):
    """A command that ends with one sentence where it cannot go on, without a traceback.

    In brackets the sentence names the page of the command, but for errors of the system.
    The exit code is 2 for an error of the input, 130 after Ctrl-C and 143 after SIGTERM.
    """

    def first_line(self) -> str:
        """What the command does, in one line."""
        return str(self.help).partition("\n")[0]

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        _command_line.set(["ata-gym", ctx.info_name, *_arguments(self, ctx)])
        try:
            for argument in command_line():
                check_name(argument)
            with raising():
                return super().invoke(ctx)
        except (ValueError, OSError, MemoryError) as error:
            if isinstance(error, MemoryError):
                sentence = f"there is not enough memory: {error}"
            elif isinstance(error, OSError) and error.errno is not None:
                # what the system says of a disk, say, no page explains
                sentence = str(error)
            else:
                sentence = f"{error} (more: {where_to_read(str(ctx.info_name))})"
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


def _arguments(command: TyperCommand, ctx: Any) -> Iterator[str]:
    """The arguments of a command: an option by its first name, a value as it was read."""
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
    """The name of the program and the arguments of the command that runs."""
    return _command_line.get()


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


@contextmanager
def failures_at_the_end() -> Iterator[None]:
    """Hold warnings of failures back, since each is reported at the end with its traceback."""
    from ata_gym.bench import PolicyFailedWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolicyFailedWarning)
        yield


def show_results(results: Results) -> None:
    """Write results to stdout: the tables, what follows from them, and where their files are.

    Remarks and failures go to stderr.

    Raises:
        typer.Exit: With code 1 if something has failed.
    """
    if results.finished:
        show(*results.content.tables)
        if results.content.findings:
            say(results.content.findings)
        for kind, files in (("tables", results.files), ("pictures", results.pictures)):
            if files:
                say_files(kind, files)
    say_problems(results)


def say_problems(results: Results) -> None:
    """Write remarks and failures to stderr.

    Raises:
        typer.Exit: With code 1 if something has failed.
    """
    from ata_gym.bench.runner.jobs import KilledError
    from ata_gym.utils.errors import described

    for remark in results.remarks:
        say_error(remark)
    for name, failure in results.failures.items():
        if isinstance(failure.error, KilledError):
            sentence = str(failure.error)
        else:
            sentence = described(failure.error)
        if failure.traceback is not None:
            sentence += f" (see {failure.traceback})"
        say_error(f"{name} failed: {sentence}")
    if results.failures:
        raise typer.Exit(1)


def say_files(title: str, files: Sequence[Path]) -> None:
    """Write where files are; names that differ only in their ending share a line."""
    say(f"{title}:")
    for stem in dict.fromkeys(file.with_suffix("") for file in files):
        endings = [file.suffix[1:] for file in files if file.with_suffix("") == stem]
        if len(endings) == 1:
            say(f"  {stem}.{endings[0]}")
        else:
            say(f"  {stem}.{{{','.join(endings)}}}")
