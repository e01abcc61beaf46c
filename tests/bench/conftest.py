"""Policies played to the end, into folders of their own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.runner.jobs import Effort
from ata_gym.bench.runner.policy_run import PolicyRun
from ata_gym.bench.store.folder import Folder, open_folder
from tests.bench.by_hand import play_all
from tests.bench.sketches import sketches  # noqa: F401


@pytest.fixture
def played(tmp_path: Path) -> Callable[..., Folder]:
    def play(
        experiment: Experiment,
        *policies: str,
        name: str = "out",
        run_of: type[PolicyRun] = PolicyRun,
    ) -> Folder:
        folder = open_folder(tmp_path / name, experiment.config())
        assert play_all(experiment, policies, folder, run_of, effort=Effort(jobs=1)) == {}
        return folder

    return play
