"""The commands of ``ata-gym``, and what they share: options and the console."""

from collections.abc import Callable
from typing import Annotated

import typer

from ata_gym import __version__
from ata_gym.cli.console import PlainCommand, PlainGroup, say
from ata_gym.cli.guide import NEXT
from ata_gym.cli.listings import policies, scenarios
from ata_gym.cli.options import expanded
from ata_gym.cli.studies.bench import bench, demo, leaderboard, track
from ata_gym.cli.studies.learn import learn, pretrain
from ata_gym.cli.studies.report import report
from ata_gym.cli.studies.reproduce import reproduce
from ata_gym.cli.studies.train import train
from ata_gym.cli.studies.what_if import what_if
from ata_gym.cli.tools import check, cite, doctor
from ata_gym.cli.warmup import warmup
from ata_gym.cli.watch import watch

GROUPS: dict[str, tuple[Callable[..., None], ...]] = {
    "See what there is": (demo, watch, policies, scenarios),
    "Compare policies": (bench, report, leaderboard, track, reproduce),
    "Train": (train, learn, pretrain),
    "Your own policies and machines": (check, what_if, doctor, warmup, cite),
}
"""The commands, by what they are for."""

ABOUT = "Which of several unequal workers computes how many stochastic gradients?"
"""What ``ata-gym --help`` says of the program."""

GREETING = f"""\
ata-gym {__version__}: which of several unequal workers computes how many
stochastic gradients? Environments, policies, and what it takes to compare them.

  ata-gym demo
      the published policies and ours, and a small training, in minutes
  ata-gym watch five-workers
      rounds of four policies side by side: who works, who waits

Then, three ways to go on:

{NEXT}

All commands: ata-gym --help. One of them: ata-gym COMMAND --help.
TAB completes names after: ata-gym --install-completion"""
"""What ``ata-gym`` prints when it is called without a command."""

app = typer.Typer(
    cls=PlainGroup,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(requested: bool) -> None:
    if requested:
        say(f"ata-gym {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True, help=ABOUT)
def greet(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_tell_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Print the greeting where no command is given."""
    if context.invoked_subcommand is None:
        say(GREETING)


for _title, _commands in GROUPS.items():
    for _command in _commands:
        app.command(cls=PlainCommand, rich_help_panel=_title)(expanded(_command))
