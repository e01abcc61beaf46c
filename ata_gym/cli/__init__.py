"""The commands of ``ata-gym``, each in a file of its name; ``options`` and ``console`` serve all of them.

This is the top room: it imports from every other, and nothing imports from it but ``python -m ata_gym``.
"""

from __future__ import annotations

import typer

from ata_gym.cli.console import plain_errors
from ata_gym.cli.listings.methods import methods
from ata_gym.cli.listings.policies import policies
from ata_gym.cli.listings.scenarios import scenarios
from ata_gym.cli.studies.bench import bench
from ata_gym.cli.studies.demo import demo
from ata_gym.cli.studies.emulate import emulate
from ata_gym.cli.studies.leaderboard import leaderboard
from ata_gym.cli.studies.predictors import predictors
from ata_gym.cli.studies.reproduce import reproduce
from ata_gym.cli.studies.track import track
from ata_gym.cli.studies.watch import watch
from ata_gym.cli.tools.check import check
from ata_gym.cli.tools.doctor import doctor
from ata_gym.cli.tools.explain import explain
from ata_gym.cli.tools.measure import measure
from ata_gym.cli.tools.trace import trace
from ata_gym.cli.tools.verify import verify
from ata_gym.cli.training.learn import learn
from ata_gym.cli.training.pretrain import pretrain
from ata_gym.cli.training.train import train

app = typer.Typer(
    help="Adaptive task allocation: which of several unequal workers computes how many stochastic gradients.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_listings = (policies, methods, scenarios)
_studies = (watch, bench, track, predictors, leaderboard, reproduce, train, learn, pretrain, emulate, demo)
for _command in (*_listings, *_studies, explain, check, trace, measure, verify, doctor):
    app.command()(plain_errors(_command))
