"""The commands of ``ata-gym``."""

from __future__ import annotations

import typer

from ata_gym.cli.benching import bench
from ata_gym.cli.checking import check
from ata_gym.cli.console import plain_errors
from ata_gym.cli.leading import leaderboard
from ata_gym.cli.listing import methods, policies, scenarios
from ata_gym.cli.measuring import measure
from ata_gym.cli.predicting import predictors
from ata_gym.cli.reproducing import reproduce
from ata_gym.cli.showing import demo
from ata_gym.cli.tracing import trace
from ata_gym.cli.tracking import track
from ata_gym.cli.training import train

app = typer.Typer(
    help="Who computes what: adaptive task allocation on unequal workers.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    policies,
    methods,
    scenarios,
    check,
    bench,
    track,
    predictors,
    leaderboard,
    reproduce,
    trace,
    measure,
    train,
    demo,
):
    app.command()(plain_errors(_command))
