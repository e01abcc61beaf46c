"""How much of a published figure is reproduced, and where it goes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ata_gym.bench.experiment.claim import claim
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import USUAL, Effort
from ata_gym.training.studies.kept_trajectory import Trained, Training, keep_trajectory
from ata_gym.training.trainer.trainer import Trainer


class Plan(NamedTuple):
    """The rounds and seeds of a figure, and its results folder."""

    rounds: int
    seeds: int
    out: Path
    effort: Effort = USUAL

    def on(self, scenario: str) -> Experiment:
        """The experiment on a named scenario."""
        return Experiment.on_scenario(scenario, rounds=self.rounds, seeds=self.seeds)

    def train(self, trainer: Trainer, problem: str, data: Path | None = None) -> Trained:
        """The trajectory of a trainer, kept in a folder of its own beside the records of the policies."""
        claimed = claim(self.out)
        training = Training(problem, data, effort=self.effort)
        trained = keep_trajectory(training, trainer, {"rounds": self.rounds}, self.out / "training")
        del claimed
        return trained
