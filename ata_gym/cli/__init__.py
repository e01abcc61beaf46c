"""The commands of ``ata-gym``, one file for each under its name; ``options`` and ``console`` serve all of them.

This is the top room: it imports from every other, and nothing imports from it but ``python -m ata_gym``.
"""

from __future__ import annotations

import typer

from ata_gym.cli.bench import bench
from ata_gym.cli.check import check
from ata_gym.cli.console import plain_errors
from ata_gym.cli.demo import demo
from ata_gym.cli.leaderboard import leaderboard
from ata_gym.cli.measure import measure
from ata_gym.cli.methods import methods
from ata_gym.cli.policies import policies
from ata_gym.cli.predictors import predictors
from ata_gym.cli.reproduce import reproduce
from ata_gym.cli.scenarios import scenarios
from ata_gym.cli.trace import trace
from ata_gym.cli.track import track
from ata_gym.cli.train import train

app = typer.Typer(
    help="Adaptive task allocation: which of several unequal workers computes how many stochastic gradients.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_listings = (policies, methods, scenarios)
_studies = (check, bench, track, predictors, leaderboard, reproduce)
for _command in (*_listings, *_studies, trace, measure, train, demo):
    app.command()(plain_errors(_command))
